/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The device that the kernel takes a packet from. Its rules and tables are asked for that one, which need not be the one that XDP has the
 * packet from: tags are for the device of their VLAN, and a device may be in a VRF, or in a bond.
 */
#ifndef HIKE_RECEIVER_H
#define HIKE_RECEIVER_H

#include "../context.h"

/* Of a tag, the kind and the VLAN. */
#define HIKE_TAG_MASK bpf_htonl(0xffff0fff)

/* Copies a tag as a key has it. */
static __always_inline void hike_copy_tag(__be32 *to, const void *from)
{
	HIKE_COPY(__u32, to, from);
	*to &= HIKE_TAG_MASK;
}

/*
 * Finds that device: returns HIKE_NEXT, or why the kernel must see the packet. Packets without tags pay for it only if some device is not
 * what it seems.
 */
static __always_inline int hike_find_receiver(struct hike_context *context, const struct hike_packet *packet,
					      const struct hike_routing *routing,
					      struct hike_receiver *receiver)
{
	__u32 tag_bytes = (packet->ip_at & 31) - ETH_HLEN;
	struct hike_tagged key = { .device = hike_from_device(context) };
	const struct hike_receiver *found;

	receiver->device = key.device;
	receiver->asked = key.device;
	receiver->flags = 0;
	if (!HIKE_IS_A_HOP || (!tag_bytes && !routing->has_receivers))
		return HIKE_NEXT;
	if (tag_bytes) {
		const void *start = hike_data(context);
		const void *tags = start + ETH_HLEN - sizeof(__be16);

		if (start + HIKE_MOST_L2_BYTES > hike_data_end(context))
			return HIKE_MALFORMED;
		hike_copy_tag(&key.tags[0], tags);
		if (tag_bytes > HIKE_VLAN_BYTES)
			hike_copy_tag(&key.tags[1], tags + HIKE_VLAN_BYTES);
	}
	found = bpf_map_lookup_elem(&receivers, &key);
	if (!found)
		return tag_bytes ? HIKE_FW_VLAN : HIKE_NEXT;
	if (found->flags & HIKE_RECEIVER_LEFT)
		return HIKE_FW_DEVICE;
	*receiver = *found;
	return HIKE_NEXT;
}

#endif
