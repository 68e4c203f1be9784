/* SPDX-License-Identifier: GPL-2.0 */
/*
 * End.DT4, End.DT6 and End.DT46 (RFC 8986, 4.6 to 4.8): takes the outer headers off, ECN by RFC 6040, and forwards what was inside by a
 * table of the kernel's.
 *
 * The table is asked before anything changes: what it does not forward at once, the kernel gets as it came, as it would look for a
 * packet without its outer headers in another table.
 */
#include "../forwarding/fib.h"
#include "../srv6/unwrap.h"

static __noinline int hike_dec(struct xdp_md *xdp, struct hike_packet *packet)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	const struct hike_behaviour *behaviour = hike_behaviour_of(packet);
	struct ipv6hdr *ip6 = hike_ip(xdp, packet);
	const void *end = hike_data_end(xdp);
	struct hike_headers headers = {};
	struct hike_inner inner = {};
	__u32 flags = 0, takes;
	struct hike_hop hop;
	int reason;

	reason = hike_begin_sid(xdp, packet, ip6, end, behaviour, &headers);
	if (reason != HIKE_NEXT)
		return reason;
	if (headers.segments_left)
		return HIKE_SID_SEGMENTS_LEFT;
	takes = headers.protocol == IPPROTO_IPV6 ? HIKE_BEHAVIOUR_DEC6 : HIKE_BEHAVIOUR_DEC4;
	if (!hike_carries_ip(&headers) || !(behaviour->flags & takes))
		return HIKE_SID_UPPER_LAYER;
	reason = hike_read_inner(xdp, packet, ip6, end, &headers, &inner);
	if (reason != HIKE_NEXT)
		return reason;
	reason = hike_ask_inside(&fib, ip6, end, &inner);
	if (reason == HIKE_NEXT)
		reason = hike_ask_transport_inside(&fib, ip6, end, &inner);
	if (reason != HIKE_NEXT)
		return reason;
	if (behaviour->table) {
		fib.tbid = behaviour->table;
		flags = BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID;
	}
	reason = hike_look_up(xdp, packet, &fib, flags, false, NULL, &hop);
	if (reason != HIKE_NEXT)
		return reason;
	if (!hike_choose_port(xdp, &hop))
		return hike_no_port(xdp, hop.port);
	reason = hike_strip(xdp, packet, &inner);
	if (reason == HIKE_NEXT)
		reason = hike_send(xdp, packet, &hop);
	if (reason == HIKE_FORWARDED)
		hike_count_sid(behaviour, &headers);
	return reason;
}
