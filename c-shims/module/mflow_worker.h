/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _MFLOW_WORKER_H
#define _MFLOW_WORKER_H

#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/smp.h>

/* Of the way into the stack that the build has chosen: patched/ or stock/. */
#include "mflow_way.h"

/**
 * struct mflow_worker - the NAPI that runs a lane
 * @napi:	its softirq context; SCHED also guards @csd
 * @csd:	the interrupt that schedules @napi on @cpu
 * @way:	the state of the way into the stack
 * @lane:	the Rust half's lane
 * @cpu:	the CPU on which it runs, unless that CPU is offline
 * @rcu:	frees it
 */
struct mflow_worker {
	struct napi_struct	napi;
	call_single_data_t	csd;
	struct mflow_way	way;
	void			*lane;
	unsigned int		cpu;
	struct rcu_head		rcu;
};

void mflow_worker_set_napi_id(struct mflow_worker *worker, unsigned int napi_id);

#endif /* _MFLOW_WORKER_H */
