// SPDX-License-Identifier: GPL-2.0
/*
 * The program of ports that have no other: lets all packets pass. Drivers send what XDP redirects to them only while they have a
 * program.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int hike_pass(struct xdp_md *xdp)
{
	return XDP_PASS;
}

char hike_license[] SEC("license") = "GPL";
