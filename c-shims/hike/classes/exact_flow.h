/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Classes of exact flows, which come before the class of their destination. A flow is looked up by addresses, protocol and ports,
 * then by addresses and flow label. Each is one hash look-up, and only for destinations that have exact flows.
 */
#ifndef HIKE_EXACT_FLOW_H
#define HIKE_EXACT_FLOW_H

#include "../context.h"

/* The bits in IPv4 that say that more fragments follow, or that have an offset. */
#define HIKE_FRAGMENT4 0x3fff

/* Returns both ports of a transport header, as they stand there; 0 if there are none. */
static __always_inline __be32 hike_ports_of(const void *transport, const void *end, __u8 protocol)
{
	__be32 ports;

	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP && protocol != IPPROTO_SCTP)
		return 0;
	if (transport + sizeof(ports) > end)
		return 0;
	HIKE_COPY(__be32, &ports, transport);
	return ports;
}

/* Takes all members at once: user space may replace the class meanwhile. */
static __always_inline void hike_take_class(struct hike_packet *packet, const struct hike_class *class)
{
	packet->whole_class = *(volatile __u64 *)class;
}

/* Returns whether the class of the packet's destination says that some of the flows there have others. */
static __always_inline bool hike_has_exact_flows(const struct hike_packet *packet)
{
	return packet->class.chain & (HIKE_CLASS_HAS_PORTS | HIKE_CLASS_HAS_LABELS);
}

/*
 * Replaces the class of the packet's destination, which has exact flows, by that of the packet's flow, if the flow has one.
 * Returns HIKE_NEXT if the packet has a class now; HIKE_NO_CLASS if not, as the class of a destination may be there only to say that it
 * has exact flows; or why the kernel must see a packet whose flow cannot be told.
 */
static __always_inline int hike_exact_flow(struct hike_context *context, struct hike_packet *packet,
					   const struct hike_prefix *destination)
{
	const void *end = hike_data_end(context);
	struct hike_exact_flow flow = { .version = packet->version };
	const struct hike_class *found = NULL;
	const void *behind_ports;
	__be32 label = 0;

	HIKE_COPY(__u64, &flow.destination[0], &destination->address[0]);
	HIKE_COPY(__u64, &flow.destination[1], &destination->address[1]);
	if (packet->version == 6) {
		const struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		hike_copy_address(flow.source, &ip6->saddr);
		flow.protocol = ip6->nexthdr;
		flow.ports_or_label = hike_ports_of(ip6 + 1, end, ip6->nexthdr);
		behind_ports = (const void *)(ip6 + 1) + sizeof(__be32);
		label = *(__be32 *)ip6 & bpf_htonl(HIKE_FLOW_LABEL);
	} else {
		const struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		HIKE_COPY(__u32, flow.source, &ip4->saddr);
		flow.protocol = ip4->protocol;
		/* All fragments of a packet are of one flow, and only the first has ports. */
		if (!(ip4->frag_off & bpf_htons(HIKE_FRAGMENT4)))
			flow.ports_or_label = hike_ports_of((const void *)ip4 + ip4->ihl * 4, end, ip4->protocol);
		behind_ports = (const void *)ip4 + ip4->ihl * 4 + sizeof(__be32);
	}
	/* With its ports in another buffer, nobody can say whose flow it is. */
	if (hike_is_apart(context, behind_ports))
		return HIKE_HEADERS_APART;
	if (packet->class.chain & HIKE_CLASS_HAS_PORTS)
		found = bpf_map_lookup_elem(&exact_flows, &flow);
	if (!found && packet->class.chain & HIKE_CLASS_HAS_LABELS && packet->version == 6) {
		flow.version = 0;
		flow.protocol = 0;
		flow.ports_or_label = label;
		found = bpf_map_lookup_elem(&exact_flows, &flow);
	}
	if (found) {
		hike_take_class(packet, found);
		return HIKE_NEXT;
	}
	packet->class.chain &= ~(HIKE_CLASS_HAS_PORTS | HIKE_CLASS_HAS_LABELS);
	return packet->class.chain != HIKE_CLASS_OF_FLOWS ? HIKE_NEXT : HIKE_NO_CLASS;
}

#endif
