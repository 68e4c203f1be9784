/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Leaves what the class asks mflow for its flows in the packet's metadata, where mflow finds it when the kernel gets the packet.
 * rust/algo/headers/hint.rs has the layout.
 *
 * The packet itself stays as it is. A class that asks for nothing costs one test, and a driver without metadata has no hints. A function
 * of its own: on the stack, the frames of a chain and of the monitor leave no room for more.
 */
#include "../context.h"

/* The hint in network byte order, but for what is asked: magic "mflw", version, bytes, what is asked, 0. */
#define HIKE_HINT 0x6d666c7701080000ULL
#define HIKE_HINT_LANES_SHIFT 8

static __noinline int hike_lanes(struct hike_context *context, struct hike_packet *packet)
{
	__u64 lanes = packet->class.behaviour >> HIKE_CLASS_LANES_SHIFT;
	__be64 *hint;

	if (!lanes || bpf_xdp_adjust_meta(context, -(int)sizeof(*hint)))
		return HIKE_NEXT;
	/* As in hike_data(): the verifier knows what was checked of this load. */
	hint = (void *)(long)*(const volatile __u32 *)&context->data_meta;
	if ((void *)(hint + 1) <= hike_data(context))
		*hint = bpf_cpu_to_be64(HIKE_HINT | lanes << HIKE_HINT_LANES_SHIFT);
	return HIKE_NEXT;
}
