// SPDX-License-Identifier: GPL-2.0
/* The baseline for measurements of chains: programs that do as little as a program can. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} port SEC(".maps");

/* Sends all packets out by one device, as they are. */
SEC("xdp")
int hike_pass_through(struct xdp_md *xdp)
{
	return bpf_redirect_map(&port, 0, XDP_DROP);
}

/* Drops all packets: the least that can be behind a device that others redirect to. */
SEC("xdp")
int hike_discard(struct xdp_md *xdp)
{
	return XDP_DROP;
}

char hike_license[] SEC("license") = "GPL";
