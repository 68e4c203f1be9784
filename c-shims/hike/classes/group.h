/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups of devices, for which classes are: a class may be for packets alone that come by a device inside of the SR domain. A packet that
 * comes from outside to a SID of the domain has to be dropped (RFC 8754, 5.1): the kernel, which may have the same SID, does not get it.
 */
#ifndef HIKE_GROUP_H
#define HIKE_GROUP_H

#include "../context.h"

/* Returns whether the packet's class is for packets like this one. Only a class that is not for all of them costs a look-up. */
static __always_inline bool hike_may_take_class(struct hike_context *context, struct hike_packet *packet)
{
	const __u32 *group;
	__u32 device;

	if (!(packet->class.chain & HIKE_CLASS_INSIDE))
		return true;
	packet->class.chain &= ~HIKE_CLASS_INSIDE;
	device = hike_from_device(context);
	group = bpf_map_lookup_elem(&groups, &device);
	return group && *group & HIKE_GROUP_INSIDE;
}

#endif
