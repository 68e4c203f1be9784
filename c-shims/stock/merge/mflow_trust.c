// SPDX-License-Identifier: GPL-2.0
/*
 * The tags that are believed. A tag is in a field that rules of each namespace may write, and a user needs no privilege to have a namespace
 * with rules. So a tag counts only where packets of its slot are known to come: in the slot's homes.
 *
 * The slot's probe makes the first homes: the namespaces whose hooks it passes, and those from which it comes there. Its number is one of
 * 2^23, is drawn for each flow (mflow_tag_masks), and is good for a second at most, and for two ticks after it has arrived. A packet is
 * believed if both its namespace and the one that has sent it there are homes. So a namespace that gets packets of a slot can harm
 * this slot alone, and any other namespace none.
 *
 * Packets of a split flow may come to a namespace that is no home: an inner flow begins, or a route changes. Such a packet is doubted. It
 * is put in order like any other, which harms nobody, but does not count: its lane waits for it in vain. If a lane then misses what
 * has come to that namespace, the namespace is a home from then on. A forger has to hit the number of a batch that is under way on
 * this CPU, and that misses packets. A number that no lane has given lately is forged. The packet loses it, and is an ordinary one then.
 */

#include <linux/atomic.h>
#include <linux/cpumask.h>
#include <linux/if_vlan.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/random.h>
#include <linux/skbuff.h>
#include <linux/smp.h>
#include <net/mflow.h>
#include <net/net_namespace.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/* The most homes of a slot. One more takes the place of another, which may become one again. */
#define MFLOW_HOMES		32
/* The time for which a probe may be under way, at least PROBE_TIMEOUT_MS, and that for which its copies may be, after it has arrived. */
#define MFLOW_PROBE_TICKS	(HZ + 1)
#define MFLOW_COPY_TICKS	2
/* The time after which packets of a batch that were given up are not told from forged ones, and how many of them show a home. */
#define MFLOW_LATE_TICKS	HZ
#define MFLOW_LATE_PKTS		8

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

/* For each slot, the cookies of the namespaces where its packets are known to come. 0: no more. */
static u64 mflow_homes[MFLOW_SLOTS][MFLOW_HOMES];

static bool mflow_is_home(unsigned int slot, const struct net *net)
{
	const u64 *homes = mflow_homes[slot];
	unsigned int i;

	for (i = 0; i < MFLOW_HOMES; i++) {
		u64 home = READ_ONCE(homes[i]);

		if (home == net->net_cookie)
			return true;
		if (!home)
			return false;
	}
	return false;
}

/* Adds a home. Two CPUs may add one twice, which takes a place more. */
static void mflow_add_home(unsigned int slot, u64 cookie)
{
	u64 *homes = mflow_homes[slot];
	unsigned int i;

	for (i = 0; i < MFLOW_HOMES; i++) {
		u64 home = READ_ONCE(homes[i]);

		if (home == cookie || (!home && !cmpxchg(&homes[i], 0, cookie)))
			return;
	}
	WRITE_ONCE(homes[cookie % MFLOW_HOMES], cookie);
}

/*
 * Begins a flow's use of its slot: the packet that gets this tag is the flow's probe. No packet of the flow has a tag, and those of
 * earlier flows are late, whatever their marks say now. In the context of the flow's source.
 */
void mflow_probe_is_tagged(u32 tag)
{
	unsigned int slot = mflow_stock_slot(tag), i;
	struct mflow_probe_way *probe = &mflow_probe_ways[slot];

	WRITE_ONCE(mflow_tag_masks[slot], get_random_u32() & (BIT(MFLOW_SLOT_SHIFT) - 1));
	/* From the end on: those that are looked for meanwhile are a part of what was there. */
	for (i = MFLOW_HOMES; i--;)
		WRITE_ONCE(mflow_homes[slot][i], 0);
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
 * Ends the way of a slot's probe. Returns whether the probe has moved to another CPU, or this is a copy: lanes would not know
 * when their packets arrive.
 */
bool mflow_probe_ends_elsewhere(unsigned int slot)
{
	struct mflow_probe_way *probe = &mflow_probe_ways[slot];
	unsigned long until = jiffies + MFLOW_COPY_TICKS;
	bool moved = READ_ONCE(probe->cpu) != smp_processor_id() + 1;

	if (!moved)
		WRITE_ONCE(probe->cpu, 0);
	if (time_before(until, READ_ONCE(probe->until)))
		WRITE_ONCE(probe->until, until);
	return moved;
}

/*
 * Notes that a lane has given up packets that it has given to the stack on this CPU. If the doubted ones of one namespace, some of which
 * several hooks may have seen, make up half of these, packets of the slot come there: a lane does not miss forged ones.
 */
void mflow_note_missing(struct mflow_carried *carried, u32 tag, u32 pkts)
{
	if (carried->claim_tag == tag && 2 * carried->claim_pkts >= pkts)
		mflow_add_home(mflow_stock_slot(tag), carried->claim_net);
	carried->claim_tag = 0;
	WRITE_ONCE(carried->lost_pkts, pkts);
	WRITE_ONCE(carried->lost_tick, (u32)jiffies);
	WRITE_ONCE(carried->lost_tag, tag);
}

/* Counts doubted packets of the batch that a lane gives on this CPU, for the first namespace where one has come. */
static void mflow_claim(struct mflow_carried *carried, u32 tag, u64 cookie, u32 pkts)
{
	if (carried->claim_tag != tag) {
		carried->claim_tag = tag;
		carried->claim_net = cookie;
		carried->claim_pkts = pkts;
	} else if (carried->claim_net == cookie) {
		carried->claim_pkts += pkts;
	}
}

/* Counts packets of a batch that have come to a namespace after they were given up. Returns whether they are enough to be believed. */
static bool mflow_are_late(struct mflow_carried *carried, u32 tag, u64 cookie, u32 pkts)
{
	if (carried->late_tag != tag || carried->late_net != cookie) {
		carried->late_tag = tag;
		carried->late_net = cookie;
		carried->late_pkts = 0;
	}
	carried->late_pkts += pkts;
	return carried->late_pkts >= MFLOW_LATE_PKTS;
}

/*
 * Returns the belief in the tag of a split packet that has come to a namespace which is no home of its slot. Something may have moved
 * the packet to this CPU, or queued it until it was given up.
 */
static enum mflow_trust mflow_trust_stranger(struct mflow_carried *carried, u32 tag, u64 cookie,
					     u32 pkts)
{
	const unsigned int slot = mflow_stock_slot(tag);
	enum mflow_trust trust = MFLOW_FORGED;
	unsigned int cpu;

	if (carried->tags[slot] == tag && carried->arrived != carried->given) {
		mflow_claim(carried, tag, cookie, pkts);
		return MFLOW_DOUBTED;
	}
	for_each_online_cpu(cpu) {
		const struct mflow_carried *from = per_cpu_ptr(&mflow_carried, cpu);

		if (READ_ONCE(from->tags[slot]) == tag)
			trust = MFLOW_DOUBTED;
		if (READ_ONCE(from->lost_tag) != tag ||
		    (u32)jiffies - READ_ONCE(from->lost_tick) > MFLOW_LATE_TICKS)
			continue;
		trust = MFLOW_DOUBTED;
		if (READ_ONCE(from->lost_pkts) >= MFLOW_LATE_PKTS &&
		    mflow_are_late(carried, tag, cookie, pkts)) {
			mflow_add_home(slot, cookie);
			return MFLOW_TRUSTED;
		}
	}
	return trust;
}

/*
 * Returns the namespace from which packets come in by @dev, if that is another one than that of @dev, or NULL. Packets that a
 * bridge passes up are looked at where they leave the bridge's port. RCU.
 */
static const struct net *mflow_sender(const struct net_device *dev)
{
	const struct net_device_ops *ops;
	struct net_device *peer;

	while (dev && is_vlan_dev(dev))
		dev = vlan_dev_real_dev(dev);
	ops = dev ? dev->netdev_ops : NULL;
	peer = ops && ops->ndo_get_peer_dev ? ops->ndo_get_peer_dev((struct net_device *)dev) : NULL;
	return peer && !net_eq(dev_net(peer), dev_net(dev)) ? dev_net(peer) : NULL;
}

/**
 * mflow_trust - says whether a packet's tag is believed
 * @carried:	this CPU's
 * @tag:	the tag, which is not 0
 * @net:	the namespace where the packet is
 * @in:		the device by which it has come there, or NULL
 * @pkts:	the number of packets that it was on the wire
 *
 * Softirqs disabled, RCU.
 */
enum mflow_trust mflow_trust(struct mflow_carried *carried, u32 tag, const struct net *net,
			     const struct net_device *in, u32 pkts)
{
	const unsigned int kind = tag >> MFLOW_KIND_SHIFT;
	const unsigned int slot = mflow_stock_slot(tag);
	const struct net *sender = mflow_sender(in);
	const struct net *stranger = NULL;

	if (kind == MFLOW_KIND_PROBE) {
		if (!mflow_probe_is_known(tag))
			return MFLOW_FORGED;
		if (sender)
			mflow_add_home(slot, sender->net_cookie);
		mflow_add_home(slot, net->net_cookie);
		return MFLOW_TRUSTED;
	}

	if (sender && !mflow_is_home(slot, sender))
		stranger = sender;
	else if (!mflow_is_home(slot, net))
		stranger = net;
	if (likely(!stranger))
		return MFLOW_TRUSTED;
	if (kind == MFLOW_KIND_SPLIT)
		return mflow_trust_stranger(carried, tag, stranger->net_cookie, pkts);
	/* A batch that waits for just such a packet: few do so at a time. */
	return mflow_slot_awaits(tag) ? MFLOW_TRUSTED : MFLOW_FORGED;
}
