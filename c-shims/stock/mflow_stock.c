// SPDX-License-Identifier: GPL-2.0
/*
 * The counterpart of net/core/mflow.c of a patched kernel, as far as it holds state and no packets: the pointer to the Rust
 * half's operations, and the switch. Beside it are the functions that the Rust half takes from C instead of the kernel's
 * crate.
 */

#include <linux/bug.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/netdevice.h>
#include <linux/path.h>
#include <linux/printk.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/topology.h>
#include <linux/vmalloc.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "mflow_stock.h"

DEFINE_STATIC_KEY_FALSE(mflow_stock_key);

/* The counters of the shims; the fields of the hooks stay empty. */
DEFINE_PER_CPU(struct mflow_cpu, mflow_cpu);
DEFINE_PER_CPU(struct mflow_returned, mflow_returned);

/* Readers: softirqs disabled. Written while no packet comes. */
const struct mflow_ops __rcu *mflow_stock_ops;

int mflow_register(const struct mflow_ops *ops)
{
	int err;

	err = mflow_hold_init();
	if (err)
		return err;
	err = mflow_run_init();
	if (err)
		goto err_hold;
	err = mflow_follow_init();
	if (err)
		goto err_run;
	err = mflow_nets_init();
	if (err)
		goto err_follow;
	rcu_assign_pointer(mflow_stock_ops, ops);
	return 0;

err_follow:
	mflow_follow_exit();
err_run:
	mflow_run_exit();
err_hold:
	mflow_hold_exit();
	return err;
}

/* Takes the operations away: when it returns, nothing runs in them. */
void mflow_unregister(void)
{
	mflow_nets_exit();
	mflow_readers_exit();
	RCU_INIT_POINTER(mflow_stock_ops, NULL);
	synchronize_net();
	mflow_follow_exit();
	mflow_run_exit();
	mflow_hold_end();
	mflow_hold_exit();
}

/* Registers all hooks. On an error all is off. Under rtnl; no flow is split. The same again is harmless. */
int mflow_switch_on(void)
{
	int err;

	/* From its end to its beginning: what is tagged has to be merged. */
	err = mflow_nets_begin();
	if (err)
		return err;
	err = mflow_ports_hook();
	if (err) {
		mflow_ports_unhook();
		mflow_nets_end();
		return err;
	}
	static_branch_enable(&mflow_stock_key);
	mflow_ports_gro_off();
	return 0;
}

/*
 * Unregisters the hooks. Under rtnl; flows have ended. The same again is harmless. @drained: none of them has left
 * anything on its way or parked. If one has, the merge point stays for that, until this is called again, or the module
 * goes.
 */
void mflow_switch_off(bool drained)
{
	/* Probes have come through afterwards, and packets no longer wait for others. */
	mflow_hold_wait();
	static_branch_disable(&mflow_stock_key);
	mflow_ports_unhook();
	if (drained)
		mflow_nets_end();
}

/* Does nothing. Lanes remember neither routes nor sockets: what they carry is looked up in other polls. */
void mflow_lookups_forget(void)
{
}

/* Does nothing: readers free what they have read. */
bool mflow_free_returned(void)
{
	return false;
}

/* Readers leave nothing. */
bool mflow_returned_is_full(void)
{
	return false;
}

/* Guesses, as what the scheduler knows is not for modules. */
bool mflow_cpus_share_cache(unsigned int cpu, unsigned int other)
{
	return cpumask_test_cpu(cpu, topology_core_cpumask(other));
}

/* Returns memory of zeros, or NULL. Process context. */
void *mflow_alloc(size_t size, bool by_pages)
{
	return by_pages ? vzalloc(size) : kvzalloc(size, GFP_KERNEL);
}

void mflow_free(void *memory)
{
	kvfree(memory);
}

void mflow_print(unsigned int level, const char *text, unsigned int len)
{
	switch (level) {
	case LOGLEVEL_ERR:
		pr_err("mflow: %.*s", len, text);
		break;
	case LOGLEVEL_WARNING:
		pr_warn("mflow: %.*s", len, text);
		break;
	default:
		pr_info("mflow: %.*s", len, text);
	}
}

void __noreturn mflow_bug(void)
{
	BUG();
}

/* Returns whether rules may label packets where our tags are. The folder is there as long as SELinux is on, from the boot on. */
static bool __init mflow_marks_are_labels(void)
{
	struct path path;

	if (kern_path("/sys/fs/selinux", LOOKUP_DIRECTORY, &path))
		return false;
	path_put(&path);
	return true;
}

static int __init mflow_init(void)
{
	int err;

	if (mflow_marks_are_labels()) {
		pr_err("mflow: SELinux has the packets' marks that this module needs: boot with selinux=0, or a kernel with mflow's hooks\n");
		return -EOPNOTSUPP;
	}
	err = mflow_rust_init();
	if (err)
		mflow_xdp_wait();
	return err;
}
module_init(mflow_init);

static void __exit mflow_exit(void)
{
	mflow_rust_exit();
	/* Work of ours that no lock may be held for. */
	mflow_xdp_wait();
}
module_exit(mflow_exit);

MODULE_AUTHOR("The mflow authors");
MODULE_DESCRIPTION("Splits elephant flows over several CPUs and keeps their order");
MODULE_LICENSE("GPL");
