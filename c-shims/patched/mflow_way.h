/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a worker needs for the way through the hooks. Included by mflow_worker.h.
 */
#ifndef _MFLOW_WAY_H
#define _MFLOW_WAY_H

#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <net/mflow.h>

struct mflow_worker;

/**
 * struct mflow_way - packets that wait in the poll
 * @past_gro:	those that skip GRO, until they go on together
 * @nr_past_gro: how many those are
 * @onward:	those that a queue would have held, until the stack has returned
 */
struct mflow_way {
	struct list_head	past_gro;
	unsigned int		nr_past_gro;
	struct sk_buff_head	onward;
};

static inline void mflow_way_init(struct mflow_way *way)
{
	INIT_LIST_HEAD(&way->past_gro);
	__skb_queue_head_init(&way->onward);
}

/* Around the poll of a lane. */
static inline void mflow_way_begin(struct mflow_way *way)
{
	this_cpu_write(mflow_cpu.onward, &way->onward);
}

static inline void mflow_way_end(void)
{
	this_cpu_write(mflow_cpu.onward, NULL);
}

/* All is done in the poll. */
static inline bool mflow_way_polls_again(const struct mflow_way *way)
{
	return false;
}

#endif /* _MFLOW_WAY_H */
