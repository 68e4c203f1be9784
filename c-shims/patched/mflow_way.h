/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a worker for the way through the hooks. Included by mflow_worker.h.
 */
#ifndef _MFLOW_WAY_H
#define _MFLOW_WAY_H

#include <linux/list.h>

struct mflow_worker;

/**
 * struct mflow_way - packets that skip GRO, until they go on together
 * @past_gro:	the packets
 * @nr_past_gro: the number of packets
 */
struct mflow_way {
	struct list_head	past_gro;
	unsigned int		nr_past_gro;
};

static inline void mflow_way_init(struct mflow_way *way)
{
	INIT_LIST_HEAD(&way->past_gro);
}

/* Returns false: all work ends in this poll. */
static inline bool mflow_way_polls_again(const struct mflow_way *way)
{
	return false;
}

/* The first member's field that holds the head's sum. The member gets the head's tag when the list is taken apart. */
#define MFLOW_LIST_SUM(skb)	((skb)->mflow)

#endif /* _MFLOW_WAY_H */
