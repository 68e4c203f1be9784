/* SPDX-License-Identifier: GPL-2.0 */
/* Forwards by the kernel's routes and neighbours. What they do not forward at once, the kernel gets. */
#include "../forwarding/fib.h"
#include "../forwarding/tell.h"

static __always_inline int hike_fw_fib(struct hike_context *context, struct hike_packet *packet)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	struct hike_hop hop;
	__u32 bytes;
	int reason;

	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		bytes = hike_whole_bytes6(context, packet, ip6, hike_data_end(context));
		reason = hike_ask6(&fib, ip6, hike_wire_bytes(packet, bytes, 0));
	} else {
		struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		bytes = hike_whole_bytes4(context, packet, ip4, hike_data_end(context));
		reason = hike_ask4(&fib, ip4, hike_wire_bytes(packet, bytes, 0));
	}
	if (reason == HIKE_NEXT)
		reason = hike_look_up(context, &fib, 0, &hop);
	if (reason == HIKE_FW_TOO_BIG && packet->is_on_path)
		return hike_tell_of_link(context, packet, fib.mtu_result);
	return reason == HIKE_NEXT ? hike_leave(context, packet, &hop) : reason;
}
