// SPDX-License-Identifier: GPL-2.0
/*
 * The join of a request's frame with a packet that GRO holds: what skb_gro_receive() does with a packet that is one fragment.
 *
 * The Rust half says which frames join (rust/algo/join). All functions run in the poll of a lane, whose NAPI nobody else uses.
 */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/checksum.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "mflow_held.h"
#include "mflow_versions.h"
#include "mflow_worker.h"

/* Returns the youngest packet with this tag that GRO holds, or NULL. */
static struct sk_buff *mflow_held_find(const struct napi_struct *napi, u32 tag)
{
	unsigned long buckets = MFLOW_GRO_HOLDS(napi);
	struct sk_buff *skb;
	unsigned int bucket;

	for_each_set_bit(bucket, &buckets, GRO_HASH_BUCKETS)
		list_for_each_entry(skb, &MFLOW_GRO_LIST(napi, bucket)->list, list)
			if (MFLOW_WAY_TAG(skb) == tag)
				return skb;
	return NULL;
}

/* Describes the youngest packet with this tag that GRO holds. Returns false if there is none, or if no frame can be hung onto it. */
bool mflow_worker_held(struct mflow_worker *worker, u32 tag, struct mflow_held *held)
{
	const struct napi_gro_cb *gro;
	const struct sk_buff *last;
	unsigned int data_at;
	struct sk_buff *skb;

	skb = mflow_held_find(&worker->napi, tag);
	if (!skb)
		return false;
	gro = NAPI_GRO_CB(skb);
	last = gro->last;
	/* GRO compares more fields of these packets, so they are left to it. */
	if ((gro->is_flist && skb->ip_summed == CHECKSUM_PARTIAL) || skb->slow_gro ||
	    skb_vlan_tag_present(skb) || skb_zcopy(skb) || skb_metadata_len(skb))
		return false;

	data_at = skb->data - skb_mac_header(skb);
	held->skb = skb;
	held->headers = skb_mac_header(skb);
	held->linear_bytes = data_at + skb_headlen(skb);
	held->outer_at = gro->encap_mark ? data_at + mflow_held_outer_offset(skb) : 0;
	held->network_at = data_at + mflow_held_network_offset(skb);
	held->transport_at = data_at + skb_transport_offset(skb);
	held->bytes = data_at + skb->len;
	held->limit_bytes = data_at + mflow_way_held_limit(skb);
	held->frame_payload_bytes = skb_shinfo(skb)->gso_size;
	held->frames = gro->count;
	held->room_fragments = MAX_SKB_FRAGS - skb_shinfo(last)->nr_frags;
	/* GRO lets a list go with the last datagram that fits, so there is room for one datagram less. */
	held->room_frames = mflow_held_is_datagram(skb) ?
				    MFLOW_LIST_PKTS - min(MFLOW_LIST_PKTS, gro->count + 1U) : U16_MAX;
	held->summed = skb->ip_summed == CHECKSUM_COMPLETE;
	held->list = gro->is_flist;
	held->id_rule = MFLOW_HELD_ID_RULE;
	held->fixed_ids = mflow_held_fixed_ids(skb);
	return true;
}

/* Returns whether GRO still holds this packet, with this tag. @skb may be freed already, so only its address is compared. */
bool mflow_worker_holds(struct mflow_worker *worker, const struct sk_buff *skb, u32 tag)
{
	const struct napi_struct *napi = &worker->napi;
	unsigned long buckets = MFLOW_GRO_HOLDS(napi);
	const struct sk_buff *held;
	unsigned int bucket;

	for_each_set_bit(bucket, &buckets, GRO_HASH_BUCKETS)
		list_for_each_entry(held, &MFLOW_GRO_LIST(napi, bucket)->list, list)
			if (held == skb)
				return MFLOW_WAY_TAG(held) == tag;
	return false;
}

/* Describes a request's frame. Returns false if the driver has to build a packet. */
bool mflow_request_frag(const struct mflow_request *request, struct mflow_frag *frag)
{
	return request->ops->frag && request->ops->frag(request, frag);
}

/* Returns the checksum of the frame from @at on. @at is behind the first byte of the network header. */
u32 mflow_frag_sum(const struct mflow_frag *frag, unsigned int at)
{
	if (frag->sums == MFLOW_SUMS_COMPLETE)
		return (__force u32)csum_sub((__force __wsum)frag->sum,
					     csum_partial(frag->data + ETH_HLEN, at - ETH_HLEN, 0));
	return (__force u32)csum_partial(frag->data + at, frag->bytes - at, 0);
}

/*
 * Hangs the payload of a frame onto a packet, which then owns the page. Returns false if the payload does not fit; nothing has changed
 * then.
 */
bool mflow_held_join(struct sk_buff *held, const struct mflow_request *request,
		     const struct mflow_frag *frag, unsigned int payload_at, u8 fixed_ids)
{
	unsigned int bytes = frag->bytes - payload_at;
	struct sk_buff *last = NAPI_GRO_CB(held)->last;
	struct skb_shared_info *shared = skb_shinfo(last);

	if (unlikely(frag->recycles != held->pp_recycle || shared->nr_frags >= MAX_SKB_FRAGS ||
		     !mflow_way_is_of(held, frag->dev)))
		return false;
	mflow_frag_fill(&shared->frags[shared->nr_frags++], frag->page,
			frag->data + payload_at - page_address(frag->page), bytes);
	NAPI_GRO_CB(held)->count++;
	mflow_held_set_fixed_ids(held, fixed_ids);
	held->len += bytes;
	held->data_len += bytes;
	held->truesize += frag->memory_bytes;
	if (last != held) {
		last->len += bytes;
		last->data_len += bytes;
		last->truesize += frag->memory_bytes;
	}
	if (request->ops->joined)
		request->ops->joined(request, frag);
	mflow_way_note_joined(held);
	return true;
}

/*
 * Puts a packet behind the one that GRO holds, as skb_gro_receive_list() and skb_gro_receive() do it. The packet has been built just now; its
 * checksums are good.
 *
 * Return: the number of further fragments that @skb can take, or -EINVAL if @skb cannot be put there; nothing has changed then.
 */
int mflow_held_append(struct sk_buff *held, struct sk_buff *skb, unsigned int network_at,
		       unsigned int transport_at, unsigned int payload_at, u8 fixed_ids)
{
	unsigned int data_at = skb->data - skb_mac_header(skb);
	struct napi_gro_cb *gro = NAPI_GRO_CB(held);

	if (unlikely(skb->slow_gro || skb_vlan_tag_present(skb) ||
		     (!gro->is_flist && skb->pp_recycle != held->pp_recycle) ||
		     !mflow_way_is_of(held, skb->dev) || !pskb_may_pull(skb, payload_at - data_at)))
		return -EINVAL;
	mflow_way_show_to_gro(held, skb);
	skb_set_network_header(skb, network_at - data_at);
	skb_set_transport_header(skb, transport_at - data_at);
	skb->mac_len = data_at;
	skb->ip_summed = held->ip_summed;
	skb->csum_level = held->csum_level;
	skb->next = NULL;
	skb_pull(skb, payload_at - data_at);
	if (!gro->is_flist)
		__skb_header_release(skb);
	if (gro->last == held)
		skb_shinfo(held)->frag_list = skb;
	else
		gro->last->next = skb;
	gro->last = skb;
	gro->count++;
	mflow_held_set_fixed_ids(held, fixed_ids);
	held->data_len += skb->len;
	held->truesize += skb->truesize;
	held->len += skb->len;
	skb_shinfo(held)->flags |= skb_shinfo(skb)->flags & SKBFL_SHARED_FRAG;
	mflow_way_note_joined(held);
	return MAX_SKB_FRAGS - skb_shinfo(skb)->nr_frags;
}
