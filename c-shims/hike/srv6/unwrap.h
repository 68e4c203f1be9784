/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Removal of headers of SRv6. All of it is at XDP: a packet for a local SID ends on this host, or has passed XDP before it leaves.
 */
#ifndef HIKE_UNWRAP_H
#define HIKE_UNWRAP_H

#include "../context.h"
#include "headers.h"

/* Takes the SRH out: RFC 8986, 4.16.1, S14.1 to S14.4. Returns HIKE_NEXT, or a reason before anything has changed. */
static __always_inline int hike_pop_srh(struct xdp_md *xdp, __u32 ip_at,
					const struct hike_headers *headers)
{
	void *start = hike_data(xdp), *end = hike_data_end(xdp);
	bool has_options = headers->srh_at > sizeof(struct ipv6hdr);
	/* The IPv6 header, and the eight bytes behind it: the options if there are any, and otherwise bytes that are not used. */
	__u64 kept[6];
	struct hike_link link;
	struct ipv6hdr *ip6;

	if (!hike_save_link(&link, start, end))
		return HIKE_MALFORMED;
	ip6 = start + (ip_at & 31);
	if ((void *)ip6 + sizeof(kept) > end)
		return HIKE_MALFORMED;
	for (int i = 0; i < 6; i++)
		HIKE_COPY(__u64, kept + i, (__u64 *)ip6 + i);
	if (bpf_xdp_adjust_head(xdp, headers->srh_bytes))
		return HIKE_MALFORMED;

	start = hike_data(xdp);
	end = hike_data_end(xdp);
	if (!hike_restore_link(&link, start, end, ip_at, ETH_P_IPV6))
		return HIKE_MALFORMED;
	ip6 = start + (ip_at & 31);
	if ((void *)(ip6 + 1) > end)
		return HIKE_MALFORMED;
	for (int i = 0; i < 5; i++)
		HIKE_COPY(__u64, (__u64 *)ip6 + i, kept + i);
	ip6->payload_len = bpf_htons(bpf_ntohs(ip6->payload_len) - headers->srh_bytes);
	if (has_options) {
		struct ipv6_opt_hdr *options = (void *)(ip6 + 1);

		if ((void *)options + HIKE_OPTION_BYTES > end)
			return HIKE_MALFORMED;
		HIKE_COPY(__u64, options, kept + 5);
		options->nexthdr = headers->protocol;
	} else {
		ip6->nexthdr = headers->protocol;
	}
	return HIKE_NEXT;
}

/* Writes the ECN field. In IPv4 the header's checksum changes too. */
static __always_inline void hike_set_ecn6(struct ipv6hdr *ip6, __u8 ecn)
{
	hike_set_traffic_class(ip6, (hike_traffic_class(ip6) & ~HIKE_ECN) | ecn);
}

static __always_inline void hike_set_ecn4(struct iphdr *ip4, __u8 ecn)
{
	__u8 old = ip4->tos, new = (old & ~HIKE_ECN) | ecn;

	if (old == new)
		return;
	ip4->check = hike_changed_checksum(ip4->check, bpf_htons(old), bpf_htons(new));
	ip4->tos = new;
}

/*
 * Takes the outer headers off. The inner IP header then has the offset of the outer one, and the bytes in front of it are void.
 * Returns HIKE_NEXT, or a reason before anything has changed.
 */
static __always_inline int hike_strip(struct xdp_md *xdp, struct hike_packet *packet,
				      const struct hike_inner *inner)
{
	void *ip, *end;

	if (bpf_xdp_adjust_head(xdp, inner->at))
		return HIKE_MALFORMED;
	packet->version = inner->version;
	ip = hike_ip(xdp, packet);
	end = hike_data_end(xdp);
	if (packet->version == 6) {
		struct ipv6hdr *ip6 = ip;

		if ((void *)(ip6 + 1) > end)
			return HIKE_MALFORMED;
		hike_set_ecn6(ip6, inner->ecn);
	} else {
		struct iphdr *ip4 = ip;

		if ((void *)(ip4 + 1) > end)
			return HIKE_MALFORMED;
		hike_set_ecn4(ip4, inner->ecn);
	}
	return HIKE_NEXT;
}

/* Takes the outer headers off as hike_strip() does, and keeps the link header in front of the IP header. */
static __always_inline int hike_decapsulate(struct xdp_md *xdp, struct hike_packet *packet,
					    const struct hike_inner *inner)
{
	void *start = hike_data(xdp), *end = hike_data_end(xdp), *ip;
	struct hike_link link;
	__u64 first;
	int reason;

	if (!hike_save_link(&link, start, end))
		return HIKE_MALFORMED;
	reason = hike_strip(xdp, packet, inner);
	if (reason != HIKE_NEXT)
		return reason;
	start = hike_data(xdp);
	end = hike_data_end(xdp);
	ip = start + (packet->ip_at & 31);
	if (ip + sizeof(first) > end)
		return HIKE_MALFORMED;
	HIKE_COPY(__u64, &first, ip);
	if (!hike_restore_link(&link, start, end, packet->ip_at & 31,
			       packet->version == 6 ? ETH_P_IPV6 : ETH_P_IP))
		return HIKE_MALFORMED;
	HIKE_COPY(__u64, ip, &first);
	return HIKE_NEXT;
}

#endif
