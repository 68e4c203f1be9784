// SPDX-License-Identifier: GPL-2.0
/*
 * The engine that tail-calls one program after the other, as in the paper: the fallback, and the baseline of measurements.
 *
 * User space loads hike_start_chain once for each distinct chain, and each of the others once. hike_tell_call is there for both engines.
 */
#include "cache/tables.h"

const volatile __u8 hike_chain[HIKE_CHAIN_PROGRAMS];
/* The parts of its packets' way that the cache learns: HIKE_LEARNS_WAY, ... */
const volatile __u8 hike_learns;

#ifndef HIKE_TCX
/* Returns what is learned of the packet: its chain has said it. */
static __always_inline __u8 hike_learns_of_chain(void)
{
	const struct hike_fill *fill = hike_this_fill();

	return fill ? fill->learns : 0;
}

#define HIKE_LEARNS hike_learns_of_chain()
#endif

#include "programs.gen.h"

/* Goes on to the program whose turn it is; returns only if it is not there. */
static __always_inline int hike_go_on(struct hike_context *context, const struct hike_packet *packet)
{
	bpf_tail_call(context, &programs, packet->chain[packet->position % HIKE_CHAIN_PROGRAMS]);
	return hike_finish(HIKE_BROKEN_CHAIN);
}

/* Notes what is learned of the packet. */
static __always_inline void hike_begin_learning(void)
{
#ifndef HIKE_TCX
	struct hike_fill *fill = hike_this_fill();

	if (fill)
		fill->learns = hike_learns;
#endif
}

/* The packet takes the whole chain along, so it ends the one that it has begun. */
SEC(HIKE_SECTION)
int hike_start_chain(struct hike_context *context)
{
	struct hike_packet *packet = hike_this_packet();

	if (!packet)
		return HIKE_TO_KERNEL;
	for (int i = 0; i < HIKE_CHAIN_PROGRAMS; i++)
		packet->chain[i] = hike_chain[i];
	packet->position = 0;
	hike_begin_learning();
	return hike_go_on(context, packet);
}

#define HIKE_PROGRAM(NAME)						\
	SEC(HIKE_SECTION)							\
	int NAME##_call(struct hike_context *context)				\
	{								\
		struct hike_packet *packet = hike_this_packet();	\
		int reason;						\
									\
		if (!packet)						\
			return HIKE_TO_KERNEL;				\
		reason = NAME(context, packet);				\
		if (reason != HIKE_NEXT)				\
			return hike_finish(hike_tell_apart(context, reason));	\
		packet->position++;					\
		return hike_go_on(context, packet);				\
	}

HIKE_EACH_PROGRAM(HIKE_PROGRAM);

#ifndef HIKE_TCX
/* Tells the source of a packet that it is too big. Chains of either engine call it. */
SEC(HIKE_SECTION)
int hike_tell_call(struct hike_context *context)
{
	return hike_finish(hike_turn_round(context));
}
#endif

char hike_license[] SEC("license") = "GPL";
