// SPDX-License-Identifier: GPL-2.0
/*
 * The count of packets that ports drop. A packet has been counted as forwarded when its program ends, and only then the kernel sends
 * it, together with others: if the port or its driver does not take it, the kernel's tracepoints of XDP say so
 * (include/trace/events/xdp.h), on the same CPU.
 *
 * It reads structures of the kernel, so it takes a kernel that describes them (BTF).
 */
#include "context/kernel.h"
#include "tables.h"

/* The kernel's number of the table `ports` of the instance. */
const volatile __u32 hike_ports_id;

static __always_inline void hike_count_drops(__u64 pkts)
{
	__u32 key = HIKE_PORT_DROPPED;
	__u64 *count = bpf_map_lookup_elem(&reasons, &key);

	if (count)
		*count += pkts;
}

/* A packet that is not taken in the first place: the port is down, or its driver sends nothing for XDP any more. */
SEC("tp_btf/xdp_redirect_err")
int hike_redirect_err(__u64 *arguments)
{
	/* The device, the program, the target, the error, the type of the table, its number, the key. */
	if ((__u32)arguments[5] == hike_ports_id)
		hike_count_drops(1);
	return 0;
}

/*
 * Packets that a driver has not sent. The kernel does not say by which table they came, so those of the instance are told by the two
 * devices, in the network namespace of the first.
 */
SEC("tp_btf/xdp_devmap_xmit")
int hike_devmap_xmit(__u64 *arguments)
{
	/* The two devices, how many were sent, how many were dropped, the error. */
	const struct net_device *from = (const struct net_device *)arguments[0];
	const struct net_device *to = (const struct net_device *)arguments[1];
	const struct hike_device *device;
	__s32 drops = (__s32)arguments[3];
	__u32 index, port;

	if (drops <= 0)
		return 0;
	index = from->ifindex;
	port = to->ifindex;
	device = bpf_map_lookup_elem(&devices, &index);
	if (!device || device->network != from->nd_net.net->ns.inum)
		return 0;
	if (bpf_map_lookup_elem(&ports, &port))
		hike_count_drops(drops);
	return 0;
}

char hike_license[] SEC("license") = "GPL";
