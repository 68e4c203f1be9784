/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes an entry of the cache of a packet that leaves, as it leaves. The dispatcher has noted what the packet was (look_up.h).
 *
 * User space says of each chain what is learned of its packets: nothing, unless the chain is made of `enc`, a monitor, and a program that
 * forwards, in this order. All that these do then depends on the key, on the packet's length and hop limit, and on the epoch.
 */
#ifndef HIKE_CACHE_LEARN_H
#define HIKE_CACHE_LEARN_H

#include "../context.h"
#include "tables.h"

#ifdef HIKE_TCX
#define hike_learn_way(CONTEXT, PACKET, PORT, MTU) \
	((void)(CONTEXT), (void)(PACKET), (void)(PORT), (void)(MTU))
#else
/* The kernel's jiffies in a second. User space sets it when this is loaded. */
const volatile __u64 hike_hz;

#define HIKE_NS_PER_S 1000000000ULL

/* Returns the first jiffy in which an entry is not good any more. */
static __always_inline __u64 hike_good_until(const struct hike_fill *fill)
{
	__u64 jiffies = hike_hz, of_colour;

	/* Routes may depend on the traffic class. Two less: the one that has begun, and one that is late. */
	if (fill->colour_ns && fill->colour_ns < HIKE_NS_PER_S) {
		of_colour = fill->colour_ns * hike_hz / HIKE_NS_PER_S;
		jiffies = of_colour > 2 ? of_colour - 2 : 0;
	}
	return fill->now + jiffies;
}

/* Copies what is in front of a packet, of this length, in pieces of 16 bytes: an IP header is behind it. Returns whether it is there. */
static __always_inline bool hike_take_head(struct hike_cached *entry, const void *start, const void *end, __u32 bytes)
{
	const __u64 *from = start;

#pragma unroll
	for (__u32 two = 0; two < HIKE_HEAD_BYTES / (2 * sizeof(__u64)); two++) {
		if (bytes <= two * 2 * sizeof(__u64))
			break;
		if ((const void *)(from + 2 * two + 2) > end)
			return false;
		entry->head[2 * two] = from[2 * two];
		entry->head[2 * two + 1] = from[2 * two + 1];
	}
	return true;
}

/* A function of its own, as a chain's frame has no room for more. */
static __noinline int hike_learn(struct hike_context *context, const struct hike_packet *packet, __u32 port,
				 __u32 mtu, __u32 learns)
{
	const void *start = hike_data(context), *end = hike_data_end(context);
	struct hike_fill *fill = hike_this_fill();
	__u32 most = mtu, outer = 0, index;
	const struct hike_path *path;
	struct hike_cached *entry;
	__s64 added;

	if (!fill || !fill->is_armed)
		return 0;
	fill->is_armed = 0;
	if (packet->is_on_path) {
		path = bpf_map_lookup_elem(&paths, &packet->class.path);
		if (!path)
			return 0;
		outer = path->bytes;
		if (path->most_bytes < most)
			most = path->most_bytes;
	}
	added = (end - start) - (__s64)fill->bytes;
	if (added < outer || added > outer + HIKE_MOST_L2_BYTES - ETH_HLEN ||
	    added > HIKE_HEAD_BYTES - ETH_HLEN || most <= outer)
		return 0;
	index = fill->index;
	entry = bpf_map_lookup_elem(&cache, &index);
	if (!entry)
		return 0;
	entry->until = 0;
	if (!hike_take_head(entry, start, end, added + ETH_HLEN))
		return 0;
	for (int i = 0; i < HIKE_KEY_WORDS; i++)
		entry->key[i] = fill->key[i];
	entry->epoch = fill->epoch;
	entry->port = port;
	entry->flow = fill->flow;
	entry->most_bytes = most - outer;
	entry->added = added;
	entry->link_bytes = ETH_HLEN + added - outer;
	entry->has_outer = packet->is_on_path;
	/* A monitor that comes moves the epoch. */
	entry->is_monitored = fill->is_counted;
	entry->direction = learns & HIKE_LEARNS_MON_IN ? HIKE_IN : HIKE_OUT;
	entry->until = hike_good_until(fill);
	fill->learned++;
	return 0;
}

/* Learns the way of a packet that leaves by this port, and may have so many bytes then, if its chain lets it. */
static __always_inline void hike_learn_way(struct hike_context *context, const struct hike_packet *packet,
					   __u32 port, __u32 mtu)
{
	__u32 learns = HIKE_LEARNS;

	if (learns)
		hike_learn(context, packet, port, mtu, learns);
}
#endif

#endif
