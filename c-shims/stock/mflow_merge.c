// SPDX-License-Identifier: GPL-2.0
/*
 * The merge point: the last hook at LOCAL_IN, in every namespace, while splitting is on. What is parked there goes on through the
 * hook's own continuation when it is its turn; protocols and sockets are behind it, and serial.
 */

#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <linux/udp.h>
#include <net/gre.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/net_namespace.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "../mflow_versions.h"
#include "mflow_stock.h"

/**
 * struct mflow_parked - what a parked packet needs to go on, behind IP's own control block
 * @dev:	where it came in, with a reference; the field in the packet is a link meanwhile
 * @okfn:	what goes on
 */
struct mflow_parked {
	struct net_device	*dev;
	int			(*okfn)(struct net *net, struct sock *sk,
					struct sk_buff *skb);
};

#define MFLOW_PARKED_OFFSET	(sizeof_field(struct sk_buff, cb) - sizeof(struct mflow_parked))

static_assert(sizeof(struct inet_skb_parm) <= MFLOW_PARKED_OFFSET);
static_assert(sizeof(struct inet6_skb_parm) <= MFLOW_PARKED_OFFSET);

static struct mflow_parked *mflow_parked(struct sk_buff *skb)
{
	return (struct mflow_parked *)(skb->cb + MFLOW_PARKED_OFFSET);
}

/* What a packet that this host receives is to us. */
enum mflow_end {
	MFLOW_END_DATA,		/* It ends here. */
	MFLOW_END_BY_CPU,	/* The same, at a socket that is chosen by CPU. */
	MFLOW_END_TUNNEL,	/* What is in it goes on, with the tag. */
	MFLOW_END_ORDERED,	/* The same, and what unpacks it needs order. */
};

/**
 * struct mflow_udp_end - what the last look-up on this CPU has found, for as long as a tick
 * @net:	in which namespace
 * @tick:	when
 * @port:	for which port
 * @family:	and address family
 * @end:	the answer
 */
struct mflow_udp_end {
	const struct net	*net;
	u32			tick;
	__be16			port;
	u8			family;
	enum mflow_end		end;
};

static DEFINE_PER_CPU(struct mflow_udp_end, mflow_udp_end);

DECLARE_BITMAP(mflow_datagrams, MFLOW_SLOTS) __read_mostly;

static enum mflow_end mflow_end_of_socket(const struct sock *sk)
{
	const struct sock_reuseport *group;

	if (!sk)
		return MFLOW_END_DATA;
	switch (READ_ONCE(udp_sk(sk)->encap_type)) {
	case 0:
		group = rcu_dereference_bh(sk->sk_reuseport_cb);
		return group && READ_ONCE(group->incoming_cpu) ?
			       MFLOW_END_BY_CPU : MFLOW_END_DATA;
	case UDP_ENCAP_ESPINUDP:
	case UDP_ENCAP_L2TPINUDP:
		return MFLOW_END_ORDERED;
	default:
		return MFLOW_END_TUNNEL;
	}
}

static const struct sock *mflow_udp_look_up(struct net *net,
					    const struct sk_buff *skb,
					    const struct udphdr *uh, u8 family)
{
	if (family == NFPROTO_IPV4)
		return mflow_udp4_look_up(net, ip_hdr(skb)->saddr, uh->source,
					  ip_hdr(skb)->daddr, uh->dest,
					  inet_iif(skb), inet_sdif(skb), NULL);
#if IS_ENABLED(CONFIG_IPV6)
	return mflow_udp6_look_up(net, &ipv6_hdr(skb)->saddr, uh->source,
				  &ipv6_hdr(skb)->daddr, uh->dest,
				  inet6_iif(skb), inet6_sdif(skb), NULL);
#else
	return NULL;
#endif
}

static enum mflow_end mflow_end_of_udp(struct net *net,
				       const struct sk_buff *skb,
				       unsigned int offset, u8 family)
{
	struct mflow_udp_end *last = this_cpu_ptr(&mflow_udp_end);
	const struct udphdr *uh;
	struct udphdr buffer;
	u32 tick = jiffies;

	uh = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
	if (!uh)
		return MFLOW_END_DATA;
	if (last->net != net || last->tick != tick ||
	    last->port != uh->dest || last->family != family) {
		*last = (struct mflow_udp_end){
			.net = net,
			.tick = tick,
			.port = uh->dest,
			.family = family,
			.end = mflow_end_of_socket(mflow_udp_look_up(net, skb, uh,
								     family)),
		};
	}
	return last->end;
}

static enum mflow_end mflow_end_of(struct net *net, const struct sk_buff *skb,
				   u8 family)
{
	unsigned int offset = skb_network_offset(skb);
	const struct gre_base_hdr *gre;
	struct gre_base_hdr buffer;
	__be16 frag_off;
	int protocol;
	u8 next;

	if (family == NFPROTO_IPV4) {
		protocol = ip_hdr(skb)->protocol;
		offset += ip_hdrlen(skb);
	} else {
		next = ipv6_hdr(skb)->nexthdr;
		offset = ipv6_skip_exthdr(skb, offset + sizeof(struct ipv6hdr),
					  &next, &frag_off);
		if ((int)offset < 0)
			return MFLOW_END_TUNNEL;
		/* Put together behind this hook, in order then; what follows here is no header. */
		if (frag_off & htons(IP6_OFFSET))
			return MFLOW_END_DATA;
		protocol = next;
	}

	switch (protocol) {
	case IPPROTO_UDP:
		return mflow_end_of_udp(net, skb, offset, family);
	case IPPROTO_TCP:
		return MFLOW_END_DATA;
	case IPPROTO_ESP:
	case IPPROTO_AH:
		return MFLOW_END_ORDERED;
	case IPPROTO_GRE:
		gre = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
		return gre && gre->flags & GRE_SEQ ? MFLOW_END_ORDERED :
						     MFLOW_END_TUNNEL;
	default:
		/* A tunnel, or nothing whose order anybody sees. */
		return MFLOW_END_TUNNEL;
	}
}

/*
 * A datagram has been put together here, and has its first fragment's tag. Its place is that of the fragment that has
 * completed it: this CPU's lane has given no later one.
 */
static void mflow_tag_datagram(struct sk_buff *skb,
			       const struct mflow_carried *carried)
{
	u32 first = mflow_stock_tag(skb);
	u32 last = carried->tags[mflow_stock_slot(first)];

	if (last && mflow_stock_is_after(last, first))
		mflow_skb_set_tag(skb, last);
}

/* What is wrong with the path of a split packet or a probe, if anything is. */
static unsigned int mflow_fault(const struct sk_buff *skb, enum mflow_end end,
				unsigned int kind,
				struct mflow_carried *carried)
{
	const u32 tick = jiffies;

	switch (end) {
	case MFLOW_END_ORDERED:
	case MFLOW_END_BY_CPU:
		return MFLOW_PATH_ORDERED;
	case MFLOW_END_TUNNEL:
		return 0;
	case MFLOW_END_DATA:
		break;
	}
	if (kind == MFLOW_KIND_SPLIT && carried->looked == tick)
		return 0;
	carried->looked = tick;
	return mflow_path_fault(skb);
}

/* Something has taken the probe to another CPU: lanes would not know when their packets arrive. */
static bool mflow_probe_has_moved(struct mflow_carried *carried, u32 tag)
{
	u64 slot = BIT_ULL(mflow_stock_slot(tag));
	bool moved = !(carried->probed & slot);

	carried->probed &= ~slot;
	return moved;
}

/* Lanes ask what a flow is made of when they begin its next batch. */
static void mflow_note_end(const struct sk_buff *skb, u32 tag, u8 family)
{
	unsigned int slot = mflow_stock_slot(tag);
	u8 protocol = family == NFPROTO_IPV4 ? ip_hdr(skb)->protocol :
					       ipv6_hdr(skb)->nexthdr;
	bool is_datagram = protocol == IPPROTO_UDP;

	if (unlikely(test_bit(slot, mflow_datagrams) != is_datagram))
		assign_bit(slot, mflow_datagrams, is_datagram);
}

/* Counts what a lane has given; true: more have come than were given. */
static bool mflow_arrives(struct mflow_carried *carried, u32 pkts)
{
	carried->arrived += pkts;
	if ((s32)(carried->arrived - carried->given) <= 0)
		return false;
	carried->arrived = carried->given;
	return true;
}

/* Out of line: all that has no tag comes to the hook, too, and passes with a handful of instructions. */
static noinline unsigned int mflow_local_in_tagged(struct sk_buff *skb,
						   const struct nf_hook_state *state, u32 tag)
{
	struct mflow_carried *carried = this_cpu_ptr(&mflow_carried);
	const unsigned int kind = tag >> MFLOW_KIND_SHIFT;
	const struct mflow_ops *ops;
	unsigned int fault = 0;
	enum mflow_end end;
	u32 pkts;

	ops = rcu_dereference_bh(mflow_stock_ops);
	if (!ops)
		return NF_ACCEPT;

	end = mflow_end_of(state->net, skb, state->pf);
	if (kind == MFLOW_KIND_SPLIT || kind == MFLOW_KIND_PROBE)
		fault = mflow_fault(skb, end, kind, carried);
	if (end == MFLOW_END_TUNNEL || end == MFLOW_END_ORDERED) {
		if (fault)
			ops->unsuited(skb, NULL, fault);
		return NF_ACCEPT;
	}

	if (kind == MFLOW_KIND_SPLIT || kind == MFLOW_KIND_PROBE)
		mflow_note_end(skb, tag, state->pf);
	pkts = mflow_stock_wire_pkts(skb);
	if (kind == MFLOW_KIND_PROBE) {
		if (mflow_probe_has_moved(carried, tag) && !fault)
			fault = MFLOW_PATH_QUEUES;
		if (fault)
			ops->unsuited(skb, NULL, fault);
		else
			ops->merge(NULL, skb, NULL, pkts);
		mflow_skb_set_tag(skb, 0);
		return NF_ACCEPT;
	}

	if (kind == MFLOW_KIND_SPLIT && READ_ONCE(mflow_readers_watched))
		mflow_note_receiver(state->net, skb, mflow_stock_slot(tag), state->pf);
	if (kind == MFLOW_KIND_SPLIT && skb->pkt_type != PACKET_MULTICAST) {
		/* Another CPU's, or given up before: something queues packets where no lane sees it. */
		if (mflow_arrives(carried, pkts) && !fault)
			fault = MFLOW_PATH_QUEUES;
	}
	if (fault)
		ops->unsuited(skb, NULL, fault);
	else if (kind == MFLOW_KIND_SPLIT && state->pf == NFPROTO_IPV4 &&
		 IPCB(skb)->frag_max_size)
		mflow_tag_datagram(skb, carried);

	/* A socket that early demultiplexing has found may close meanwhile; it is looked up in turn. */
	skb_orphan(skb);
	/* Protocols need a route. One that is going away takes its packet with it, as in nf_queue(). */
	if (!skb_dst_force(skb))
		return NF_DROP;
	dev_hold(skb->dev);
	*mflow_parked(skb) = (struct mflow_parked){
		.dev = skb->dev,
		.okfn = state->okfn,
	};
	if (ops->merge(NULL, skb, NULL, pkts)) {
		if (kind == MFLOW_KIND_SPLIT)
			mflow_run_wait();
		return NF_STOLEN;
	}

	dev_put(skb->dev);
	mflow_skb_set_tag(skb, 0);
	return NF_ACCEPT;
}

static unsigned int mflow_local_in(void *priv, struct sk_buff *skb,
				   const struct nf_hook_state *state)
{
	const u32 tag = mflow_stock_tag(skb);

	return tag ? mflow_local_in_tagged(skb, state, tag) : NF_ACCEPT;
}

static const struct nf_hook_ops mflow_local_in_ops[] = {
	{
		.hook = mflow_local_in,
		.pf = NFPROTO_IPV4,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = INT_MAX,
	},
#if IS_ENABLED(CONFIG_IPV6)
	{
		.hook = mflow_local_in,
		.pf = NFPROTO_IPV6,
		.hooknum = NF_INET_LOCAL_IN,
		.priority = INT_MAX,
	},
#endif
};

/* Process context: packets of the namespace come to the merge point from now on. */
int mflow_merge_begin(struct net *net)
{
	return nf_register_net_hooks(net, mflow_local_in_ops,
				     ARRAY_SIZE(mflow_local_in_ops));
}

/* Process context. What is in a hook now may be there a grace period longer. */
void mflow_merge_end(struct net *net)
{
	nf_unregister_net_hooks(net, mflow_local_in_ops,
				ARRAY_SIZE(mflow_local_in_ops));
}

/* Lanes stamp packets as they come to them, and readers rely on stamps that only grow. */
static void mflow_stamp_in_order(struct sk_buff *skb, u64 *stamp_ns)
{
	u64 stamp = skb->tstamp;

	if (likely(!stamp))
		return;
	/* A clock that was set back by more than that stays so. */
	if (*stamp_ns - stamp < NSEC_PER_SEC)
		skb->tstamp = *stamp_ns;
	else
		*stamp_ns = stamp;
}

/* Softirqs disabled. Packets are linked, and parked for this. */
u64 mflow_deliver(struct sk_buff *first, u64 *stamp_ns)
{
	struct sk_buff *skb, *next;
	u64 sum = 0;

	rcu_read_lock();
	for (skb = first; skb; skb = next) {
		const struct mflow_parked parked = *mflow_parked(skb);
		u32 amount = skb->hash;

		next = skb->next;
		skb_mark_not_on_list(skb);
		skb->prev = NULL;
		skb->dev = parked.dev;
		skb_clear_hash(skb);
		mflow_stamp_in_order(skb, stamp_ns);
		sum += (u64)(amount >> 16) << 32 | (u16)amount;
		parked.okfn(dev_net(parked.dev), NULL, skb);
		dev_put(parked.dev);
	}
	rcu_read_unlock();
	return sum;
}

/* Packets hold no sockets. */
bool mflow_skb_hold_socket(struct sk_buff *skb, struct sock *sk)
{
	return true;
}

/* Which socket it will be is not known yet. */
bool mflow_sock_is_by_cpu(const struct sock *sk)
{
	return false;
}
