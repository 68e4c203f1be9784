/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the packet by the colour it has, where a flow leaves what is monitored. */
#include "../monitor.h"

static __always_inline int hike_mon_out(struct xdp_md *xdp, struct hike_packet *packet)
{
	if (packet->version == 6)
		hike_monitor(xdp, packet->ip_at, HIKE_OUT);
	return HIKE_NEXT;
}
