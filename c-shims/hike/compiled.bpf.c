// SPDX-License-Identifier: GPL-2.0
/*
 * The engine that makes one program of a whole chain.
 *
 * User space loads this object once for each distinct chain. The programs of the chain are constants for the verifier, which
 * removes the code of all others. So the programs follow each other without a jump.
 */
#include "tables.h"

const volatile __u8 hike_chain[HIKE_CHAIN_PROGRAMS];
/* The parts of its packets' way that the cache learns: HIKE_LEARNS_WAY, ... */
const volatile __u8 hike_learns;
#define HIKE_LEARNS hike_learns

#include "programs.gen.h"

#define HIKE_CASE(NAME)			\
	case NAME##_number:		\
		return NAME(context, packet)

/* Runs one program. */
static __always_inline int hike_run(__u8 number, struct hike_context *context, struct hike_packet *packet)
{
	switch (number) {
	HIKE_EACH_PROGRAM(HIKE_CASE);
	}
	return HIKE_BROKEN_CHAIN;
}

SEC(HIKE_SECTION)
int hike_compiled(struct hike_context *context)
{
	const struct hike_packet *found = hike_this_packet();
	struct hike_packet packet = {};
	int reason;

	if (!found)
		return HIKE_TO_KERNEL;
	packet.ip_at = found->ip_at;
	packet.version = found->version;
	packet.whole_class = found->whole_class;
	hike_take_segments(&packet, found);
#pragma unroll
	for (int i = 0; i < HIKE_CHAIN_PROGRAMS; i++) {
		reason = hike_run(hike_chain[i], context, &packet);
		if (reason != HIKE_NEXT)
			return hike_finish(hike_tell_apart(context, reason));
	}
	return hike_finish(HIKE_BROKEN_CHAIN);
}

char hike_license[] SEC("license") = "GPL";
