/* SPDX-License-Identifier: GPL-2.0 */
/* Drops the packet. */
static __always_inline int hike_drop(struct hike_context *context, struct hike_packet *packet)
{
	return HIKE_BY_PROGRAM;
}
