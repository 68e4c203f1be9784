/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The two places where the programs run. At XDP frames come in. At tcx the host's own packets and those that the kernel forwards go
 * out. For tcx the programs are compiled once more, with HIKE_TCX. The table has all differences; the programs are the same.
 *
 * | | XDP | tcx |
 * |---|---|---|
 * | hike_context | a frame, of which the first buffer is seen | an sk_buff: its headers are shown, and it may be several packets (GSO) |
 * | a packet has passed a hop (HIKE_IS_A_HOP) | when a program forwards it | before: the kernel has counted it, or it is the host's own |
 * | room for outer headers (hike_push) | as much as the driver has left | as much as the headers take |
 * | leaves by a port (hike_has_port, hike_leave_by) | to the driver | to the kernel's queues, offloads included |
 * | "the kernel gets it" (HIKE_TO_KERNEL) | it is received | it leaves by the device that the kernel has chosen |
 */
#ifndef HIKE_CONTEXT_H
#define HIKE_CONTEXT_H

#ifdef HIKE_TCX
#include "context/tcx.h"
#else
#include "context/xdp.h"
#endif

/* Counts the packet's reason, and returns what is done with the packet. */
static __always_inline int hike_finish(int reason)
{
	__u32 key = hike_reason_of(reason);
	__u64 *count = bpf_map_lookup_elem(&reasons, &key);

	if (count)
		*count += 1;
	return hike_action_of(reason);
}

#endif
