/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Classes of destinations: of the address, else of the longest prefix that it is in, else the default.
 *
 * Addresses and prefixes are in hash tables, where a packet looks once for each length that is in use, from the longest on. So its cost
 * depends on how many lengths there are, and not on how many prefixes.
 */
#ifndef HIKE_DESTINATION_H
#define HIKE_DESTINATION_H

#include "exact_flow.h"

/* Makes a key shorter: one of this length. */
static __always_inline void hike_shorten(struct hike_prefix *key, const struct hike_length *length)
{
	HIKE_COPY(__u64, &key->bits, &length->bits);
	key->address[0] &= length->mask[0];
	key->address[1] &= length->mask[1];
}

/*
 * Gives the packet the class of its destination, or of its flow; returns HIKE_NEXT, or why it has none. The key is that of the whole
 * address, and shorter afterwards.
 *
 * Each step reads again which length is next: user space may change that meanwhile, and lengths that are not in use lead on, too.
 */
static __always_inline int hike_find_class(struct hike_context *context, struct hike_packet *packet,
					   struct hike_prefix *key)
{
	const struct hike_class *found;
	const struct hike_length *of_version;
	__u32 zero = 0;
	__u64 next;
	struct hike_lengths *lengths = bpf_map_lookup_elem(&lengths_in_use, &zero);

	if (!lengths)
		return HIKE_NO_CLASS;
	/* 4 is the first, 6 the second: as a calculation, so that the verifier need not look at all steps for each of them. */
	of_version = lengths->of_version[packet->version >> 1 & 1];
	next = of_version[HIKE_NO_LENGTH].shorter;
	if (next == key->bits) {
		found = bpf_map_lookup_elem(&classes, key);
		if (found) {
			int reason = HIKE_NEXT;

			hike_take_class(packet, found);
			if (hike_has_exact_flows(packet))
				reason = hike_exact_flow(context, packet, key);
			if (reason != HIKE_NO_CLASS)
				return reason;
		}
		next = of_version[next].shorter;
	}
	for (int step = 0; step < HIKE_NO_LENGTH && next < HIKE_NO_LENGTH; step++) {
		hike_shorten(key, &of_version[next]);
		found = bpf_map_lookup_elem(&prefixes, key);
		if (found) {
			hike_take_class(packet, found);
			return HIKE_NEXT;
		}
		next = of_version[next].shorter;
	}
	return HIKE_NO_CLASS;
}

#endif
