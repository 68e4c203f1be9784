// SPDX-License-Identifier: GPL-2.0
/*
 * Packets with a tag of their own on the ordinary path: probes and fences. GRO behind a tunnel does not look at tags, and would
 * join such a packet with those around it. So the packet waits here until the queues of this CPU are through with the packets
 * before it, and the packets that follow it on the ordinary path wait until the queues are through with it. That is twice or
 * three times for each flow that begins to be split. It is once where a flow ends: its last packets with tags are on this CPU's
 * queues, and would be joined with packets without.
 *
 * A NAPI may move to another CPU meanwhile. The packets that it receives there wait behind those that it has received here.
 */

#include <linux/delay.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../module/mflow_versions.h"
#include "../module/mflow_list.h"
#include "mflow_stock.h"

/* The most packets that a queue of gro_cells has (netdev_max_backlog), and the number of polls that empty it. */
#define MFLOW_HOLD_QUEUED	1000
#define MFLOW_HOLD_POLLS	(MFLOW_HOLD_QUEUED / MFLOW_TURN_PKTS + 2)
/* The number of packets from which on none waits any longer: better out of order than dropped. */
#define MFLOW_HOLD_PKTS		4096
/* The number of packets that go on in one poll: more than come meanwhile. */
#define MFLOW_HOLD_TURN		256
/* The time to wait for a CPU that does not run. */
#define MFLOW_HOLD_WAIT_MS	3000

/**
 * struct mflow_hold - the packets that wait on a CPU
 * @napi:	takes turns with the NAPIs that empty the CPU's queues
 * @queue:	the packets, in order. Its lock is for all fields, as other CPUs put packets here, too
 * @polls:	turns that they still wait
 * @active:	packets that take the ordinary path have to wait. Only this CPU sets it
 * @overflows:	too many wait, so packets that come now do not, until none is left
 */
struct mflow_hold {
	struct napi_struct	napi;
	struct sk_buff_head	queue;
	unsigned int		polls;
	bool			active;
	bool			overflows;
};

static DEFINE_PER_CPU(struct mflow_hold, mflow_hold);
static struct net_device *mflow_hold_dev;

static bool mflow_is_lone(const struct sk_buff *skb)
{
	unsigned int kind = mflow_stock_tag(skb) >> MFLOW_KIND_SHIFT;

	return kind == MFLOW_KIND_PROBE || kind == MFLOW_KIND_FENCE;
}

/*
 * Returns whether nothing waits on this CPU. If something does, a probe or a fence would wait for that, too, and all packets
 * behind it would wait with it. Softirqs disabled.
 */
bool mflow_hold_is_clear(void)
{
	return !this_cpu_read(mflow_hold.active);
}

/* Begins to hold packets back, or goes on for longer. Under the lock; on the hold's CPU. */
static void mflow_hold_begin_locked(struct mflow_hold *hold)
{
	hold->polls = MFLOW_HOLD_POLLS;
	if (hold->active)
		return;
	WRITE_ONCE(hold->active, true);
	napi_schedule(&hold->napi);
}

/*
 * Queues a packet while the hold is active. Returns false if too many wait: more may come than go on, from NAPIs of this CPU or from
 * another CPU, and then the queue would have no bound. A probe or a fence waits all the same, and few come. Under the lock.
 */
static bool mflow_hold_queue_locked(struct mflow_hold *hold, struct sk_buff *skb)
{
	if (hold->queue.qlen >= MFLOW_HOLD_PKTS) {
		hold->polls = 0;
		hold->overflows = true;
	}
	if (hold->overflows && !mflow_is_lone(skb))
		return false;
	__skb_queue_tail(&hold->queue, skb);
	return true;
}

/* Makes packets that take the ordinary path on this CPU from now on wait until the queues are through. Softirqs disabled. */
void mflow_hold_begin(void)
{
	struct mflow_hold *hold = this_cpu_ptr(&mflow_hold);

	spin_lock(&hold->queue.lock);
	mflow_hold_begin_locked(hold);
	spin_unlock(&hold->queue.lock);
}

/*
 * Holds back a packet that is about to take the ordinary path on this CPU, if it has to wait. Returns whether it waits: it then
 * goes on by itself. Softirqs disabled.
 */
bool mflow_hold_back(struct sk_buff *skb)
{
	struct mflow_hold *hold = this_cpu_ptr(&mflow_hold);
	bool waits;

	/* Only this CPU sets and clears it while packets come, so it need not be read under the lock. */
	if (likely(!READ_ONCE(hold->active)) && !mflow_is_lone(skb))
		return false;
	spin_lock(&hold->queue.lock);
	if (!hold->active)
		mflow_hold_begin_locked(hold);
	waits = mflow_hold_queue_locked(hold, skb);
	spin_unlock(&hold->queue.lock);
	return waits;
}

/*
 * Queues a packet that is about to take the ordinary path behind packets that have taken that of @cpu before. Returns whether it
 * waits there with them: it then goes on by itself. Softirqs disabled.
 */
bool mflow_hold_back_on(unsigned int cpu, struct sk_buff *skb)
{
	struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);
	bool waits;

	/* As at the hook: a generic XDP program would see it twice. */
	if (!READ_ONCE(hold->active) || mflow_runs_xdp(skb->dev))
		return false;
	mflow_verify_as_gro(skb);
	spin_lock(&hold->queue.lock);
	waits = hold->active && mflow_hold_queue_locked(hold, skb);
	spin_unlock(&hold->queue.lock);
	return waits;
}

/* Returns the packet whose turn it is, or NULL. @is_first: no packet has gone in this poll. */
static struct sk_buff *mflow_hold_next(struct mflow_hold *hold, bool is_first)
{
	struct sk_buff *skb;

	spin_lock(&hold->queue.lock);
	skb = skb_peek(&hold->queue);
	if (!skb) {
		WRITE_ONCE(hold->active, false);
		hold->overflows = false;
	} else if (!mflow_is_lone(skb)) {
		__skb_unlink(skb, &hold->queue);
	} else {
		/* It waits for the packet that has just gone before it, and the packets behind it wait for it. */
		hold->polls = MFLOW_HOLD_POLLS;
		if (is_first)
			__skb_unlink(skb, &hold->queue);
		else
			skb = NULL;
	}
	spin_unlock(&hold->queue.lock);
	return skb;
}

static void mflow_hold_let_go(struct mflow_hold *hold)
{
	struct sk_buff *skb;
	int pkts;
	u32 tag;

	for (pkts = 0; pkts < MFLOW_HOLD_TURN; pkts++) {
		skb = mflow_hold_next(hold, !pkts);
		if (!skb)
			return;
		tag = mflow_stock_tag(skb);
		if (tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_PROBE) {
			if (mflow_probe_begins(tag))
				mflow_probe_note(skb, mflow_stock_slot(tag));
			else
				mflow_skb_set_tag(skb, 0);
		}
		mflow_receive_behind_hook(skb);
		if (READ_ONCE(hold->polls))
			return;
	}
}

static int mflow_hold_poll(struct napi_struct *napi, int budget)
{
	struct mflow_hold *hold = container_of(napi, struct mflow_hold, napi);
	unsigned int polls;

	/* Netpoll asks without a budget. */
	if (!budget)
		return 0;
	spin_lock(&hold->queue.lock);
	if (hold->polls)
		hold->polls--;
	polls = hold->polls;
	spin_unlock(&hold->queue.lock);
	if (!polls)
		mflow_hold_let_go(hold);
	napi_complete_done(napi, 0);
	/* The next poll comes behind the NAPIs that the packets that went on have woken. */
	if (READ_ONCE(hold->active))
		napi_schedule(napi);
	return 0;
}

/*
 * Waits until no packet waits on any CPU, so that packets that come by another way from now on overtake none. That does not last
 * while flows begin and end. Process context.
 */
void mflow_hold_wait(void)
{
	unsigned int cpu, ms;

	for_each_possible_cpu(cpu) {
		const struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		for (ms = 0; READ_ONCE(hold->active) && ms < MFLOW_HOLD_WAIT_MS; ms++)
			usleep_range(1000, 2000);
	}
}

/*
 * Ends the waiting of a device's packets: when it returns, none waits. If a CPU does not run, they are dropped. Packets of other devices
 * go on waiting. Process context; no packet of @dev comes any more.
 */
void mflow_hold_end_of(const struct net_device *dev)
{
	struct sk_buff *skb, *next;
	struct sk_buff_head left;
	unsigned int cpu;

	mflow_hold_wait();
	__skb_queue_head_init(&left);
	for_each_possible_cpu(cpu) {
		struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		spin_lock_bh(&hold->queue.lock);
		skb_queue_walk_safe(&hold->queue, skb, next) {
			if (skb->dev != dev)
				continue;
			__skb_unlink(skb, &hold->queue);
			__skb_queue_tail(&left, skb);
		}
		spin_unlock_bh(&hold->queue.lock);
	}
	__skb_queue_purge(&left);
}

/* Ends the waiting: when it returns, no packet waits. Process context; no packet comes any more. */
void mflow_hold_end(void)
{
	unsigned int cpu;

	mflow_hold_wait();
	for_each_possible_cpu(cpu) {
		struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		if (!READ_ONCE(hold->active))
			continue;
		napi_disable(&hold->napi);
		local_bh_disable();
		spin_lock(&hold->queue.lock);
		__skb_queue_purge(&hold->queue);
		hold->polls = 0;
		hold->overflows = false;
		WRITE_ONCE(hold->active, false);
		spin_unlock(&hold->queue.lock);
		local_bh_enable();
		napi_enable(&hold->napi);
	}
}

int mflow_hold_init(void)
{
	unsigned int cpu;

	mflow_hold_dev = alloc_netdev_dummy(0);
	if (!mflow_hold_dev)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		skb_queue_head_init(&hold->queue);
		set_bit(NAPI_STATE_NO_BUSY_POLL, &hold->napi.state);
		netif_napi_add(mflow_hold_dev, &hold->napi, mflow_hold_poll);
		napi_enable(&hold->napi);
	}
	return 0;
}

void mflow_hold_exit(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		napi_disable(&hold->napi);
		__netif_napi_del(&hold->napi);
	}
	/* Once for the NAPIs of all CPUs, which are the module's memory. */
	synchronize_net();
	free_netdev(mflow_hold_dev);
}
