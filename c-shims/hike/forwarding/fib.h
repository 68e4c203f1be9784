/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's routes and neighbours. What they do not forward at once, the kernel gets. */
#ifndef HIKE_FIB_H
#define HIKE_FIB_H

#include "forward.h"
#include "../srv6/headers.h"

/* Those of sys/socket.h, which is not for BPF. */
#define HIKE_AF_INET 2
#define HIKE_AF_INET6 10

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

/* Returns HIKE_NEXT and the next hop, or what becomes of the packet without. */
static __always_inline int hike_look_up(struct hike_context *context, struct bpf_fib_lookup *fib, __u32 flags,
					struct hike_hop *hop)
{
	fib->ifindex = hike_from_device(context);
	switch (bpf_fib_lookup(context, fib, sizeof(*fib), flags)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return hike_resolve(context, fib);
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return HIKE_FW_TOO_BIG;
	default:
		return HIKE_FW_NO_ROUTE;
	}
	hop->port = fib->ifindex;
	hike_copy_mac(hop->source, fib->smac);
	hike_copy_mac(hop->destination, fib->dmac);
	return HIKE_NEXT;
}

#endif
