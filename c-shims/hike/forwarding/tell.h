/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tells the source of a packet that it is too big for a tunnel, or for a link behind the tunnel's head: ICMPv6 Packet Too Big, or for IPv4
 * Fragmentation Needed. The MTU is that of the path or link less the outer headers, and the source is that of the packet inside: the
 * kernel's own seg6 has only the outer packet for that, whose source is this host.
 *
 * The packet is turned round where it came in. Programs of chains note what is to be said, and tail-call one more program, which all
 * chains share. A veth sends nothing back unless its other end has an XDP program, too. At tcx packets cannot be turned round: there
 * the kernel has answered before, by the MTU of the route.
 */
#ifndef HIKE_TELL_H
#define HIKE_TELL_H

#include "forward.h"
#include "source.h"
#include "transport.h"

#ifdef HIKE_TCX
#define hike_note_mtu(MTU) ((void)(MTU))
#define hike_noted_mtu() 0
#define hike_tell(CONTEXT, PACKET, PATH, MOST_BYTES, HEADERS) \
	((void)(CONTEXT), (void)(PACKET), (void)(PATH), (void)(MOST_BYTES), (void)(HEADERS), HIKE_ENC_TOO_BIG_END)
#define hike_tell_of_link(CONTEXT, PACKET, MTU) \
	((void)(CONTEXT), (void)(PACKET), (void)(MTU), HIKE_FW_TOO_BIG)
#else

/* The place of the tunnel's source in the headers of a path, in words. */
#define HIKE_PATH_SOURCE_WORD 1

HIKE_MAP(telling, BPF_MAP_TYPE_PERCPU_ARRAY, 1, sizeof(__u32), sizeof(struct hike_telling), 0);

static __always_inline struct hike_telling *hike_this_telling(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&telling, &key);
}

/*
 * Tells the source that a packet with this many times the headers of the path may have so many bytes. Returns the reason only if that
 * cannot be done.
 */
static __always_inline int hike_tell(struct hike_context *context, const struct hike_packet *packet,
				     const struct hike_path *path, __u32 most_bytes, __u32 headers)
{
	struct hike_telling *telling = hike_this_telling();

	/* The source of an answer to a test packet is this host. */
	if (hike_is_answer(packet))
		return HIKE_ENC_TOO_BIG_END;
	if (!telling || most_bytes <= headers * path->bytes)
		return HIKE_ENC_TOO_BIG_END;
	telling->mtu = most_bytes - headers * path->bytes;
	telling->outer_bytes = packet->is_on_path * path->bytes;
	telling->ip_at = packet->ip_at;
	hike_copy_address(telling->source, path->header + HIKE_PATH_SOURCE_WORD);
	bpf_tail_call(context, &programs, HIKE_TELL);
	return HIKE_ENC_TOO_BIG_END;
}

/* Notes the MTU of the next link of a packet that is too big for it; 0: the link may take it, and its route may not. */
static __always_inline void hike_note_mtu(__u32 mtu)
{
	struct hike_telling *telling = hike_this_telling();

	if (telling)
		telling->mtu = mtu;
}

static __always_inline __u32 hike_noted_mtu(void)
{
	const struct hike_telling *telling = hike_this_telling();

	return telling ? telling->mtu : 0;
}

/*
 * Tells the source of a packet that is on a path what the next link takes, if that is known and the path says so; else the kernel gets the
 * packet.
 */
static __always_inline int hike_tell_of_link(struct hike_context *context, const struct hike_packet *packet,
					     __u32 mtu)
{
	const struct hike_path *path = bpf_map_lookup_elem(&paths, &packet->class.path);

	if (!mtu || !path || !(path->flags & HIKE_PATH_TELLS))
		return HIKE_FW_TOO_BIG;
	return hike_tell(context, packet, path, mtu, packet->is_on_path);
}

/* The header of an ICMPv6 or ICMP message. The kernel's own headers for these include the C library's, which there is none of here. */
struct hike_icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	/* Over IPv4, its first half is unused: RFC 1191, 4. */
	__be32 mtu;
};

/* An answer, up to what it quotes. */
struct hike_answer6 {
	struct ipv6hdr ip;
	struct hike_icmp icmp;
};

struct hike_answer4 {
	struct iphdr ip;
	struct hike_icmp icmp;
};

/*
 * The bytes of an answer with what it quotes: RFC 4443, 2.4 (c), and RFC 1812, 4.3.2.3. Packets that are answered are longer than what is
 * quoted, so that all answers of one version have the same length.
 */
#define HIKE_ANSWER6_BYTES 1280
#define HIKE_ANSWER4_BYTES 576
/* Packets of IPv6 that have no more bytes than this need not become smaller: RFC 8200, 5. */
#define HIKE_LEAST_MTU6 1280

#define HIKE_ANSWER_HOP_LIMIT 64
#define HIKE_ICMP6_TOO_BIG 2
/* Types of ICMPv6 from here on are no errors. */
#define HIKE_ICMP6_INFORMS 128
#define HIKE_ICMP6_REDIRECT 137
/* Those of IPv4: Destination Unreachable with its code Fragmentation Needed, and queries with their answers. */
#define HIKE_ICMP_UNREACHABLE 3
#define HIKE_ICMP_TOO_BIG 4
#define HIKE_ICMP_ECHO_REPLY 0
#define HIKE_ICMP_ECHO 8
#define HIKE_ICMP_TIMESTAMP 13
#define HIKE_ICMP_MASK_REPLY 18
/* IPv4's Don't Fragment, and its type of service for such answers: RFC 1812, 4.3.2.5. */
#define HIKE_DONT_FRAGMENT4 0x4000
#define HIKE_LATER_FRAGMENT4 0x1fff
#define HIKE_LATER_FRAGMENT6 0xfff8
#define HIKE_ANSWER_TOS 0xc0
/* The address of one who has none: RFC 7600, 4.8. The kernel takes it, too. */
#define HIKE_NO_ADDRESS4 0xc0000008
/* Headers of IPv6 that are skipped to find out whether a packet is an error. */
#define HIKE_TOLD_HEADERS 4

/* The most bytes that the kernel adds up in one call (net/core/filter.c: MAX_BPF_STACK). */
#define HIKE_SUMMED_BYTES 512

/* Returns whether an error may be sent for a packet: RFC 4443, 2.4 (e). */
static __always_inline bool hike_may_tell6(const struct ipv6hdr *ip6, const void *end)
{
	const struct ipv6_opt_hdr *header = (void *)(ip6 + 1);
	__u8 protocol = ip6->nexthdr;

	if (!hike_routable6(&ip6->saddr) || !hike_routable6(&ip6->daddr))
		return false;
	for (int i = 0; i < HIKE_TOLD_HEADERS; i++) {
		if ((void *)header + 8 > end)
			return false;
		if (protocol == IPPROTO_ICMPV6) {
			__u8 type = *(const __u8 *)header;

			return type >= HIKE_ICMP6_INFORMS && type != HIKE_ICMP6_REDIRECT;
		}
		if (protocol != IPPROTO_HOPOPTS && protocol != IPPROTO_DSTOPTS &&
		    protocol != IPPROTO_ROUTING && protocol != IPPROTO_FRAGMENT)
			return true;
		if (protocol == IPPROTO_FRAGMENT) {
			protocol = header->nexthdr;
			/* The type is in the first fragment. */
			if (((const __be16 *)header)[1] & bpf_htons(HIKE_LATER_FRAGMENT6))
				return protocol != IPPROTO_ICMPV6;
			header = (void *)header + 8;
		} else {
			protocol = header->nexthdr;
			header = (void *)header + (header->hdrlen + 1) * 8;
		}
	}
	return false;
}

/* The same of IPv4: RFC 1812, 4.3.2.7; and whether it is one that may not be cut. Others would have to be cut, which is not done here. */
static __always_inline bool hike_may_tell4(const struct iphdr *ip4, const void *end)
{
	const struct hike_icmp *icmp = (const void *)ip4 + ip4->ihl * 4;

	if (!hike_routable4(ip4->saddr) || !hike_routable4(ip4->daddr))
		return false;
	if (!(ip4->frag_off & bpf_htons(HIKE_DONT_FRAGMENT4)) ||
	    ip4->frag_off & bpf_htons(HIKE_LATER_FRAGMENT4))
		return false;
	if (ip4->protocol != IPPROTO_ICMP)
		return true;
	if ((void *)(icmp + 1) > end)
		return false;
	return icmp->type == HIKE_ICMP_ECHO || icmp->type == HIKE_ICMP_ECHO_REPLY ||
	       (icmp->type >= HIKE_ICMP_TIMESTAMP && icmp->type <= HIKE_ICMP_MASK_REPLY);
}

/* Returns whether this CPU may answer now, if it may so often in a second, and so often at once. */
static __always_inline bool hike_may_answer(struct hike_credit *credit, __u32 per_s, __u32 at_once)
{
	const __u64 each_ns = 1000000000ULL / per_s;
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 left_ns = credit->left_ns + (now_ns - credit->at_ns);

	if (left_ns > at_once * each_ns)
		left_ns = at_once * each_ns;
	credit->at_ns = now_ns;
	credit->left_ns = left_ns;
	if (left_ns < each_ns)
		return false;
	credit->left_ns = left_ns - each_ns;
	return true;
}

/* Returns a checksum of what has been added up. */
static __always_inline __u16 hike_checksum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Adds up bytes, of which there is a multiple of four. */
#define hike_sum(FROM, BYTES) ((__u64)(__u32)bpf_csum_diff(NULL, 0, (void *)(FROM), BYTES, 0))

static __always_inline int hike_write_answer6(struct xdp_md *xdp, const struct hike_telling *telling,
					      __u32 ip_at)
{
	struct hike_answer6 *answer = hike_data(xdp) + (ip_at & 31);
	const struct ipv6hdr *quoted = (void *)(answer + 1);
	const __u32 bytes = HIKE_ANSWER6_BYTES - sizeof(answer->ip);
	__u32 mtu = telling->mtu;
	const void *from;
	__u64 sum;

	if ((void *)answer + HIKE_ANSWER6_BYTES > hike_data_end(xdp))
		return HIKE_ENC_TOO_BIG_END;
	if (mtu < HIKE_LEAST_MTU6)
		mtu = HIKE_LEAST_MTU6;
	*(__be32 *)answer = bpf_htonl(6U << 28);
	answer->ip.payload_len = bpf_htons(bytes);
	answer->ip.nexthdr = IPPROTO_ICMPV6;
	answer->ip.hop_limit = HIKE_ANSWER_HOP_LIMIT;
	hike_copy_address(&answer->ip.saddr, telling->source);
	hike_copy_address(&answer->ip.daddr, &quoted->saddr);
	answer->icmp.type = HIKE_ICMP6_TOO_BIG;
	answer->icmp.code = 0;
	answer->icmp.checksum = 0;
	answer->icmp.mtu = bpf_htonl(mtu);
	from = &answer->icmp;
	sum = hike_sum(&answer->ip.saddr, 2 * sizeof(answer->ip.saddr));
	sum += bpf_htonl(bytes) + (__u64)bpf_htonl(IPPROTO_ICMPV6);
	sum += hike_sum(from, HIKE_SUMMED_BYTES);
	sum += hike_sum(from + HIKE_SUMMED_BYTES, HIKE_SUMMED_BYTES);
	sum += hike_sum(from + 2 * HIKE_SUMMED_BYTES,
			HIKE_ANSWER6_BYTES - sizeof(answer->ip) - 2 * HIKE_SUMMED_BYTES);
	answer->icmp.checksum = hike_checksum(sum);
	return HIKE_ENC_TOO_BIG_TOLD;
}

/* Returns the device whose packets this one is of for the kernel, or the one that XDP has it from. The link header is in its place. */
static __always_inline __u32 hike_receiver_of(struct xdp_md *xdp, __u32 ip_at)
{
	const struct hike_packet packet = { .ip_at = ip_at };
	const struct hike_routing *routing = hike_this_routing();
	struct hike_receiver receiver;

	if (!routing || hike_find_receiver(xdp, &packet, routing, &receiver) != HIKE_NEXT)
		return xdp->ingress_ifindex;
	return receiver.asked;
}

/* Returns the address from which the kernel would answer this source of packets that come from a device, if it says so. */
static __always_inline __be32 hike_own_address4(struct xdp_md *xdp, const struct iphdr *told, __u32 device)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	__be32 source = told->saddr;

	fib.family = HIKE_AF_INET;
	fib.l4_protocol = IPPROTO_ICMP;
	fib.ifindex = device;
	fib.ipv4_src = told->daddr;
	fib.ipv4_dst = source;
	/* Older kernels do not know these flags, and refuse. */
	if (bpf_fib_lookup(xdp, &fib, sizeof(fib), BPF_FIB_LOOKUP_SRC | BPF_FIB_LOOKUP_SKIP_NEIGH))
		return bpf_htonl(HIKE_NO_ADDRESS4);
	return fib.ipv4_src ? fib.ipv4_src : bpf_htonl(HIKE_NO_ADDRESS4);
}

static __always_inline int hike_write_answer4(struct xdp_md *xdp, const struct hike_telling *telling,
					      __u32 ip_at)
{
	struct hike_answer4 *answer = hike_data(xdp) + (ip_at & 31);
	const struct iphdr *quoted = (void *)(answer + 1);
	const void *from;
	__u64 sum;

	if ((void *)answer + HIKE_ANSWER4_BYTES > hike_data_end(xdp))
		return HIKE_ENC_TOO_BIG_END;
	answer->ip.version = 4;
	answer->ip.ihl = sizeof(answer->ip) / 4;
	answer->ip.tos = HIKE_ANSWER_TOS;
	answer->ip.tot_len = bpf_htons(HIKE_ANSWER4_BYTES);
	answer->ip.id = 0;
	answer->ip.frag_off = bpf_htons(HIKE_DONT_FRAGMENT4);
	answer->ip.ttl = HIKE_ANSWER_HOP_LIMIT;
	answer->ip.protocol = IPPROTO_ICMP;
	answer->ip.check = 0;
	answer->ip.saddr = hike_own_address4(xdp, quoted, hike_receiver_of(xdp, ip_at));
	answer->ip.daddr = quoted->saddr;
	answer->ip.check = hike_checksum(hike_sum(&answer->ip, sizeof(answer->ip)));
	answer->icmp.type = HIKE_ICMP_UNREACHABLE;
	answer->icmp.code = HIKE_ICMP_TOO_BIG;
	answer->icmp.checksum = 0;
	answer->icmp.mtu = bpf_htonl(telling->mtu & 0xffff);
	from = &answer->icmp;
	sum = hike_sum(from, HIKE_SUMMED_BYTES);
	sum += hike_sum(from + HIKE_SUMMED_BYTES,
			HIKE_ANSWER4_BYTES - sizeof(answer->ip) - HIKE_SUMMED_BYTES);
	answer->icmp.checksum = hike_checksum(sum);
	return HIKE_ENC_TOO_BIG_TOLD;
}

/*
 * Makes of the packet the answer to its source, if its source may be told: outer headers go, and the answer's come in front of what is
 * quoted. What was to be forwarded had a right length, that of all buffers. Returns what has become of it.
 */
static __always_inline int hike_turn_round(struct xdp_md *xdp)
{
	struct hike_telling *telling = hike_this_telling();
	void *start = hike_data(xdp), *end = hike_data_end(xdp);
	__u32 ip_at, outer_bytes, answer_bytes, header_bytes;
	const struct ipv6hdr *told;
	struct hike_link link;
	struct ethhdr *eth;
	bool is_v6;

	if (!telling || !hike_save_link(&link, start, end))
		return HIKE_ENC_TOO_BIG_END;
	ip_at = telling->ip_at & 31;
	outer_bytes = telling->outer_bytes & 0xfff;
	told = start + ip_at + outer_bytes;
	if ((void *)(told + 1) > end)
		return HIKE_ENC_TOO_BIG_END;
	is_v6 = told->version == 6;
	if (is_v6) {
		if (hike_bytes6(told) <= HIKE_LEAST_MTU6 || !hike_may_tell6(told, end))
			return HIKE_ENC_TOO_BIG_END;
		answer_bytes = HIKE_ANSWER6_BYTES;
		header_bytes = sizeof(struct hike_answer6);
	} else {
		if (hike_bytes4((const void *)told) < HIKE_ANSWER4_BYTES ||
		    !hike_may_tell4((const void *)told, end))
			return HIKE_ENC_TOO_BIG_END;
		answer_bytes = HIKE_ANSWER4_BYTES;
		header_bytes = sizeof(struct hike_answer4);
	}
	/* Of a packet in several buffers only the first one stays: what is quoted has to be there. */
	if ((void *)told + (answer_bytes - header_bytes) > end)
		return HIKE_ENC_TOO_BIG_END;
	/* RFC 4443, 2.4 (f). */
	if (!hike_may_answer(&telling->credit, HIKE_TOLD_PER_S, HIKE_TOLD_AT_ONCE))
		return HIKE_ENC_TOO_BIG_END;
	if (bpf_xdp_adjust_head(xdp, (int)outer_bytes - (int)header_bytes))
		return HIKE_ENC_TOO_BIG_END;
	if (bpf_xdp_adjust_tail(xdp, (int)(ip_at + answer_bytes) - (int)bpf_xdp_get_buff_len(xdp)))
		return HIKE_ENC_TOO_BIG_END;
	start = hike_data(xdp);
	end = hike_data_end(xdp);
	if (!hike_restore_link(&link, start, end, ip_at, is_v6 ? ETH_P_IPV6 : ETH_P_IP))
		return HIKE_ENC_TOO_BIG_END;
	/* Back to where it came from. */
	eth = start;
	HIKE_COPY(__u64, &link.one, start);
	hike_copy_mac(eth->h_dest, eth->h_source);
	hike_copy_mac(eth->h_source, &link.one);
	return is_v6 ? hike_write_answer6(xdp, telling, ip_at) : hike_write_answer4(xdp, telling, ip_at);
}

#endif
#endif
