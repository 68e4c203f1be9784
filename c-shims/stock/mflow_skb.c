// SPDX-License-Identifier: GPL-2.0
/*
 * Fields of packets for the Rust half, which has no bindgen here to know where they are.
 */

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/stddef.h>

#include "mflow_stock.h"

/* The links that rust/stock/bindings.rs writes down. */
static_assert(offsetof(struct sk_buff, next) == 0);
static_assert(offsetof(struct sk_buff, prev) == sizeof(void *));
static_assert(offsetof(struct sk_buff, dev_scratch) == 2 * sizeof(void *));

/* Returns the packet's tag, or 0 if it has none. */
u32 mflow_skb_tag(const struct sk_buff *skb)
{
	return mflow_stock_tag(skb);
}

void mflow_skb_set_tag(struct sk_buff *skb, u32 tag)
{
	/* The flow of a probe has just got its slot, so no other packet has a tag of it. */
	if (unlikely(tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_PROBE))
		mflow_probe_is_tagged(tag);
	if (tag || mflow_stock_tag(skb))
		skb->secmark = mflow_tag_of_mark(tag);
}

/* Keeps the amount where the tag was. */
void mflow_skb_set_parked(struct sk_buff *skb, u32 amount)
{
	skb->secmark = amount;
}

/* Returns the amount that was kept, and clears the mark. */
u32 mflow_skb_take_parked(struct sk_buff *skb)
{
	u32 amount = skb->secmark;

	skb->secmark = 0;
	return amount;
}

#ifndef NET_SKBUFF_DATA_USES_OFFSET
#error "mflow needs a kernel whose packets end at an offset: for 64 bits"
#endif

const struct mflow_skb_layout mflow_skb_layout = {
	.len = offsetof(struct sk_buff, len),
	.data_len = offsetof(struct sk_buff, data_len),
	.protocol = offsetof(struct sk_buff, protocol),
	.end = offsetof(struct sk_buff, end),
	.head = offsetof(struct sk_buff, head),
	.data = offsetof(struct sk_buff, data),
	.truesize = offsetof(struct sk_buff, truesize),
	.gso_size = offsetof(struct skb_shared_info, gso_size),
	.gso_segs = offsetof(struct skb_shared_info, gso_segs),
};

u16 mflow_skb_rx_queue(const struct sk_buff *skb)
{
	return skb->queue_mapping;
}

/*
 * Copies the first bytes of the metadata that an XDP program of the device's driver has left in front of the packet. Returns
 * false if there are fewer. Behind a tunnel the kernel still counts such bytes, though others are there now: its device has no
 * such program.
 */
bool mflow_skb_metadata(const struct sk_buff *skb, u8 *to, unsigned int bytes)
{
	const struct bpf_xdp_entity *programs = &skb->dev->xdp_state[XDP_MODE_DRV];
	unsigned int len = skb_metadata_len(skb);

	if (len < bytes || !skb_mac_header_was_set(skb) || len > skb->mac_header ||
	    !(READ_ONCE(programs->prog) || READ_ONCE(programs->link)))
		return false;
	memcpy(to, skb_metadata_end(skb) - len, bytes);
	return true;
}
