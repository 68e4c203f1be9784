// SPDX-License-Identifier: GPL-2.0
/*
 * The entry: looks whether the frame is for this host, finds the packet's IP header and its class, and jumps into the chain of the
 * class.
 *
 * That is the only indirect jump of a packet with a compiled chain. What has no class goes to the kernel untouched. A packet of a flow
 * that is in the cache leaves at once.
 */
#include "classes/destination.h"
#include "classes/group.h"
#include "cache/look_up.h"

/* Fills in what the packet is and its destination; returns HIKE_NEXT, or why the kernel must see it. */
static __always_inline int hike_parse(struct hike_context *context, struct hike_packet *packet,
				      struct hike_prefix *destination)
{
	void *start = hike_data(context), *end = hike_data_end(context);
	__u32 ip_at = ETH_HLEN;
	__be16 protocol;

	if (hike_is_tagged(context))
		return HIKE_NOT_IP;
	if (start + ETH_HLEN > end)
		return HIKE_MALFORMED;
	protocol = *(__be16 *)(start + ETH_HLEN - sizeof(protocol));
	for (int tags = 0; tags < HIKE_VLAN_TAGS; tags++) {
		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		ip_at += HIKE_VLAN_BYTES;
		if (start + ip_at > end)
			return HIKE_MALFORMED;
		/* The last two bytes of the tag name the header behind it. */
		protocol = *(__be16 *)(start + ip_at - 2);
	}
	packet->ip_at = ip_at;
	packet->is_on_path = 0;
	if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = start + ip_at;

		if ((void *)(ip6 + 1) > end || ip6->version != 6)
			return HIKE_MALFORMED;
		packet->version = 6;
		hike_copy_address(destination->address, &ip6->daddr);
		return HIKE_NEXT;
	}
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip4 = start + ip_at;

		if ((void *)(ip4 + 1) > end || ip4->version != 4 || ip4->ihl < 5)
			return HIKE_MALFORMED;
		packet->version = 4;
		HIKE_COPY(__u32, destination->address, &ip4->daddr);
		return HIKE_NEXT;
	}
	return HIKE_NOT_IP;
}

SEC(HIKE_SECTION)
int hike_dispatcher(struct hike_context *context)
{
	struct hike_prefix destination = {};
	struct hike_packet *packet;
	int reason;

	if (hike_has_been_here(context))
		return HIKE_TO_KERNEL;
	reason = hike_take_cached(context);
	if (reason != HIKE_NEXT)
		return hike_finish(reason);
	packet = hike_this_packet();
	if (!packet)
		return HIKE_TO_KERNEL;
	hike_show_headers(context);
	reason = hike_admit(context, packet);
	if (reason == HIKE_NEXT)
		reason = hike_parse(context, packet, &destination);
	if (reason != HIKE_NEXT)
		return hike_finish(hike_tell_apart(context, reason));
	hike_find_segments(context, packet);
	hike_whole(&destination, packet->version);
	reason = hike_find_class(context, packet, &destination);
	if (reason != HIKE_NEXT)
		return hike_finish(reason);
	if (!hike_may_take_class(context, packet))
		return hike_finish(HIKE_FROM_OUTSIDE);
	bpf_tail_call(context, &chains, packet->class.chain);
	return hike_finish(HIKE_NO_CHAIN_THERE);
}

char hike_license[] SEC("license") = "GPL";
