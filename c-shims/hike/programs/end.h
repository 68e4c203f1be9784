/* SPDX-License-Identifier: GPL-2.0 */
/*
 * End (RFC 8986, 4.1): goes on to the packet's next segment; flavours PSP, USP and USD (4.16).
 *
 * The program behind it forwards. Where the kernel gets the packet instead, it forwards, as after its own End. What End does not go on
 * with, the kernel gets as it is, or with USP without the SRH; if it has the same SID, it answers or drops.
 */
#include "../srv6/unwrap.h"

static __noinline int hike_end(struct xdp_md *xdp, struct hike_packet *packet)
{
	const struct hike_behaviour *behaviour = hike_behaviour_of(packet);
	struct ipv6hdr *ip6 = hike_ip(xdp, packet);
	const void *end = hike_data_end(xdp);
	struct hike_headers headers = {};
	struct hike_inner inner = {};
	int reason;

	reason = hike_begin_sid(xdp, packet, ip6, end, behaviour, &headers);
	if (reason != HIKE_NEXT)
		return reason;
	packet->is_on_path = 0;
	if (headers.segments_left) {
		if (!hike_next_segment(ip6, end, &headers))
			return HIKE_MALFORMED;
		/* If its hop limit has run out, it goes no further: RFC 8986, 4.1, S05. */
		if (ip6->hop_limit > 1)
			hike_count_sid(behaviour, &headers);
		if (headers.segments_left || !(behaviour->flags & HIKE_BEHAVIOUR_PSP))
			return HIKE_NEXT;
		return hike_pop_srh(xdp, packet->ip_at, &headers);
	}
	if (behaviour->flags & HIKE_BEHAVIOUR_USD && hike_carries_ip(&headers)) {
		reason = hike_read_inner(xdp, packet, ip6, end, &headers, &inner);
		if (reason == HIKE_NEXT)
			reason = hike_decapsulate(xdp, packet, &inner);
		if (reason == HIKE_NEXT)
			hike_count_sid(behaviour, &headers);
		return reason;
	}
	if (behaviour->flags & HIKE_BEHAVIOUR_USP && headers.srh_bytes) {
		reason = hike_pop_srh(xdp, packet->ip_at, &headers);
		if (reason != HIKE_NEXT)
			return reason;
	}
	return HIKE_SID_UPPER_LAYER;
}
