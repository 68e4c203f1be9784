// SPDX-License-Identifier: GPL-2.0
/*
 * Workers: a lane's NAPI, woken on the lane's CPU, or what builds packets for it on another one; and the
 * deadlines' timers.
 */

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "mflow_shim.h"
#include "mflow_versions.h"
#include "mflow_worker.h"

static struct net_device *mflow_dev;
static struct hrtimer mflow_deadlines[MFLOW_SLOTS];

static int mflow_worker_done(struct mflow_worker *worker, int work, int budget)
{
	if (work < budget) {
		bool is_left = mflow_free_returned();

		napi_complete_done(&worker->napi, work);
		if (mflow_way_polls_again(&worker->way) || is_left)
			napi_schedule(&worker->napi);
	}
	return work;
}

static int mflow_worker_poll(struct napi_struct *napi, int budget)
{
	struct mflow_worker *worker =
		container_of(napi, struct mflow_worker, napi);
	int work;

	mflow_lookups_forget();
	this_cpu_write(mflow_cpu.lane_stack,
		       (unsigned long)__builtin_frame_address(0));
	this_cpu_write(mflow_cpu.lane, worker->lane);
	work = mflow_lane_poll(worker->lane, budget);
	this_cpu_write(mflow_cpu.lane, NULL);
	this_cpu_write(mflow_cpu.lane_sums, false);
	this_cpu_write(mflow_cpu.lane_stack, 0);

	return mflow_worker_done(worker, work, budget);
}

/* Builds packets for a lane. None reaches the stack here, so the hooks see no lane. */
static int mflow_worker_poll_building(struct napi_struct *napi, int budget)
{
	struct mflow_worker *worker =
		container_of(napi, struct mflow_worker, napi);

	return mflow_worker_done(worker, mflow_lane_build(worker->lane, budget),
				 budget);
}

/* Schedules the lane's poll. Interrupt on the lane's CPU. */
static void mflow_worker_schedule(void *data)
{
	struct mflow_worker *worker = data;

	__napi_schedule_irqoff(&worker->napi);
}

/* Workers come and go under the configuration lock. */
static void mflow_worker_count(const struct mflow_worker *worker, int added)
{
	struct mflow_returned *returned = per_cpu_ptr(&mflow_returned, worker->cpu);

	/* Pairs with the read in __mflow_return(), which may be a moment late: there is the timer. */
	WRITE_ONCE(returned->lanes, returned->lanes + added);
}

struct mflow_worker *mflow_worker_create(unsigned int cpu, void *lane,
					 bool builds)
{
	struct mflow_worker *worker = kzalloc(sizeof(*worker), GFP_KERNEL);

	if (!worker)
		return NULL;

	worker->cpu = cpu;
	worker->lane = lane;
	mflow_way_init(&worker->way);
	INIT_CSD(&worker->csd, mflow_worker_schedule, worker);
	set_bit(NAPI_STATE_NO_BUSY_POLL, &worker->napi.state);
	netif_napi_add(mflow_dev, &worker->napi,
		       builds ? mflow_worker_poll_building : mflow_worker_poll);
	napi_enable(&worker->napi);
	mflow_worker_count(worker, 1);
	return worker;
}

/*
 * Sets the number that packets of the worker get if they have none, as the NAPI that has it would have given them.
 * Called before the first poll. Readers ask for it (SO_INCOMING_NAPI_ID), and poll that NAPI. The worker itself is not
 * found by it.
 */
void mflow_worker_set_napi_id(struct mflow_worker *worker, unsigned int napi_id)
{
	worker->napi.napi_id = napi_id;
}

void mflow_worker_destroy(struct mflow_worker *worker)
{
	mflow_worker_count(worker, -1);
	/* Waits for SCHED to clear, and with it for the interrupt. */
	napi_disable(&worker->napi);
	/*
	 * A walk of the device's NAPIs may be at this one still, and touches no lane. A source has many, and their
	 * callers hold rtnl: none waits for a grace period of its own.
	 */
	__netif_napi_del(&worker->napi);
	kfree_rcu(worker, rcu);
}

/* Softirqs disabled. */
void mflow_worker_kick_on(struct mflow_worker *worker, unsigned int cpu)
{
	if (!napi_schedule_prep(&worker->napi))
		return;

	/* SCHED is ours, so the interrupt is free. If the CPU is offline the lane runs here. */
	if (cpu == smp_processor_id() ||
	    smp_call_function_single_async(cpu, &worker->csd))
		__napi_schedule(&worker->napi);
}

/* Softirqs disabled. */
void mflow_worker_kick(struct mflow_worker *worker)
{
	mflow_worker_kick_on(worker, worker->cpu);
}

/* Sets, until the poll ends, whether checksums are summed that readers sum otherwise. In the poll. */
void mflow_worker_set_sums(bool sums)
{
	this_cpu_write(mflow_cpu.lane_sums, sums);
}

/* Builds the packet of a request. Returns NULL if the driver has dropped it, and counted that. */
struct sk_buff *mflow_worker_build(struct mflow_worker *worker,
				   struct mflow_request *request)
{
	return request->ops->build(request, &worker->napi);
}

static enum hrtimer_restart mflow_deadline_fired(struct hrtimer *timer)
{
	mflow_deadline_expired(timer - mflow_deadlines);
	return HRTIMER_NORESTART;
}

void mflow_deadline_start(unsigned int slot, unsigned int after_us)
{
	if (slot < MFLOW_SLOTS)
		hrtimer_start(&mflow_deadlines[slot],
			      ns_to_ktime((u64)after_us * NSEC_PER_USEC),
			      HRTIMER_MODE_REL_SOFT);
}

void mflow_deadlines_cancel(void)
{
	int i;

	for (i = 0; i < MFLOW_SLOTS; i++)
		hrtimer_cancel(&mflow_deadlines[i]);
}

int mflow_worker_init(void)
{
	int i;

	/* First, as they are cancelled even if what follows fails. */
	for (i = 0; i < MFLOW_SLOTS; i++)
		mflow_hrtimer_setup(&mflow_deadlines[i], mflow_deadline_fired,
				    CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);

	mflow_dev = alloc_netdev_dummy(0);
	return mflow_dev ? 0 : -ENOMEM;
}

void mflow_worker_exit(void)
{
	free_netdev(mflow_dev);
}
