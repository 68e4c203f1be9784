/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Protocol and ports of a packet, as far as the kernel's rules see them: net/core/flow_dissector.c finds them, and stops where another
 * packet is inside. Fragments have no ports, not even the first.
 */
#ifndef HIKE_TRANSPORT_H
#define HIKE_TRANSPORT_H

#include "../context.h"

/* The bits in IPv4 that say that more fragments follow, or that have an offset. */
#define HIKE_IS_FRAGMENT4 0x3fff
/* Extension headers of IPv6 that are looked behind. */
#define HIKE_MOST_HEADERS 4

/* Returns the word that describes this host's routing, or NULL, which cannot be. */
static __always_inline const struct hike_routing *hike_this_routing(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&routing, &key);
}

/*
 * Says the ports in a transport header of this many bytes, if its protocol has some: what proto_ports_offset() of the kernel says. Returns
 * HIKE_NEXT; or why the kernel must see a packet whose ports are not where programs look, as in a later buffer.
 */
static __always_inline int hike_ask_ports(struct bpf_fib_lookup *fib, const void *transport, const void *end,
					  __u32 bytes)
{
	const __be16 *ports = transport;
	__u32 needed = 2 * sizeof(*ports);

	switch (fib->l4_protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_ESP:
	case IPPROTO_UDPLITE:
		break;
	case IPPROTO_AH:
		ports += 2;
		needed += 2 * sizeof(*ports);
		break;
	default:
		return HIKE_NEXT;
	}
	if (bytes < needed)
		return HIKE_NEXT;
	if ((void *)(ports + 2) > end)
		return HIKE_MALFORMED;
	fib->sport = ports[0];
	fib->dport = ports[1];
	return HIKE_NEXT;
}

static __always_inline bool hike_is_extension(__u8 protocol)
{
	return protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_HOPOPTS;
}

/*
 * Looks behind extension headers: returns HIKE_NEXT, or why the kernel must see the packet. A function of its own, as it is seldom
 * called.
 */
static __noinline int hike_ask_behind(struct bpf_fib_lookup *fib, const struct ipv6hdr *ip6, const void *end,
				      __u32 bytes)
{
	const void *at = ip6 + 1;
	__u8 protocol = ip6->nexthdr;
	__u32 header_bytes;

	bytes -= sizeof(*ip6);
	for (int i = 0; i < HIKE_MOST_HEADERS; i++) {
		const struct ipv6_opt_hdr *header = at;

		if (!hike_is_extension(protocol)) {
			fib->l4_protocol = protocol;
			return hike_ask_ports(fib, at, end, bytes);
		}
		if ((void *)(header + 1) > end)
			return HIKE_MALFORMED;
		if (protocol == IPPROTO_FRAGMENT) {
			fib->l4_protocol = header->nexthdr;
			return HIKE_NEXT;
		}
		header_bytes = (header->hdrlen + 1) * 8;
		if (header_bytes > bytes)
			return HIKE_MALFORMED;
		protocol = header->nexthdr;
		bytes -= header_bytes;
		at += header_bytes;
	}
	return HIKE_FW_OPTIONS;
}

/*
 * Says protocol and ports of a packet of IPv6. Behind extension headers the kernel looks only for rules, which then get the last protocol;
 * the choice of a next hop is by the first one, so both cannot be said.
 */
static __always_inline int hike_ask_transport6(struct bpf_fib_lookup *fib, const struct ipv6hdr *ip6,
					       const void *end, __u32 bytes)
{
	const struct hike_routing *routing;
	__u32 flags;

	if (!hike_is_extension(ip6->nexthdr))
		return hike_ask_ports(fib, ip6 + 1, end, bytes - sizeof(*ip6));
	routing = hike_this_routing();
	flags = routing ? routing->of_version[1].flags : 0;
	if (!(flags & HIKE_ROUTING_PORTS))
		return HIKE_NEXT;
	return flags & HIKE_ROUTING_MULTIPATH ? HIKE_FW_MULTIPATH : hike_ask_behind(fib, ip6, end, bytes);
}

/* The same of IPv4, whose header has no options here. */
static __always_inline int hike_ask_transport4(struct bpf_fib_lookup *fib, const struct iphdr *ip4,
					       const void *end, __u32 bytes)
{
	if (ip4->frag_off & bpf_htons(HIKE_IS_FRAGMENT4))
		return HIKE_NEXT;
	return hike_ask_ports(fib, ip4 + 1, end, bytes - sizeof(*ip4));
}

#endif
