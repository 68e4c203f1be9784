/* SPDX-License-Identifier: GPL-2.0 */
/* Packets at XDP. */
#ifndef HIKE_CONTEXT_XDP_H
#define HIKE_CONTEXT_XDP_H

#include "../packet.h"

/* The programs take packets in several buffers, as jumbo frames are; data and data_end are those of the first buffer. */
#define HIKE_SECTION "xdp.frags"
#define HIKE_TO_KERNEL XDP_PASS
#define HIKE_IS_A_HOP true
/* VLAN tags that are looked through. */
#define HIKE_VLAN_TAGS 2

/* Returns the device that the kernel's rules are asked for. */
static __always_inline __u32 hike_from_device(const struct hike_context *context)
{
	return context->ingress_ifindex;
}

/* Returns whether it has a VLAN tag that is not among its bytes. */
static __always_inline bool hike_is_tagged(const struct hike_context *context)
{
	return false;
}

/* Returns whether the packet has been here before. */
static __always_inline bool hike_has_been_here(struct hike_context *context)
{
	return false;
}

/* Makes sure that the headers can be looked at. */
static __always_inline void hike_show_headers(struct hike_context *context)
{
}

/* Finds out what the packet becomes on the wire. */
static __always_inline void hike_find_segments(struct hike_context *context, struct hike_packet *packet)
{
}

/*
 * Returns HIKE_NEXT if the frame is for the device that it came from alone, and notes what is known of that device; or why the kernel
 * must see it. A router goes on with nothing else, however much its NIC lets through (net/ethernet/eth.c: eth_type_trans;
 * net/ipv6/ip6_input.c: ip6_rcv_core).
 */
static __always_inline int hike_admit(const struct hike_context *context, struct hike_packet *packet)
{
	const void *start = hike_data(context);
	__u32 index = context->ingress_ifindex;
	const struct hike_device *device;

	if (start + ETH_HLEN > hike_data_end(context))
		return HIKE_MALFORMED;
	device = bpf_map_lookup_elem(&devices, &index);
	if (!device || *(const __u32 *)start != *(const __u32 *)device->mac ||
	    *(const __u16 *)(start + 4) != *(const __u16 *)(device->mac + 4))
		return HIKE_OTHER_HOST;
	packet->device_flags = device->flags;
	return HIKE_NEXT;
}

/* Returns whether an address, as a whole key, is one of this host's, or of all hosts of a link. */
static __always_inline bool hike_is_own(const struct hike_packet *packet, const struct hike_prefix *address)
{
	if (bpf_map_lookup_elem(&own_addresses, address))
		return true;
	return packet->device_flags & HIKE_DEVICE_OWN_PREFIXES && bpf_map_lookup_elem(&own_prefixes, address);
}

/* Returns whether such an address is this host's alone, so that packets may come from there. */
static __always_inline bool hike_is_own_alone(const struct hike_packet *packet, const struct hike_prefix *address)
{
	const __u32 *owner = bpf_map_lookup_elem(&own_addresses, address);

	if (!owner && packet->device_flags & HIKE_DEVICE_OWN_PREFIXES)
		owner = bpf_map_lookup_elem(&own_prefixes, address);
	return owner && *owner == HIKE_OWNED_BY_THIS;
}

/* Returns whether the packet is this host's own answer to a test packet. */
static __always_inline bool hike_is_answer(const struct hike_packet *packet)
{
	return packet->device_flags & HIKE_IS_ANSWER;
}

/* Copies what hike_admit() has noted. */
static __always_inline void hike_take_segments(struct hike_packet *packet, const struct hike_packet *found)
{
	packet->device_flags = found->device_flags;
}

/* Returns how many packets it is on the wire. */
static __always_inline __u32 hike_segments(const struct hike_packet *packet)
{
	return 1;
}

/* Returns the length of the packet in all of its buffers. */
static __always_inline __u64 hike_frame_bytes(const struct hike_context *context)
{
	return bpf_xdp_get_buff_len((struct hike_context *)context);
}

/* Returns whether it is in several buffers. */
static __always_inline bool hike_in_buffers(const struct hike_context *context)
{
	return !hike_fits(hike_data(context), hike_frame_bytes(context), hike_data_end(context));
}

/* Returns whether the packet goes on in another buffer in front of this. */
static __always_inline bool hike_is_apart(const struct hike_context *context, const void *to)
{
	return to > hike_data_end(context) && hike_in_buffers(context);
}

/*
 * Returns the reason for which a packet is left to the kernel: if it is in several buffers, and its headers were not found whole, they
 * may be in a later one, where programs do not look.
 */
static __always_inline int hike_tell_apart(const struct hike_context *context, int reason)
{
	return reason == HIKE_MALFORMED && hike_in_buffers(context) ? HIKE_HEADERS_APART : reason;
}

/* Returns whether this many bytes from @from on, whose offset is @at, are in the packet; @end is the end of the first buffer. */
static __always_inline bool hike_has_bytes(const struct hike_context *context, __u32 at, const void *from,
					   __u32 bytes, const void *end)
{
	return hike_fits(from, bytes, end) || at + bytes <= hike_frame_bytes(context);
}

/* Returns the length in the packet's IP header, or 0 if it is wrong. */
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

/* Returns how long the packet is on the wire with this many bytes in front of it; 0 stays 0. */
static __always_inline __u32 hike_wire_bytes(const struct hike_packet *packet, __u32 whole, __u32 more)
{
	return whole + more;
}

/* The bytes in front of an IP header with two VLAN tags, but for the last two bytes, which name it. */
struct hike_link {
	__u64 one, two;
	__u32 three;
};

/* Saves the link header before the IP header moves. Every packet has at least that many bytes. */
static __always_inline bool hike_save_link(struct hike_link *link, const void *start, const void *end)
{
	if (start + HIKE_MOST_L2_BYTES > end)
		return false;
	HIKE_COPY(__u64, &link->one, start);
	HIKE_COPY(__u64, &link->two, start + 8);
	HIKE_COPY(__u32, &link->three, start + 16);
	return true;
}

/* Copies it back in front of an IP header of this kind, whose own first bytes are to be written after that. */
static __always_inline bool hike_restore_link(const struct hike_link *link, void *start, const void *end,
					      __u32 ip_at, __u16 kind)
{
	__be16 *names;

	if (start + HIKE_MOST_L2_BYTES > end)
		return false;
	HIKE_COPY(__u64, start, &link->one);
	HIKE_COPY(__u64, start + 8, &link->two);
	HIKE_COPY(__u32, start + 16, &link->three);
	/* The two bytes in front of an IP header name it. */
	names = start + ((ip_at - sizeof(*names)) & 31);
	if ((void *)(names + 1) > end)
		return false;
	*names = bpf_htons(kind);
	return true;
}

/*
 * Makes room for an outer IPv6 header and what belongs to it: returns HIKE_NEXT and where the packet starts and ends now, or a reason
 * before anything has changed.
 */
static __always_inline int hike_push(struct hike_context *context, struct hike_packet *packet, __u32 ip_at,
				     __u32 bytes, void **start, void **end)
{
	struct hike_link link;

	if (!hike_save_link(&link, *start, *end))
		return HIKE_MALFORMED;
	if (bpf_xdp_adjust_head(context, -(int)bytes))
		return HIKE_NO_HEADROOM;
	*start = hike_data(context);
	*end = hike_data_end(context);
	if (!hike_restore_link(&link, *start, *end, ip_at, ETH_P_IPV6))
		return HIKE_MALFORMED;
	return HIKE_NEXT;
}

/* Takes bytes off the front, or makes room there for this many less than 0; returns 0, or the kernel's error. */
static __always_inline long hike_take_off(struct hike_context *context, int bytes)
{
	return bpf_xdp_adjust_head(context, bytes);
}

/* Says which mark the packet has, for which the kernel's rules may look; returns what the look-up is told. At XDP it has none. */
static __always_inline __u32 hike_ask_mark(const struct hike_context *context, struct bpf_fib_lookup *fib)
{
	return 0;
}

/* Chooses the port that a packet in one buffer leaves through, if it is one. */
static __always_inline bool hike_take_port(__u32 port)
{
	return bpf_redirect_map(&ports, port, XDP_PASS) == XDP_REDIRECT;
}

/*
 * Chooses the port that the packet leaves through: before anything has changed, so that if there is no such port, the kernel gets the
 * packet as it is. Not all drivers send packets in several buffers for XDP (kernel/bpf/devmap.c: __xdp_enqueue).
 */
static __always_inline bool hike_has_port(const struct hike_context *context, __u32 port)
{
	if (hike_in_buffers(context) && !bpf_map_lookup_elem(&wide_ports, &port))
		return false;
	return hike_take_port(port);
}

/* Returns why a packet cannot leave through a port. */
static __always_inline int hike_no_port(const struct hike_context *context, __u32 port)
{
	return hike_in_buffers(context) && bpf_map_lookup_elem(&ports, &port) ? HIKE_FW_BUFFERS : HIKE_FW_NO_PORT;
}

/*
 * Makes the packet leave by the port that was chosen. Macros, so that the compiler sees the returned constant.
 */
#define hike_leave_by(CONTEXT, PORT) ((void)(CONTEXT), (void)(PORT), HIKE_FORWARDED)
/* Does what can be done where the next hop's Ethernet address is not known. */
#define hike_resolve(CONTEXT, FIB) ((void)(CONTEXT), (void)(FIB), HIKE_FW_NO_NEIGHBOUR)

/* Returns the number of a reason. */
static __always_inline __u32 hike_reason_of(int reason)
{
	return reason;
}

/* Returns what XDP does with the packet. */
static __always_inline int hike_action_of(int reason)
{
	if (reason == HIKE_FORWARDED)
		return XDP_REDIRECT;
	/* It is the answer to its source, or the rest of it is. */
	if (reason == HIKE_SENT_BACK || reason == HIKE_ENC_TOO_BIG_TOLD)
		return XDP_TX;
	return reason < HIKE_FORWARDED ? XDP_PASS : XDP_DROP;
}

#endif
