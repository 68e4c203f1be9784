// SPDX-License-Identifier: GPL-2.0
/* Trials of what the running kernel can do: test runs, which no packet takes. */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>

/*
 * Passes if the kernel's look-up takes the number of a table. An unknown flag is an invalid one to the kernel, whatever else it is asked;
 * of a known one it says that it has no such family of addresses.
 */
SEC("xdp")
int hike_takes_tables(struct xdp_md *xdp)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	long said = bpf_fib_lookup(xdp, &fib, sizeof(fib), BPF_FIB_LOOKUP_DIRECT | BPF_FIB_LOOKUP_TBID);

	return said == -EINVAL ? XDP_DROP : XDP_PASS;
}

char hike_license[] SEC("license") = "GPL";
