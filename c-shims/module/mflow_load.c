// SPDX-License-Identifier: GPL-2.0
/*
 * The input of the load controller: the times of CPUs, and when to look at them; and the work
 * that carries out its decisions about stages.
 */

#include <linux/cpumask.h>
#include <linux/kernel_stat.h>
#include <linux/limits.h>
#include <linux/math64.h>
#include <linux/tick.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <net/mflow_module.h>

#include "mflow_shim.h"
#include "mflow_versions.h"

static unsigned int mflow_sample_period_ms;

static void mflow_sample_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(mflow_sample_item, mflow_sample_work);

static void mflow_sampling_queue(void)
{
	/* Unbound: wherever housekeeping runs, not on the CPU of the knob's writer. */
	queue_delayed_work(mflow_unbound_wq, &mflow_sample_item,
			   msecs_to_jiffies(mflow_sample_period_ms));
}

static void mflow_sample_work(struct work_struct *work)
{
	mflow_sample();
	mflow_sampling_queue();
}

/* Starts to take samples. Called while none are taken. */
void mflow_sampling_start(unsigned int period_ms)
{
	mflow_sample_period_ms = period_ms;
	mflow_sampling_queue();
}

/* Stops samples: when it returns, none is taken and none will be. Locks may be held, as the work takes none. */
void mflow_sampling_stop(void)
{
	cancel_delayed_work_sync(&mflow_sample_item);
}

static void mflow_restage_work(struct work_struct *work)
{
	mflow_restage_flows();
}

static DECLARE_WORK(mflow_restage_item, mflow_restage_work);

/* Asks for stages to be laid out again, by work that takes locks. Any context. */
void mflow_restage(void)
{
	queue_work(mflow_unbound_wq, &mflow_restage_item);
}

/* Waits until that work has ended. No locks held, and no samples are taken. */
void mflow_restage_cancel(void)
{
	cancel_work_sync(&mflow_restage_item);
}

static u64 mflow_sum_us(const struct kernel_cpustat *stat,
			enum cpu_usage_stat first, enum cpu_usage_stat second)
{
	return div_u64(stat->cpustat[first] + stat->cpustat[second],
		       NSEC_PER_USEC);
}

/*
 * Ticks stop while a CPU is idle, so they miss short softirqs that interrupt that; its idle time
 * is measured. What the run queues hold is not for modules to see.
 */
void mflow_cpu_times(unsigned int cpu, struct mflow_cpu_times *times)
{
	struct kernel_cpustat stat;
	u64 idle_us, guest_us;

	times->at_us = ktime_to_us(ktime_get());
	times->idle_us = U64_MAX;
	if (cpu_online(cpu)) {
		idle_us = get_cpu_idle_time_us(cpu, NULL);
		if (idle_us != U64_MAX)
			times->idle_us = idle_us +
					 get_cpu_iowait_time_us(cpu, NULL);
	}

	kcpustat_cpu_fetch(&stat, cpu);
	guest_us = mflow_sum_us(&stat, CPUTIME_GUEST, CPUTIME_GUEST_NICE);
	times->softirq_us = div_u64(stat.cpustat[CPUTIME_SOFTIRQ], NSEC_PER_USEC);
	times->interrupt_us = div_u64(stat.cpustat[CPUTIME_IRQ], NSEC_PER_USEC);
	times->guest_us = guest_us +
			  div_u64(stat.cpustat[CPUTIME_STEAL], NSEC_PER_USEC);
	/* Users' time has the guests' in it. */
	times->task_us = mflow_sum_us(&stat, CPUTIME_USER, CPUTIME_NICE) - guest_us +
			 div_u64(stat.cpustat[CPUTIME_SYSTEM], NSEC_PER_USEC);
}
