// SPDX-License-Identifier: GPL-2.0
/*
 * The work that is done once for many packets, a turn of NAPIs after the first of them. The Rust half collects packets that
 * lanes have brought to the merge point of a CPU, and parks them then: they arrive in the polls of tunnels and of the
 * backlog, up to 64 in each. And lanes are woken for packets that a source has given them at the ingress of a device: packets
 * come in the polls of its driver.
 */

#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/smp.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../module/mflow_versions.h"
#include "mflow_stock.h"

/**
 * struct mflow_run - a CPU's run of packets
 * @napi:	parks it; takes turns with the NAPIs that bring packets
 * @csd:	the interrupt that schedules @napi on @cpu
 * @cpu:	the CPU on which packets are collected
 * @waits:	@napi is scheduled for what is collected, or for @source
 * @parks:	@napi is at it
 * @source:	the Rust half's that packets have come to on this CPU, until lanes are woken for them
 * @collector:	the Rust half's
 */
struct mflow_run {
	struct napi_struct	napi;
	call_single_data_t	csd;
	unsigned int		cpu;
	bool			waits;
	bool			parks;
	struct mflow_source	*source;
	u64			collector[MFLOW_COLLECTOR_WORDS];
};

static DEFINE_PER_CPU(struct mflow_run, mflow_run);
static struct net_device *mflow_run_dev;

/* Softirqs disabled. */
void *mflow_run_here(void)
{
	return this_cpu_ptr(&mflow_run)->collector;
}

/* Softirqs disabled: a packet has been collected on this CPU, or has come to a source. Schedules what looks after it. */
void mflow_run_schedule(void)
{
	struct mflow_run *run = this_cpu_ptr(&mflow_run);

	if (run->waits)
		return;
	WRITE_ONCE(run->waits, true);
	napi_schedule(&run->napi);
}

/* Returns whether all that was collected on the CPU so far has been parked. Any context. */
bool mflow_run_is_empty(unsigned int cpu)
{
	const struct mflow_run *run = per_cpu_ptr(&mflow_run, cpu);

	/* Both pair with the releases in mflow_run_poll(): what does not wait any more is being parked, or is parked. */
	return !smp_load_acquire(&run->waits) && !smp_load_acquire(&run->parks);
}

/*
 * Softirqs disabled: a packet has come to @source, which nobody has in use here, and its lane is to
 * be woken with those that follow.
 */
void mflow_run_flush_later(struct mflow_source *source)
{
	struct mflow_run *run = this_cpu_ptr(&mflow_run);
	struct mflow_source *other;

	if (READ_ONCE(run->source) == source)
		return;
	/* Atomic: mflow_run_forget() may take it away, on another CPU. */
	other = xchg(&run->source, source);
	if (other)
		mflow_run_flush(other);
	mflow_run_schedule();
}

/*
 * Process context; no packet comes to @source any more. When softirqs that run now have ended, no
 * CPU uses @source here.
 */
void mflow_run_forget(struct mflow_source *source)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		struct mflow_run *run = per_cpu_ptr(&mflow_run, cpu);

		/* Atomic: the CPU may have taken it just now, or have another one. */
		if (READ_ONCE(run->source) == source)
			cmpxchg(&run->source, source, NULL);
	}
}

/* Schedules the NAPI of a run. Interrupt on its CPU. */
static void mflow_run_interrupt(void *data)
{
	struct mflow_run *run = data;

	__napi_schedule_irqoff(&run->napi);
}

static int mflow_run_poll(struct napi_struct *napi, int budget)
{
	struct mflow_run *run = container_of(napi, struct mflow_run, napi);
	struct mflow_source *source;

	/* Netpoll asks without a budget. */
	if (!budget)
		return 0;
	napi_complete_done(napi, 0);
	/* The CPU was gone, and its NAPIs have moved. If it is back, it may be collecting. */
	if (unlikely(run->cpu != smp_processor_id()) && cpu_online(run->cpu) &&
	    napi_schedule_prep(napi)) {
		if (smp_call_function_single_async(run->cpu, &run->csd))
			__napi_schedule(napi);
		return 0;
	}
	WRITE_ONCE(run->parks, true);
	/* Pairs with the first acquire in mflow_run_is_empty(). */
	smp_store_release(&run->waits, false);
	source = xchg(&run->source, NULL);
	if (source)
		mflow_run_flush(source);
	mflow_run_park(run->collector);
	/* Pairs with the second one there. */
	smp_store_release(&run->parks, false);
	return 0;
}

int mflow_run_init(void)
{
	unsigned int cpu;

	mflow_run_dev = alloc_netdev_dummy(0);
	if (!mflow_run_dev)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct mflow_run *run = per_cpu_ptr(&mflow_run, cpu);

		run->cpu = cpu;
		INIT_CSD(&run->csd, mflow_run_interrupt, run);
		set_bit(NAPI_STATE_NO_BUSY_POLL, &run->napi.state);
		netif_napi_add(mflow_run_dev, &run->napi, mflow_run_poll);
		napi_enable(&run->napi);
	}
	return 0;
}

/* Process context; no packet comes any more. When it returns, none is collected. */
void mflow_run_exit(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		napi_disable(&per_cpu_ptr(&mflow_run, cpu)->napi);
	/* A poll completes first, and parks then: that may not have ended. */
	synchronize_net();
	for_each_possible_cpu(cpu) {
		struct mflow_run *run = per_cpu_ptr(&mflow_run, cpu);

		__netif_napi_del(&run->napi);
		local_bh_disable();
		mflow_run_park(run->collector);
		local_bh_enable();
	}
	/* Once for the NAPIs of all CPUs, which are the module's memory. */
	synchronize_net();
	free_netdev(mflow_run_dev);
}
