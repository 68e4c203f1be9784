/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of sockets that share an address and a port (SO_REUSEPORT), and how one of them is chosen for a packet.
 */
#ifndef _NET_MFLOW_REUSEPORT_H
#define _NET_MFLOW_REUSEPORT_H

#include <linux/filter.h>
#include <net/sock_reuseport.h>

/* Returns whether a classic program (SO_ATTACH_REUSEPORT_CBPF) reads the number of the CPU. What other programs read is not known. RCU. */
static inline bool mflow_program_reads_cpu(const struct bpf_prog *prog)
{
	const struct sock_fprog_kern *classic;
	unsigned int i;

	if (!prog || !bpf_prog_was_classic(prog))
		return false;
	classic = prog->orig_prog;
	if (!classic)
		return false;
	for (i = 0; i < classic->len; i++)
		if (classic->filter[i].code == (BPF_LD | BPF_W | BPF_ABS) &&
		    classic->filter[i].k == (u32)(SKF_AD_OFF + SKF_AD_CPU))
			return true;
	return false;
}

/* Returns whether the group's socket for a packet depends on the CPU that looks it up. RCU. */
static inline bool mflow_group_is_by_cpu(const struct sock_reuseport *group)
{
	return READ_ONCE(group->incoming_cpu) ||
	       mflow_program_reads_cpu(rcu_dereference_bh(group->prog));
}

#endif /* _NET_MFLOW_REUSEPORT_H */
