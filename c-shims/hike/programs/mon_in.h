/* SPDX-License-Identifier: GPL-2.0 */
/* Colours the packet and counts it, where a flow enters what is monitored. */
#include "../monitor.h"

static __always_inline int hike_mon_in(struct xdp_md *xdp, struct hike_packet *packet)
{
	if (packet->version == 6)
		hike_monitor(xdp, packet->ip_at, HIKE_IN);
	return HIKE_NEXT;
}
