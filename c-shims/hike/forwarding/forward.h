/* SPDX-License-Identifier: GPL-2.0 */
/* The common part of the programs that forward: which packets they may forward, and how a packet leaves. */
#ifndef HIKE_FORWARD_H
#define HIKE_FORWARD_H

#include "../cache/learn.h"

/* The next hop of a packet. */
struct hike_hop {
	/* The device that leads there; the port, once that is chosen. */
	__u32 port;
	__u8 source[ETH_ALEN];
	__u8 destination[ETH_ALEN];
	/* The largest packet that may leave for it. */
	__u16 mtu;
	/* The VLAN tags that it takes, 0 to 2 of them, as they stand in the frame. */
	__u16 tag_bytes;
	__be32 tags[2];
};

/*
 * Returns whether routers forward from and to an address: neither 0.0.0.0/8 nor loopback, link-local, multicast, reserved or broadcast
 * ones.
 */
static __always_inline bool hike_routable4(__be32 address)
{
	__u32 first = bpf_ntohl(address) >> 24;

	return first && first != 127 && first < 224 &&
	       (address & bpf_htonl(0xffff0000)) != bpf_htonl(0xa9fe0000);
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
	if (HIKE_IS_A_HOP && ip4->ttl <= 1)
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
	if (HIKE_IS_A_HOP && ip6->hop_limit <= 1)
		return HIKE_FW_HOP_LIMIT;
	if (!hike_routable6(&ip6->saddr) || !hike_routable6(&ip6->daddr))
		return HIKE_FW_NOT_ROUTABLE;
	return HIKE_NEXT;
}

/*
 * Chooses the port that leads to the next hop, before anything has changed. A VLAN's device cannot send frames of XDP: the device below it
 * sends them, with the tags of the VLAN. If there is no port, hike_no_port() says why of the one that there would have to be.
 */
static __always_inline bool hike_choose_port(struct hike_context *context, struct hike_hop *hop)
{
	const struct hike_sender *sender;

	hop->tag_bytes = 0;
	if (hike_has_port(context, hop->port))
		return true;
	if (!HIKE_VLAN_TAGS)
		return false;
	sender = bpf_map_lookup_elem(&senders, &hop->port);
	if (!sender)
		return false;
	hop->port = sender->port;
	if (!hike_has_port(context, hop->port))
		return false;
	hop->tag_bytes = sender->tag_bytes & (2 * HIKE_VLAN_BYTES | HIKE_VLAN_BYTES);
	hop->tags[0] = sender->tags[0];
	hop->tags[1] = sender->tags[1];
	return true;
}

/* Writes the VLAN tags of the next hop, and behind them which kind of packet this is. */
static __always_inline bool hike_write_tags(void *start, const void *end, const struct hike_hop *hop, __be16 kind)
{
	__u8 *tags = start + ETH_HLEN - sizeof(kind);

	if (start + HIKE_MOST_L2_BYTES > end)
		return false;
	HIKE_COPY(__u32, tags, &hop->tags[0]);
	if (hop->tag_bytes == HIKE_VLAN_BYTES) {
		*(__be16 *)(tags + HIKE_VLAN_BYTES) = kind;
	} else {
		HIKE_COPY(__u32, tags + HIKE_VLAN_BYTES, &hop->tags[1]);
		*(__be16 *)(tags + 2 * HIKE_VLAN_BYTES) = kind;
	}
	return true;
}

/*
 * Sends the packet to its next hop by the port that was chosen (hike_choose_port): with the VLAN tags of the next hop, and without those of
 * the link it came from.
 */
static __always_inline int hike_send(struct hike_context *context, struct hike_packet *packet,
				     const struct hike_hop *hop)
{
	__u32 tag_bytes = (packet->ip_at & 31) - ETH_HLEN;
	__be16 kind = packet->version == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	struct ethhdr *eth;

	if (HIKE_IS_A_HOP && packet->version == 6) {
		struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		ip6->hop_limit--;
	} else if (HIKE_IS_A_HOP) {
		struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		hike_decrease_ttl(ip4);
	}
	if (HIKE_VLAN_TAGS && tag_bytes != hop->tag_bytes &&
	    hike_take_off(context, tag_bytes - hop->tag_bytes))
		return HIKE_NO_HEADROOM;
	eth = hike_data(context);
	if ((void *)(eth + 1) > hike_data_end(context))
		return HIKE_MALFORMED;
	hike_copy_mac(eth->h_dest, hop->destination);
	hike_copy_mac(eth->h_source, hop->source);
	eth->h_proto = kind;
	if (HIKE_VLAN_TAGS && hop->tag_bytes &&
	    !hike_write_tags(eth, hike_data_end(context), hop, kind))
		return HIKE_MALFORMED;
	return hike_leave_by(context, hop->port);
}

static __always_inline int hike_leave(struct hike_context *context, struct hike_packet *packet,
				      struct hike_hop *hop)
{
	int reason;

	if (!hike_choose_port(context, hop))
		return hike_no_port(context, hop->port);
	reason = hike_send(context, packet, hop);
	if (reason == HIKE_FORWARDED)
		hike_learn_way(context, packet, hop->port, hop->mtu);
	return reason;
}

#endif
