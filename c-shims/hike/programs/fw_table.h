/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Forwards by HIKE's own table, which has the next hop's Ethernet address. The kernel's routes and neighbours are not used, so what
 * stays on this host or its link is looked for.
 */
#include "../forwarding/own.h"
#include "../forwarding/tell.h"

static __always_inline int hike_fw_table(struct hike_context *context, struct hike_packet *packet)
{
	struct hike_prefix prefix = {};
	const struct hike_route *route;
	struct hike_hop hop;
	__u32 bytes;
	int reason;

	reason = packet->is_on_path ? HIKE_NEXT : hike_stays(context, packet);
	if (reason != HIKE_NEXT)
		return reason;
	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		bytes = hike_whole_bytes6(context, packet, ip6, hike_data_end(context));
		bytes = hike_wire_bytes(packet, bytes, 0);
		reason = hike_forwardable6(ip6, bytes);
		if (reason != HIKE_NEXT)
			return reason;
		hike_copy_address(prefix.address, &ip6->daddr);
	} else {
		struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		bytes = hike_whole_bytes4(context, packet, ip4, hike_data_end(context));
		bytes = hike_wire_bytes(packet, bytes, 0);
		reason = hike_forwardable4(ip4, bytes);
		if (reason != HIKE_NEXT)
			return reason;
		HIKE_COPY(__u32, prefix.address, &ip4->daddr);
	}
	hike_whole(&prefix, packet->version);
	route = bpf_map_lookup_elem(&routes, &prefix);
	if (!route)
		return HIKE_FW_NO_ROUTE;
	if (bytes > route->mtu)
		return packet->is_on_path ? hike_tell_of_link(context, packet, route->mtu)
					  : HIKE_FW_TOO_BIG;
	hop.port = route->port;
	hop.mtu = route->mtu;
	hike_copy_mac(hop.source, route->source);
	hike_copy_mac(hop.destination, route->destination);
	return hike_leave(context, packet, &hop);
}
