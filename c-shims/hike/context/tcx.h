/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Packets at tcx, egress, of devices with Ethernet headers. VLAN tags belong to devices above or below, so none are looked
 * through.
 *
 * A packet with GSO is one that TCP or UDP has left to the device to cut into segments, each with a copy of its headers. It is
 * treated as these segments: each gets the outer headers, as the kernel or the device cuts behind them
 * (BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 makes it a packet in a tunnel: SKB_GSO_IPXIP6, net/core/filter.c), and none gets longer or
 * shorter for that (BPF_F_ADJ_ROOM_FIXED_GSO). Checksums that are left to the device stay left to it.
 */
#ifndef HIKE_CONTEXT_TCX_H
#define HIKE_CONTEXT_TCX_H

#include <linux/errno.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "../packet.h"

#define HIKE_SECTION "classifier"
/* Other programs of the device, and the kernel's filters there, have their turn. */
#define HIKE_TO_KERNEL TC_ACT_UNSPEC
#define HIKE_IS_A_HOP false
#define HIKE_VLAN_TAGS 0

/* The bytes that programs look at in packets with headers of unusual kinds. */
#define HIKE_SHOWN_BYTES 512
/* The longest that an IP header can say. */
#define HIKE_MOST_BYTES4 0xffff
#define HIKE_MOST_BYTES6 (0xffff + sizeof(struct ipv6hdr))

/* Beside HIKE_FORWARDED: it leaves by the device that it is at. */
#define HIKE_HERE 0x100

/* The kernel's number of the loopback device, which its rules take as that of the host's own packets. */
#define HIKE_LOOPBACK 1

/*
 * The marks that a packet has in its control block from here to the device that it is redirected to. Nothing of the kernel
 * writes there in between, and nothing that packets bring along gets there.
 */
#define HIKE_HERE_BEFORE_ONE 0x48494b45
#define HIKE_HERE_BEFORE_TWO 0xb7b6b4ba

static __always_inline __u32 hike_from_device(const struct hike_context *context)
{
	return context->ingress_ifindex ? context->ingress_ifindex : HIKE_LOOPBACK;
}

static __always_inline void hike_note_here(struct hike_context *context)
{
	context->cb[3] = HIKE_HERE_BEFORE_ONE;
	context->cb[4] = HIKE_HERE_BEFORE_TWO;
}

/*
 * Returns whether the packet has a VLAN tag that is not in front of its IP header yet. It then comes from a VLAN's device, and
 * may not leave by that device once more.
 */
static __always_inline bool hike_is_tagged(const struct hike_context *context)
{
	return context->vlan_present;
}

static __always_inline bool hike_has_been_here(struct hike_context *context)
{
	if (context->cb[3] != HIKE_HERE_BEFORE_ONE || context->cb[4] != HIKE_HERE_BEFORE_TWO)
		return false;
	context->cb[3] = 0;
	return true;
}

/* Returns whether the headers up to the transport's ports and flags can be looked at here, and there are no others in between. */
static __always_inline bool hike_shows_headers(const struct hike_context *context)
{
	const void *ip = hike_data(context) + ETH_HLEN, *end = hike_data_end(context);
	const struct ipv6hdr *ip6 = ip;

	if (context->protocol == bpf_htons(ETH_P_IP))
		return ip + sizeof(struct iphdr) + sizeof(struct tcphdr) <= end;
	if (ip + sizeof(*ip6) + sizeof(struct tcphdr) > end)
		return false;
	return ip6->nexthdr == IPPROTO_TCP || ip6->nexthdr == IPPROTO_UDP;
}

static __always_inline void hike_show_headers(struct hike_context *context)
{
	__u32 bytes = context->len;

	/* If there is no memory for that, the programs do not find the headers that are not shown. */
	if (!hike_shows_headers(context))
		bpf_skb_pull_data(context, bytes < HIKE_SHOWN_BYTES ? bytes : HIKE_SHOWN_BYTES);
}

/* Returns the length of an IP header and the transport header right behind it, or 0 if it is none that the kernel cuts behind. */
static __always_inline __u32 hike_header_bytes(const struct hike_context *context, const struct hike_packet *packet)
{
	const void *ip = hike_ip(context, packet), *end = hike_data_end(context);
	__u32 ip_bytes = sizeof(struct ipv6hdr);
	const struct tcphdr *tcp;
	__u8 protocol;

	if (packet->version == 6) {
		if (ip + ip_bytes > end)
			return 0;
		protocol = ((const struct ipv6hdr *)ip)->nexthdr;
	} else {
		const struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end)
			return 0;
		ip_bytes = ip4->ihl * 4;
		protocol = ip4->protocol;
	}
	if (protocol == IPPROTO_UDP)
		return ip_bytes + sizeof(struct udphdr);
	tcp = ip + ip_bytes;
	if (protocol != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return 0;
	return ip_bytes + tcp->doff * 4;
}

static __always_inline void hike_find_segments(struct hike_context *context, struct hike_packet *packet)
{
	__u32 size = context->gso_size, whole = context->len - ETH_HLEN, header, longest;

	packet->segments = 1;
	packet->segment_bytes = 0;
	if (!size)
		return;
	packet->segments = context->gso_segs;
	header = hike_header_bytes(context, packet);
	if (!header || whole <= header) {
		if (!packet->segments)
			packet->segments = 1;
		return;
	}
	/* Segments of a packet that comes from another host's kernel are not counted yet. */
	if (!packet->segments)
		packet->segments = (whole - header + size - 1) / size;
	longest = header + size < whole ? header + size : whole;
	packet->segment_bytes = longest < HIKE_MOST_BYTES4 ? longest : HIKE_MOST_BYTES4;
}

/*
 * Returns HIKE_NEXT if this host sends the packet to one next hop, or why the kernel must see it. What a bridge passes on is between
 * other hosts.
 */
static __always_inline int hike_admit(const struct hike_context *context, struct hike_packet *packet)
{
	const __u8 *start = hike_data(context);

	if ((const void *)(start + ETH_HLEN) > hike_data_end(context))
		return HIKE_MALFORMED;
	/* The first bit on the wire stands for a group. */
	return context->pkt_type != PACKET_HOST || start[0] & 1 ? HIKE_OTHER_HOST : HIKE_NEXT;
}

/* Returns whether the packet is this host's own answer to a test packet; at tcx nobody makes one. */
static __always_inline bool hike_is_answer(const struct hike_packet *packet)
{
	return false;
}

/* Packets for this host's own addresses leave by no device. */
static __always_inline bool hike_is_own(const struct hike_packet *packet, const struct hike_prefix *address)
{
	return false;
}

static __always_inline void hike_take_segments(struct hike_packet *packet, const struct hike_packet *found)
{
	packet->segments = found->segments;
	packet->segment_bytes = found->segment_bytes;
}

static __always_inline __u32 hike_segments(const struct hike_packet *packet)
{
	return packet->segments;
}

/* The kernel has pulled the headers to the front, so what is not there is missing. */
static __always_inline bool hike_is_apart(const struct hike_context *context, const void *to)
{
	return false;
}

static __always_inline int hike_tell_apart(const struct hike_context *context, int reason)
{
	return reason;
}

/*
 * Returns whether the packet has @bytes at least. Returns false if it is longer than an IP header can say (BIG TCP): such a
 * packet has its length elsewhere, which is not read.
 */
static __always_inline bool hike_has_bytes(const struct hike_context *context, __u32 at, const void *from,
					   __u32 bytes, const void *end)
{
	__u32 whole = context->len - ETH_HLEN;

	return bytes <= whole && whole <= HIKE_MOST_BYTES6;
}

static __always_inline __u32 hike_whole_bytes6(const struct hike_context *context, const struct hike_packet *packet,
					       const struct ipv6hdr *ip6, const void *end)
{
	__u32 bytes = hike_bytes6(ip6);

	return hike_has_bytes(context, packet->ip_at, ip6, bytes, end) ? bytes : 0;
}

static __always_inline __u32 hike_whole_bytes4(const struct hike_context *context, const struct hike_packet *packet,
					       const struct iphdr *ip4, const void *end)
{
	__u32 bytes = hike_bytes4(ip4);

	return hike_has_bytes(context, packet->ip_at, ip4, bytes, end) ? bytes : 0;
}

/* Returns the bytes that count: all of a packet that is not cut, or whose header could not say its length. */
static __always_inline __u32 hike_wire_bytes(const struct hike_packet *packet, __u32 whole, __u32 more)
{
	if (!whole || !packet->segment_bytes || whole + more > HIKE_MOST_BYTES4)
		return whole + more;
	return packet->segment_bytes + more;
}

static __always_inline int hike_push(struct hike_context *context, struct hike_packet *packet, __u32 ip_at,
				     __u32 bytes, void **start, void **end)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	struct ethhdr *eth;
	int failed;

	failed = bpf_skb_adjust_room(context, bytes, BPF_ADJ_ROOM_MAC,
				     flags | BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
	/*
	 * The packet is in a tunnel already, so the kernel knows the innermost headers. Without GSO, it need not know more for
	 * another tunnel.
	 */
	if (failed == -EALREADY && packet->version == 6 && !context->gso_size)
		failed = bpf_skb_adjust_room(context, bytes, BPF_ADJ_ROOM_MAC, flags);
	if (failed)
		return failed == -ENOMEM ? HIKE_NO_HEADROOM : HIKE_ENC_OFFLOAD;
	*start = hike_data(context);
	*end = hike_data_end(context);
	eth = *start;
	if ((void *)(eth + 1) > *end)
		return HIKE_MALFORMED;
	eth->h_proto = bpf_htons(ETH_P_IPV6);
	if (packet->segment_bytes)
		packet->segment_bytes += bytes;
	return HIKE_NEXT;
}

static __always_inline long hike_take_off(struct hike_context *context, int bytes)
{
	return -EINVAL;
}

/* Kernels before 6.10 know no marks here, and answer nothing. BPF_FIB_LOOKUP_MARK and its member are not in all headers yet. */
static __always_inline __u32 hike_ask_mark(const struct hike_context *context, struct bpf_fib_lookup *fib)
{
	__u32 mark = context->mark;

	if (!mark)
		return 0;
	HIKE_COPY(__u32, fib->smac, &mark);
	return 1U << 5;
}

/* A packet may always leave by the device that the kernel has chosen. */
static __always_inline bool hike_has_port(const struct hike_context *context, __u32 port)
{
	return port == context->ifindex || bpf_map_lookup_elem(&ports, &port);
}

static __always_inline int hike_no_port(const struct hike_context *context, __u32 port)
{
	return HIKE_FW_NO_PORT;
}

static __always_inline int hike_leave_by(struct hike_context *context, __u32 port)
{
	if (port == context->ifindex)
		return HIKE_FORWARDED | HIKE_HERE;
	hike_note_here(context);
	bpf_redirect(port, 0);
	return HIKE_FORWARDED;
}

/*
 * Makes the kernel look for the route again, and keep the packet until it has learnt the address. Does not tell it the next hop:
 * once it has learnt that hop's address, it would take the one to which the packet's old route leads (net/core/neighbour.c:
 * __neigh_update).
 */
static __always_inline int hike_resolve(struct hike_context *context, const struct bpf_fib_lookup *fib)
{
	if (!hike_has_port(context, fib->ifindex))
		return HIKE_FW_NO_PORT;
	hike_note_here(context);
	bpf_redirect_neigh(fib->ifindex, NULL, 0, 0);
	return HIKE_FORWARDED;
}

static __always_inline __u32 hike_reason_of(int reason)
{
	return reason & ~HIKE_HERE;
}

static __always_inline int hike_action_of(int reason)
{
	if (reason == HIKE_FORWARDED)
		return TC_ACT_REDIRECT;
	return reason < HIKE_FORWARDED || reason & HIKE_HERE ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

#endif
