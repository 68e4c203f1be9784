// SPDX-License-Identifier: GPL-2.0
/*
 * The parts that namespaces have while splitting is on, and only then: the merge point at LOCAL_IN (mflow_merge.c), and room
 * for fragments that come from several CPUs (mflow_frag.c). Each namespace has both or none, also those that begin meanwhile.
 */

#include <linux/list.h>
#include <linux/mutex.h>
#include <net/mflow.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "mflow_stock.h"

/**
 * struct mflow_net - the state of a namespace
 * @list:	all of them
 * @net:	the namespace
 * @merges:	packets are merged here
 * @frag_dist:	of mflow_frag_widen()
 */
struct mflow_net {
	struct list_head	list;
	struct net		*net;
	bool			merges;
	int			frag_dist;
};

static unsigned int mflow_net_id;

/* Guards all that follows. Nests in rtnl, and in the lock of namespaces that begin and end; the kernel's of hooks nest in it. */
static DEFINE_MUTEX(mflow_nets_lock);
static LIST_HEAD(mflow_nets);
static bool mflow_nets_merge;

static int mflow_net_begin(struct mflow_net *here)
{
	int err;

	if (here->merges)
		return 0;
	err = mflow_merge_begin(here->net);
	if (err)
		return err;
	here->merges = true;
	here->frag_dist = mflow_frag_widen(here->net);
	return 0;
}

static void mflow_net_end(struct mflow_net *here)
{
	if (!here->merges)
		return;
	mflow_frag_narrow(here->net, here->frag_dist);
	mflow_merge_end(here->net);
	here->merges = false;
}

static void mflow_nets_end_locked(void)
{
	struct mflow_net *here;

	mflow_nets_merge = false;
	list_for_each_entry(here, &mflow_nets, list)
		mflow_net_end(here);
}

/* Process context; the same again is harmless. On an error no namespace has anything of ours. */
int mflow_nets_begin(void)
{
	struct mflow_net *here;
	int err = 0;

	mutex_lock(&mflow_nets_lock);
	mflow_nets_merge = true;
	list_for_each_entry(here, &mflow_nets, list) {
		err = mflow_net_begin(here);
		if (err) {
			mflow_nets_end_locked();
			break;
		}
	}
	mutex_unlock(&mflow_nets_lock);
	return err;
}

/* Process context; the same again is harmless. No packet is tagged any more, and none is parked. */
void mflow_nets_end(void)
{
	mutex_lock(&mflow_nets_lock);
	mflow_nets_end_locked();
	mutex_unlock(&mflow_nets_lock);
}

static int __net_init mflow_net_init(struct net *net)
{
	struct mflow_net *here = net_generic(net, mflow_net_id);
	int err = 0;

	mutex_lock(&mflow_nets_lock);
	here->net = net;
	if (mflow_nets_merge)
		err = mflow_net_begin(here);
	if (!err)
		list_add(&here->list, &mflow_nets);
	mutex_unlock(&mflow_nets_lock);
	return err;
}

/* Ends in a namespace before netfilter and IPv4 do, as they began there first. */
static void __net_exit mflow_net_exit(struct net *net)
{
	struct mflow_net *here = net_generic(net, mflow_net_id);

	mutex_lock(&mflow_nets_lock);
	list_del(&here->list);
	mflow_net_end(here);
	mutex_unlock(&mflow_nets_lock);
}

static struct pernet_operations mflow_net_ops = {
	.init = mflow_net_init,
	.exit = mflow_net_exit,
	.id = &mflow_net_id,
	.size = sizeof(struct mflow_net),
};

int mflow_nets_init(void)
{
	return register_pernet_subsys(&mflow_net_ops);
}

/* Ends in all namespaces. The caller waits until what runs in a hook of ours has ended. */
void mflow_nets_exit(void)
{
	unregister_pernet_subsys(&mflow_net_ops);
}
