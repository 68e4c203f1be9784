// SPDX-License-Identifier: GPL-2.0
/*
 * The places of CPUs and who may use them, and when to look whether lanes are at their best
 * places.
 */

#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/sched/isolation.h>
#include <linux/topology.h>
#include <linux/workqueue.h>
#include <net/mflow_module.h>

#include "mflow_shim.h"
#include "mflow_versions.h"

static unsigned int mflow_place_period_ms;

static void mflow_place_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(mflow_place_item, mflow_place_work);

static void mflow_placing_queue(void)
{
	/* Unbound: wherever housekeeping runs, not on the CPU of the knob's writer. */
	queue_delayed_work(mflow_unbound_wq, &mflow_place_item,
			   msecs_to_jiffies(READ_ONCE(mflow_place_period_ms)));
}

static void mflow_place_work(struct work_struct *work)
{
	if (mflow_place_lanes())
		mflow_placing_queue();
}

/* Starts looks, unless they are taken already. The work takes locks, and ends by itself. */
void mflow_placing_start(unsigned int period_ms)
{
	WRITE_ONCE(mflow_place_period_ms, period_ms);
	mflow_placing_queue();
}

/* Stops looks. No locks held, and nobody starts them any more. */
void mflow_placing_stop(void)
{
	cancel_delayed_work_sync(&mflow_place_item);
}

void mflow_cpu_place(unsigned int cpu, struct mflow_cpu_place *place)
{
	*place = (struct mflow_cpu_place){ .node = NUMA_NO_NODE };
	if (cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return;
	place->usable = cpu_online(cpu) && !cpu_is_isolated(cpu);
	place->node = cpu_to_node(cpu);
	place->reader_ticks = READ_ONCE(per_cpu(mflow_cpu, cpu).reader_ticks);
}

/* Returns whether two possible CPUs are threads of one core. */
bool mflow_cpus_are_one_core(unsigned int cpu, unsigned int other)
{
	return cpumask_test_cpu(cpu, topology_sibling_cpumask(other));
}

/* Returns the device's node; NUMA_NO_NODE if nobody knows. */
int mflow_device_node(const struct net_device *dev)
{
	return dev_to_node((struct device *)&dev->dev);
}
