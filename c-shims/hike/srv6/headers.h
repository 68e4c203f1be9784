/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of SRv6: what is in front of what they carry. */
#ifndef HIKE_SRV6_H
#define HIKE_SRV6_H

#include "../context.h"

#define HIKE_ROUTING_SEGMENTS 4

/* A segment routing header: RFC 8754, without its SIDs. */
struct hike_srh {
	__u8 next_header;
	__u8 words;
	__u8 type;
	__u8 segments_left;
	__u8 last_entry;
	__u8 flags;
	__be16 tag;
};

#define HIKE_SID_BYTES 16
/* A destination options header in front of the SRH may have this many bytes: room for the option of RFC 9343. */
#define HIKE_OPTION_BYTES 8

/* The headers of a packet that came to a local SID; offsets are from the IPv6 header on. */
struct hike_headers {
	/* The length of the packet. */
	__u32 bytes;
	/* Of the SRH, or where it would be. */
	__u32 srh_at;
	/* 0: there is none. */
	__u32 srh_bytes;
	/* The protocol behind these headers, as the last of them names it. */
	__u8 protocol;
	__u8 segments_left;
};

/*
 * Reads the headers up to the SRH. Returns HIKE_NEXT; or why the kernel must see the packet: they are not those of SRv6 (RFC 8754, 2),
 * for which its seg6 drops it (net/ipv6/seg6.c: seg6_validate_srh), or what is left to it.
 */
static __always_inline int hike_read_headers(const struct hike_context *context, const struct hike_packet *packet,
					     const struct ipv6hdr *ip6, const void *end,
					     struct hike_headers *headers)
{
	__u32 bytes = hike_whole_bytes6(context, packet, ip6, end);
	const struct hike_srh *srh;
	__u32 listed_bytes;

	if (!bytes)
		return HIKE_MALFORMED;
	headers->bytes = bytes;
	headers->srh_at = sizeof(*ip6);
	headers->protocol = ip6->nexthdr;
	if (headers->protocol == IPPROTO_DSTOPTS) {
		const struct ipv6_opt_hdr *options = (void *)(ip6 + 1);

		if ((void *)options + HIKE_OPTION_BYTES > end)
			return HIKE_MALFORMED;
		if (options->hdrlen)
			return HIKE_SID_HEADERS;
		headers->srh_at += HIKE_OPTION_BYTES;
		headers->protocol = options->nexthdr;
	}
	if (headers->protocol == IPPROTO_ROUTING) {
		srh = (void *)ip6 + headers->srh_at;
		if ((void *)(srh + 1) > end)
			return HIKE_MALFORMED;
		if (srh->type != HIKE_ROUTING_SEGMENTS)
			return HIKE_SID_HEADERS;
		headers->protocol = srh->next_header;
		headers->segments_left = srh->segments_left;
		headers->srh_bytes = (srh->words + 1) * 8;
		listed_bytes = sizeof(*srh) + (srh->last_entry + 1) * HIKE_SID_BYTES;
		/* With H.Encaps.Red, one more segment may be left than is listed. */
		if (listed_bytes > headers->srh_bytes ||
		    headers->segments_left > srh->last_entry + 1)
			return HIKE_MALFORMED;
		/* TLVs, of which one may be for the kernel to verify. */
		if (listed_bytes < headers->srh_bytes)
			return HIKE_SID_HEADERS;
	}
	return headers->srh_at + headers->srh_bytes <= bytes ? HIKE_NEXT : HIKE_MALFORMED;
}

/*
 * Does the first checks for every local SID. Returns HIKE_NEXT if there is a behaviour for it, and the headers are those of SRv6;
 * else why not. Of those that go on, none has an HMAC, as that is a TLV (net/ipv6/seg6_local.c: get_and_validate_srh,
 * decap_and_validate).
 */
static __always_inline int hike_begin_sid(const struct hike_context *context, const struct hike_packet *packet,
					  const struct ipv6hdr *ip6, const void *end,
					  const struct hike_behaviour *behaviour, struct hike_headers *headers)
{
	int reason;

	if (!behaviour)
		return HIKE_NO_BEHAVIOUR;
	if (packet->version != 6)
		return HIKE_SID_HEADERS;
	if ((void *)(ip6 + 1) > end)
		return HIKE_MALFORMED;
	reason = hike_read_headers(context, packet, ip6, end, headers);
	if (reason == HIKE_NEXT && headers->srh_bytes && packet->device_flags & HIKE_DEVICE_SIGNED)
		return HIKE_SID_UNSIGNED;
	return reason;
}

/* Goes on to the next segment, which must be left: RFC 8986, 4.1, S12 to S14. */
static __always_inline bool hike_next_segment(struct ipv6hdr *ip6, const void *end,
					      struct hike_headers *headers)
{
	struct hike_srh *srh = (void *)ip6 + (headers->srh_at & 63);
	const struct in6_addr *segment;

	headers->segments_left--;
	segment = (void *)(srh + 1) + headers->segments_left * HIKE_SID_BYTES;
	if ((void *)(srh + 1) > end || (void *)(segment + 1) > end)
		return false;
	srh->segments_left = headers->segments_left;
	hike_copy_address(&ip6->daddr, segment);
	return true;
}

/* Returns whether a packet of IPv4 or IPv6 is behind the headers. */
static __always_inline bool hike_carries_ip(const struct hike_headers *headers)
{
	return headers->protocol == IPPROTO_IPV6 || headers->protocol == IPPROTO_IPIP;
}

/* The packet inside: its offset from the outer header, its length and kind. */
struct hike_inner {
	__u32 at;
	__u32 bytes;
	__u8 version;
	/* The new value of its ECN field. */
	__u8 ecn;
};

/*
 * Returns the ECN field of a packet that was in another one: RFC 6040, 4.2. More than 3: the packet met congestion, which its ends
 * would not learn of, so it has to be dropped.
 */
static __always_inline __u8 hike_ecn_inside(__u8 outer, __u8 inner)
{
	if (outer == 3)
		return inner ? 3 : 4;
	return outer == 1 && inner == 2 ? 1 : inner;
}

/*
 * Looks at the packet inside, which is one for a table of IPv4 or IPv6: returns HIKE_NEXT; or why the kernel must see the outer one, or why
 * it is dropped.
 */
static __always_inline int hike_read_inner(const struct hike_context *context, const struct hike_packet *packet,
					   const struct ipv6hdr *outer, const void *end,
					   const struct hike_headers *headers,
					   struct hike_inner *inner)
{
	const void *ip = (void *)outer + ((headers->srh_at + headers->srh_bytes) & 0xfff);
	__u8 ecn;

	inner->at = (headers->srh_at + headers->srh_bytes) & 0xfff;
	if (headers->protocol == IPPROTO_IPV6) {
		const struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end || ip6->version != 6)
			return HIKE_MALFORMED;
		inner->version = 6;
		inner->bytes = hike_bytes6(ip6);
		ecn = hike_traffic_class(ip6) & HIKE_ECN;
	} else {
		const struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end || ip4->version != 4 || ip4->ihl < 5)
			return HIKE_MALFORMED;
		inner->version = 4;
		inner->bytes = hike_bytes4(ip4);
		ecn = ip4->tos & HIKE_ECN;
	}
	/* It ends where the outer one does, or before. */
	if (!inner->bytes ||
	    !hike_has_bytes(context, packet->ip_at + inner->at, ip, inner->bytes, end) ||
	    inner->at + inner->bytes > bpf_ntohs(outer->payload_len) + sizeof(*outer))
		return HIKE_MALFORMED;
	inner->ecn = hike_ecn_inside(hike_traffic_class(outer) & HIKE_ECN, ecn);
	return inner->ecn > 3 ? HIKE_DEC_CONGESTED : HIKE_NEXT;
}

/* Returns what the packet's local SID does, or NULL. */
static __always_inline const struct hike_behaviour *hike_behaviour_of(const struct hike_packet *packet)
{
	__u32 number = packet->class.behaviour & HIKE_CLASS_BEHAVIOUR;
	const struct hike_behaviour *behaviour = bpf_map_lookup_elem(&behaviours, &number);

	return behaviour && behaviour->flags ? behaviour : NULL;
}

/* Counts a packet that the behaviour was done to. */
static __always_inline void hike_count_sid(const struct hike_behaviour *behaviour,
					   const struct hike_headers *headers)
{
	struct hike_sid_counts *counts = bpf_map_lookup_elem(&sid_counts, &behaviour->number);

	if (!counts)
		return;
	counts->pkts += 1;
	counts->bytes += headers->bytes;
}

#endif
