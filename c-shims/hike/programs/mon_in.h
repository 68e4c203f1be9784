/* SPDX-License-Identifier: GPL-2.0 */
/* Colours the packet and counts it, where a flow enters what is monitored. */
#include "../monitor.h"

static __always_inline int hike_mon_in(struct hike_context *context, struct hike_packet *packet)
{
	if (packet->version == 6)
		hike_monitor(context, packet->ip_at, hike_segments(packet), HIKE_IN,
			     packet->is_on_path ? packet->class.path : HIKE_PATHS);
	return HIKE_NEXT;
}
