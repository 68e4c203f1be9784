/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures and maps of the cache, and of those who watch what its entries have come from: rust/hike/src/layout.rs has the same
 * structures. tcx has no cache.
 */
#ifndef HIKE_CACHE_TABLES_H
#define HIKE_CACHE_TABLES_H

#include "../tables.h"

/*
 * The epoch, which all programs of an instance share. User space has it in its own memory, too.
 *
 * An entry of the cache is good in the epoch in which it was made, and while somebody watches.
 */
struct hike_epoch {
	/* Moves after each change of what entries have come from. */
	__u64 number;
	/* The jiffy until which somebody moves it; the largest number: the kernel does (epoch.bpf.c). */
	__u64 watched_until;
	/* The jiffies when hike_clock ran last. */
	__u64 now;
	/* The number of the network namespace whose neighbours are noted; 0: none. */
	__u64 network;
};

/* The words by which flows are told apart. */
#define HIKE_KEY_WORDS 7
/* Room for what is in front of a packet that leaves: a link header with two VLAN tags, and the outer headers of a path. A multiple of 16. */
#define HIKE_HEAD_BYTES 240

/* The way of a flow's packet, which the next ones take, too. */
struct hike_cached {
	__u64 key[HIKE_KEY_WORDS];
	__u64 epoch;
	/* The first jiffy in which it is not good any more; at most a second behind the packet. */
	__u64 until;
	__u32 port;
	/* The number by which the monitor knows the packet's flow; 0: it looks at headers. */
	__u32 flow;
	/* The largest packet, as it comes, that fits the path and the link. */
	__u16 most_bytes;
	/* Bytes in front of the packet that were not there. */
	__u8 added;
	/* Of the link header. */
	__u8 link_bytes;
	/* Set: there is an outer header. */
	__u8 has_outer;
	/* Set: the packet's flow is monitored, in this direction (enum hike_direction). */
	__u8 is_monitored;
	__u8 direction;
	__u8 zero;
	/* The bytes in front of the packet's IP header when it left: in words, as they are copied. */
	__u64 head[HIKE_HEAD_BYTES / sizeof(__u64)];
};

_Static_assert(sizeof(struct hike_cached) == HIKE_CACHE_ENTRY_BYTES, "user space says how much memory a cache takes");

/* The parts of its packets' way that are learned of a chain; 0: nothing. User space gives it to the programs of the chain. */
#define HIKE_LEARNS_WAY 1
#define HIKE_LEARNS_MON_IN 2
#define HIKE_LEARNS_MON_OUT 4

/* The packet that its CPU has, of which something is learned when it leaves; and counters. */
struct hike_fill {
	__u64 key[HIKE_KEY_WORDS];
	/* The epoch, and the jiffies, before anything was asked. */
	__u64 epoch;
	__u64 now;
	/* The time for which the packet's colour, if it is in the traffic class, stays that of its flow; 0: it has none there. */
	__u64 colour_ns;
	/* The place of the entry that is made. */
	__u32 index;
	/* The packet's length as it came, in its first buffer. */
	__u32 bytes;
	/* Set: the members above are those of the packet, and it may be learned. */
	__u8 is_armed;
	/* The parts that its chain lets learn: only the engine that tail-calls uses this. */
	__u8 learns;
	/* Set: its flow is monitored, and the number of the flow where it enters; 0: it has none. */
	__u8 is_counted;
	__u8 zero;
	__u32 flow;
	/* The number of packets that an entry was good for, that none was good for, and that made an entry. */
	__u64 hits;
	__u64 misses;
	__u64 learned;
};

/* A neighbour of the kernel's: a next hop, or a host on a link. */
struct hike_neighbour_key {
	__u32 device;
	/* 4 or 6. */
	__u32 version;
	/* In network byte order; an IPv4 address has the first four bytes. */
	__u64 address[2];
};

struct hike_neighbour {
	/* The jiffies when the kernel got a packet last to ask it. */
	__u64 asked;
	/* Its Ethernet address, and zeros. */
	__u64 mac;
	/* Set: the address may be used. */
	__u32 is_valid;
	/* Set: the address may be used, and has to be asked for again (NUD_STALE). */
	__u32 is_stale;
};

#ifdef HIKE_TCX
#define hike_note_counted(FLOW, NS) ((void)(FLOW), (void)(NS))
#else
/* User space may give it more or fewer entries when it makes it. */
HIKE_MAP(cache, BPF_MAP_TYPE_PERCPU_ARRAY, HIKE_CACHE_ENTRIES, sizeof(__u32),
	 sizeof(struct hike_cached), 0);
HIKE_MAP(cache_fill, BPF_MAP_TYPE_PERCPU_ARRAY, 1, sizeof(__u32), sizeof(struct hike_fill), 0);
HIKE_MAP(epoch, BPF_MAP_TYPE_ARRAY, 1, sizeof(__u32), sizeof(struct hike_epoch), BPF_F_MMAPABLE);
/* Those that are asked for least go first; one that is not there may be stale. */
HIKE_MAP(neighbours, BPF_MAP_TYPE_LRU_HASH, HIKE_NEIGHBOURS, sizeof(struct hike_neighbour_key),
	 sizeof(struct hike_neighbour), 0);

static __always_inline struct hike_epoch *hike_this_epoch(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&epoch, &key);
}

static __always_inline struct hike_fill *hike_this_fill(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cache_fill, &key);
}

/*
 * Notes that the packet's flow is monitored, and its number. Routes may depend on the traffic class, so notes too for how long the colour
 * that the monitor has given to that stays the same; 0: the colour is elsewhere.
 */
static __always_inline void hike_note_counted(__u32 flow, __u64 of_class_ns)
{
	struct hike_fill *fill = hike_this_fill();

	if (!fill)
		return;
	fill->is_counted = 1;
	fill->flow = flow;
	fill->colour_ns = of_class_ns;
}
#endif

#endif
