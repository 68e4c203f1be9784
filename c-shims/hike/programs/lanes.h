/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Leaves what the class asks mflow for its flows in the packet's metadata, where mflow finds it when the kernel gets the packet.
 * rust/algo/hint.rs has the layout.
 *
 * The packet itself stays as it is. A class that asks for nothing costs one test, and a driver without metadata has no hints.
 */
#include "../packet.h"

struct hike_hint {
	__u8 magic[4];
	__u8 version;
	__u8 bytes;
	__u8 lanes;
	__u8 zero;
};

static __always_inline int hike_lanes(struct xdp_md *xdp, struct hike_packet *packet)
{
	struct hike_hint hint = {
		.magic = { 'm', 'f', 'l', 'w' },
		.version = 1,
		.bytes = sizeof(hint),
		.lanes = packet->class.behaviour >> HIKE_CLASS_LANES_SHIFT,
	};
	void *metadata;

	if (!hint.lanes || bpf_xdp_adjust_meta(xdp, -(int)sizeof(hint)))
		return HIKE_NEXT;
	/* As in hike_data(): the verifier knows what was checked of this load. */
	metadata = (void *)(long)*(const volatile __u32 *)&xdp->data_meta;
	if (metadata + sizeof(hint) > hike_data(xdp))
		return HIKE_NEXT;
	/* Metadata begins where four bytes are aligned, like the packet's buffer or not. */
	__builtin_memcpy(metadata, &hint, sizeof(hint));
	return HIKE_NEXT;
}
