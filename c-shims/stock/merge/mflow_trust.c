// SPDX-License-Identifier: GPL-2.0
/*
 * The tags that are believed. A tag is in a field that rules of each namespace may write, and a user needs no privilege to have a namespace
 * with rules.
 *
 * A mark differs from its tag in 23 bits that are drawn for each flow, so who has seen the marks of one flow knows nothing of the next
 * one's. Three things follow from a tag, and a forger has to guess more for each:
 *
 * - A packet has its turn, or is late, if its batch is within a window of the one whose turn it is (mflow_tag_may_come()). That does no
 *   harm to others. All other tags are taken away, so that such a packet is an ordinary one.
 * - A packet counts for the lane that waits for it, and its path is looked at, only if packets with just this tag are under way on
 *   its CPU. A batch has no more packets than its lane has given, so a receiver of a flow can use its marks against that flow alone.
 * - Packets for which no lane waits show a queue on their path when they are too many to be forged ones that have hit the window by
 *   chance.
 */

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <net/mflow.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/* The time for which a probe may be under way, at least PROBE_TIMEOUT_MS, and that for which its copies may be, after it has arrived. */
#define MFLOW_PROBE_TICKS	(HZ + 1)
#define MFLOW_COPY_TICKS	2
/*
 * Packets for which no lane waits, and the time within which so many of them show a queue. On a busy CPU they have to be a share of the
 * packets that lanes have given, too, up to a limit: a slow flow must not lose its order for long, and who forges tags may be fast.
 */
#define MFLOW_SURPLUS_PKTS_MIN	8U
#define MFLOW_SURPLUS_PKTS_MAX	32U
#define MFLOW_SURPLUS_SHARE	16U
#define MFLOW_SURPLUS_TICKS	HZ

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

/*
 * Returns whether more packets of a slot have come than can be by chance, lately, for which no lane of this CPU waited: something on their
 * way queues them, copies them, or takes them to other CPUs. @pkts more have just come. Softirqs disabled.
 */
bool mflow_are_surplus(struct mflow_carried *carried, unsigned int slot, u32 pkts)
{
	u8 *surplus = &carried->surplus_pkts[slot];
	u32 given;

	if ((u32)jiffies - carried->surplus_tick > MFLOW_SURPLUS_TICKS) {
		memset(carried->surplus_pkts, 0, sizeof(carried->surplus_pkts));
		carried->surplus_tick = (u32)jiffies;
		carried->surplus_given = carried->given;
	}
	given = carried->given - carried->surplus_given;
	*surplus = min(*surplus + pkts, MFLOW_SURPLUS_PKTS_MAX);
	return *surplus >= clamp(given / MFLOW_SURPLUS_SHARE, MFLOW_SURPLUS_PKTS_MIN,
				 MFLOW_SURPLUS_PKTS_MAX);
}
