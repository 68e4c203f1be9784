/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The declarations that the files of this way into the stack share.
 */
#ifndef _MFLOW_PATCHED_H
#define _MFLOW_PATCHED_H

#include <linux/types.h>

struct mflow_worker;
struct sk_buff;

/* mflow_datagrams.c */
bool mflow_worker_receive_datagram(struct mflow_worker *worker, struct sk_buff *skb,
				   unsigned int form);

#endif /* _MFLOW_PATCHED_H */
