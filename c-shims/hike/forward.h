/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs that forward have in common: which packets they may forward, and how a packet leaves. */
#ifndef HIKE_FORWARD_H
#define HIKE_FORWARD_H

#include "packet.h"

/* Where a packet goes. */
struct hike_hop {
	__u32 port;
	__u8 source[ETH_ALEN];
	__u8 destination[ETH_ALEN];
};

/* Whether routers forward from and to an address: neither 0.0.0.0/8 nor loopback, multicast, what is reserved or broadcast. */
static __always_inline bool hike_routable4(__be32 address)
{
	__u32 first = bpf_ntohl(address) >> 24;

	return first && first != 127 && first < 224;
}

/* The same: neither multicast nor link-local, the unspecified address or loopback. */
static __always_inline bool hike_routable6(const struct in6_addr *address)
{
	if (address->s6_addr[0] == 0xff ||
	    (address->s6_addr16[0] & bpf_htons(0xffc0)) == bpf_htons(0xfe80))
		return false;
	return address->s6_addr32[0] || address->s6_addr32[1] || address->s6_addr32[2] ||
	       (address->s6_addr32[3] & ~bpf_htonl(1));
}

/* Returns HIKE_NEXT if a packet of such a length (0: a wrong one) may be forwarded, or why the kernel must see it. */
static __always_inline int hike_forwardable4(const struct iphdr *ip4, __u32 bytes)
{
	if (!bytes)
		return HIKE_MALFORMED;
	if (ip4->ihl != 5)
		return HIKE_FW_OPTIONS;
	if (ip4->ttl <= 1)
		return HIKE_FW_HOP_LIMIT;
	if (!hike_routable4(ip4->saddr) || !hike_routable4(ip4->daddr))
		return HIKE_FW_NOT_ROUTABLE;
	return HIKE_NEXT;
}

static __always_inline int hike_forwardable6(const struct ipv6hdr *ip6, __u32 bytes)
{
	if (!bytes)
		return HIKE_MALFORMED;
	if (ip6->nexthdr == IPPROTO_HOPOPTS)
		return HIKE_FW_OPTIONS;
	if (ip6->hop_limit <= 1)
		return HIKE_FW_HOP_LIMIT;
	if (!hike_routable6(&ip6->saddr) || !hike_routable6(&ip6->daddr))
		return HIKE_FW_NOT_ROUTABLE;
	return HIKE_NEXT;
}

/*
 * Chooses the port that the packet leaves through: before anything has changed, so that if there is no such port, the kernel gets the
 * packet as it is.
 */
static __always_inline bool hike_has_port(const struct hike_hop *hop)
{
	return bpf_redirect_map(&ports, hop->port, XDP_PASS) == XDP_REDIRECT;
}

/* Sends the packet to its next hop by that port: without VLAN tags, which were those of the link it came from. */
static __always_inline int hike_send(struct xdp_md *xdp, struct hike_packet *packet,
				     const struct hike_hop *hop)
{
	__u32 tag_bytes = (packet->ip_at & 31) - ETH_HLEN;
	struct ethhdr *eth;

	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_ip(xdp, packet);

		if ((void *)(ip6 + 1) > hike_data_end(xdp))
			return HIKE_MALFORMED;
		ip6->hop_limit--;
	} else {
		struct iphdr *ip4 = hike_ip(xdp, packet);

		if ((void *)(ip4 + 1) > hike_data_end(xdp))
			return HIKE_MALFORMED;
		hike_decrease_ttl(ip4);
	}
	if (tag_bytes && bpf_xdp_adjust_head(xdp, tag_bytes))
		return HIKE_MALFORMED;
	eth = hike_data(xdp);
	if ((void *)(eth + 1) > hike_data_end(xdp))
		return HIKE_MALFORMED;
	hike_copy_mac(eth->h_dest, hop->destination);
	hike_copy_mac(eth->h_source, hop->source);
	eth->h_proto = packet->version == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	return HIKE_FORWARDED;
}

static __always_inline int hike_leave(struct xdp_md *xdp, struct hike_packet *packet,
				      const struct hike_hop *hop)
{
	return hike_has_port(hop) ? hike_send(xdp, packet, hop) : HIKE_FW_NO_PORT;
}

#endif
