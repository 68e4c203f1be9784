// SPDX-License-Identifier: GPL-2.0
/*
 * Fragments of one datagram that come from several CPUs. IPv4 takes an identifier for one that has come again when as
 * many fragments of the same sender have come meanwhile as net.ipv4.ipfrag_max_dist says: 64 by default. Lanes run
 * further apart, so while splitting is on, all namespaces have MFLOW_FRAG_DIST.
 */

#include <linux/list.h>
#include <linux/mutex.h>
#include <net/inet_frag.h>
#include <net/mflow.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "mflow_stock.h"

/**
 * struct mflow_frag_net - what a namespace's distance was
 * @list:	all of them
 * @fqdir:	where it is
 * @was:	what it is to be again; 0: it has been left alone
 */
struct mflow_frag_net {
	struct list_head	list;
	struct fqdir		*fqdir;
	int			was;
};

static unsigned int mflow_frag_net_id;

/* Guards all that follows, and nests in rtnl. */
static DEFINE_MUTEX(mflow_frag_lock);
static LIST_HEAD(mflow_frag_nets);
static bool mflow_frag_widened;

/* 0 stands for no check at all, and a distance beyond ours is as good. */
static void mflow_frag_widen(struct mflow_frag_net *frag)
{
	int now = READ_ONCE(frag->fqdir->max_dist);

	if (frag->was || now <= 0 || now >= (int)MFLOW_FRAG_DIST)
		return;
	frag->was = now;
	WRITE_ONCE(frag->fqdir->max_dist, MFLOW_FRAG_DIST);
}

/* What somebody has written meanwhile stays. */
static void mflow_frag_narrow(struct mflow_frag_net *frag)
{
	if (frag->was && READ_ONCE(frag->fqdir->max_dist) == (int)MFLOW_FRAG_DIST)
		WRITE_ONCE(frag->fqdir->max_dist, frag->was);
	frag->was = 0;
}

/* Process context; the same value twice is harmless. */
void mflow_frag_switch(bool enabled)
{
	struct mflow_frag_net *frag;

	mutex_lock(&mflow_frag_lock);
	mflow_frag_widened = enabled;
	list_for_each_entry(frag, &mflow_frag_nets, list) {
		if (enabled)
			mflow_frag_widen(frag);
		else
			mflow_frag_narrow(frag);
	}
	mutex_unlock(&mflow_frag_lock);
}

static int __net_init mflow_frag_net_init(struct net *net)
{
	struct mflow_frag_net *frag = net_generic(net, mflow_frag_net_id);

	mutex_lock(&mflow_frag_lock);
	frag->fqdir = net->ipv4.fqdir;
	list_add(&frag->list, &mflow_frag_nets);
	if (mflow_frag_widened)
		mflow_frag_widen(frag);
	mutex_unlock(&mflow_frag_lock);
	return 0;
}

/* Before IPv4 ends in the namespace, as it began there first. */
static void __net_exit mflow_frag_net_exit(struct net *net)
{
	struct mflow_frag_net *frag = net_generic(net, mflow_frag_net_id);

	mutex_lock(&mflow_frag_lock);
	list_del(&frag->list);
	mutex_unlock(&mflow_frag_lock);
}

static struct pernet_operations mflow_frag_net_ops = {
	.init = mflow_frag_net_init,
	.exit = mflow_frag_net_exit,
	.id = &mflow_frag_net_id,
	.size = sizeof(struct mflow_frag_net),
};

int mflow_frag_init(void)
{
	return register_pernet_subsys(&mflow_frag_net_ops);
}

void mflow_frag_exit(void)
{
	unregister_pernet_subsys(&mflow_frag_net_ops);
}
