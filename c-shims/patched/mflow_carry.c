// SPDX-License-Identifier: GPL-2.0
/*
 * The functions by which a lane gives packets to the stack, in its poll.
 */

#include <linux/netdevice.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../module/mflow_worker.h"
#include "mflow_patched.h"

/* Packets that go on together past GRO: as many as GRO hands on at once. */
#define MFLOW_PAST_GRO	8

/*
 * Returns whether GRO has joined the packet with one before it. @form: the form in which datagrams go on
 * (%MFLOW_FORM_SINGLE, ...).
 */
bool mflow_worker_receive(struct mflow_worker *worker, struct sk_buff *skb, unsigned int form)
{
	gro_result_t result;

	/* A packet from a tap may still be its sender's: GRO joins packets of one sender only. */
	skb_prepare_for_gro(skb);
	/* GRO would take the memory of a packet that others (taps, mirrors) have, too. */
	if (unlikely(skb_cloned(skb)) && skb_unclone(skb, GFP_ATOMIC)) {
		mflow_worker_flush(worker);
		mflow_worker_receive_past_gro(worker, skb);
		mflow_worker_flush(worker);
		return false;
	}
	if (form != MFLOW_FORM_SINGLE)
		return mflow_worker_receive_datagram(worker, skb, form);
	result = napi_gro_receive(&worker->napi, skb);
	return result == GRO_MERGED || result == GRO_MERGED_FREE;
}

static void mflow_worker_hand_on(struct mflow_worker *worker)
{
	netif_receive_skb_list(&worker->way.past_gro);
	INIT_LIST_HEAD(&worker->way.past_gro);
	worker->way.nr_past_gro = 0;
}

void mflow_worker_receive_past_gro(struct mflow_worker *worker,
				   struct sk_buff *skb)
{
	skb_mark_napi_id(skb, &worker->napi);
	/* GRO would set it; a device further on drops a large packet without it. */
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		skb_set_transport_header(skb, skb_checksum_start_offset(skb));
	list_add_tail(&skb->list, &worker->way.past_gro);
	if (++worker->way.nr_past_gro >= MFLOW_PAST_GRO)
		mflow_worker_hand_on(worker);
}

/*
 * Gives a packet to GRO that is not split. What clones share is not GRO's to join: such a packet goes
 * on behind what GRO holds, as gro_cells_receive() does it.
 */
void mflow_worker_receive_stage(struct mflow_worker *worker,
				struct sk_buff *skb)
{
	if (skb_cloned(skb)) {
		mflow_worker_flush(worker);
		netif_receive_skb(skb);
	} else {
		napi_gro_receive(&worker->napi, skb);
	}
}

/* Brings all that was received to its end before it returns. */
void mflow_worker_flush(struct mflow_worker *worker)
{
	if (worker->way.nr_past_gro)
		mflow_worker_hand_on(worker);
	mflow_napi_gro_flush(&worker->napi);
}
