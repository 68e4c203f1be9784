/* SPDX-License-Identifier: GPL-2.0 */
/* Hands the packet over to the kernel. */
static __always_inline int hike_fw_kernel(struct hike_context *context, struct hike_packet *packet)
{
	return HIKE_BY_CHAIN;
}
