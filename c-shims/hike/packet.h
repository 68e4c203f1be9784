/* SPDX-License-Identifier: GPL-2.0 */
/* What all programs do with packets: find them, and end with them. */
#ifndef HIKE_PACKET_H
#define HIKE_PACKET_H

#include <stdbool.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>

#include "tables.h"

/* Two VLAN tags at most. */
#define HIKE_VLAN_BYTES 4
#define HIKE_MOST_L2_BYTES (ETH_HLEN + 2 * HIKE_VLAN_BYTES)

/* What a program returns when the next one of the chain has its turn; else it returns a reason. */
#define HIKE_NEXT (-1)

/* Returns the packet's first byte; both pointers are void if the packet's size has changed since. */
static __always_inline void *hike_start(const struct xdp_md *xdp)
{
	return (void *)(long)xdp->data;
}

static __always_inline void *hike_end(const struct xdp_md *xdp)
{
	return (void *)(long)xdp->data_end;
}

/* Returns the IP header; the caller holds its length against the packet's end. */
static __always_inline void *hike_ip(const struct xdp_md *xdp, const struct hike_packet *packet)
{
	/* The mask says no more than what the dispatcher has made sure of; the verifier wants to see it. */
	return hike_start(xdp) + (packet->ip_at & 31);
}

static __always_inline struct hike_packet *hike_this_packet(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&packets, &key);
}

/* Counts the packet's reason, and returns what XDP does with the packet. */
static __always_inline int hike_finish(int reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&reasons, &key);

	if (count)
		*count += 1;
	if (reason == HIKE_FORWARDED)
		return XDP_REDIRECT;
	return reason < HIKE_FORWARDED ? XDP_PASS : XDP_DROP;
}

/* Makes a prefix of an address that is in it: one that is as long as addresses are. */
static __always_inline void hike_whole(struct hike_prefix *prefix, __u8 version)
{
	prefix->bits = 8 * sizeof(prefix->version) + (version == 6 ? 128 : 32);
	prefix->version = bpf_htonl(version);
}

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

/* Takes one from the time to live, whose checksum is that much more: RFC 1141. */
static __always_inline void hike_decrease_ttl(struct iphdr *ip4)
{
	__u32 check = ip4->check;

	check += bpf_htons(0x0100);
	ip4->check = check + (check >= 0xffff);
	ip4->ttl--;
}

#endif
