/* SPDX-License-Identifier: GPL-2.0 */
/* Forwards by the kernel's routes and neighbours. What they do not forward at once, the kernel gets. */
#include "../fib.h"

static __always_inline int hike_fw_fib(struct xdp_md *xdp, struct hike_packet *packet)
{
	struct bpf_fib_lookup fib = {};
	struct hike_hop hop;
	int reason;

	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_ip(xdp, packet);

		if ((void *)(ip6 + 1) > hike_data_end(xdp))
			return HIKE_MALFORMED;
		reason = hike_ask6(&fib, ip6, hike_bytes6(ip6, hike_data_end(xdp)));
	} else {
		struct iphdr *ip4 = hike_ip(xdp, packet);

		if ((void *)(ip4 + 1) > hike_data_end(xdp))
			return HIKE_MALFORMED;
		reason = hike_ask4(&fib, ip4, hike_bytes4(ip4, hike_data_end(xdp)));
	}
	if (reason == HIKE_NEXT)
		reason = hike_look_up(xdp, &fib, 0, &hop);
	return reason == HIKE_NEXT ? hike_leave(xdp, packet, &hop) : reason;
}
