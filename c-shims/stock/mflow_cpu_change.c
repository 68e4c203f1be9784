// SPDX-License-Identifier: GPL-2.0
/*
 * The wait of a worker for the packets that it has given to the stack on a CPU that it has left. A worker leaves a CPU that goes
 * offline: the kernel moves this CPU's NAPIs and backlog to the CPU that takes it down. A worker also leaves a CPU when its own has
 * come back. On another CPU the worker's next packets would overtake the earlier ones, so the worker waits for the earlier ones
 * first. Thus flows keep their order while CPUs come and go.
 */

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <linux/smp.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../module/mflow_worker.h"
#include "mflow_stock.h"

/*
 * The longest wait for packets that need not be moved. It has a limit because a dropped packet never comes, and no other CPU is told
 * of the drop.
 */
#define MFLOW_FOLLOW_MS		10
/*
 * The longest wait for the kernel to move the packets of a CPU that is gone. The kernel tells others of the CPU's end before it
 * moves them.
 */
#define MFLOW_MOVE_MS		1000

static enum cpuhp_state mflow_follow_state;

/* Forgets to which CPU this CPU's packets were moved. Process context, before the CPU runs. */
static int mflow_follow_prepare(unsigned int cpu)
{
	WRITE_ONCE(per_cpu_ptr(&mflow_carried, cpu)->heir, MFLOW_NO_CPU);
	return 0;
}

/*
 * Counts the dead CPU's packets on this CPU: the kernel is about to move them here (dev_cpu_dead()), so they arrive here. Process
 * context; the dead CPU does not run any more.
 */
static int mflow_follow_dead(unsigned int cpu)
{
	struct mflow_carried *dead = per_cpu_ptr(&mflow_carried, cpu);
	struct mflow_carried *here;
	unsigned int slot, i;

	local_bh_disable();
	here = this_cpu_ptr(&mflow_carried);
	for (slot = 0; slot < MFLOW_SLOTS; slot++)
		for (i = 0; i < MFLOW_OWED; i++)
			if (dead->owed[slot][i].pkts)
				mflow_owe(here, dead->owed[slot][i].tag, dead->owed[slot][i].pkts);
	memset(dead->owed, 0, sizeof(dead->owed));
	dead->arrived = dead->given;
	/* Pairs with the acquire in mflow_has_left(): a CPU that sees the heir sees the counts of the heir too. */
	smp_store_release(&dead->heir, smp_processor_id());
	local_bh_enable();
	return 0;
}

static bool mflow_backlog_is_empty(unsigned int cpu)
{
	const struct softnet_data *queues = per_cpu_ptr(&softnet_data, cpu);

	return skb_queue_empty_lockless(&queues->input_pkt_queue) &&
	       skb_queue_empty_lockless(&queues->process_queue);
}

/*
 * Returns whether all packets have arrived that lanes had given to the stack on a CPU when they had given this many there. Of batches
 * that had begun by then, all packets count, also those that were given later.
 */
static bool mflow_has_come_through(const struct mflow_carried *from, u32 given)
{
	const struct mflow_owed *owed = &from->owed[0][0];
	unsigned int i;

	for (i = 0; i < MFLOW_SLOTS * MFLOW_OWED; i++) {
		/* Pairs with the release in mflow_count_arrived(): what has arrived waits by then, or is parked. And with that in mflow_owe(). */
		if (smp_load_acquire(&owed[i].pkts) &&
		    (s32)(READ_ONCE(owed[i].since) - given) < 0)
			return false;
	}
	return true;
}

/*
 * Returns whether the worker need not wait any longer: all packets that it has given to the stack on the CPU that it has left have
 * arrived, or the time is over.
 */
static bool mflow_has_left(struct mflow_way *way)
{
	const struct mflow_carried *from = per_cpu_ptr(&mflow_carried, way->from);
	unsigned int heir;

	if (time_after(jiffies, way->until))
		return true;
	if (!cpu_online(way->from)) {
		/* Pairs with the release in mflow_follow_dead(). */
		heir = smp_load_acquire(&from->heir);
		if (heir == MFLOW_NO_CPU || !mflow_backlog_is_empty(way->from) ||
		    !mflow_run_is_empty(way->from))
			return false;
		way->from = heir;
		from = per_cpu_ptr(&mflow_carried, heir);
		way->from_given = READ_ONCE(from->given);
		way->until = jiffies + msecs_to_jiffies(MFLOW_FOLLOW_MS);
	}
	return mflow_has_come_through(from, way->from_given) && mflow_run_is_empty(way->from);
}

/* Returns whether the worker is to be polled again before it carries anything. In the worker's poll. */
bool mflow_worker_follows(struct mflow_worker *worker)
{
	struct mflow_way *way = &worker->way;
	unsigned int before = way->polled_on;

	way->polled_on = smp_processor_id();
	if (likely(before == way->polled_on && !way->follows))
		return false;
	if (!way->follows) {
		if (before == MFLOW_NO_CPU)
			return false;
		way->from = before;
		way->from_given = READ_ONCE(per_cpu_ptr(&mflow_carried, before)->given);
		way->until = jiffies + msecs_to_jiffies(cpu_online(before) ? MFLOW_FOLLOW_MS :
									     MFLOW_MOVE_MS);
	}
	way->follows = !mflow_has_left(way);
	return way->follows;
}

int mflow_follow_init(void)
{
	unsigned int cpu;
	int err;

	for_each_possible_cpu(cpu)
		mflow_follow_prepare(cpu);
	err = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "net/mflow:follow", mflow_follow_prepare,
					mflow_follow_dead);
	if (err < 0)
		return err;
	mflow_follow_state = err;
	return 0;
}

void mflow_follow_exit(void)
{
	cpuhp_remove_state_nocalls(mflow_follow_state);
}
