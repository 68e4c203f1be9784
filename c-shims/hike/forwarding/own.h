/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Packets that stay on this host or on its link, whatever class they have: without them, the host is cut off as soon as a class is wide
 * enough to have its addresses in it.
 *
 * Only programs that take packets elsewhere without asking the kernel's routes look here. Those of local SIDs do not, as a SID is this
 * host's own, nor do those that drop: an access list is for the host, too.
 */
#ifndef HIKE_OWN_H
#define HIKE_OWN_H

#include "forward.h"

/* The messages of neighbour discovery, and the hop limit that they have if they have passed no router (RFC 4861, 4). */
#define HIKE_DISCOVERY_FIRST 133
#define HIKE_DISCOVERY_LAST 137
#define HIKE_DISCOVERY_HOP_LIMIT 255

static __always_inline bool hike_is_discovery(const struct ipv6hdr *ip6, const void *end)
{
	const __u8 *type = (const void *)(ip6 + 1);

	return ip6->nexthdr == IPPROTO_ICMPV6 && ip6->hop_limit == HIKE_DISCOVERY_HOP_LIMIT &&
	       (const void *)(type + 1) <= end && *type >= HIKE_DISCOVERY_FIRST &&
	       *type <= HIKE_DISCOVERY_LAST;
}

/*
 * Returns HIKE_NEXT if the packet may be taken elsewhere, or why the kernel must see it. A function of its own, as chains may have
 * several, and have little stack.
 */
static __noinline int hike_stays(struct hike_context *context, struct hike_packet *packet)
{
	struct hike_prefix destination = {};

	if (packet->version == 6) {
		const struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		if (!hike_routable6(&ip6->saddr) || !hike_routable6(&ip6->daddr) ||
		    hike_is_discovery(ip6, hike_data_end(context)))
			return HIKE_FW_NOT_ROUTABLE;
		hike_copy_address(destination.address, &ip6->daddr);
	} else {
		const struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		if (!hike_routable4(ip4->saddr) || !hike_routable4(ip4->daddr))
			return HIKE_FW_NOT_ROUTABLE;
		HIKE_COPY(__u32, destination.address, &ip4->daddr);
	}
	hike_whole(&destination, packet->version);
	return hike_is_own(packet, &destination) ? HIKE_OWN_ADDRESS : HIKE_NEXT;
}

#endif
