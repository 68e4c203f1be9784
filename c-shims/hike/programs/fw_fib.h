/* SPDX-License-Identifier: GPL-2.0 */
/* Forwards by the kernel's routes and neighbours. What they do not forward at once, the kernel gets. */
#include "../forward.h"

/* Those of sys/socket.h, which is not for BPF. */
#define HIKE_AF_INET 2
#define HIKE_AF_INET6 10

static __always_inline int hike_fw_fib(struct xdp_md *xdp, struct hike_packet *packet)
{
	struct bpf_fib_lookup fib = {};
	struct hike_hop hop;
	__u32 bytes;
	int reason;

	fib.ifindex = xdp->ingress_ifindex;
	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_ip(xdp, packet);

		if ((void *)(ip6 + 1) > hike_end(xdp))
			return HIKE_MALFORMED;
		bytes = hike_bytes6(ip6, hike_end(xdp));
		reason = hike_forwardable6(ip6, bytes);
		if (reason != HIKE_NEXT)
			return reason;
		fib.family = HIKE_AF_INET6;
		fib.l4_protocol = ip6->nexthdr;
		fib.flowinfo = *(__be32 *)ip6 & bpf_htonl(0x0fffffff);
		__builtin_memcpy(fib.ipv6_src, &ip6->saddr, sizeof(fib.ipv6_src));
		__builtin_memcpy(fib.ipv6_dst, &ip6->daddr, sizeof(fib.ipv6_dst));
	} else {
		struct iphdr *ip4 = hike_ip(xdp, packet);

		if ((void *)(ip4 + 1) > hike_end(xdp))
			return HIKE_MALFORMED;
		bytes = hike_bytes4(ip4, hike_end(xdp));
		reason = hike_forwardable4(ip4, bytes);
		if (reason != HIKE_NEXT)
			return reason;
		fib.family = HIKE_AF_INET;
		fib.l4_protocol = ip4->protocol;
		fib.tos = ip4->tos;
		fib.ipv4_src = ip4->saddr;
		fib.ipv4_dst = ip4->daddr;
	}
	fib.tot_len = bytes;
	switch (bpf_fib_lookup(xdp, &fib, sizeof(fib), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_NO_NEIGH:
		return HIKE_FW_NO_NEIGHBOUR;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return HIKE_FW_TOO_BIG;
	default:
		return HIKE_FW_NO_ROUTE;
	}
	hop.port = fib.ifindex;
	hike_copy_mac(hop.source, fib.smac);
	hike_copy_mac(hop.destination, fib.dmac);
	return hike_leave(xdp, packet, &hop);
}
