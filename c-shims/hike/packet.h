/* SPDX-License-Identifier: GPL-2.0 */
/* The functions with which all programs look at packets, wherever they run. */
#ifndef HIKE_PACKET_H
#define HIKE_PACKET_H

#include <stdbool.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>

#include "tables.h"

/* The context that a program gets of a packet; context.h has the differences. */
#ifdef HIKE_TCX
#define hike_context __sk_buff
#else
#define hike_context xdp_md
#endif

/* Two VLAN tags at most. */
#define HIKE_VLAN_BYTES 4
#define HIKE_MOST_L2_BYTES (ETH_HLEN + 2 * HIKE_VLAN_BYTES)

/* The value that a program returns when the next one of the chain has its turn; else it returns a reason. */
#define HIKE_NEXT (-1)

/*
 * Returns the packet's first byte, and the one behind its last; both are void once the packet's size changes.
 *
 * The verifier knows what was checked of the pointer that one load has returned, so the compiler must not load it once more.
 */
static __always_inline void *hike_data(const struct hike_context *context)
{
	return (void *)(long)*(const volatile __u32 *)&context->data;
}

static __always_inline void *hike_data_end(const struct hike_context *context)
{
	return (void *)(long)*(const volatile __u32 *)&context->data_end;
}

/*
 * Copies in pieces that are as large as they can be: of what may stand anywhere the compiler would copy byte by byte. In packets and maps
 * every address is good; on the stack, one of a piece's own alignment.
 */
#define HIKE_COPY(TYPE, TO, FROM) (*(TYPE *)(TO) = *(const TYPE *)(FROM))

static __always_inline void hike_copy_mac(void *to, const void *from)
{
	HIKE_COPY(__u16, to, from);
	HIKE_COPY(__u16, to + 2, from + 2);
	HIKE_COPY(__u16, to + 4, from + 4);
}

static __always_inline void hike_copy_address(void *to, const void *from)
{
	HIKE_COPY(__u64, to, from);
	HIKE_COPY(__u64, to + 8, from + 8);
}

/* Returns the IP header; the caller holds its length against the packet's end. */
static __always_inline void *hike_ip(const struct hike_context *context, const struct hike_packet *packet)
{
	/* The mask says no more than what the dispatcher has made sure of; the verifier wants to see it. */
	return hike_data(context) + (packet->ip_at & 31);
}

/* Returns the IP header if all of it is there, without options, and NULL otherwise. */
static __always_inline struct ipv6hdr *hike_open_ip6(const struct hike_context *context,
						     const struct hike_packet *packet)
{
	struct ipv6hdr *ip6 = hike_ip(context, packet);

	return (void *)(ip6 + 1) > hike_data_end(context) ? NULL : ip6;
}

static __always_inline struct iphdr *hike_open_ip4(const struct hike_context *context, const struct hike_packet *packet)
{
	struct iphdr *ip4 = hike_ip(context, packet);

	return (void *)(ip4 + 1) > hike_data_end(context) ? NULL : ip4;
}

static __always_inline struct hike_packet *hike_this_packet(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&packets, &key);
}

/* Makes a prefix of an address that is in it: one that is as long as addresses are. */
static __always_inline void hike_whole(struct hike_prefix *prefix, __u8 version)
{
	prefix->bits = 8 * sizeof(prefix->version) + (version == 6 ? 128 : 32);
	prefix->version = bpf_htonl(version);
}

/* Returns whether this many bytes from here on, at most what an IP header can say, are in front of the end. */
static __always_inline bool hike_fits(const void *start, __u64 bytes, const void *end)
{
	/* For the verifier, swapped bytes may be any 64 bits; the compiler knows better, and would leave out the mask. */
	barrier_var(bytes);
	return start + (bytes & 0x1ffff) <= end;
}

/* Returns the length in an IP header, or 0 if it is wrong: less than the header's own, or more than there is. */
static __always_inline __u32 hike_bytes6(const struct ipv6hdr *ip6, const void *end)
{
	__u32 bytes = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);

	return hike_fits(ip6, bytes, end) ? bytes : 0;
}

static __always_inline __u32 hike_bytes4(const struct iphdr *ip4, const void *end)
{
	__u32 bytes = bpf_ntohs(ip4->tot_len);

	return bytes >= ip4->ihl * 4 && hike_fits(ip4, bytes, end) ? bytes : 0;
}

/*
 * The place of the traffic class in the first word of an IPv6 header, in host byte order; and the bits below it, which are the
 * flow label.
 */
#define HIKE_CLASS_SHIFT 20
#define HIKE_FLOW_LABEL 0xfffff

/* Returns the traffic class. */
static __always_inline __u8 hike_traffic_class(const struct ipv6hdr *ip6)
{
	return ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
}

static __always_inline void hike_set_traffic_class(struct ipv6hdr *ip6, __u8 class)
{
	ip6->priority = class >> 4;
	ip6->flow_lbl[0] = (ip6->flow_lbl[0] & 0x0f) | class << 4;
}

/* The bits of the traffic class, or of IPv4's type of service, that are ECN (RFC 3168). */
#define HIKE_ECN 3

/* Takes one from the time to live, whose checksum is that much more: RFC 1141. */
static __always_inline void hike_decrease_ttl(struct iphdr *ip4)
{
	__u32 check = ip4->check;

	check += bpf_htons(0x0100);
	ip4->check = check + (check >= 0xffff);
	ip4->ttl--;
}

#endif
