/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Next hops whose Ethernet address may be old. The kernel asks again for an address that is stale when it sends a packet there, and takes
 * no note of packets that XDP sends. So it gets one of them: at most one for each next hop and second, until it has asked.
 *
 * Those who watch (epoch.bpf.c, or user space) say which addresses are stale. If nobody has watched for a while, all may be.
 */
#ifndef HIKE_CACHE_NEXT_HOP_H
#define HIKE_CACHE_NEXT_HOP_H

#include "../forwarding/source.h"
#include "learn.h"

#ifdef HIKE_TCX
#define hike_find_stale(FIB) ((void)(FIB), NULL)
#define hike_ask_again(STALE) ((void)(STALE), HIKE_NEXT)
#else
/* Returns whether somebody watches, or did until two seconds ago. */
static __always_inline bool hike_is_watched(__u64 now)
{
	const struct hike_epoch *watched = hike_this_epoch();
	__u64 until;

	if (!watched)
		return false;
	until = *(const volatile __u64 *)&watched->watched_until;
	return now < until || now - until < 2 * hike_hz;
}

/*
 * Returns the neighbour that is the next hop which the look-up has said, if its address may be old and the kernel has got no packet for it
 * for a second; else NULL. A function of its own, as a chain's frame has no room for more.
 */
static __noinline struct hike_neighbour *hike_find_stale(const struct bpf_fib_lookup *fib)
{
	struct hike_neighbour_key key = {
		.device = fib->ifindex,
		.version = fib->family == HIKE_AF_INET ? 4 : 6,
	};
	struct hike_neighbour new = { .is_valid = 1, .is_stale = 1 };
	struct hike_neighbour *known;
	__u64 now = bpf_jiffies64();

	if (key.version == 4)
		HIKE_COPY(__u32, key.address, &fib->ipv4_dst);
	else
		hike_copy_address(key.address, fib->ipv6_dst);
	known = bpf_map_lookup_elem(&neighbours, &key);
	if (!known) {
		/* It has been forgotten, or nobody has told of it: so it may be stale, and is asked for at once. */
		new.asked = now - hike_hz;
		bpf_map_update_elem(&neighbours, &key, &new, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&neighbours, &key);
		if (!known)
			return NULL;
	}
	if (now - known->asked < hike_hz || (!known->is_stale && hike_is_watched(now)))
		return NULL;
	return known;
}

/* Returns HIKE_NEXT, or why the kernel gets the packet: to ask for the address of such a neighbour. Of several CPUs, one asks. */
static __always_inline int hike_ask_again(struct hike_neighbour *stale)
{
	__u64 asked, now;

	if (!stale)
		return HIKE_NEXT;
	now = bpf_jiffies64();
	asked = *(const volatile __u64 *)&stale->asked;
	if (now - asked < hike_hz || __sync_val_compare_and_swap(&stale->asked, asked, now) != asked)
		return HIKE_NEXT;
	return HIKE_FW_STALE;
}
#endif

#endif
