/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The declarations that the files of the merge point share.
 */
#ifndef _MFLOW_MERGE_H
#define _MFLOW_MERGE_H

#include <linux/netfilter.h>
#include <linux/skbuff.h>

#include "../../module/mflow_list.h"
#include "../mflow_stock.h"

/* The end of the way of a packet that this host receives. */
enum mflow_end {
	MFLOW_END_DATA,		/* It ends here. */
	MFLOW_END_BY_CPU,	/* The same, at a socket that is chosen by CPU. */
	MFLOW_END_TUNNEL,	/* The packet in it goes on, with the tag. */
	MFLOW_END_ORDERED,	/* The same, and what unpacks it needs order. */
};

/* mflow_endpoint.c */
enum mflow_end mflow_end_of(struct net *net, const struct sk_buff *skb, u8 family);

/* mflow_trust.c: the tags that are believed */
bool mflow_are_surplus(struct mflow_carried *carried, unsigned int slot, u32 pkts);
bool mflow_probe_ends_elsewhere(u32 tag);

/* mflow_path.c: what devices say about the way. */
unsigned int mflow_path_fault(const struct sk_buff *skb);
bool mflow_dev_needs_order(struct net_device *dev);
bool mflow_dev_leads_inside(const struct net_device *dev);
bool mflow_dev_takes_lists(struct net_device *dev);

/* mflow_parked.c */
bool mflow_park(struct sk_buff *skb, const struct nf_hook_state *state);
void mflow_unpark(struct sk_buff *skb);

/* mflow_merge.c: our hook, which tells from where a parked packet goes on. */
unsigned int mflow_local_in(void *priv, struct sk_buff *skb, const struct nf_hook_state *state);

/* mflow_readers.c: who receives a slot's packets. */
void mflow_note_receiver(struct net *net, struct sk_buff *skb, unsigned int slot, u8 family);

#endif /* _MFLOW_MERGE_H */
