/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's routes and neighbours. What they do not forward at once, the kernel gets; and what it might forward otherwise than
 * bpf_fib_lookup() says (net/core/filter.c), which has no packet to look at.
 */
#ifndef HIKE_FIB_H
#define HIKE_FIB_H

#include "forward.h"
#include "source.h"
#include "transport.h"
#include "../cache/next_hop.h"
#include "../srv6/headers.h"

/* Says what is looked for: a packet of this length; returns HIKE_NEXT, or why the kernel must see it. */
static __always_inline int hike_ask6(struct bpf_fib_lookup *fib, const struct ipv6hdr *ip6, __u32 bytes)
{
	int reason = hike_forwardable6(ip6, bytes);

	if (reason != HIKE_NEXT)
		return reason;
	fib->family = HIKE_AF_INET6;
	fib->l4_protocol = ip6->nexthdr;
	fib->flowinfo = *(__be32 *)ip6 & bpf_htonl(0x0fffffff);
	fib->tot_len = bytes;
	hike_copy_address(fib->ipv6_src, &ip6->saddr);
	hike_copy_address(fib->ipv6_dst, &ip6->daddr);
	return HIKE_NEXT;
}

static __always_inline int hike_ask4(struct bpf_fib_lookup *fib, const struct iphdr *ip4, __u32 bytes)
{
	int reason = hike_forwardable4(ip4, bytes);

	if (reason != HIKE_NEXT)
		return reason;
	fib->family = HIKE_AF_INET;
	fib->l4_protocol = ip4->protocol;
	fib->tos = ip4->tos;
	fib->tot_len = bytes;
	fib->ipv4_src = ip4->saddr;
	fib->ipv4_dst = ip4->daddr;
	return HIKE_NEXT;
}

/* The same of a packet that is in another one. */
static __always_inline int hike_ask_inside(struct bpf_fib_lookup *fib, const struct ipv6hdr *outer,
					   const void *end, const struct hike_inner *inner)
{
	const void *ip = (void *)outer + inner->at;
	const struct ipv6hdr *ip6 = ip;
	const struct iphdr *ip4 = ip;

	if (inner->version == 6)
		return (void *)(ip6 + 1) > end ? HIKE_MALFORMED : hike_ask6(fib, ip6, inner->bytes);
	return (void *)(ip4 + 1) > end ? HIKE_MALFORMED : hike_ask4(fib, ip4, inner->bytes);
}

/* Says its protocol and ports, too. */
static __always_inline int hike_ask_transport_inside(struct bpf_fib_lookup *fib, const struct ipv6hdr *outer,
						     const void *end, const struct hike_inner *inner)
{
	const void *ip = (void *)outer + inner->at;
	const struct ipv6hdr *ip6 = ip;
	const struct iphdr *ip4 = ip;

	if (inner->version == 6)
		return (void *)(ip6 + 1) > end ? HIKE_MALFORMED :
						 hike_ask_transport6(fib, ip6, end, inner->bytes);
	return (void *)(ip4 + 1) > end ? HIKE_MALFORMED :
					 hike_ask_transport4(fib, ip4, end, inner->bytes);
}

/* Returns HIKE_NEXT if a packet of the family need not be left to the kernel, or why it must be. */
static __always_inline int hike_foresees(const struct hike_family *family, const struct bpf_fib_lookup *fib)
{
	__u32 flags = family->flags;

	if (flags & HIKE_ROUTING_LEFT) {
		if (flags & HIKE_ROUTING_IPSEC)
			return HIKE_FW_IPSEC;
		if (flags & HIKE_ROUTING_DISABLED)
			return HIKE_FW_DISABLED;
		if (flags & HIKE_ROUTING_SUPPRESSED)
			return HIKE_FW_SUPPRESSED;
		return flags & HIKE_ROUTING_UNFORESEEN ? HIKE_FW_MULTIPATH : HIKE_FW_VRF;
	}
	if (flags & HIKE_ROUTING_ICMP &&
	    (fib->l4_protocol == IPPROTO_ICMP || fib->l4_protocol == IPPROTO_ICMPV6))
		return HIKE_FW_ICMP;
	return fib->tot_len > family->most_bytes ? HIKE_FW_TOO_BIG : HIKE_NEXT;
}

/* Returns what becomes of a packet for which the look-up has no next hop. */
static __always_inline int hike_not_found(struct hike_context *context, struct bpf_fib_lookup *fib, long answer)
{
	switch (answer) {
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return hike_resolve(context, fib);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return HIKE_FW_TOO_BIG;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return HIKE_FW_REFUSED;
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return HIKE_FW_TUNNEL;
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return HIKE_FW_DISABLED;
	default:
		return HIKE_FW_NO_ROUTE;
	}
}

/*
 * Returns HIKE_NEXT and the next hop, or what becomes of the packet without. @fib is what is asked, and of no more use then. @turns: the
 * kernel sends redirects for such packets. @stale, if it is not NULL, gets the next hop if its address may be old, or NULL; and the next
 * hop the largest packet.
 */
static __always_inline int hike_look_up(struct hike_context *context, const struct hike_packet *packet,
					struct bpf_fib_lookup *fib, __u32 flags, bool turns,
					struct hike_neighbour **stale, struct hike_hop *hop)
{
	const struct hike_routing *routing = hike_this_routing();
	bool v4 = fib->family == HIKE_AF_INET;
	struct hike_asked4 asked = {
		.destination = fib->ipv4_dst, .table = fib->tbid, .tos = fib->tos
	};
	struct hike_receiver receiver;
	const struct hike_family *family;
	long answer;
	int reason;

	if (!routing)
		return HIKE_FW_NO_ROUTE;
	family = &routing->of_version[v4 ? 0 : 1];
	if (HIKE_IS_A_HOP) {
		reason = hike_foresees(family, fib);
		if (reason != HIKE_NEXT)
			return reason;
	}
	reason = hike_find_receiver(context, packet, routing, &receiver);
	if (reason != HIKE_NEXT)
		return reason;
	if (!v4 && receiver.flags & HIKE_RECEIVER_NO_IPV6)
		return HIKE_FW_DISABLED;
	fib->ifindex = receiver.asked;
	answer = bpf_fib_lookup(context, fib, sizeof(*fib), flags | hike_ask_mark(context, fib));
	if (answer != BPF_FIB_LKUP_RET_SUCCESS)
		return hike_not_found(context, fib, answer);
	hop->port = fib->ifindex;
	hike_copy_mac(hop->source, fib->smac);
	hike_copy_mac(hop->destination, fib->dmac);
	if (!HIKE_IS_A_HOP)
		return HIKE_NEXT;
	/* The check of the source takes the place of what has been said. */
	if (stale) {
		hop->mtu = fib->mtu_result < family->most_bytes ? fib->mtu_result : family->most_bytes;
		*stale = hike_find_stale(fib);
	}
	if (turns && family->flags & HIKE_ROUTING_REDIRECTS && hop->port == receiver.device)
		return HIKE_FW_REDIRECT;
	if (!v4)
		return HIKE_NEXT;
	return hike_check_source(context, packet, fib, &asked, flags, &receiver, hop->port);
}

#endif
