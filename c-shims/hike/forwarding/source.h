/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's checks of IPv4 sources (net/ipv4/fib_frontend.c: fib_validate_source), which its look-up for programs leaves out. A packet
 * that might not pass them goes to the kernel.
 */
#ifndef HIKE_SOURCE_H
#define HIKE_SOURCE_H

#include "receiver.h"

/* Those of sys/socket.h, which is not for BPF. */
#define HIKE_AF_INET 2
#define HIKE_AF_INET6 10

/* The question to a look-up, as far as the answer takes its place. */
struct hike_asked4 {
	__be32 destination;
	__u32 table;
	__u8 tos;
};

/* Returns whether it is an address of this host, or one that all hosts of a link have. */
static __always_inline bool hike_is_own4(const struct hike_packet *packet, __be32 address)
{
	struct hike_prefix key = {};

	HIKE_COPY(__u32, key.address, &address);
	hike_whole(&key, 4);
	return hike_is_own(packet, &key);
}

/*
 * Checks the source of a packet of which the look-up has answered that it leaves by @port. Rules are asked for the way back: as the kernel
 * does, for what would come from that port; in a VRF, for the VRF. @fib is of no more use then.
 */
static __always_inline int hike_check_source(struct hike_context *context, const struct hike_packet *packet,
					     struct bpf_fib_lookup *fib, const struct hike_asked4 *asked,
					     __u32 flags, const struct hike_receiver *receiver, __u32 port)
{
	__be32 source = fib->ipv4_src;
	__be16 from_port = fib->sport;

	if (hike_is_own4(packet, source))
		return HIKE_FW_SOURCE;
	if (!(receiver->flags & (HIKE_RECEIVER_STRICT | HIKE_RECEIVER_LOOSE)))
		return HIKE_NEXT;
	fib->family = HIKE_AF_INET;
	fib->sport = fib->dport;
	fib->dport = from_port;
	fib->tot_len = 0;
	fib->tos = asked->tos;
	fib->ipv4_src = asked->destination;
	fib->ipv4_dst = source;
	fib->tbid = asked->table;
	fib->ifindex = receiver->asked == receiver->device ? port : receiver->asked;
	if (bpf_fib_lookup(context, fib, sizeof(*fib), flags | BPF_FIB_LOOKUP_SKIP_NEIGH) !=
	    BPF_FIB_LKUP_RET_SUCCESS)
		return HIKE_FW_SOURCE;
	if (receiver->flags & HIKE_RECEIVER_STRICT && fib->ifindex != receiver->device)
		return HIKE_FW_SOURCE;
	return HIKE_NEXT;
}

#endif
