/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cache by flow, in front of the classes: what a chain has done with a flow's packet is done with the next ones at once.
 *
 * An entry is good for a second, in the epoch in which it was made, and while somebody watches. All that may differ between two packets
 * of a flow is looked at in each: hop limit, length, room in front, and the port. What an entry is not good for takes its chain.
 */
#ifndef HIKE_CACHE_LOOK_UP_H
#define HIKE_CACHE_LOOK_UP_H

#ifdef HIKE_TCX
/* There is no cache. */
#define hike_take_cached(CONTEXT) ((void)(CONTEXT), HIKE_NEXT)
#else
#include "key.h"
#include "../monitor.h"

/*
 * 64 less the binary logarithm of the number of entries, by which a hash becomes a place; 0: there is no cache. User space sets it when
 * this is loaded.
 */
const volatile __u8 hike_cache_shift;

/* Returns whether an entry is good now, in this epoch. One that is not will never be again: jiffies and epochs only go up. */
static __always_inline bool hike_is_good(const struct hike_cached *entry, __u64 epoch, __u64 now)
{
	return entry->epoch == epoch && now < entry->until;
}

/*
 * Returns the good entry in the second place of the packet that `fill` has, or NULL. Then lets the packet be learned when it leaves, in
 * that of its places where there is no good entry.
 *
 * An entry is made only when its flow has no good one in either place, so a flow never has two. A function of its own, as a packet whose
 * entry is in its first place need not pay for this.
 */
static __noinline const struct hike_cached *hike_find_second(struct hike_fill *fill, bool is_first_good)
{
	__u32 index = hike_second_place(fill->index);
	const struct hike_cached *second;
	bool is_good;

	second = bpf_map_lookup_elem(&cache, &index);
	if (!second)
		return NULL;
	is_good = hike_is_good(second, fill->epoch, fill->now);
	if (is_good && hike_is_key(second->key, fill->key))
		return second;
	if (!is_good && is_first_good)
		fill->index = index;
	fill->is_armed = !is_good || !is_first_good;
	fill->misses++;
	return NULL;
}

/*
 * Copies what is in front of a packet that leaves, of this length, into the room that has been made. Returns HIKE_NEXT, or what the
 * verifier wants to see.
 *
 * A function of its own, whose caller does nothing more with the packet's pointers: for the verifier, they are something else on each way
 * out of the loop. The last 16 bytes are copied last, whatever the loop has left of them.
 */
static __noinline int hike_put_head(struct hike_context *context, const struct hike_cached *hit, __u32 whole)
{
	void *start = hike_data(context), *end = hike_data_end(context);
	__u32 bytes = hit->added + ETH_HLEN, last = bytes - 2 * sizeof(__u64);
	__u32 outer_at = hit->link_bytes & 31;
	struct ipv6hdr *outer = start + outer_at;
	__u64 *to = start;

#pragma unroll
	for (__u32 i = 0; i < HIKE_HEAD_BYTES / sizeof(__u64); i += 2) {
		if (bytes < (i + 2) * sizeof(__u64))
			break;
		if ((void *)(to + i + 2) > end)
			return HIKE_MALFORMED;
		to[i] = hit->head[i];
		to[i + 1] = hit->head[i + 1];
	}
	if (last > HIKE_HEAD_BYTES - 2 * sizeof(__u64))
		return HIKE_MALFORMED;
	to = start + last;
	if ((void *)(to + 2) > end)
		return HIKE_MALFORMED;
	HIKE_COPY(__u64, to, (const void *)hit->head + last);
	HIKE_COPY(__u64, to + 1, (const void *)hit->head + last + sizeof(__u64));
	if (!hit->has_outer)
		return HIKE_NEXT;
	if ((void *)(outer + 1) > end)
		return HIKE_MALFORMED;
	outer->payload_len = bpf_htons(whole + bytes - outer_at - sizeof(*outer));
	return HIKE_NEXT;
}

/* Takes one from the hop limit of the packet whose IP header is there, as it came. */
static __always_inline int hike_pass_hop(void *ip, const void *end, bool is_v6)
{
	struct ipv6hdr *ip6 = ip;
	struct iphdr *ip4 = ip;

	if (is_v6) {
		if ((void *)(ip6 + 1) > end)
			return HIKE_MALFORMED;
		ip6->hop_limit--;
	} else {
		if ((void *)(ip4 + 1) > end)
			return HIKE_MALFORMED;
		hike_decrease_ttl(ip4);
	}
	return HIKE_NEXT;
}

/*
 * Colours and counts a packet of the flow that has this number where it enters what is monitored; 0: the flow has none. With a number,
 * its counters are found without a look at its headers.
 */
static __noinline int hike_monitor_again(struct hike_context *context, __u32 ip_at, enum hike_direction direction,
					 __u32 flow)
{
	struct ipv6hdr *ip6 = hike_data(context) + (ip_at & 31);
	const void *end = hike_data_end(context);
	struct hike_counters *counters;
	__u64 number = flow;

	if ((void *)(ip6 + 1) > end)
		return 0;
	counters = number ? bpf_map_lookup_elem(&numbered_flows, &number) : NULL;
	if (!counters)
		return hike_monitor(context, ip_at, 1, direction, HIKE_PATHS);
	hike_mark(counters, ip6, end, 1, HIKE_IN);
	return 0;
}

/* Makes a packet of this length leave as the entry says; returns HIKE_NEXT, and has changed nothing, if it takes its chain. */
static __always_inline int hike_leave_as(struct hike_context *context, const struct hike_cached *hit,
					 __u32 whole, bool is_v6)
{
	__u32 added = hit->added;
	void *start, *end;
	__u64 *to;
	int reason;

	if (whole > hit->most_bytes || !hike_take_port(hit->port))
		return HIKE_NEXT;
	if (added && bpf_xdp_adjust_head(context, -(int)added))
		return HIKE_NEXT;
	start = hike_data(context);
	end = hike_data_end(context);
	reason = hike_pass_hop(start + added + ETH_HLEN, end, is_v6);
	if (reason != HIKE_NEXT)
		return reason;
	if (added) {
		reason = hike_put_head(context, hit, whole);
		if (reason != HIKE_NEXT)
			return reason;
	} else {
		to = start;
		if (start + ETH_HLEN > end)
			return HIKE_MALFORMED;
		/* Both Ethernet addresses; what they are in front of stays. */
		*to = hit->head[0];
		*(__u32 *)(to + 1) = hit->head[1];
	}
	if (hit->is_monitored)
		hike_monitor_again(context, hit->link_bytes, hit->direction, hit->flow);
	return hike_leave_by(context, hit->port);
}

/*
 * Returns the reason of a packet for which there is a good entry, or HIKE_NEXT. Notes what the packet is, so that it can be learned.
 *
 * The epoch is read before classes and routes are asked: if it moves meanwhile, the new entry is good for nobody. Good entries of other
 * flows stay in their places, so that flows that share them do not replace each other with each packet.
 */
static __always_inline int hike_take_cached(struct hike_context *context)
{
	const struct hike_epoch *watched;
	const struct hike_cached *hit;
	__u64 until, number, now;
	__u32 whole, index, shift = hike_cache_shift;
	struct hike_fill *fill;
	bool is_good, is_v6;
	int reason;

	if (!shift)
		return HIKE_NEXT;
	watched = hike_this_epoch();
	fill = hike_this_fill();
	if (!watched || !fill)
		return HIKE_NEXT;
	fill->is_armed = 0;
	now = bpf_jiffies64();
	/* In this order: one who watches moves the epoch before it says that it has watched on. Both reads are volatile, so they stay so. */
	until = *(const volatile __u64 *)&watched->watched_until;
	number = *(const volatile __u64 *)&watched->number;
	if (now >= until)
		return HIKE_NEXT;
	if (hike_in_buffers(context))
		return HIKE_NEXT;
	whole = hike_read_key(context, fill->key, &is_v6);
	if (!whole)
		return HIKE_NEXT;
	index = hike_first_place(fill->key, shift);
	hit = bpf_map_lookup_elem(&cache, &index);
	if (!hit)
		return HIKE_NEXT;
	is_good = hike_is_good(hit, number, now);
	if (!is_good || !hike_is_key(hit->key, fill->key)) {
		fill->epoch = number;
		fill->now = now;
		fill->colour_ns = 0;
		fill->is_counted = 0;
		fill->flow = 0;
		fill->index = index;
		fill->bytes = hike_data_end(context) - hike_data(context);
		hit = hike_find_second(fill, is_good);
		if (!hit)
			return HIKE_NEXT;
	}
	reason = hike_leave_as(context, hit, whole, is_v6);
	if (reason != HIKE_NEXT)
		fill->hits++;
	return reason;
}
#endif

#endif
