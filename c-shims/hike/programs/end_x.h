/* SPDX-License-Identifier: GPL-2.0 */
/*
 * End.X (RFC 8986, 4.2): goes on to the packet's next segment, and sends the packet to the behaviour's next hop; flavours as for End.
 *
 * The kernel's routes and neighbours are asked for the next hop before anything changes. If they do not know the way at once, the kernel
 * gets the packet as it came. The kernel would send a changed packet towards the next segment instead of to the next hop.
 */
#include "../forwarding/fib.h"
#include "../srv6/unwrap.h"

/* Changes the packet, and sends it to the next hop. */
static __always_inline int hike_end_x_send(struct xdp_md *xdp, struct hike_packet *packet,
					   struct hike_headers *headers,
					   const struct hike_inner *inner,
					   const struct hike_hop *hop, bool pops)
{
	struct ipv6hdr *ip6 = hike_ip(xdp, packet);
	const void *end = hike_data_end(xdp);
	int reason = HIKE_NEXT;

	if (inner->bytes) {
		reason = hike_strip(xdp, packet, inner);
	} else {
		if ((void *)(ip6 + 1) > end || !hike_next_segment(ip6, end, headers))
			return HIKE_MALFORMED;
		if (pops)
			reason = hike_pop_srh(xdp, packet->ip_at, headers);
	}
	return reason == HIKE_NEXT ? hike_send(xdp, packet, hop) : reason;
}

static __noinline int hike_end_x(struct xdp_md *xdp, struct hike_packet *packet)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	const struct hike_behaviour *behaviour = hike_behaviour_of(packet);
	const struct hike_routing *routing = hike_this_routing();
	struct ipv6hdr *ip6 = hike_ip(xdp, packet);
	const void *end = hike_data_end(xdp);
	struct hike_headers headers = {};
	struct hike_inner inner = {};
	struct hike_hop hop;
	bool pops = false;
	__u32 flags = 0;
	int reason;

	reason = hike_begin_sid(xdp, packet, ip6, end, behaviour, &headers);
	if (reason != HIKE_NEXT)
		return reason;
	if (headers.segments_left) {
		__u32 bytes = hike_bytes6(ip6);

		pops = headers.segments_left == 1 && behaviour->flags & HIKE_BEHAVIOUR_PSP;
		reason = hike_ask6(&fib, ip6, bytes);
		if (pops)
			fib.tot_len = bytes - headers.srh_bytes;
	} else if (behaviour->flags & HIKE_BEHAVIOUR_USD && hike_carries_ip(&headers)) {
		reason = hike_read_inner(xdp, packet, ip6, end, &headers, &inner);
		if (reason == HIKE_NEXT)
			reason = hike_ask_inside(&fib, ip6, end, &inner);
	} else {
		return HIKE_SID_UPPER_LAYER;
	}
	if (reason != HIKE_NEXT)
		return reason;
	/* The kernel would choose by the packet's own destination, which the look-up does not get. A table of hops has one way to each. */
	if (!behaviour->table && routing && routing->of_version[1].flags & HIKE_ROUTING_MULTIPATH)
		return HIKE_FW_MULTIPATH;
	/* The route is the one to the next hop. For an inner packet the look-up has neither a source nor a flow label. */
	fib.family = HIKE_AF_INET6;
	if (inner.bytes) {
		fib.flowinfo = 0;
		__builtin_memset(fib.ipv6_src, 0, sizeof(fib.ipv6_src));
	}
	__builtin_memcpy(fib.ipv6_dst, behaviour->next_hop, sizeof(fib.ipv6_dst));
	/* Another address stands for a link-local next hop there. */
	if (behaviour->table) {
		fib.tbid = behaviour->table;
		flags = BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID;
	}
	reason = hike_look_up(xdp, packet, &fib, flags, false, NULL, &hop);
	if (reason != HIKE_NEXT)
		return reason;
	if (!hike_choose_port(xdp, &hop))
		return hike_no_port(xdp, hop.port);
	reason = hike_end_x_send(xdp, packet, &headers, &inner, &hop, pops);
	if (reason == HIKE_FORWARDED)
		hike_count_sid(behaviour, &headers);
	return reason;
}
