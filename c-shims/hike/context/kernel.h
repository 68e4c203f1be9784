/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Those members of the kernel's structures of devices that programs on its functions and tracepoints read. Their places are filled in
 * when the programs are loaded (BTF).
 */
#ifndef HIKE_CONTEXT_KERNEL_H
#define HIKE_CONTEXT_KERNEL_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

struct net_device {
	int ifindex;
	/* The kernel's possible_net_t. */
	struct {
		struct net *net;
	} nd_net;
};

#pragma clang attribute pop

#endif /* HIKE_CONTEXT_KERNEL_H */
