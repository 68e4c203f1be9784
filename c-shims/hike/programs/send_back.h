/* SPDX-License-Identifier: GPL-2.0 */
/* Sends the answer that `reflect` has made to the one from whom the packet came on its last link, with the VLAN tags of that link. */
#include "../context.h"

static __always_inline int hike_send_back(struct hike_context *context, struct hike_packet *packet)
{
	_Alignas(__u16) __u8 own[ETH_ALEN];
	struct ethhdr *eth = hike_data(context);

	if ((void *)(eth + 1) > hike_data_end(context))
		return HIKE_MALFORMED;
	hike_copy_mac(own, eth->h_dest);
	hike_copy_mac(eth->h_dest, eth->h_source);
	hike_copy_mac(eth->h_source, own);
	return HIKE_SENT_BACK;
}
