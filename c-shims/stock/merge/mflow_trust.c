// SPDX-License-Identifier: GPL-2.0
/*
 * The tags that are believed. A tag is in a field that rules of each namespace may write, and a user needs no privilege to have a namespace
 * with rules. So a tag counts only while packets with just this tag are under way.
 *
 * A mark differs from its tag in bits that are drawn for each flow, so who has seen the marks of one flow knows nothing of the next
 * one's. Of 2^23 numbers a slot has a few under way: that of its probe, those of the last batches that lanes have given to the stack, and
 * those of batches that lanes have given up. A forger has to guess one of these while it is good. Besides, a batch has no more
 * packets than its lane has given, so a receiver of a flow can use the marks of its packets against that flow alone.
 *
 * All other tags are taken away. Such a packet is an ordinary one: it is late, or somebody has made the tag up.
 */

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/smp.h>
#include <net/mflow.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/* The time for which a probe may be under way, at least PROBE_TIMEOUT_MS, and that for which its copies may be, after it has arrived. */
#define MFLOW_PROBE_TICKS	(HZ + 1)
#define MFLOW_COPY_TICKS	2
/* The time for which packets of a batch that was given up show that something queues them. */
#define MFLOW_LOST_TICKS	HZ

/**
 * struct mflow_probe_way - the last probe of a slot
 * @until:	the time until which its tag is good, in jiffies
 * @tag:	its tag; 0: the slot has had none
 * @cpu:	one more than the CPU on which it has begun its way; 0: it has not begun, or has ended
 */
struct mflow_probe_way {
	unsigned long	until;
	u32		tag;
	unsigned int	cpu;
};

static struct mflow_probe_way mflow_probe_ways[MFLOW_SLOTS];

u32 mflow_tag_masks[MFLOW_SLOTS] __read_mostly;

/*
 * Begins a flow's use of its slot: the packet that gets this tag is the flow's probe. No packet of the flow has a tag, and those of
 * earlier flows are late, whatever their marks say now. In the context of the flow's source.
 */
void mflow_probe_is_tagged(u32 tag)
{
	unsigned int slot = mflow_stock_slot(tag);
	struct mflow_probe_way *probe = &mflow_probe_ways[slot];

	WRITE_ONCE(mflow_tag_masks[slot], get_random_u32() & (BIT(MFLOW_SLOT_SHIFT) - 1));
	WRITE_ONCE(probe->cpu, 0);
	WRITE_ONCE(probe->until, jiffies + MFLOW_PROBE_TICKS);
	WRITE_ONCE(probe->tag, tag);
}

/* Returns whether the tag is that of its slot's probe, which is under way. */
bool mflow_probe_is_known(u32 tag)
{
	const struct mflow_probe_way *probe = &mflow_probe_ways[mflow_stock_slot(tag)];

	return READ_ONCE(probe->tag) == tag && time_before_eq(jiffies, READ_ONCE(probe->until));
}

/* Notes where a probe begins its way. Returns false if nobody waits for it any more. Softirqs disabled. */
bool mflow_probe_begins(u32 tag)
{
	if (!mflow_probe_is_known(tag))
		return false;
	WRITE_ONCE(mflow_probe_ways[mflow_stock_slot(tag)].cpu, smp_processor_id() + 1);
	return true;
}

/*
 * Ends the way of a probe. Returns whether the probe has moved to another CPU, or this is a copy: lanes would not know when their
 * packets arrive.
 */
bool mflow_probe_ends_elsewhere(u32 tag)
{
	struct mflow_probe_way *probe = &mflow_probe_ways[mflow_stock_slot(tag)];
	unsigned long until = jiffies + MFLOW_COPY_TICKS;

	if (READ_ONCE(probe->tag) != tag || READ_ONCE(probe->cpu) != smp_processor_id() + 1)
		return true;
	WRITE_ONCE(probe->cpu, 0);
	if (time_before(until, READ_ONCE(probe->until)))
		WRITE_ONCE(probe->until, until);
	return false;
}

/* Returns whether a lane of this CPU has given up packets with this tag, a short time ago. */
static bool mflow_has_lost(const struct mflow_carried *carried, u32 tag)
{
	unsigned int i;

	for (i = 0; i < MFLOW_LOST; i++) {
		const struct mflow_lost *lost = &carried->lost[i];

		if (READ_ONCE(lost->tag) == tag && (u32)jiffies - READ_ONCE(lost->tick) <= MFLOW_LOST_TICKS)
			return true;
	}
	return false;
}

/* Returns whether a lane of any CPU, also of one that is gone, has given packets with this tag just now, or has given them up. */
static bool mflow_is_given(u32 tag)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct mflow_carried *carried = per_cpu_ptr(&mflow_carried, cpu);

		if (READ_ONCE(carried->owed[mflow_owed_place(tag)].tag) == tag ||
		    mflow_has_lost(carried, tag))
			return true;
	}
	return false;
}

/* Returns whether packets with this tag are under way, on whatever CPU. */
bool mflow_is_believed_slow(u32 tag)
{
	switch (tag >> MFLOW_KIND_SHIFT) {
	case MFLOW_KIND_SPLIT:
		return mflow_is_given(tag);
	case MFLOW_KIND_PROBE:
		return mflow_probe_is_known(tag);
	default:
		return mflow_slot_awaits(tag);
	}
}
