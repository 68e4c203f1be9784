/* SPDX-License-Identifier: GPL-2.0 */
/*
 * H.Encaps and H.Encaps.Red (RFC 8986, 5.1 and 5.2): the path's outer headers, which user space has made, in front of the packet.
 *
 * These fields depend on the packet: its length and kind, ECN (RFC 6040, normal mode), and as the path wants it DSCP and the
 * flow label (RFC 6438). As it is forwarded into a tunnel, its hop limit goes down by one (RFC 2473, 3.1), unless the kernel
 * has forwarded it. What stays on this host or its link is put into no tunnel.
 */
#include "../forwarding/own.h"
#include "../forwarding/tell.h"

/* Mixes two words into what stands for the flow so far; any good enough hash would do, but both engines need the same. */
static __always_inline __u64 hike_mix(__u64 hash, __u32 one, __u32 two)
{
	hash ^= (__u64)one << 32 | two;
	hash *= 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* Returns a flow label of 20 bits; the ports are 0 where there are none. */
static __always_inline __u32 hike_flow_label(__u64 hash, __u8 protocol, __u32 ports)
{
	__u32 label = hike_mix(hash, ports, protocol) >> 44;

	/* 0 would mean that there is none. */
	return label ? label : 1;
}

/* Returns both ports of a transport header, or 0. */
static __always_inline __u32 hike_ports(const void *transport, const void *end, __u8 protocol)
{
	const __be32 *ports = transport;

	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return 0;
	if ((void *)(ports + 1) > end)
		return 0;
	return bpf_ntohl(*ports);
}

/* Headers are copied in words, and behind the IPv6 header by twos. */
#define HIKE_IP6_WORDS (sizeof(struct ipv6hdr) / sizeof(__u64))
#define HIKE_TWO_WORDS (2 * sizeof(__u64))

/*
 * Copies what a path has behind its IPv6 header, to where there is room for all its headers, of this many bytes: 16 bytes at a time, for
 * which one look at their number and at the packet's end is enough; then 8, if there are options or an SRH, but not both. The last of the
 * headers then names what is inside. A function of its own, as chains may have several.
 *
 * The caller does nothing more with the packet's pointers, nor with the number of bytes: for the verifier, each way out of here is one
 * on which they are something else, and it would look at all that follows once for each.
 */
static __noinline int hike_copy_headers(struct ipv6hdr *outer, const struct hike_path *path, __u32 bytes,
					const void *end, __u8 protocol)
{
	const __u64 *from = path->header;
	__u64 *to = (void *)outer;
	__u32 last = bytes - sizeof(*to);
	__u8 *next_header;

#pragma unroll
	for (__u32 two = 0; two < (HIKE_PATH_BYTES - sizeof(*outer)) / HIKE_TWO_WORDS; two++) {
		__u32 i = HIKE_IP6_WORDS + 2 * two;

		if (bytes < sizeof(*outer) + (two + 1) * HIKE_TWO_WORDS)
			break;
		if ((void *)(to + i + 2) > end)
			break;
		to[i] = from[i];
		to[i + 1] = from[i + 1];
	}
	if ((bytes - sizeof(*outer)) % HIKE_TWO_WORDS && last <= HIKE_PATH_BYTES - sizeof(*to)) {
		to = (void *)outer + last;
		if ((void *)(to + 1) <= end)
			*to = *(const __u64 *)((const void *)from + last);
	}
	next_header = (void *)outer + path->next_header_at;
	if ((void *)(next_header + 1) <= end)
		*next_header = protocol;
	return 0;
}

static __always_inline int hike_enc(struct hike_context *context, struct hike_packet *packet)
{
	const struct hike_path *path = bpf_map_lookup_elem(&paths, &packet->class.path);
	__u32 ip_at = packet->ip_at & 31;
	__u32 inner_bytes, bytes, label = 0;
	void *start, *end, *ip;
	__u8 class, hop_limit, protocol;
	struct ipv6hdr *outer;
	bool flows;
	int reason;

	if (!path || !path->bytes)
		return HIKE_NO_PATH;
	/* A packet that is on a path already is for the path's first SID. */
	reason = packet->is_on_path ? HIKE_NEXT : hike_stays(context, packet);
	if (reason != HIKE_NEXT)
		return reason;
	start = hike_data(context);
	end = hike_data_end(context);
	ip = start + ip_at;
	bytes = path->bytes & 0xff;
	flows = path->flags & HIKE_PATH_LABELS_FLOWS;
	if (packet->version == 6) {
		struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end)
			return HIKE_MALFORMED;
		inner_bytes = hike_whole_bytes6(context, packet, ip6, end);
		if (!inner_bytes)
			return HIKE_MALFORMED;
		hop_limit = ip6->hop_limit;
		class = hike_traffic_class(ip6);
		protocol = IPPROTO_IPV6;
		if (flows) {
			__u64 hash = bpf_ntohl(*(__be32 *)ip6) & HIKE_FLOW_LABEL;

			for (int i = 0; i < 4; i++)
				hash = hike_mix(hash, ip6->saddr.s6_addr32[i],
						ip6->daddr.s6_addr32[i]);
			label = hike_flow_label(hash, ip6->nexthdr,
						hike_ports(ip6 + 1, end, ip6->nexthdr));
		}
	} else {
		struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end)
			return HIKE_MALFORMED;
		inner_bytes = hike_whole_bytes4(context, packet, ip4, end);
		if (!inner_bytes)
			return HIKE_MALFORMED;
		hop_limit = ip4->ttl;
		class = ip4->tos;
		protocol = IPPROTO_IPIP;
		if (flows) {
			/* Fragments, of which only the first has ports, and headers with options. */
			bool whole = ip4->ihl == 5 && !(ip4->frag_off & bpf_htons(0x3fff));

			label = hike_flow_label(hike_mix(0, ip4->saddr, ip4->daddr), ip4->protocol,
						whole ? hike_ports(ip4 + 1, end, ip4->protocol) : 0);
		}
	}
	if (HIKE_IS_A_HOP && hop_limit <= 1) {
		/* With outer headers of ours, the kernel would answer this host. */
		if (path->flags & HIKE_PATH_TELLS && !packet->is_on_path)
			return HIKE_ENC_HOP_LIMIT;
		return path->flags & HIKE_PATH_LEAVES_EXCEPTIONS ? HIKE_ENC_HOP_LIMIT
								 : HIKE_ENC_HOP_LIMIT_END;
	}
	if (hike_wire_bytes(packet, inner_bytes, bytes) > path->most_bytes) {
		if (path->flags & HIKE_PATH_TELLS)
			return hike_tell(context, packet, path, path->most_bytes,
					 packet->is_on_path + 1);
		/* The kernel takes no packets from this host's own source. */
		if (hike_is_answer(packet))
			return HIKE_ENC_TOO_BIG_END;
		return path->flags & HIKE_PATH_LEAVES_EXCEPTIONS ? HIKE_ENC_TOO_BIG
								 : HIKE_ENC_TOO_BIG_END;
	}

	reason = hike_push(context, packet, ip_at, bytes, &start, &end);
	if (reason == HIKE_ENC_OFFLOAD && !(path->flags & HIKE_PATH_LEAVES_EXCEPTIONS))
		return HIKE_ENC_OFFLOAD_END;
	if (reason != HIKE_NEXT)
		return reason;

	/* From here on the packet has changed, and what is checked is there: the verifier wants to see it. */
	outer = start + ip_at;
	if ((void *)(outer + 1) > end)
		return HIKE_MALFORMED;
#pragma unroll
	for (__u32 i = 0; i < HIKE_IP6_WORDS; i++)
		HIKE_COPY(__u64, (__u64 *)outer + i, path->header + i);
	if (!(path->flags & HIKE_PATH_COPIES_DSCP))
		class = (hike_traffic_class(outer) & ~HIKE_ECN) | (class & HIKE_ECN);
	if (!flows)
		label = bpf_ntohl(*(__be32 *)outer) & HIKE_FLOW_LABEL;
	*(__be32 *)outer = bpf_htonl(6U << 28 | (__u32)class << HIKE_CLASS_SHIFT | label);
	outer->payload_len = bpf_htons(inner_bytes + bytes - sizeof(*outer));

	/* Inside, the hop limit is one less. */
	ip = (void *)outer + bytes;
	if (HIKE_IS_A_HOP && protocol == IPPROTO_IPV6) {
		struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end)
			return HIKE_MALFORMED;
		ip6->hop_limit--;
	} else if (HIKE_IS_A_HOP) {
		struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end)
			return HIKE_MALFORMED;
		hike_decrease_ttl(ip4);
	}
	hike_copy_headers(outer, path, bytes, end, protocol);
	packet->version = 6;
	packet->is_on_path += 1;
	return HIKE_NEXT;
}
