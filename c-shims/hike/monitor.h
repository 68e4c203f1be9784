/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Alternate marking (RFC 9341): time is cut into blocks of equal length, whose packets have two colours in turn. A flow's packets are
 * counted by block where they are coloured and where the flow ends; what differs is lost.
 *
 * The colour is the L bit of the option of RFC 9343 in a destination options header right behind the IPv6 header, or a bit of DSCP.
 * A flow is the FlowMonID in that option, if its packets have it, its source, and the SIDs of its SRH; without an SRH, its destination.
 */
#ifndef HIKE_MONITOR_H
#define HIKE_MONITOR_H

#include "cache/tables.h"
#include "context.h"
#include "srv6/headers.h"

/* A destination options header whose only option is that of RFC 9343. */
struct hike_marking {
	__u8 next_header;
	__u8 words;
	__u8 option;
	__u8 option_bytes;
	/* 20 bits: the FlowMonID; then L, D, and zeros. */
	__u8 flow_and_colour[4];
};

#define HIKE_MARKING_OPTION 0x12
#define HIKE_MARKING_BYTES 4
/* The byte of the option that has L, and L. */
#define HIKE_MARKING_AT 2
#define HIKE_MARKING_L 0x08
/* The bits behind the FlowMonID. */
#define HIKE_MARKING_ID_SHIFT 12

/*
 * One map for each number of SIDs, as the size of a key is that of its map. The meaning of a key is in the name: user space takes maps of
 * other names for those of another version.
 */
#define HIKE_FLOWS_OF(N)						\
	HIKE_MAP(id_flows_##N, BPF_MAP_TYPE_PERCPU_HASH, HIKE_FLOWS,	\
		 2 * sizeof(__u32) + 16 + (N) * 16,			\
		 sizeof(struct hike_counters), BPF_F_NO_PREALLOC)
HIKE_FLOWS_OF(1);
HIKE_FLOWS_OF(2);
HIKE_FLOWS_OF(3);
HIKE_FLOWS_OF(4);
HIKE_FLOWS_OF(5);
HIKE_FLOWS_OF(6);
HIKE_FLOWS_OF(7);
HIKE_FLOWS_OF(8);
HIKE_FLOWS_OF(9);
HIKE_FLOWS_OF(10);
HIKE_FLOWS_OF(11);
HIKE_FLOWS_OF(12);
HIKE_FLOWS_OF(13);
HIKE_FLOWS_OF(14);
HIKE_FLOWS_OF(15);
HIKE_FLOWS_OF(16);

/* The flow of the packet that this CPU looks for: chains have too little stack for the keys of long paths. */
HIKE_MAP(this_flow, BPF_MAP_TYPE_PERCPU_ARRAY, 1, sizeof(__u32), sizeof(struct hike_flow), 0);

static __always_inline struct hike_flow *hike_this_flow(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&this_flow, &key);
}

#define HIKE_FLOWS_CASE(N)						\
	case N:								\
		return bpf_map_lookup_elem(&id_flows_##N, flow)

static __always_inline struct hike_counters *hike_counters_of(const struct hike_flow *flow,
							      __u32 sids)
{
	switch (sids) {
	HIKE_FLOWS_CASE(1);
	HIKE_FLOWS_CASE(2);
	HIKE_FLOWS_CASE(3);
	HIKE_FLOWS_CASE(4);
	HIKE_FLOWS_CASE(5);
	HIKE_FLOWS_CASE(6);
	HIKE_FLOWS_CASE(7);
	HIKE_FLOWS_CASE(8);
	HIKE_FLOWS_CASE(9);
	HIKE_FLOWS_CASE(10);
	HIKE_FLOWS_CASE(11);
	HIKE_FLOWS_CASE(12);
	HIKE_FLOWS_CASE(13);
	HIKE_FLOWS_CASE(14);
	HIKE_FLOWS_CASE(15);
	HIKE_FLOWS_CASE(16);
	}
	return NULL;
}

/* Returns the counters of the flow that packets of a path are of, if that is known. */
static __always_inline struct hike_counters *hike_counters_of_path(__u32 path)
{
	const __u64 *number;

	if (path >= HIKE_PATHS)
		return NULL;
	number = bpf_map_lookup_elem(&path_flows, &path);
	return number && *number ? bpf_map_lookup_elem(&numbered_flows, number) : NULL;
}

/* Returns whether a destination options header has that option at its place. */
static __always_inline bool hike_is_marking(const struct hike_marking *marking)
{
	return marking->option == HIKE_MARKING_OPTION && marking->option_bytes == HIKE_MARKING_BYTES;
}

/* Returns the counters of the flow whose headers these are; the IPv6 header is there. */
static __always_inline struct hike_counters *hike_counters_of_headers(const struct ipv6hdr *ip6, const void *end,
								      enum hike_direction direction)
{
	const struct hike_marking *options = (const void *)(ip6 + 1);
	const struct hike_srh *srh = (const void *)(ip6 + 1);
	struct hike_flow *flow = hike_this_flow();
	__u8 next_header = ip6->nexthdr;
	__u32 sids = 1;

	if (!flow)
		return NULL;
	flow->direction = direction;
	flow->flow_id = 0;
	hike_copy_address(flow->source, &ip6->saddr);
	if (next_header == IPPROTO_DSTOPTS) {
		if ((const void *)(options + 1) > end)
			return NULL;
		if (hike_is_marking(options))
			flow->flow_id = HIKE_FLOW_HAS_ID |
					bpf_ntohl(*(const __be32 *)options->flow_and_colour) >>
						HIKE_MARKING_ID_SHIFT;
		next_header = options->next_header;
		srh = (const void *)options + (options->words + 1) * 8;
	}
	if (next_header == IPPROTO_ROUTING) {
		const struct in6_addr *sid = (const void *)(srh + 1);

		if ((const void *)(srh + 1) > end || srh->type != HIKE_ROUTING_SEGMENTS)
			return NULL;
		sids = srh->last_entry + 1;
		if (sids > HIKE_FLOW_SIDS || sids * 2 > srh->words)
			return NULL;
		for (__u32 i = 0; i < HIKE_FLOW_SIDS; i++) {
			if (i >= sids)
				break;
			if ((const void *)(sid + i + 1) > end)
				return NULL;
			hike_copy_address(flow->sids[i], sid + i);
		}
	} else {
		hike_copy_address(flow->sids[0], &ip6->daddr);
	}
	return hike_counters_of(flow, sids);
}

/* Returns the byte of the option that has the colour, if the packet has the option at its place. */
static __always_inline __u8 *hike_colour_byte(struct ipv6hdr *ip6, const void *end)
{
	struct hike_marking *marking = (void *)(ip6 + 1);

	if (ip6->nexthdr != IPPROTO_DSTOPTS || (void *)(marking + 1) > end)
		return NULL;
	return hike_is_marking(marking) ? &marking->flow_and_colour[HIKE_MARKING_AT] : NULL;
}

/* Returns the block that a packet of this colour belongs to: the one now or, of its neighbours, the one that is nearer in time. */
static __always_inline __u64 hike_block_of(__u64 now_ns, __u64 period_ns, bool colour)
{
	__u64 block = now_ns / period_ns;

	if ((block & 1) == colour)
		return block;
	return now_ns % period_ns < period_ns / 2 ? block - 1 : block + 1;
}

static __always_inline void hike_count(struct hike_counters *counters, __u64 number, __u32 pkts)
{
	struct hike_block *block = &counters->blocks[number % HIKE_FLOW_BLOCKS];

	if (block->number != number) {
		block->number = number;
		block->pkts = 0;
	}
	block->pkts += pkts;
	counters->pkts += pkts;
}

/*
 * Colours (HIKE_IN) and counts the packet, or the segments that it becomes, with the counters of its flow. Returns for how long its traffic
 * class stays that of its flow, or 0 if the colour is not there.
 */
static __always_inline __u64 hike_mark(struct hike_counters *counters, struct ipv6hdr *ip6, const void *end,
				       __u32 segments, enum hike_direction direction)
{
	__u64 now_ns, block, of_class_ns = 0;
	__u8 *byte = NULL, bit = counters->colour_bit;
	bool colour;

	/* User space refuses a period of 0. */
	if (!counters->period_ns)
		return 0;
	if (!bit) {
		byte = hike_colour_byte(ip6, end);
		if (!byte)
			return 0;
	}
	now_ns = bpf_ktime_get_tai_ns();
	if (direction == HIKE_OUT) {
		colour = byte ? *byte & HIKE_MARKING_L : hike_traffic_class(ip6) & bit;
		block = hike_block_of(now_ns, counters->period_ns, colour);
	} else {
		block = now_ns / counters->period_ns;
		colour = block & 1;
		if (byte) {
			*byte = (*byte & ~HIKE_MARKING_L) | (colour ? HIKE_MARKING_L : 0);
		} else {
			__be32 *first = (__be32 *)ip6, mask = bpf_htonl((__u32)bit << HIKE_CLASS_SHIFT);

			*first = (*first & ~mask) | (colour ? mask : 0);
			of_class_ns = (block + 1) * counters->period_ns - now_ns;
		}
	}
	hike_count(counters, block, segments);
	return of_class_ns;
}

/*
 * Colours and counts the packet if it is one of a monitored flow, and notes that for the cache; a function of its own, as chains may have
 * several. The path is the one whose headers are the outermost; HIKE_PATHS: it is not known.
 */
static __noinline int hike_monitor(struct hike_context *context, __u32 ip_at, __u32 segments,
				   enum hike_direction direction, __u32 path)
{
	struct ipv6hdr *ip6 = hike_data(context) + (ip_at & 31);
	const void *end = hike_data_end(context);
	struct hike_counters *counters;

	if ((void *)(ip6 + 1) > end)
		return 0;
	counters = hike_counters_of_path(path);
	if (!counters)
		counters = hike_counters_of_headers(ip6, end, direction);
	if (counters)
		hike_note_counted(counters->number, hike_mark(counters, ip6, end, segments, direction));
	return 0;
}

#endif
