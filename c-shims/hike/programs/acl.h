/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Drops what the access list denies: the first rule that a packet meets counts, and what meets none goes on.
 *
 * Each part of a packet (source, destination, protocol, ports) is looked up on its own, and yields the set of rules that it meets; the
 * rules that all of it meets are in all these sets (Lakshman and Stiliadis, High-Speed Policy-based Packet Forwarding Using Efficient
 * Multi-dimensional Range Matching, 1998). So a packet costs two tries and three arrays, however many rules there are.
 *
 * If a field cannot be seen (the protocol behind unusual headers, the ports of a later fragment), the packet meets rules that
 * deny, and none that allows.
 */
#include "../packet.h"

/* Headers of IPv6 that are skipped to get to the transport's. */
#define HIKE_RULE_HEADERS 4
#define HIKE_FRAGMENT_OFFSET 0xfff8
#define HIKE_FRAGMENT4_OFFSET 0x1fff

/* The fields behind the addresses that rules look at: they say to which sets of rules a packet belongs. */
struct hike_transport {
	/* HIKE_RULES_OF_UNSEEN_PROTOCOL: it cannot be seen. */
	__u32 protocol;
	/* NULL: there are none, or they cannot be seen. */
	const __be16 *ports;
	bool unseen_ports;
};

static __always_inline bool hike_has_ports(__u32 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_DCCP || protocol == IPPROTO_UDPLITE;
}

static __always_inline void hike_find_ports(struct hike_transport *transport, const void *header,
					    const void *end, bool later_fragment)
{
	if (!hike_has_ports(transport->protocol))
		return;
	transport->unseen_ports = later_fragment || header + 2 * sizeof(__be16) > end;
	if (!transport->unseen_ports)
		transport->ports = header;
}

static __always_inline void hike_find_transport6(struct hike_transport *transport,
						 const struct ipv6hdr *ip6, const void *end)
{
	const struct ipv6_opt_hdr *header = (void *)(ip6 + 1);
	__u8 protocol = ip6->nexthdr;
	bool later_fragment = false;

	transport->protocol = HIKE_RULES_OF_UNSEEN_PROTOCOL;
	transport->unseen_ports = true;
	for (int i = 0; i <= HIKE_RULE_HEADERS; i++) {
		bool is_fragment = protocol == IPPROTO_FRAGMENT;

		if (protocol != IPPROTO_HOPOPTS && protocol != IPPROTO_DSTOPTS &&
		    protocol != IPPROTO_ROUTING && !is_fragment) {
			transport->protocol = protocol;
			transport->unseen_ports = false;
			hike_find_ports(transport, header, end, later_fragment);
			return;
		}
		if (i == HIKE_RULE_HEADERS || later_fragment || (void *)header + 8 > end)
			return;
		protocol = header->nexthdr;
		if (is_fragment) {
			later_fragment = ((const __be16 *)header)[1] & bpf_htons(HIKE_FRAGMENT_OFFSET);
			header = (void *)header + 8;
		} else {
			header = (void *)header + (header->hdrlen + 1) * 8;
		}
	}
}

static __always_inline const struct hike_rules *hike_rules_of(__u32 bank, __u32 set)
{
	__u32 key = bank * HIKE_RULE_SETS + set;

	return bpf_map_lookup_elem(&rule_sets, &key);
}

/* Returns the rules that one of the packet's ports meets. */
static __always_inline const struct hike_rules *hike_rules_of_port(const struct hike_transport *transport,
								   __u32 bank, bool source)
{
	const struct hike_rule_port *sets;
	__u32 set = transport->unseen_ports ? HIKE_UNSEEN_PORT : 0, port;

	if (transport->ports) {
		port = bpf_ntohs(transport->ports[source ? 0 : 1]);
		sets = bpf_map_lookup_elem(&rule_ports, &port);
		if (!sets)
			return NULL;
		set = source ? sets->source[bank] : sets->destination[bank];
	}
	return hike_rules_of(bank, set + (source ? HIKE_RULES_OF_SOURCE_PORT
						 : HIKE_RULES_OF_DESTINATION_PORT));
}

static __noinline int hike_acl(struct hike_context *context, struct hike_packet *packet)
{
	const struct hike_rules *from, *to, *with, *out_of, *into, *denying;
	struct hike_prefix source = {}, destination = {};
	const void *end = hike_data_end(context);
	struct hike_transport transport = {};
	__u32 zero = 0, bank, rule;
	const __u32 *named;
	__u64 *hits;

	named = bpf_map_lookup_elem(&rule_bank, &zero);
	if (!named)
		return HIKE_NEXT;
	/* User space may name the other bank meanwhile. */
	bank = *(const volatile __u32 *)named;
	if (!bank)
		return HIKE_NEXT;
	if (packet->version == 6) {
		const struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		hike_copy_address(source.address, &ip6->saddr);
		hike_copy_address(destination.address, &ip6->daddr);
		hike_find_transport6(&transport, ip6, end);
	} else {
		const struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		HIKE_COPY(__u32, source.address, &ip4->saddr);
		HIKE_COPY(__u32, destination.address, &ip4->daddr);
		transport.protocol = ip4->protocol;
		hike_find_ports(&transport, (const void *)ip4 + ip4->ihl * 4, end,
				ip4->frag_off & bpf_htons(HIKE_FRAGMENT4_OFFSET));
	}
	hike_whole(&source, packet->version);
	hike_whole(&destination, packet->version);
	source.version |= bpf_htonl(bank << 8);
	destination.version |= bpf_htonl(bank << 8);
	bank = (bank - 1) & 1;
	with = hike_rules_of(bank, HIKE_RULES_OF_PROTOCOL + transport.protocol);
	out_of = hike_rules_of_port(&transport, bank, true);
	into = hike_rules_of_port(&transport, bank, false);
	denying = hike_rules_of(bank, HIKE_RULES_THAT_DENY);
	from = bpf_map_lookup_elem(&rule_sources, &source);
	if (!from)
		return HIKE_NEXT;
	to = bpf_map_lookup_elem(&rule_destinations, &destination);
	if (!to || !with || !out_of || !into || !denying)
		return HIKE_NEXT;
#pragma unroll
	for (int i = 0; i < HIKE_RULES / 64; i++) {
		__u64 met = from->words[i] & to->words[i] & with->words[i] & out_of->words[i] &
			    into->words[i];

		if (!met)
			continue;
		/* The first rule counts. */
		met &= -met;
		rule = bank * HIKE_RULES + i * 64 + __builtin_ctzll(met);
		hits = bpf_map_lookup_elem(&rule_hits, &rule);
		if (hits)
			*hits += 1;
		return met & denying->words[i] ? HIKE_DENIED : HIKE_NEXT;
	}
	return HIKE_NEXT;
}
