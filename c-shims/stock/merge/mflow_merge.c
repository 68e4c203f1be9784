// SPDX-License-Identifier: GPL-2.0
/*
 * The merge point: a hook at LOCAL_IN, in every namespace, while splitting is on. It is behind all that looks at packets, and in front of
 * what remembers that they have passed (connection tracking's confirmation). rust/algo/merge/slot/merger.rs makes the order. What is
 * parked goes on when it is its turn (mflow_parked.c); what is behind is serial. Beside it hooks for packets that go on to other hosts, or are sent on by IPVS, which never
 * come here. mflow_trust.c says what follows from a tag.
 */

#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_bridge.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/*
 * Behind are SYNPROXY and what confirms connections, which has the last priority with IPv4 and the last but one with IPv6, and whatever
 * wants to be as late.
 */
#define MFLOW_MERGE_PRIORITY	(NF_IP_PRI_LAST - 2)

static_assert(MFLOW_MERGE_PRIORITY < NF_IP_PRI_CONNTRACK_CONFIRM);

DECLARE_BITMAP(mflow_datagrams, MFLOW_SLOTS) __read_mostly;

/* The slots on whose way something does not take lists of datagrams. Written where that changes. */
static DECLARE_BITMAP(mflow_listless, MFLOW_SLOTS) __read_mostly;

/* The slots on whose way something writes into datagrams behind their headers. Written where that changes. */
static DECLARE_BITMAP(mflow_written, MFLOW_SLOTS) __read_mostly;

static void mflow_note_slot(unsigned long *slots, unsigned int slot, bool is_one)
{
	if (unlikely(test_bit(slot, slots) != is_one))
		assign_bit(slot, slots, is_one);
}

/* The most batches that the first fragment of a datagram may be before the last one. */
#define MFLOW_FRAGMENT_BATCHES	16

/*
 * Returns the tag for a datagram that has been put together here, and has its first fragment's tag: that of the fragment that has
 * completed it. This CPU's lane has given no later one.
 */
static u32 mflow_datagram_tag(const struct mflow_carried *carried, u32 first)
{
	u32 last = carried->tags[mflow_stock_slot(first)];

	if (mflow_stock_is_after(last, first) && last - first <= MFLOW_FRAGMENT_BATCHES)
		return last;
	return first;
}

static bool mflow_is_put_together(const struct sk_buff *skb, u8 family)
{
	return family == NFPROTO_IPV4 ? IPCB(skb)->frag_max_size : IP6CB(skb)->frag_max_size;
}

/*
 * Returns whether the path of the slot's packets to the device has been looked at on this CPU in this tick; it is looked at now.
 * A slot may have several paths: containers share an outer flow, and tunnels are in tunnels.
 */
static bool mflow_has_looked(struct mflow_carried *carried, unsigned int slot,
			     const struct net_device *dev, enum mflow_step step)
{
	struct mflow_looked *looked = &carried->looked[step];
	const u32 tick = jiffies;
	bool has;

	if (looked->tick != tick || looked->dev != dev) {
		looked->tick = tick;
		looked->dev = dev;
		looked->slots = 0;
	}
	has = looked->slots & BIT_ULL(slot);
	looked->slots |= BIT_ULL(slot);
	return has;
}

/* Returns whether IPVS has chosen where the packet goes. */
static bool mflow_is_balanced(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IP_VS)
	return skb->ipvs_property;
#else
	return false;
#endif
}

/* Returns the fault of the path of a split packet or a probe, if there is any. */
static unsigned int mflow_fault(const struct sk_buff *skb, enum mflow_end end, u32 tag,
				struct mflow_carried *carried)
{
	unsigned int slot = mflow_stock_slot(tag);
	bool is_tunnel = end == MFLOW_END_TUNNEL;

	if (end == MFLOW_END_ORDERED || end == MFLOW_END_BY_CPU)
		return MFLOW_PATH_ORDERED;
	/* Its endpoint is on this host. */
	if (unlikely(mflow_is_balanced(skb)))
		return MFLOW_PATH_ORDERED;
	if (mflow_has_looked(carried, slot, skb->dev,
			     is_tunnel ? MFLOW_STEP_TUNNEL : MFLOW_STEP_SOCKET) &&
	    tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_SPLIT)
		return 0;
	/* A path in front of an opted-in device, or of one above it, is in front of the split. */
	if (is_tunnel)
		return mflow_port_is_at_or_below(skb->dev) ? 0 : mflow_path_fault(skb);
	mflow_note_slot(mflow_listless, slot, !mflow_dev_takes_lists(skb->dev));
	return mflow_path_fault(skb);
}

/* Notes whether a flow is one of datagrams that may be in lists. Lanes ask when they begin its next batch. */
static void mflow_note_end(const struct sk_buff *skb, u32 tag, u8 family)
{
	unsigned int slot = mflow_stock_slot(tag);
	u8 protocol = family == NFPROTO_IPV4 ? ip_hdr(skb)->protocol :
					       ipv6_hdr(skb)->nexthdr;
	bool is_datagram = protocol == IPPROTO_UDP;

	if (is_datagram && tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_PROBE)
		mflow_note_slot(mflow_written, slot, mflow_probe_is_written(skb, slot, family));
	else if (is_datagram && unlikely(mflow_list_is_written(skb, family)))
		mflow_note_slot(mflow_written, slot, true);
	mflow_note_slot(mflow_datagrams, slot,
			is_datagram && !test_bit(slot, mflow_listless) &&
			!test_bit(slot, mflow_written));
}

/* Returns whether a bridge may have made copies of the packet for several of its ports. Its lane has given one. */
static bool mflow_may_be_copy(const struct sk_buff *skb)
{
	return skb->pkt_type == PACKET_MULTICAST || skb->pkt_type == PACKET_BROADCAST;
}

/* Counts packets of a batch that have come to their end on this CPU. Returns the number of those for which no lane waited. */
static u32 mflow_count_arrived(struct mflow_carried *carried, u32 tag, u32 pkts)
{
	struct mflow_owed *owed = mflow_owed_find(carried, tag);
	u32 due;

	/* Before they came they may have been given up. */
	if (!owed)
		return pkts;
	due = min(owed->pkts, pkts);
	carried->arrived += due;
	/* Pairs with the acquire in mflow_has_come_through(): what is to be parked waits by then. */
	smp_store_release(&owed->pkts, owed->pkts - due);
	return pkts - due;
}

/* Returns whether a packet's tag is that of packets that are under way on this CPU, or of a probe that is under way. */
static bool mflow_is_under_way(struct mflow_carried *carried, u32 tag)
{
	if (tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_PROBE)
		return mflow_probe_is_known(tag);
	return mflow_owed_find(carried, tag);
}

/* Takes away a tag with which no packet may come. Returns whether it was one. @is_under_way: the packet is known to be one of ours. */
static bool mflow_drop_tag(struct sk_buff *skb, u32 tag, bool is_under_way, u8 family)
{
	if (likely(is_under_way) || mflow_tag_may_come(tag))
		return false;
	mflow_list_follow(skb, family);
	mflow_skb_set_tag(skb, 0);
	return true;
}

/* The probe of a slot is at its end: the path is as it was, or has a fault. The packet goes on without a tag. */
static unsigned int mflow_end_probe(const struct mflow_ops *ops, struct sk_buff *skb, u32 tag,
				    unsigned int fault)
{
	u32 pkts = mflow_stock_wire_pkts(skb);

	if (mflow_probe_ends_elsewhere(tag) && !fault)
		fault = MFLOW_PATH_QUEUES;
	if (fault)
		ops->unsuited(skb, NULL, fault);
	else
		ops->arrived(NULL, skb, NULL, pkts);
	mflow_skb_set_tag(skb, 0);
	return NF_ACCEPT;
}

/* A packet that the merge point may keep: it is parked, or goes on without a tag if it need not wait. */
static unsigned int mflow_park_and_merge(const struct mflow_ops *ops, struct sk_buff *skb,
					 const struct nf_hook_state *state, unsigned int fault)
{
	u32 pkts = mflow_stock_wire_pkts(skb);

	/* The route is going away, and is good as long as this call: the packet goes on at once, and nothing waits for it. */
	if (!mflow_park(skb, state)) {
		ops->passed(skb);
		mflow_skb_set_tag(skb, 0);
		return NF_ACCEPT;
	}
	if (fault)
		ops->unsuited(skb, NULL, fault);

	if (ops->arrived(NULL, skb, NULL, pkts))
		return NF_STOLEN;

	mflow_unpark(skb);
	mflow_skb_set_tag(skb, 0);
	return NF_ACCEPT;
}

/* Takes a tagged packet. Out of line: all that has no tag comes to the hook, too, and passes with a handful of instructions. */
static noinline unsigned int mflow_local_in_tagged(struct sk_buff *skb,
						   const struct nf_hook_state *state, u32 tag)
{
	struct mflow_carried *carried = this_cpu_ptr(&mflow_carried);
	const unsigned int kind = tag >> MFLOW_KIND_SHIFT;
	const struct mflow_ops *ops;
	unsigned int fault = 0;
	bool is_under_way;
	enum mflow_end end;

	ops = rcu_dereference_bh(mflow_stock_ops);
	if (!ops)
		return NF_ACCEPT;

	is_under_way = mflow_is_under_way(carried, tag);
	if (mflow_drop_tag(skb, tag, is_under_way, state->pf))
		return NF_ACCEPT;
	end = mflow_end_of(state->net, skb, state->pf);
	if (is_under_way)
		fault = mflow_fault(skb, end, tag, carried);
	else if (kind == MFLOW_KIND_SPLIT && end == MFLOW_END_ORDERED &&
		 mflow_are_surplus(carried, mflow_stock_slot(tag), mflow_stock_wire_pkts(skb)))
		fault = MFLOW_PATH_ORDERED;
	mflow_list_follow(skb, state->pf);
	if (end == MFLOW_END_TUNNEL && kind == MFLOW_KIND_SPLIT) {
		/* Its tag stays: packets before it may be in the tunnel's own queue, which GRO may join with it. */
		if (fault)
			mflow_note_path_fault(mflow_stock_slot(tag), fault);
		return NF_ACCEPT;
	}
	if (end == MFLOW_END_TUNNEL || end == MFLOW_END_ORDERED) {
		if (fault)
			ops->unsuited(skb, NULL, fault);
		return NF_ACCEPT;
	}

	if (is_under_way)
		mflow_note_end(skb, tag, state->pf);
	if (kind == MFLOW_KIND_PROBE)
		return mflow_end_probe(ops, skb, tag, fault);

	if (is_under_way)
		mflow_note_receiver(state->net, skb, mflow_stock_slot(tag), state->pf);
	if (kind == MFLOW_KIND_SPLIT) {
		const bool is_put_together = mflow_is_put_together(skb, state->pf);
		u32 surplus;

		if (unlikely(is_put_together)) {
			tag = mflow_datagram_tag(carried, tag);
			mflow_skb_set_tag(skb, tag);
		}
		/* Before the packet is counted. It is collected before the NAPI runs, as softirqs are disabled. */
		mflow_run_schedule();
		if (!mflow_may_be_copy(skb)) {
			/* Those of another CPU, or given up before: something queues packets where no lane sees it. */
			surplus = mflow_count_arrived(carried, tag, mflow_stock_wire_pkts(skb));
			if (unlikely(surplus) && !is_put_together && !fault &&
			    mflow_are_surplus(carried, mflow_stock_slot(tag), surplus))
				fault = MFLOW_PATH_QUEUES;
		}
	}
	return mflow_park_and_merge(ops, skb, state, fault);
}

unsigned int mflow_local_in(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	const u32 tag = mflow_stock_tag(skb);
	unsigned int verdict;

	if (!tag)
		return NF_ACCEPT;
	if (likely(in_softirq()))
		return mflow_local_in_tagged(skb, state, tag);
	/* Packets that a program was asked about (NFQUEUE) go on in its context. */
	local_bh_disable();
	verdict = mflow_local_in_tagged(skb, state, tag);
	local_bh_enable();
	return verdict;
}

/* Notes a fault on the path of packets that are not under way on this CPU, if they are too many for forged ones. */
static void mflow_note_surplus(struct mflow_carried *carried, const struct sk_buff *skb, u32 tag,
			       unsigned int fault)
{
	const unsigned int slot = mflow_stock_slot(tag);

	if (mflow_are_surplus(carried, slot, mflow_stock_wire_pkts(skb)))
		mflow_note_path_fault(slot, fault);
}

/* Notes a fault on the path of a packet, in any context. */
static void mflow_note_fault(const struct sk_buff *skb, u32 tag, unsigned int fault)
{
	struct mflow_carried *carried;

	local_bh_disable();
	carried = this_cpu_ptr(&mflow_carried);
	if (mflow_is_under_way(carried, tag))
		mflow_note_path_fault(mflow_stock_slot(tag), fault);
	else if (mflow_tag_may_come(tag))
		mflow_note_surplus(carried, skb, tag, fault);
	local_bh_enable();
}

/*
 * Notes a tagged packet that is routed on. What needs order may be in front, where no LOCAL_IN shows its device. Out of line, as
 * above.
 */
static noinline void mflow_forward_tagged(struct sk_buff *skb, const struct nf_hook_state *state,
					  u32 tag)
{
	const unsigned int kind = tag >> MFLOW_KIND_SHIFT;
	const unsigned int slot = mflow_stock_slot(tag);
	struct mflow_carried *carried;
	bool is_under_way, leaves;

	local_bh_disable();
	carried = this_cpu_ptr(&mflow_carried);
	is_under_way = mflow_is_under_way(carried, tag);
	if (mflow_drop_tag(skb, tag, is_under_way, state->pf))
		goto out;
	if (is_under_way && unlikely(mflow_list_is_written(skb, state->pf)))
		mflow_note_slot(mflow_written, slot, true);
	mflow_list_follow(skb, state->pf);
	leaves = kind == MFLOW_KIND_SPLIT &&
		 !mflow_dev_leads_inside(nf_bridge_get_physoutdev(skb) ?: state->out);
	if (!is_under_way) {
		if (leaves)
			mflow_note_surplus(carried, skb, tag, MFLOW_PATH_QUEUES);
		goto out;
	}
	if ((!mflow_has_looked(carried, slot, state->in, MFLOW_STEP_ROUTE) ||
	     kind == MFLOW_KIND_PROBE) &&
	    mflow_dev_needs_order(state->in))
		mflow_note_path_fault(slot, MFLOW_PATH_ORDERED);
	/* It leaves this host, or may: nobody puts it in order again, and no lane waits for it. */
	if (leaves) {
		mflow_count_arrived(carried, tag, mflow_stock_wire_pkts(skb));
		mflow_note_path_fault(slot, MFLOW_PATH_QUEUES);
	}
out:
	local_bh_enable();
}

/* Packets that are routed on. Their flows have no probe that arrives, but may share the outer header with one that ends here. */
static unsigned int mflow_forward(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	const u32 tag = mflow_stock_tag(skb);

	if (tag)
		mflow_forward_tagged(skb, state, tag);
	return NF_ACCEPT;
}

#if IS_ENABLED(CONFIG_NETFILTER_FAMILY_BRIDGE)

/*
 * Packets that a bridge sends on, which may leave this host, as above: to a NIC, to a tunnel, to a virtual machine's tap, which keep no order of lanes.
 * What the bridge shows to IP's filters is seen there. A batch need not count these packets: its lane sees that they do not arrive.
 */
static unsigned int mflow_bridged(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	const u32 tag = mflow_stock_tag(skb);

	if (tag >> MFLOW_KIND_SHIFT == MFLOW_KIND_SPLIT && !nf_bridge_get_physoutdev(skb) &&
	    !mflow_dev_leads_inside(state->out))
		mflow_note_fault(skb, tag, MFLOW_PATH_QUEUES);
	return NF_ACCEPT;
}

#endif

/*
 * Notes packets that IPVS has taken at LOCAL_IN, in front of the merge point, and sends to an endpoint. IPVS makes its entry
 * for the first packet of a connection, and two lanes would make one each, with endpoints of their own. The packet may be of
 * another flow than the fast one, with the same outer header.
 */
static unsigned int mflow_local_out(void *priv, struct sk_buff *skb,
				    const struct nf_hook_state *state)
{
	const u32 tag = mflow_stock_tag(skb);

	if (unlikely(tag) && mflow_is_balanced(skb))
		mflow_note_fault(skb, tag, MFLOW_PATH_ORDERED);
	return NF_ACCEPT;
}

static const struct nf_hook_ops mflow_merge_ops[] = {
	{
		.hook = mflow_local_in,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = MFLOW_MERGE_PRIORITY,
	},
	{
		.hook = mflow_forward,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_FORWARD,
		.priority = NF_IP_PRI_LAST,
	},
	{
		.hook = mflow_local_out,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_OUT,
		.priority = NF_IP_PRI_LAST,
	},
#if IS_ENABLED(CONFIG_IPV6)
	{
		.hook = mflow_local_in,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = MFLOW_MERGE_PRIORITY,
	},
	{
		.hook = mflow_forward,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_FORWARD,
		.priority = NF_IP6_PRI_LAST,
	},
	{
		.hook = mflow_local_out,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_OUT,
		.priority = NF_IP6_PRI_LAST,
	},
#endif
#if IS_ENABLED(CONFIG_NETFILTER_FAMILY_BRIDGE)
	{
		.hook = mflow_bridged,
		.pf = NFPROTO_BRIDGE,
		.hooknum = NF_BR_FORWARD,
		.priority = NF_BR_PRI_LAST,
	},
#endif
};

/* Process context: packets of the namespace come to the merge point from now on. */
int mflow_merge_begin(struct net *net)
{
	return nf_register_net_hooks(net, mflow_merge_ops,
				     ARRAY_SIZE(mflow_merge_ops));
}

/* Process context. What is in a hook now may be there a grace period longer. */
void mflow_merge_end(struct net *net)
{
	nf_unregister_net_hooks(net, mflow_merge_ops,
				ARRAY_SIZE(mflow_merge_ops));
}
