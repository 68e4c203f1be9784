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

/* The kernel's structure through which a program gets a packet; context.h has the differences between XDP and tcx. */
#ifdef HIKE_TCX
#define hike_context __sk_buff
#else
#define hike_context xdp_md
#endif

/* Two VLAN tags at most. */
#define HIKE_VLAN_BYTES 4
#define HIKE_MOST_L2_BYTES (ETH_HLEN + 2 * HIKE_VLAN_BYTES)

/* The value with which a program hands the packet to the next program of the chain. Otherwise a program returns a reason. */
#define HIKE_NEXT (-1)

/*
 * Returns the address of the packet's first byte. hike_data_end() returns the address behind its last byte. Both addresses are void
 * once the packet's size changes.
 *
 * The verifier ties a check to the pointer that one load has returned, so the compiler must not load the pointer a second time.
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
 * Copies one piece that has the size of TYPE. The compiler assumes no alignment for these addresses, so by itself it would copy byte by
 * byte. In packets and maps a piece may have any address. On the stack its address must have the alignment of TYPE.
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

/* Returns the IP header. The caller checks that the header does not go beyond the packet's end. */
static __always_inline void *hike_ip(const struct hike_context *context, const struct hike_packet *packet)
{
	/* The mask changes nothing, as the dispatcher has checked the offset. The verifier has to see a limit. */
	return hike_data(context) + (packet->ip_at & 31);
}

/* Returns the IP header, or NULL if the packet ends within it. Options do not count as part of the header here. */
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

/* Completes a prefix that holds an address already: all bits of the address count. */
static __always_inline void hike_whole(struct hike_prefix *prefix, __u8 version)
{
	prefix->bits = 8 * sizeof(prefix->version) + (version == 6 ? 128 : 32);
	prefix->version = bpf_htonl(version);
}

/* Returns whether this many bytes from the start on are in front of the end. Their number is at most what an IP header can say. */
static __always_inline bool hike_fits(const void *start, __u64 bytes, const void *end)
{
	/* The verifier takes swapped bytes for any 64 bits, so the mask is needed. The compiler knows better, and would drop the mask. */
	barrier_var(bytes);
	return start + (bytes & 0x1ffff) <= end;
}

/* Returns the length that an IP header says, or 0 if this is less than the header's own length. */
static __always_inline __u32 hike_bytes6(const struct ipv6hdr *ip6)
{
	return bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
}

static __always_inline __u32 hike_bytes4(const struct iphdr *ip4)
{
	__u32 bytes = bpf_ntohs(ip4->tot_len);

	return bytes >= ip4->ihl * 4 ? bytes : 0;
}

/*
 * The place of the traffic class in the first word of an IPv6 header, in host byte order. The bits below the traffic class are the
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

/* Returns what a checksum becomes when one of the words that it is over changes, in network byte order: RFC 1624. */
static __always_inline __u16 hike_changed_checksum(__u16 check, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~check + (__u16)~old + new;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Takes one from the time to live, and adds as much to the header's checksum: RFC 1141. */
static __always_inline void hike_decrease_ttl(struct iphdr *ip4)
{
	__u32 check = ip4->check;

	check += bpf_htons(0x0100);
	ip4->check = check + (check >= 0xffff);
	ip4->ttl--;
}

#endif
