/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The key of the cache: all that classes, programs and the kernel's routes look at in a packet, but for its length and its hop limit.
 *
 * A packet without a key takes the chain of its class: one with VLAN tags, with IPv4 options or extension headers, a fragment, one of
 * neither TCP nor UDP, or without ports, and one that must not be forwarded for its hop limit or its length.
 */
#ifndef HIKE_CACHE_KEY_H
#define HIKE_CACHE_KEY_H

#include "../classes/exact_flow.h"
#include "tables.h"

/* The first byte of an IPv4 header without options. */
#define HIKE_PLAIN_IPV4 0x45

static __always_inline bool hike_has_key(__u8 protocol, __u8 hop_limit)
{
	switch (protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		return hop_limit > 1;
	default:
		return false;
	}
}

/* Returns the length of a packet in one buffer, as its IP header says; 0 if it is wrong, or too short for this header and ports behind. */
static __always_inline __u32 hike_keyed_bytes(const void *ip, const void *end, __u32 bytes, __u32 header_bytes)
{
	return bytes >= header_bytes + sizeof(__be32) && hike_fits(ip, bytes, end) ? bytes : 0;
}

/* Reads the key of a packet at XDP that is in one buffer. Returns its length as in its IP header, or 0 if it has no key. */
static __always_inline __u32 hike_read_key(const struct hike_context *context, __u64 key[HIKE_KEY_WORDS],
					   bool *is_v6)
{
	const void *start = hike_data(context), *end = hike_data_end(context);
	const struct ipv6hdr *ip6 = start + ETH_HLEN;
	const struct iphdr *ip4 = start + ETH_HLEN;
	__u64 device = (__u64)context->ingress_ifindex << 32;
	__be16 protocol;

	if ((const void *)(ip4 + 1) + sizeof(__be32) > end)
		return 0;
	protocol = *(const __be16 *)(start + ETH_HLEN - sizeof(protocol));
	/* The Ethernet address that it is for. */
	key[6] = (__u64)*(const __u16 *)(start + 4) << 32 | *(const __u32 *)start;
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		if ((const void *)(ip6 + 1) + sizeof(__be32) > end)
			return 0;
		if (ip6->version != 6 || !hike_has_key(ip6->nexthdr, ip6->hop_limit))
			return 0;
		/* Version, traffic class and flow label. */
		key[0] = (__u64)ip6->nexthdr << 32 | *(const __u32 *)ip6;
		hike_copy_address(&key[1], &ip6->saddr);
		hike_copy_address(&key[3], &ip6->daddr);
		key[5] = device | *(const __u32 *)(ip6 + 1);
		*is_v6 = true;
		return hike_keyed_bytes(ip6, end, hike_bytes6(ip6), sizeof(*ip6));
	}
	if (protocol != bpf_htons(ETH_P_IP) || *(const __u8 *)ip4 != HIKE_PLAIN_IPV4)
		return 0;
	if (ip4->frag_off & bpf_htons(HIKE_FRAGMENT4) || !hike_has_key(ip4->protocol, ip4->ttl))
		return 0;
	/* Version, length of the header, and type of service. */
	key[0] = (__u64)ip4->protocol << 32 | *(const __u16 *)ip4;
	key[1] = (__u64)ip4->daddr << 32 | ip4->saddr;
	key[2] = 0;
	key[3] = 0;
	key[4] = 0;
	key[5] = device | *(const __u32 *)(ip4 + 1);
	*is_v6 = false;
	return hike_keyed_bytes(ip4, end, hike_bytes4(ip4), sizeof(*ip4));
}

/*
 * Returns the first place of a key in a cache of 1 << (64 - shift) entries: the highest bits, on which all of it has an effect but the
 * Ethernet address, as a flow has one. The second place is its neighbour (hike_second_place()). Flows that share both slow each other
 * down, and do nothing worse.
 *
 * Hosts on a link differ in their last bytes, which are the highest ones as they are read, and go no further up by a product. So they
 * are turned round. Addresses of source and destination that count up together may not cancel each other out: they have factors of their
 * own, and the upper half has an effect on the lower one before the last product.
 */
static __always_inline __u32 hike_first_place(const __u64 key[HIKE_KEY_WORDS], __u32 shift)
{
	__u64 hash = ((__builtin_bswap64(key[2]) ^ key[3]) + key[5]) * 0x9e3779b97f4a7c15ULL +
		     ((__builtin_bswap64(key[4]) ^ key[1]) + key[0]) * 0xc2b2ae3d27d4eb4fULL;

	hash ^= hash >> 37;
	return hash * 0x9e3779b97f4a7c15ULL >> shift;
}

static __always_inline __u32 hike_second_place(__u32 first)
{
	return first ^ 1;
}

static __always_inline bool hike_is_key(const __u64 one[HIKE_KEY_WORDS], const __u64 other[HIKE_KEY_WORDS])
{
	return one[5] == other[5] && one[2] == other[2] && one[4] == other[4] && one[0] == other[0] &&
	       one[1] == other[1] && one[3] == other[3] && one[6] == other[6];
}

#endif
