/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a worker for the way through an unpatched kernel. Included by mflow_worker.h.
 */
#ifndef _MFLOW_WAY_H
#define _MFLOW_WAY_H

#include <linux/compiler.h>
#include <linux/skbuff.h>
#include <linux/types.h>
#include <net/gro.h>
#include <net/mflow.h>

#include "../module/mflow_versions.h"

#define MFLOW_NO_CPU	(~0u)

/**
 * struct mflow_way - waits until the stack's queues on this CPU are through with what the worker has given
 * @settles:	it waits
 * @cpu:	the CPU on which it waits
 * @tag:	the batch for whose packets it waits
 * @polls:	the polls that are left until queues of devices are through
 * @passes:	the times that the backlog has to be through after that
 * @tail:	up to where the backlog has to be through next
 * @polled_on:	the CPU of its last poll
 * @follows:	it waits for what it has given to the stack on another CPU
 * @from:	the CPU of those packets
 * @from_given:	the number of packets that had been given to the stack there
 * @until:	the time until which it waits for them, in jiffies
 */
struct mflow_way {
	bool		settles;
	unsigned int	cpu;
	u32		tag;
	unsigned int	polls;
	unsigned int	passes;
	unsigned int	tail;
	unsigned int	polled_on;
	bool		follows;
	unsigned int	from;
	u32		from_given;
	unsigned long	until;
};

/* All else is zeros. */
static inline void mflow_way_init(struct mflow_way *way)
{
	way->polled_on = MFLOW_NO_CPU;
}

static inline bool mflow_way_polls_again(const struct mflow_way *way)
{
	return way->settles || way->follows;
}

/* The field of a list's first member that has a sum of the head. */
#define MFLOW_LIST_SUM(skb)	((skb)->secmark)

/* For each slot, the bits in which a packet's mark differs from its tag. They are drawn for each flow. */
extern u32 mflow_tag_masks[MFLOW_SLOTS];

/* Returns the tag for a mark, or the mark for a tag: kind and slot are the same in both. 0 for what is neither. */
static inline u32 mflow_tag_of_mark(u32 mark)
{
	if (!(mark >> MFLOW_KIND_SHIFT))
		return 0;
	return mark ^ READ_ONCE(mflow_tag_masks[mark >> MFLOW_SLOT_SHIFT & (MFLOW_SLOTS - 1)]);
}

/* The packet's tag; 0: it has none. */
#define MFLOW_WAY_TAG(skb)	mflow_tag_of_mark((skb)->secmark)

/* Returns the length below which GRO keeps a packet, from the network header on. Of lists GRO does not ask the device. */
static inline unsigned int mflow_way_held_limit(const struct sk_buff *skb)
{
	if (NAPI_GRO_CB(skb)->is_flist)
		return GRO_LEGACY_MAX_SIZE;
	return mflow_netdev_gro_size(skb->dev, skb);
}

bool mflow_way_is_of(const struct sk_buff *held, const struct net_device *dev);

/* Shows a packet to GRO where it holds the one before. */
static inline void mflow_way_show_to_gro(const struct sk_buff *held, struct sk_buff *skb)
{
	skb->dev = held->dev;
	skb->tc_skip_classify = 1;
}

void mflow_way_note_joined(const struct sk_buff *held);

#endif /* _MFLOW_WAY_H */
