/* SPDX-License-Identifier: GPL-2.0 */
/* Forwards by the kernel's routes and neighbours. What they do not forward at once, the kernel gets. */
#include "../forwarding/fib.h"
#include "../forwarding/tell.h"

/* Looks up, and forwards. A function of its own: on the stack, what is asked would leave others of the chain no room. */
static __noinline int hike_fw_by_fib(struct hike_context *context, struct hike_packet *packet)
{
	_Alignas(__u64) struct bpf_fib_lookup fib = {};
	const void *end = hike_data_end(context);
	/* Packets that `enc` has put on a path are from this host, so nobody is to be told of a shorter way. */
	bool turns = !packet->is_on_path;
	struct hike_neighbour *stale = NULL;
	struct hike_hop hop;
	__u32 bytes;
	int reason;

	if (packet->version == 6) {
		struct ipv6hdr *ip6 = hike_open_ip6(context, packet);

		if (!ip6)
			return HIKE_MALFORMED;
		bytes = hike_wire_bytes(packet, hike_whole_bytes6(context, packet, ip6, end), 0);
		reason = hike_ask6(&fib, ip6, bytes);
		if (reason == HIKE_NEXT)
			reason = hike_ask_transport6(&fib, ip6, end, bytes);
		/* Those who send source routes are routers, which take no redirects. */
		turns = turns && ip6->nexthdr != IPPROTO_ROUTING && ip6->nexthdr != IPPROTO_DSTOPTS;
	} else {
		struct iphdr *ip4 = hike_open_ip4(context, packet);

		if (!ip4)
			return HIKE_MALFORMED;
		bytes = hike_wire_bytes(packet, hike_whole_bytes4(context, packet, ip4, end), 0);
		reason = hike_ask4(&fib, ip4, bytes);
		if (reason == HIKE_NEXT)
			reason = hike_ask_transport4(&fib, ip4, end, bytes);
	}
	if (reason == HIKE_NEXT)
		reason = hike_look_up(context, packet, &fib, 0, turns, &stale, &hop);
	/* If the look-up has the next link's MTU, that stands where the packet's length was. */
	if (reason == HIKE_FW_TOO_BIG)
		hike_note_mtu(fib.mtu_result != (__u16)bytes ? fib.mtu_result : 0);
	if (reason == HIKE_NEXT)
		reason = hike_ask_again(stale);
	return reason == HIKE_NEXT ? hike_leave(context, packet, &hop) : reason;
}

/* Forwards, or tells. A call of another program that does not come back has to be here: in a function it would end that function alone. */
static __always_inline int hike_fw_fib(struct hike_context *context, struct hike_packet *packet)
{
	int reason = hike_fw_by_fib(context, packet);

	if (reason == HIKE_FW_TOO_BIG && packet->is_on_path)
		return hike_tell_of_link(context, packet, hike_noted_mtu());
	return reason;
}
