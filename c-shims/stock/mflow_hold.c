// SPDX-License-Identifier: GPL-2.0
/*
 * Packets with a tag of their own on the ordinary path: probes and fences. GRO behind a tunnel does not look at tags, and would join
 * such a packet with those around it. So it waits here until the queues of this CPU are through with what was before it, and what follows
 * it on the ordinary path waits until they are through with the packet. That is twice or three times for each flow that begins to be
 * split, and once where it ends: its last packets with tags are on this CPU's queues, and would be joined with those without.
 */

#include <linux/delay.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../mflow_versions.h"
#include "mflow_stock.h"

/* A queue of gro_cells has so many packets at most (netdev_max_backlog), of which a poll takes so many. */
#define MFLOW_HOLD_QUEUED	1000
#define MFLOW_HOLD_POLLS	(MFLOW_HOLD_QUEUED / 64 + 2)
/* With so many waiting, they go on: better out of order than dropped. */
#define MFLOW_HOLD_PKTS		4096
/* So many go on in one poll: more than come meanwhile. */
#define MFLOW_HOLD_TURN		256
/* A CPU that does not run is waited for as long. */
#define MFLOW_HOLD_WAIT_MS	3000

/**
 * struct mflow_hold - what waits on a CPU
 * @napi:	takes turns with the NAPIs that empty the CPU's queues
 * @queue:	the packets, in order
 * @polls:	so many more turns they wait
 * @active:	something waits, or would have to
 */
struct mflow_hold {
	struct napi_struct	napi;
	struct sk_buff_head	queue;
	unsigned int		polls;
	bool			active;
};

static DEFINE_PER_CPU(struct mflow_hold, mflow_hold);
static struct net_device *mflow_hold_dev;

static bool mflow_is_lone(const struct sk_buff *skb)
{
	unsigned int kind = mflow_stock_tag(skb) >> MFLOW_KIND_SHIFT;

	return kind == MFLOW_KIND_PROBE || kind == MFLOW_KIND_FENCE;
}

/*
 * Softirqs disabled. False: something waits here already, and a packet with such a tag would wait for that, too, with
 * all that comes behind it.
 */
bool mflow_hold_is_clear(void)
{
	return !this_cpu_read(mflow_hold.active);
}

/* Softirqs disabled: what takes the ordinary path on this CPU from now on waits until the queues are through. */
void mflow_hold_begin(void)
{
	struct mflow_hold *hold = this_cpu_ptr(&mflow_hold);

	hold->polls = MFLOW_HOLD_POLLS;
	if (hold->active)
		return;
	hold->active = true;
	napi_schedule(&hold->napi);
}

/*
 * Softirqs disabled, for a packet that is about to take the ordinary path on this CPU. True: it waits, and goes on
 * by itself.
 */
bool mflow_hold_back(struct sk_buff *skb)
{
	struct mflow_hold *hold = this_cpu_ptr(&mflow_hold);

	if (likely(!hold->active)) {
		if (!mflow_is_lone(skb))
			return false;
		mflow_hold_begin();
	}
	if (hold->queue.qlen >= MFLOW_HOLD_PKTS)
		hold->polls = 0;
	__skb_queue_tail(&hold->queue, skb);
	return true;
}

static void mflow_hold_let_go(struct mflow_hold *hold)
{
	struct sk_buff *skb;
	int pkts;

	for (pkts = 0; pkts < MFLOW_HOLD_TURN; pkts++) {
		const struct sk_buff *next = skb_peek(&hold->queue);

		if (!next) {
			hold->active = false;
			return;
		}
		/* What has just gone is before it. */
		if (pkts && mflow_is_lone(next)) {
			hold->polls = MFLOW_HOLD_POLLS;
			return;
		}
		skb = __skb_dequeue(&hold->queue);
		if (mflow_is_lone(skb))
			hold->polls = MFLOW_HOLD_POLLS;
		mflow_receive_behind_hook(skb);
		if (hold->polls)
			return;
	}
}

static int mflow_hold_poll(struct napi_struct *napi, int budget)
{
	struct mflow_hold *hold = container_of(napi, struct mflow_hold, napi);

	/* Netpoll asks without a budget. */
	if (!budget)
		return 0;
	if (hold->polls)
		hold->polls--;
	if (!hold->polls)
		mflow_hold_let_go(hold);
	napi_complete_done(napi, 0);
	/* Behind those that what has gone on has woken. */
	if (hold->active)
		napi_schedule(napi);
	return 0;
}

/*
 * Process context. Waits on each CPU until nothing waits there: what comes by another way from now on overtakes nothing.
 * While flows begin and end that need not last.
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

/* Process context; no packet comes any more. When it returns, none waits. */
void mflow_hold_end(void)
{
	unsigned int cpu;

	mflow_hold_wait();
	for_each_possible_cpu(cpu) {
		struct mflow_hold *hold = per_cpu_ptr(&mflow_hold, cpu);

		if (!READ_ONCE(hold->active))
			continue;
		napi_disable(&hold->napi);
		__skb_queue_purge(&hold->queue);
		hold->polls = 0;
		hold->active = false;
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

		__skb_queue_head_init(&hold->queue);
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
		netif_napi_del(&hold->napi);
	}
	free_netdev(mflow_hold_dev);
}
