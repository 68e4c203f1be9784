// SPDX-License-Identifier: GPL-2.0
/*
 * The entry of packets: a netfilter hook at the ingress of opted-in devices. The hook gives packets of split flows to the Rust half, and
 * all others take the ordinary path. They come back here behind the GRO of lanes. With build `lane` there is another entry, for frames:
 * mflow_frames.c.
 *
 * GRO is off at the device. What GRO holds at the moment when it is switched off would be overtaken by what comes without, which
 * therefore waits at the hook.
 */

#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/sock.h>

#include "mflow_port.h"
#include "../module/mflow_list.h"
#include "mflow_stock.h"

/*
 * Returns whether a packet waits, as GRO has just been switched off. What it had got before that comes here by itself,
 * at the end of a poll or of a tick; what has passed it by waits until then. GRO has counted the packets of the one
 * kind, and not looked at those of the other, which have zeros there unless a driver has used the place: they go on at
 * once then. What is split before this device is put in order behind it, and must not wait where no lane sees it.
 */
static bool mflow_waits_for_gro(const struct mflow_stock_port *port, struct sk_buff *skb)
{
	if (NAPI_GRO_CB(skb)->count || mflow_stock_tag(skb))
		return false;
	if (mflow_dev_gro_holds(port->dev))
		mflow_hold_begin();
	return mflow_hold_back(skb);
}

/*
 * Returns whether the device has a generic XDP program. That runs before taps, and so once more for what goes on from a
 * lane, or has waited here. Flows of a device that has such a program stay whole, or are about to be so again, and
 * nothing waits. The kernel's GRO passes such a device by.
 */
bool mflow_runs_xdp(const struct net_device *dev)
{
	return rcu_access_pointer(dev->xdp_prog);
}

/*
 * Softirqs disabled, for a packet that is about to take the ordinary path. GRO, which is off at the device, would have verified its
 * checksums: rules behind it may make them wrong, or the sum that connection tracking keeps of a packet that nobody has verified.
 */
void mflow_verify_as_gro(struct sk_buff *skb)
{
	const struct net_device *dev = skb->dev;

	if (dev->wanted_features & ~dev->features & NETIF_F_GRO && !mflow_runs_xdp(dev) && !skb_shared(skb))
		mflow_packet_verify(skb);
}

/*
 * Packets come behind taps and classifiers of the device; what goes on from a lane passes them by
 * (tc_skip_classify), and this hook with them.
 */
unsigned int mflow_ingress(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct mflow_stock_port *port = priv;
	const struct mflow_ops *ops;
	u32 tag;

	/* The socket that a program at the device has chosen lives as long as this call, and the packet is not to wait. */
	if (unlikely(skb_sk_is_prefetched(skb))) {
		mflow_verify_as_gro(skb);
		return NF_ACCEPT;
	}
	if (unlikely(READ_ONCE(port->gro_ends)) && !in_hardirq() && !irqs_disabled() &&
	    !skb_shared(skb) && !mflow_runs_xdp(skb->dev)) {
		mflow_verify_as_gro(skb);
		return mflow_waits_for_gro(port, skb) ? NF_STOLEN : NF_ACCEPT;
	}
	if (!static_branch_unlikely(&mflow_stock_key)) {
		mflow_verify_as_gro(skb);
		return NF_ACCEPT;
	}
	if (mflow_frames_has_dispatched(skb))
		goto ordinary;

	/* The flow is split at a device before this one. */
	tag = mflow_stock_tag(skb);
	if (tag && tag >> MFLOW_KIND_SHIFT != MFLOW_KIND_PROBE)
		return NF_ACCEPT;
	/* The rings have one producer per CPU, in softirq context. */
	if (in_hardirq() || irqs_disabled() || skb_shared(skb))
		return NF_ACCEPT;

	/* A rule has written the tag, or the packet is older than the slot's flow. */
	if (unlikely(tag) && !mflow_probe_is_known(tag))
		mflow_skb_set_tag(skb, 0);

	ops = rcu_dereference_bh(mflow_stock_ops);
	if (!ops)
		return NF_ACCEPT;
	if (ops->split_ingress(port->port, skb))
		return NF_STOLEN;

ordinary:
	mflow_verify_as_gro(skb);
	if (unlikely(mflow_runs_xdp(skb->dev))) {
		tag = mflow_stock_tag(skb);
		if (tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_PROBE) {
			mflow_note_path_fault(mflow_stock_slot(tag), MFLOW_PATH_QUEUES);
			mflow_skb_set_tag(skb, 0);
		}
		return NF_ACCEPT;
	}
	return mflow_hold_back(skb) ? NF_STOLEN : NF_ACCEPT;
}

/* Returns whether RPS chooses a CPU for packets of this one's queue, which come here after that. */
static bool mflow_rps_acts(const struct sk_buff *skb)
{
#ifdef CONFIG_RPS
	const struct netdev_rx_queue *queue;

	if (!static_branch_unlikely(&rps_needed))
		return false;
	queue = skb->dev->_rx;
	if (skb_rx_queue_recorded(skb) && skb_get_rx_queue(skb) < skb->dev->real_num_rx_queues)
		queue += skb_get_rx_queue(skb);
	return rcu_access_pointer(queue->rps_map) || READ_ONCE(queue->rps_flow_table);
#else
	return false;
#endif
}

/*
 * Returns the number of the NAPI whose GRO it came through last; 0 if that is not known, or if RPS
 * has taken it to another CPU since.
 */
unsigned int mflow_skb_napi_id(const struct sk_buff *skb)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	/* Below, it is a CPU that has sent the packet. */
	return skb->napi_id >= MIN_NAPI_ID && !mflow_rps_acts(skb) ? skb->napi_id : 0;
#else
	return 0;
#endif
}

/*
 * Marks a list as verified. A NIC's sum over all of a packet is that of a list's head alone. GRO has verified the sum
 * of each datagram. In front of it there may be one of a tunnel, or the sign that there is none.
 */
static void mflow_list_is_verified(struct sk_buff *skb)
{
	if (likely(skb->ip_summed != CHECKSUM_COMPLETE) || !skb_is_gso(skb) ||
	    !(skb_shinfo(skb)->gso_type & SKB_GSO_FRAGLIST))
		return;
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb->csum_level = skb->encapsulation;
}

/* Carries a packet on behind GRO: it is the opted-in device's again. */
rx_handler_result_t mflow_behind_gro(struct sk_buff **pskb)
{
	struct sk_buff *skb = *pskb;
	const struct mflow_stock_port *port = rcu_dereference(skb->dev->rx_handler_data);

	mflow_list_is_verified(skb);
	if (mflow_is_list(skb))
		mflow_list_note(skb);
	if (unlikely(mflow_runs_xdp(port->dev)))
		mflow_note_path_fault(mflow_stock_slot(mflow_stock_tag(skb)), MFLOW_PATH_QUEUES);
	skb->dev = port->dev;
	skb->tc_skip_classify = !READ_ONCE(port->early);
	return RX_HANDLER_ANOTHER;
}
