/* SPDX-License-Identifier: GPL-2.0 */
/* Counts a packet of IPv6 by its colour, where its flow leaves what is monitored. */
#include "../monitor.h"

static __always_inline int hike_mon_out(struct hike_context *context, struct hike_packet *packet)
{
	if (packet->version == 6)
		hike_monitor(context, packet->ip_at, hike_segments(packet), HIKE_OUT, HIKE_PATHS);
	return HIKE_NEXT;
}
