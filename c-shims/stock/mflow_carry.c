// SPDX-License-Identifier: GPL-2.0
/*
 * The functions by which a lane gives packets to the stack, in its poll, and learns when they have come through the queues on
 * their way: gro_cells of tunnels, and the CPU's backlog behind veths. Either is in order, and emptied by NAPIs that take
 * turns with the lane's own on the same CPU.
 */

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../module/mflow_list.h"
#include "../module/mflow_versions.h"
#include "../module/mflow_worker.h"
#include "mflow_stock.h"

/* Queues that may be behind each other: tunnels in tunnels, veths behind veths. */
#define MFLOW_MOST_QUEUES	3

DEFINE_PER_CPU(struct mflow_carried, mflow_carried);

/* Set for good where net.core.gro_normal_batch is 1: what GRO lets through is gone at once, before what it holds. */
static bool mflow_lists_off __read_mostly;

/* Gives up the packets of a batch that are under way: no lane waits for them. */
static void mflow_give_up(struct mflow_carried *carried, struct mflow_owed *owed)
{
	carried->arrived += owed->pkts;
	WRITE_ONCE(owed->pkts, 0);
}

/*
 * Counts packets of a batch that are under way on this CPU. A batch that has no count yet takes that of one whose packets have all
 * arrived. There is one, unless lanes have moved here.
 */
void mflow_owe(struct mflow_carried *carried, u32 tag, u32 pkts)
{
	struct mflow_owed *places = carried->owed[mflow_stock_slot(tag)], *owed = NULL;
	unsigned int i;

	for (i = 0; i < MFLOW_OWED; i++) {
		if (places[i].tag == tag) {
			owed = &places[i];
			break;
		}
		if (!places[i].pkts)
			owed = &places[i];
	}
	if (!owed) {
		owed = &places[tag & (MFLOW_OWED - 1)];
		mflow_give_up(carried, owed);
	}
	if (!owed->pkts) {
		owed->tag = tag;
		WRITE_ONCE(owed->since, carried->given);
	}
	/* Pairs with the acquire in mflow_has_come_through(): who sees these packets sees since when they are under way. */
	smp_store_release(&owed->pkts, owed->pkts + pkts);
	WRITE_ONCE(carried->given, carried->given + pkts);
}

/*
 * Returns whether datagrams of the packet's batch are put into lists. The answer is the same for all of a batch: a datagram that goes
 * without would overtake a list that GRO holds of its flow.
 */
static bool mflow_given(const struct sk_buff *skb)
{
	struct mflow_carried *carried = this_cpu_ptr(&mflow_carried);
	u32 tag = mflow_stock_tag(skb);
	unsigned int slot = mflow_stock_slot(tag);

	mflow_owe(carried, tag, mflow_stock_wire_pkts(skb));
	if (carried->tags[slot] != tag) {
		carried->tags[slot] = tag;
		if (test_bit(slot, mflow_datagrams) && !READ_ONCE(mflow_lists_off))
			carried->datagrams |= BIT_ULL(slot);
		else
			carried->datagrams &= ~BIT_ULL(slot);
	}
	return carried->datagrams & BIT_ULL(slot);
}

/* Notes a frame that has joined a packet of its batch. */
void mflow_way_note_joined(const struct sk_buff *held)
{
	mflow_owe(this_cpu_ptr(&mflow_carried), mflow_stock_tag(held), 1);
}

/*
 * Gives a datagram to GRO. One that GRO cannot put into a list (its checksum was seen to by others than that of the one
 * before, it is empty, or padded) is let through, and would overtake the list that GRO holds of its flow.
 *
 * It may have left by itself. Where GRO has let go what it held of its flow, that was in front, and enough for a batch
 * of what GRO lets through: segments of a stream in the same tunnel do so all the time. Else a batch is one packet.
 */
static gro_result_t mflow_receive_datagram(struct napi_struct *napi,
					   struct sk_buff *skb)
{
	const struct gro_list *beside = MFLOW_GRO_LIST(napi, skb_get_hash_raw(skb));
	gro_result_t result;
	int held;

	mflow_pass_normal(napi);
	held = beside->count;
	result = napi_gro_receive(napi, skb);
	if (result == GRO_NORMAL && !mflow_last_behind_held(napi) && beside->count >= held)
		WRITE_ONCE(mflow_lists_off, true);
	return result;
}

/*
 * Returns whether GRO has joined the packet with one before it. @form: the form in which datagrams may go on
 * (%MFLOW_FORM_SINGLE, ...).
 */
bool mflow_worker_receive(struct mflow_worker *worker, struct sk_buff *skb, unsigned int form)
{
	gro_result_t result;
	bool datagram;

	/*
	 * GRO would take the memory of a packet that others (taps, mirrors) have, too, and a tunnel would queue it elsewhere than those of
	 * its flow that nobody has. So it gets its own, or goes behind what GRO holds.
	 */
	if (unlikely(skb_cloned(skb)) && skb_unclone(skb, GFP_ATOMIC)) {
		mflow_worker_flush(worker);
		mflow_worker_receive_past_gro(worker, skb);
		return false;
	}
	datagram = mflow_given(skb) && form != MFLOW_FORM_SINGLE;
	/* It must not overtake those of its batch that GRO holds at our device. */
	if (unlikely(!mflow_port_lane_device(skb, datagram)))
		mflow_worker_flush(worker);
	if (datagram)
		result = mflow_receive_datagram(&worker->napi, skb);
	else
		result = napi_gro_receive(&worker->napi, skb);
	return result == GRO_MERGED || result == GRO_MERGED_FREE;
}

/* Carries a packet on past GRO, and past RPS, which has chosen this packet's CPU before it came to us. */
void mflow_worker_receive_past_gro(struct mflow_worker *worker,
				   struct sk_buff *skb)
{
	/*
	 * A tunnel queues a packet of which others (taps, mirrors) have a clone elsewhere than those of its flow whose clones are gone by
	 * now. Without memory for that, it goes on as it is.
	 */
	if (unlikely(skb_cloned(skb)))
		skb_unclone(skb, GFP_ATOMIC);
	mflow_given(skb);
	skb_mark_napi_id(skb, &worker->napi);
	/* GRO would set it; a device further on drops a large packet without it. */
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		skb_set_transport_header(skb, skb_checksum_start_offset(skb));
	mflow_receive_skb(skb);
}

/* Is not called, as there are no stages. */
void mflow_worker_receive_stage(struct mflow_worker *worker,
				struct sk_buff *skb)
{
	mflow_receive_skb(skb);
}

/* Passes all received packets on: they are in the stack's queues, or at their end, when this returns. */
void mflow_worker_flush(struct mflow_worker *worker)
{
	napi_gro_flush(&worker->napi, false);
	mflow_pass_normal(&worker->napi);
}

/* Carries a packet on from where it was dispatched, on this CPU. */
void mflow_receive_skb(struct sk_buff *skb)
{
	skb->tc_skip_classify = !mflow_port_is_early(skb->dev);
	netif_receive_skb_core(skb);
}

/* Carries a packet on from where mflow_ingress() has taken it, on this CPU. */
int mflow_receive_behind_hook(struct sk_buff *skb)
{
	skb->tc_skip_classify = 1;
	return netif_receive_skb_core(skb);
}

static unsigned int mflow_backlog_tail(void)
{
#ifdef CONFIG_RPS
	return READ_ONCE(this_cpu_ptr(&softnet_data)->input_queue_tail);
#else
	return 0;
#endif
}

static bool mflow_backlog_has_passed(unsigned int tail)
{
#ifdef CONFIG_RPS
	return (int)(READ_ONCE(this_cpu_ptr(&softnet_data)->input_queue_head) - tail) >= 0;
#else
	return true;
#endif
}

/*
 * Begins to wait for the end of a batch. In the worker's poll. Most batches arrive in full, which is the end. It does not matter what
 * arrives of other lanes' batches: their packets may have a shorter way. Where packets are missing (dropped, or joined by
 * defragmentation), they are known to be so when each queue has had time for all that lanes have given on this CPU and that has not
 * arrived.
 */
void mflow_worker_settle(struct mflow_worker *worker, u32 tag)
{
	const struct mflow_carried *carried = this_cpu_ptr(&mflow_carried);
	struct mflow_way *way = &worker->way;
	u32 missing = carried->given - carried->arrived;

	way->settles = true;
	way->cpu = smp_processor_id();
	way->tag = tag;
	way->polls = missing / MFLOW_TURN_PKTS + 2;
	way->passes = MFLOW_MOST_QUEUES;
	way->tail = 0;
}

/* Returns whether that wait has ended. In the worker's poll, which is called again until it has. */
bool mflow_worker_has_settled(struct mflow_worker *worker)
{
	struct mflow_carried *carried = this_cpu_ptr(&mflow_carried);
	struct mflow_way *way = &worker->way;
	struct mflow_owed *owed;

	/* Since then the worker has moved, and has followed its packets. */
	if (!way->settles || way->cpu != smp_processor_id())
		goto settled;
	owed = mflow_owed_find(carried, way->tag);
	if (!owed)
		goto settled;
	if (way->polls) {
		way->polls--;
		way->tail = mflow_backlog_tail();
		return false;
	}
	if (!mflow_backlog_has_passed(way->tail))
		return false;
	if (--way->passes) {
		way->tail = mflow_backlog_tail();
		return false;
	}
	/* Packets that are still missing do not come any more. Those that do are more than the lane waits for. */
	mflow_give_up(carried, owed);
settled:
	way->settles = false;
	return true;
}
