// SPDX-License-Identifier: GPL-2.0
/*
 * mflow: the built-in half. Owns the static key, the pointer to the module's
 * operations and the delivery tail; all policy is in the module (net/mflow).
 */

#include <linux/export.h>
#include <linux/filter.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched/topology.h>
#include <linux/skbuff.h>
#include <net/gro.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ip_fib.h>
#include <net/ipv6_stubs.h>
#include <net/mflow.h>
#include <net/mflow_reuseport.h>
#include <net/protocol.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/tcp.h>
#include <net/udp.h>

DEFINE_STATIC_KEY_FALSE(mflow_key);
EXPORT_SYMBOL_GPL(mflow_key);

DEFINE_PER_CPU(struct mflow_cpu, mflow_cpu);
EXPORT_PER_CPU_SYMBOL_GPL(mflow_cpu);

/* Readers: softirqs disabled. Writers: mflow_ops_mutex, synchronize_net(). */
static const struct mflow_ops __rcu *mflow_ops;
static DEFINE_MUTEX(mflow_ops_mutex);

/**
 * mflow_register - install the module's operations
 * @ops: operations, valid until mflow_unregister() has returned
 *
 * Return: 0, or -EBUSY if another module is registered.
 */
int mflow_register(const struct mflow_ops *ops)
{
	int ret = -EBUSY;

	mutex_lock(&mflow_ops_mutex);
	if (!rcu_access_pointer(mflow_ops)) {
		rcu_assign_pointer(mflow_ops, ops);
		ret = 0;
	}
	mutex_unlock(&mflow_ops_mutex);
	return ret;
}
EXPORT_SYMBOL_GPL(mflow_register);

/**
 * mflow_unregister - remove the module's operations and wait until no hook runs in it any more
 */
void mflow_unregister(void)
{
	mutex_lock(&mflow_ops_mutex);
	RCU_INIT_POINTER(mflow_ops, NULL);
	mutex_unlock(&mflow_ops_mutex);
	synchronize_net();
}
EXPORT_SYMBOL_GPL(mflow_unregister);

/**
 * mflow_set_enabled - switch all hooks on or off
 * @enabled: true to switch them on; the same value twice is harmless
 */
void mflow_set_enabled(bool enabled)
{
	if (enabled)
		static_branch_enable(&mflow_key);
	else
		static_branch_disable(&mflow_key);
}
EXPORT_SYMBOL_GPL(mflow_set_enabled);

bool mflow_gro_lists_looked_at __read_mostly = true;

/**
 * mflow_look_at_gro_lists - let packets that GRO has seen be split behind it, or do not
 * @look: false: no opted-in device has packets that are to be taken there. While all are looked at,
 *	each packet of the host pays for that twice in a tunnel.
 */
void mflow_look_at_gro_lists(bool look)
{
	WRITE_ONCE(mflow_gro_lists_looked_at, look);
}
EXPORT_SYMBOL_GPL(mflow_look_at_gro_lists);

bool __mflow_split_napi(struct napi_struct *napi, struct sk_buff *skb)
{
	struct mflow_source *source = READ_ONCE(napi->mflow_source);
	const struct mflow_ops *ops;
	void *port;

	/* A driver may share a NAPI: rings are emptied when their own device goes, no other. */
	if (source && likely(skb->dev == napi->dev)) {
		/* It belongs to a flow that is split at a device before this one. */
		if (mflow_is_awaited(skb))
			return false;
		/*
		 * A probe of a device before this one is not answered where this one splits;
		 * and GRO may have left here the tag of a packet that it has joined.
		 */
		mflow_tag_clear(skb);
		if (READ_ONCE(source->rests))
			return false;
		ops = rcu_dereference_bh(mflow_ops);
		return ops && ops->split_napi(source, napi, skb);
	}

	port = READ_ONCE(skb->dev->mflow_port);
	if (unlikely(port) && !source && !skb->mflow) {
		ops = rcu_dereference_bh(mflow_ops);
		if (ops)
			ops->want_source(port);
	}
	return false;
}

struct mflow_source *__mflow_request_source(struct napi_struct *napi,
					    unsigned int builder)
{
	struct mflow_source *source = READ_ONCE(napi->mflow_source);
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (!source || !ops)
		return NULL;
	ops->builder(source, builder);
	/* Nothing is asked about the packets of a poll that is not looked at. */
	return builder == MFLOW_BUILDER_LANE && !READ_ONCE(source->rests) ?
	       source : NULL;
}
EXPORT_SYMBOL_GPL(__mflow_request_source);

/**
 * mflow_take_request - ask whether a lane builds a packet that a driver has received
 * @source: the source that mflow_request_source() has returned for the NAPI being polled
 * @protocol: as eth_type_trans() would find it
 * @header: the contiguous bytes of the packet, from the network header on
 * @header_bytes: the number of these bytes
 * @memory_bytes: the memory that the packet will hold
 *
 * Return: the place to describe the packet in, which is the lane's once the driver goes on to the
 * next packet or ends its poll; NULL if the driver has to build it.
 */
struct mflow_request *mflow_take_request(struct mflow_source *source,
					 __be16 protocol, const void *header,
					 unsigned int header_bytes,
					 unsigned int memory_bytes)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (unlikely(!ops))
		return NULL;
	return ops->take_request(source, ntohs(protocol), header,
				 min(header_bytes, MFLOW_REQUEST_HEADER),
				 memory_bytes);
}
EXPORT_SYMBOL_GPL(mflow_take_request);

/* Returns whether a device before this one, or this one, splits the packet's flow. */
static bool is_split_before(const struct sk_buff *skb)
{
	return skb->mflow && !mflow_is_probe(skb);
}

/*
 * Returns whether tc has redirected the packet at an ingress. An ifb gives such a packet to the stack once
 * more, as its device's.
 */
static bool mflow_has_been_redirected(const struct sk_buff *skb)
{
#ifdef CONFIG_NET_REDIRECT
	return skb->from_ingress;
#else
	return false;
#endif
}

/* The device if packets that come from it are taken here, behind GRO or where it was left out. */
static struct mflow_port *mflow_port_behind_gro(const struct sk_buff *skb)
{
	struct mflow_port *port = READ_ONCE(skb->dev->mflow_port);

	if (likely(!port) || (READ_ONCE(port->uses_gro) &&
			      !READ_ONCE(port->splits_behind_gro)))
		return NULL;
	/* It was taken, or not, when it came from the device itself. */
	return mflow_has_been_redirected(skb) ? NULL : port;
}

bool __mflow_split_ingress(struct sk_buff *skb)
{
	struct mflow_port *port = mflow_port_behind_gro(skb);
	const struct mflow_ops *ops;

	/*
	 * The rings have one producer per CPU, in softirq context. Probes of a device before this
	 * one are taken, too: they are not answered where this one splits.
	 */
	if (likely(!port) || is_split_before(skb) || in_hardirq() ||
	    irqs_disabled())
		return false;
	ops = rcu_dereference_bh(mflow_ops);
	return ops && ops->split_ingress(port, skb);
}

void __mflow_split_list(struct list_head *head)
{
	struct sk_buff *skb, *next;

	list_for_each_entry_safe(skb, next, head, list) {
		if (!mflow_port_behind_gro(skb) || is_split_before(skb))
			continue;
		skb_list_del_init(skb);
		if (!__mflow_split_ingress(skb))
			list_add_tail(&skb->list, &next->list);
	}
}

void __mflow_napi_flush(struct napi_struct *napi, bool ended)
{
	void *source = READ_ONCE(napi->mflow_source);
	const struct mflow_ops *ops;

	if (!source)
		return;
	ops = rcu_dereference_bh(mflow_ops);
	if (!ops)
		return;
	/* A reader polls without interrupts, and has no time to help others. */
	if (test_bit(NAPI_STATE_IN_BUSY_POLL, &napi->state))
		ended = false;
	ops->napi_flush(source, ended);
}

/* Drivers reuse the memory of a NAPI they have deleted. */
void mflow_napi_init(struct napi_struct *napi)
{
	napi->mflow_source = NULL;
}

/* Process context, the NAPI is disabled. */
void mflow_napi_del(struct napi_struct *napi)
{
	const struct mflow_ops *ops;

	/*
	 * The module may be about to give it a source, even if it has none yet. virtio_net holds no rtnl here
	 * when the host goes to sleep. So the module's lock is waited for; detached devices get no sources.
	 */
	if (!READ_ONCE(napi->mflow_source) && !READ_ONCE(napi->dev->mflow_port))
		return;

	mutex_lock(&mflow_ops_mutex);
	ops = rcu_dereference_protected(mflow_ops,
					lockdep_is_held(&mflow_ops_mutex));
	if (ops)
		ops->napi_del(napi);
	mutex_unlock(&mflow_ops_mutex);
}

bool __mflow_gro_alone(struct napi_struct *napi, struct sk_buff *skb)
{
	if (mflow_kind(skb) == MFLOW_KIND_SPLIT)
		return false;
	napi_gro_flush(napi, false);
	/* GRO would set it; a device further on drops a large packet without it. */
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		skb_set_transport_header(skb, skb_checksum_start_offset(skb));
	return true;
}

/*
 * A packet that runs to completion is not received inside of the call that would have queued it. That call
 * may hold a driver's lock (HSR's), be an action of Open vSwitch or use other data of this CPU, and a
 * packet that is received there may come back to the same place. So the packet waits until the stack has
 * returned, as in a queue; but this queue is emptied where the stack was called, before that call returns.
 * (Of a device that splits within such a call, a bridge's own, the call is that of mflow_receive_skb().)
 */

/**
 * mflow_put_onward - have a packet received on this CPU, once the stack has returned
 * @skb: a packet for which mflow_is_direct() was true
 *
 * Return: NET_RX_SUCCESS, as a queue that has room: what becomes of the packet is not reported.
 */
int mflow_put_onward(struct sk_buff *skb)
{
	__skb_queue_tail(this_cpu_read(mflow_cpu.onward), skb);
	return NET_RX_SUCCESS;
}
EXPORT_SYMBOL_GPL(mflow_put_onward);

/*
 * Packets go from queue to queue together, so those of one flow keep their order. A packet that would pass
 * by one queue too many takes that queue, so this ends.
 */
static void mflow_carry_onward(void)
{
	struct sk_buff_head *onward = this_cpu_read(mflow_cpu.onward);
	unsigned int depth = this_cpu_read(mflow_cpu.depth);
	struct sk_buff_head together;
	struct sk_buff *skb;

	while (!skb_queue_empty(onward)) {
		__skb_queue_head_init(&together);
		skb_queue_splice_init(onward, &together);
		this_cpu_inc(mflow_cpu.depth);
		while ((skb = __skb_dequeue(&together)))
			netif_receive_skb(skb);
	}
	this_cpu_write(mflow_cpu.depth, depth);
}

void __mflow_leave_stack(void)
{
	if (!skb_queue_empty(this_cpu_read(mflow_cpu.onward)))
		mflow_carry_onward();
	this_cpu_write(mflow_cpu.onward, NULL);
}

/**
 * mflow_receive_skb - run a packet to completion on this CPU
 * @skb: a split packet that no lane carries
 *
 * Softirqs disabled. A call of the stack may have brought it here, in the poll of a lane of another flow: so
 * the packet has queues of its own to pass by, and is no packet of that lane.
 */
void mflow_receive_skb(struct sk_buff *skb)
{
	struct sk_buff_head *outer_onward = this_cpu_read(mflow_cpu.onward);
	unsigned int outer_depth = this_cpu_read(mflow_cpu.depth);
	void *outer_lane = this_cpu_read(mflow_cpu.lane);
	struct sk_buff_head onward;

	/* GRO would set it; a device further on drops a large packet without it. */
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		skb_set_transport_header(skb, skb_checksum_start_offset(skb));
	__skb_queue_head_init(&onward);
	this_cpu_write(mflow_cpu.onward, &onward);
	this_cpu_write(mflow_cpu.depth, 0);
	this_cpu_write(mflow_cpu.lane, NULL);
	netif_receive_skb(skb);
	mflow_carry_onward();
	this_cpu_write(mflow_cpu.lane, outer_lane);
	this_cpu_write(mflow_cpu.depth, outer_depth);
	this_cpu_write(mflow_cpu.onward, outer_onward);
}
EXPORT_SYMBOL_GPL(mflow_receive_skb);

/*
 * Most packets of a lane follow one of their flow that has found its route a moment ago. In one poll,
 * which is one RCU read-side section, they take the same route, as the packets of a list do in
 * ip_list_rcv(); but without a reference, as all lanes would count references in one place. With the
 * look-up of a route, early demux is left out: the socket is looked up later anyway.
 *
 * A route is remembered by how many queues its packets have passed by: once for the outer packets, and
 * once behind each queue.
 */
static unsigned int mflow_lookup_place(void)
{
	return min_t(unsigned int, this_cpu_read(mflow_cpu.depth),
		     MFLOW_DEPTH_MAX);
}

/* Returns whether packets behind this one may take its route, until the lane's poll ends. */
static bool mflow_may_keep_route(const struct sk_buff *skb)
{
	return this_cpu_read(mflow_cpu.lane) && skb_dst_is_noref(skb);
}

void __mflow_route_use(struct sk_buff *skb, const struct net_device *dev)
{
	const struct mflow_route *route =
		this_cpu_ptr(&mflow_cpu.routes[mflow_lookup_place()]);
	const struct iphdr *iph = ip_hdr(skb);

	if (this_cpu_read(mflow_cpu.lane) && route->dst && route->dev == dev &&
	    route->saddr == iph->saddr && route->daddr == iph->daddr &&
	    route->tos == iph->tos && route->mark == skb->mark && !skb_dst(skb))
		skb_dst_set_noref(skb, route->dst);
}

void __mflow_route_note(const struct sk_buff *skb, const struct net_device *dev)
{
	const struct iphdr *iph = ip_hdr(skb);
	struct mflow_route *route;

	/* A policy may route by more than __mflow_route_use() compares. */
	if (!mflow_may_keep_route(skb) ||
	    skb_rtable(skb)->rt_type != RTN_LOCAL ||
	    fib4_has_custom_rules(dev_net(dev)))
		return;
	route = this_cpu_ptr(&mflow_cpu.routes[mflow_lookup_place()]);
	*route = (struct mflow_route){
		.dst = skb_dst(skb),
		.dev = dev,
		.saddr = iph->saddr,
		.daddr = iph->daddr,
		.mark = skb->mark,
		.tos = iph->tos,
	};
}

#if IS_ENABLED(CONFIG_IPV6)
void __mflow_route6_use(struct sk_buff *skb)
{
	const struct mflow_route6 *route =
		this_cpu_ptr(&mflow_cpu.routes6[mflow_lookup_place()]);
	const struct ipv6hdr *hdr = ipv6_hdr(skb);

	if (this_cpu_read(mflow_cpu.lane) && route->dst &&
	    route->dev == skb->dev &&
	    ipv6_addr_equal(&route->saddr, &hdr->saddr) &&
	    ipv6_addr_equal(&route->daddr, &hdr->daddr) &&
	    route->mark == skb->mark && !skb_dst(skb))
		skb_dst_set_noref(skb, route->dst);
}

void __mflow_route6_note(const struct sk_buff *skb)
{
	const struct ipv6hdr *hdr = ipv6_hdr(skb);
	struct mflow_route6 *route;

	if (!mflow_may_keep_route(skb) ||
	    !ipv6_unicast_destination(skb) ||
	    fib6_has_custom_rules(dev_net(skb->dev)))
		return;
	route = this_cpu_ptr(&mflow_cpu.routes6[mflow_lookup_place()]);
	*route = (struct mflow_route6){
		.dst = skb_dst(skb),
		.dev = skb->dev,
		.saddr = hdr->saddr,
		.daddr = hdr->daddr,
		.mark = skb->mark,
	};
}
#endif

/*
 * The socket of a datagram is remembered as routes are, and with the same right: GRO looks it up for
 * each packet of a tunnel, and the receive path once more. RCU keeps a socket that closes until the
 * poll is over; what it still gets goes with it. The answer has to depend on addresses and ports
 * alone: that of a group of sockets may not, nor that of a program.
 */

/* Datagrams of so many flows may come in turn. */
#define MFLOW_RECEIVERS		16

/**
 * struct mflow_receiver - the socket that a datagram of IPv4 found at one point of a path
 * @sk:	the socket, without a reference: it is valid until the end of the lane's poll
 * @poll:	in which poll that was
 * @net:	with the rest, what it was looked up by
 */
struct mflow_receiver {
	struct sock		*sk;
	u64			poll;
	const struct net	*net;
	__be32			saddr;
	__be32			daddr;
	__be16			sport;
	__be16			dport;
	int			dif;
	int			sdif;
};

/* The same of IPv6. */
struct mflow_receiver6 {
	struct sock		*sk;
	u64			poll;
	const struct net	*net;
	struct in6_addr		saddr;
	struct in6_addr		daddr;
	__be16			sport;
	__be16			dport;
	int			dif;
	int			sdif;
};

/**
 * struct mflow_receivers - all sockets that a CPU remembers
 * @poll:	the number of a lane's poll, over all lanes here; begins with 1
 * @v4:	by how many queues the datagram has passed by, and by source port
 * @v6:	the same of IPv6
 */
struct mflow_receivers {
	u64			poll;
	struct mflow_receiver	v4[MFLOW_DEPTH_MAX + 1][MFLOW_RECEIVERS];
	struct mflow_receiver6	v6[MFLOW_DEPTH_MAX + 1][MFLOW_RECEIVERS];
};

static DEFINE_PER_CPU(struct mflow_receivers, mflow_receivers);

/* Flows that come in turn differ in their source ports, those of one host often by one. */
static unsigned int mflow_receiver_place(__be16 sport)
{
	return ((__force u16)sport ^ (__force u16)sport >> 8) % MFLOW_RECEIVERS;
}

static bool mflow_may_keep_receiver(const struct sock *sk, const struct net *net,
				    const struct udp_table *table)
{
	return sk && !sk->sk_reuseport && table == net->ipv4.udp_table &&
	       !static_branch_unlikely(&bpf_sk_lookup_enabled);
}

struct sock *mflow_receiver_use(const struct net *net, __be32 saddr,
				__be16 sport, __be32 daddr, __be16 dport,
				int dif, int sdif,
				const struct udp_table *table)
{
	const struct mflow_receivers *receivers = this_cpu_ptr(&mflow_receivers);
	const struct mflow_receiver *last =
		&receivers->v4[mflow_lookup_place()][mflow_receiver_place(sport)];

	return last->poll == receivers->poll && last->net == net && last->saddr == saddr &&
	       last->daddr == daddr && last->sport == sport &&
	       last->dport == dport && last->dif == dif &&
	       last->sdif == sdif && table == net->ipv4.udp_table ?
		       last->sk :
		       NULL;
}

void mflow_receiver_note(struct sock *sk, const struct net *net, __be32 saddr,
			 __be16 sport, __be32 daddr, __be16 dport, int dif,
			 int sdif, const struct udp_table *table)
{
	struct mflow_receivers *receivers = this_cpu_ptr(&mflow_receivers);

	if (!mflow_may_keep_receiver(sk, net, table))
		return;
	receivers->v4[mflow_lookup_place()][mflow_receiver_place(sport)] =
		(struct mflow_receiver){
			.sk = sk,
			.poll = receivers->poll,
			.net = net,
			.saddr = saddr,
			.daddr = daddr,
			.sport = sport,
			.dport = dport,
			.dif = dif,
			.sdif = sdif,
		};
}

#if IS_ENABLED(CONFIG_IPV6)
struct sock *mflow_receiver6_use(const struct net *net,
				 const struct in6_addr *saddr, __be16 sport,
				 const struct in6_addr *daddr, __be16 dport,
				 int dif, int sdif,
				 const struct udp_table *table)
{
	const struct mflow_receivers *receivers = this_cpu_ptr(&mflow_receivers);
	const struct mflow_receiver6 *last =
		&receivers->v6[mflow_lookup_place()][mflow_receiver_place(sport)];

	return last->poll == receivers->poll && last->net == net && ipv6_addr_equal(&last->saddr, saddr) &&
	       ipv6_addr_equal(&last->daddr, daddr) && last->sport == sport &&
	       last->dport == dport && last->dif == dif &&
	       last->sdif == sdif && table == net->ipv4.udp_table ?
		       last->sk :
		       NULL;
}

void mflow_receiver6_note(struct sock *sk, const struct net *net,
			  const struct in6_addr *saddr, __be16 sport,
			  const struct in6_addr *daddr, __be16 dport, int dif,
			  int sdif, const struct udp_table *table)
{
	struct mflow_receivers *receivers = this_cpu_ptr(&mflow_receivers);

	if (!mflow_may_keep_receiver(sk, net, table))
		return;
	receivers->v6[mflow_lookup_place()][mflow_receiver_place(sport)] =
		(struct mflow_receiver6){
			.sk = sk,
			.poll = receivers->poll,
			.net = net,
			.saddr = *saddr,
			.daddr = *daddr,
			.sport = sport,
			.dport = dport,
			.dif = dif,
			.sdif = sdif,
		};
}
#endif

/* Called when a lane's poll begins. */
void mflow_lookups_forget(void)
{
	struct mflow_cpu *cpu = this_cpu_ptr(&mflow_cpu);
	int i;

	this_cpu_inc(mflow_receivers.poll);
	for (i = 0; i <= MFLOW_DEPTH_MAX; i++) {
		cpu->routes[i].dst = NULL;
		cpu->routes6[i].dst = NULL;
	}
}
EXPORT_SYMBOL_GPL(mflow_lookups_forget);

bool __mflow_hand_on(struct sk_buff *skb, unsigned int stage)
{
	/* Another CPU may have taken them away since mflow_hand_on() looked. */
	void *stages = this_cpu_read(mflow_cpu.stages);
	void *lane = this_cpu_read(mflow_cpu.lane);
	const struct mflow_ops *ops;

	/*
	 * Only what a lane carries has come in order. What this host sends may come from a task,
	 * too, which no lane would keep in order with this; it has a socket.
	 */
	if (!stages || !lane || skb->sk || in_hardirq() || irqs_disabled())
		return false;
	ops = rcu_dereference_bh(mflow_ops);
	if (!ops)
		return false;
	/* The device is being closed: on the ordinary path this would overtake what is in rings. */
	if (unlikely(!netif_running(skb->dev))) {
		dev_core_stats_rx_dropped_inc(skb->dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
		return true;
	}
	return ops->hand_on(stages, lane, skb, stage);
}
EXPORT_SYMBOL_GPL(__mflow_hand_on);

/* So long a packet may wait to be freed. Lanes are polled far more often as long as flows are split. */
#define MFLOW_RETURNED_WAIT	(HZ / 10)

/* Memory that one poll frees for readers, in whole datagrams. Packets that come for the lane wait for that. */
#define MFLOW_FREED_AT_ONCE	(1 << 17)

/*
 * Sets the timer that frees what no poll does. Called behind a full barrier that has made packets visible. A timer
 * that still seems set is taken off before its function takes the packets, so it finds these.
 */
static void mflow_returned_wait(struct mflow_returned *returned)
{
	if (!timer_pending(&returned->timer))
		mod_timer(&returned->timer, jiffies + MFLOW_RETURNED_WAIT);
}

/*
 * Frees packets of this memory at most, up to the end of one, and adds their number to @pkts. Softirqs disabled.
 * Several CPUs may do that at a time: a list and a rest are taken whole, with xchg(), by one of them. If another
 * one has put back its rest meanwhile, there is no place for this one's, which is freed at once.
 *
 * Return: true if packets are left, for the next poll or the timer.
 */
static bool mflow_free_some(struct mflow_returned *returned,
			    unsigned int most_bytes, u64 *pkts)
{
	struct llist_node *left = xchg(&returned->rest, NULL);
	unsigned int bytes = 0;
	struct sk_buff *skb;

	if (!left)
		left = llist_del_all(&returned->packets);
	while (left) {
		if (bytes >= most_bytes &&
		    !cmpxchg(&returned->rest, NULL, left))
			break;
		skb = llist_entry(left, struct sk_buff, ll_node);
		left = left->next;
		bytes += skb->truesize;
		napi_consume_skb(skb, 1);
		(*pkts)++;
	}
	atomic_sub(bytes, &returned->bytes);
	if (left)
		mflow_returned_wait(returned);
	return left;
}

/* For what came after the CPU's last poll. */
static void mflow_returned_waited(struct timer_list *timer)
{
	struct mflow_returned *returned = from_timer(returned, timer, timer);
	u64 pkts = 0;

	/* The rest that a poll has left, then the list. */
	mflow_free_some(returned, UINT_MAX, &pkts);
	mflow_free_some(returned, UINT_MAX, &pkts);
	this_cpu_add(mflow_cpu.freed_pkts, pkts);
}

DEFINE_PER_CPU(struct mflow_returned, mflow_returned) = {
	.timer = __TIMER_INITIALIZER(mflow_returned_waited, 0),
};
EXPORT_PER_CPU_SYMBOL_GPL(mflow_returned);

/*
 * The number of a CPU whose list was full a moment ago, plus one: its lanes have no time. 0: none is known. A hint.
 * A reader writes it once, and the lane that helps writes 0.
 */
static struct {
	unsigned int cpu_plus_1;
} ____cacheline_aligned_in_smp mflow_returned_full;

/* Returns whether a lane may find packets to free for which the CPU of the packets has no time. */
bool mflow_returned_is_full(void)
{
	return READ_ONCE(mflow_returned_full.cpu_plus_1);
}
EXPORT_SYMBOL_GPL(mflow_returned_is_full);

/*
 * At the end of a lane's poll that has found nothing more to do: frees a part of what waits for this CPU, or else
 * for one that is busy. True: something is left, and the lane is to be polled again.
 */
bool mflow_free_returned(void)
{
	struct mflow_returned *returned = this_cpu_ptr(&mflow_returned);
	unsigned int full = 0;
	bool is_left;
	u64 pkts = 0;

	if (!READ_ONCE(returned->rest) && llist_empty(&returned->packets)) {
		full = READ_ONCE(mflow_returned_full.cpu_plus_1);
		if (likely(!full))
			return false;
		returned = per_cpu_ptr(&mflow_returned, full - 1);
	}
	is_left = mflow_free_some(returned, MFLOW_FREED_AT_ONCE, &pkts);
	this_cpu_add(mflow_cpu.freed_pkts, pkts);
	if (full) {
		/* Cleared behind the first part: until then the list counts as full. */
		WRITE_ONCE(mflow_returned_full.cpu_plus_1, is_left ? full : 0);
		this_cpu_add(mflow_cpu.freed_for_lanes_pkts, pkts);
	}
	return is_left;
}
EXPORT_SYMBOL_GPL(mflow_free_returned);

/*
 * Freeing is a good part of what a reader does for a small datagram, and a reader is one thread. A lane
 * that is busy does not get to it: then the list is full, and the reader frees for itself until another
 * lane does.
 */
bool __mflow_return(struct sk_buff *skb)
{
	unsigned int cpu = skb->alloc_cpu;
	struct mflow_returned *returned = per_cpu_ptr(&mflow_returned, cpu);

	if (!READ_ONCE(returned->lanes) || cpu == raw_smp_processor_id() ||
	    skb_shared(skb))
		return false;
	if (atomic_read(&returned->bytes) >= MFLOW_RETURNED_MAX) {
		if (!READ_ONCE(mflow_returned_full.cpu_plus_1))
			WRITE_ONCE(mflow_returned_full.cpu_plus_1, cpu + 1);
		return false;
	}
	atomic_add(skb->truesize, &returned->bytes);
	/* The first packet of a list sets the timer; llist_add() is a full barrier. */
	if (llist_add(&skb->ll_node, &returned->packets))
		mflow_returned_wait(returned);
	return true;
}

/* The deepest stack between a lane's poll and the merge point. */
static void mflow_note_stack(void)
{
	unsigned long here = (unsigned long)__builtin_frame_address(0);
	unsigned long start = this_cpu_read(mflow_cpu.lane_stack);
	unsigned long used = start - here;

	if (start && used < THREAD_SIZE &&
	    used > this_cpu_read(mflow_cpu.stack_max_bytes))
		this_cpu_write(mflow_cpu.stack_max_bytes, used);
}

/* GRO has joined packets; limits and counters are about those on the wire. */
static unsigned int mflow_wire_pkts(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->gso_segs ?: 1;
}

static bool mflow_park(struct sock *sk, struct sk_buff *skb)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	mflow_note_stack();
	return ops && ops->arrived(sk, skb, this_cpu_read(mflow_cpu.lane),
				   mflow_wire_pkts(skb));
}

/**
 * mflow_sock_is_by_cpu - check whether look-ups prefer the socket of their CPU
 * @sk: the socket that a look-up has found
 *
 * A split would change which socket that is. Softirqs disabled. A TCP connection is looked up by
 * its addresses alone.
 *
 * Return: true if so.
 */
bool mflow_sock_is_by_cpu(const struct sock *sk)
{
	const struct sock_reuseport *group;

	if (sk->sk_protocol == IPPROTO_TCP)
		return false;
	group = rcu_dereference_bh(sk->sk_reuseport_cb);
	return group && mflow_group_is_by_cpu(group);
}
EXPORT_SYMBOL_GPL(mflow_sock_is_by_cpu);

/**
 * mflow_sock_receive_bytes - return the memory of packets that a socket takes before it drops some
 * @sk: the socket that a look-up has found
 *
 * Return: 0 if the sender sees to it that it is not too much, as TCP's does.
 */
u32 mflow_sock_receive_bytes(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP ? 0 : READ_ONCE(sk->sk_rcvbuf);
}
EXPORT_SYMBOL_GPL(mflow_sock_receive_bytes);

bool __mflow_merge(struct sock *sk, struct sk_buff *skb)
{
	/*
	 * No NIC has verified the checksum of a datagram that came in fragments; the reader would
	 * sum it while it copies. On a lane that is parallel work, unless the lanes are what limits
	 * the flow. Readers drop and count a bad one.
	 */
	if (skb_has_frag_list(skb) && this_cpu_read(mflow_cpu.lane_sums))
		udp_lib_checksum_complete(skb);

	if (mflow_is_probe(skb) && mflow_sock_is_by_cpu(sk))
		__mflow_note_unsuited(skb, MFLOW_PATH_ORDERED);
	else if (mflow_park(sk, skb))
		return true;
	mflow_tag_clear(skb);
	return false;
}

void __mflow_list_begins(struct sk_buff *skb)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (ops)
		ops->list_begins(skb);
}
EXPORT_SYMBOL_GPL(__mflow_list_begins);

/* Datagrams get what has been written into the headers of the first of their list. */
void __mflow_list_ends(struct sk_buff *skb)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (ops)
		ops->list_ends(skb);
}
EXPORT_SYMBOL_GPL(__mflow_list_ends);

void __mflow_list_arrives(const struct sock *sk, struct sk_buff *skb)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (ops)
		ops->list_arrives(sk, skb);
}
EXPORT_SYMBOL_GPL(__mflow_list_arrives);

/* TCP takes this packet out of turn; tell the merger, so that nothing waits for it. */
static void mflow_pass(struct sk_buff *skb)
{
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_ops);

	if (ops)
		ops->passed(skb);
	mflow_tag_clear(skb);
}

/* In other states a segment carries no data, and TCP takes it at once. */
#define MFLOW_TCP_STATES (TCPF_ESTABLISHED | TCPF_SYN_RECV |		\
			  TCPF_SYN_SENT |				\
			  TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2 |		\
			  TCPF_CLOSE_WAIT | TCPF_CLOSING |		\
			  TCPF_LAST_ACK)

/*
 * Returns whether order matters to a connection. One that is being opened gets nothing but the
 * answer to its first segment, which is not to wait for a batch; but where that had data, their
 * answer may come right behind.
 */
static bool mflow_needs_order(const struct sock *sk)
{
	int state = READ_ONCE(sk->sk_state);

	if (state == TCP_SYN_SENT)
		return tcp_sk(sk)->syn_data || tcp_sk(sk)->syn_fastopen;
	return 1 << state & MFLOW_TCP_STATES;
}

/* The packet keeps the caller's reference to @sk. */
static bool mflow_park_tcp(struct sock *sk, struct sk_buff *skb)
{
	skb->sk = sk;
	skb->destructor = sock_edemux;
	if (mflow_park(sk, skb))
		return true;
	skb->sk = NULL;
	skb->destructor = NULL;
	mflow_tag_clear(skb);
	return false;
}

/*
 * A segment for a connection that is not there yet. The one before it, which completes the
 * handshake, may be on another CPU: in its turn it is looked up once more.
 */
bool __mflow_merge_handshake(struct sock *listener, struct sk_buff *skb)
{
	if (tcp_flag_word(tcp_hdr(skb)) & (TCP_FLAG_SYN | TCP_FLAG_RST) ||
	    mflow_is_probe(skb) || tcp_checksum_complete(skb) ||
	    !refcount_inc_not_zero(&listener->sk_refcnt)) {
		mflow_pass(skb);
		return false;
	}

	/* Only the route: policy is looked at again. */
	skb_dst_drop(skb);
	if (mflow_park_tcp(listener, skb))
		return true;
	sock_put(listener);
	return false;
}

/*
 * Returns whether a look-up by the segment's addresses would miss this listener. A rule (TPROXY) or a program
 * has assigned it, and does not see the segment again. TPROXY gives a reference, which look-ups of listeners
 * do not. A program that has checked a SYN cookie leaves the request with the segment.
 */
static bool mflow_is_assigned(const struct sock *listener,
			      const struct sk_buff *skb, bool refcounted)
{
	if (refcounted || skb->sk ||
	    inet_sk(listener)->inet_num != ntohs(tcp_hdr(skb)->dest))
		return true;
	if (skb->protocol == htons(ETH_P_IP))
		return listener->sk_rcv_saddr &&
		       listener->sk_rcv_saddr != ip_hdr(skb)->daddr;
#if IS_ENABLED(CONFIG_IPV6)
	return !ipv6_addr_any(&listener->sk_v6_rcv_saddr) &&
	       !ipv6_addr_equal(&listener->sk_v6_rcv_saddr,
				&ipv6_hdr(skb)->daddr);
#else
	return false;
#endif
}

bool __mflow_merge_tcp(struct sock *sk, struct sk_buff *skb, bool refcounted)
{
	if (READ_ONCE(sk->sk_state) == TCP_LISTEN) {
		if (!mflow_is_assigned(sk, skb, refcounted))
			return __mflow_merge_handshake(sk, skb);
		/* Looked up once more it would be refused. */
		mflow_pass(skb);
		return false;
	}

	/* Here the checksum is parallel work. TCP drops and counts a bad one. */
	if (!refcounted || !mflow_needs_order(sk) ||
	    tcp_checksum_complete(skb)) {
		mflow_pass(skb);
		return false;
	}

	/* As for the backlog: a parked segment outlives its route's RCU. */
	tcp_cleanup_skb(skb);
	/* Look-ups of TCP give a reference. */
	return mflow_park_tcp(sk, skb);
}

void __mflow_note_unsuited(struct sk_buff *skb, unsigned int path)
{
	const struct mflow_ops *ops;

	local_bh_disable();
	ops = rcu_dereference_bh(mflow_ops);
	if (ops)
		ops->unsuited(skb, this_cpu_read(mflow_cpu.lane), path);
	local_bh_enable();
}
EXPORT_SYMBOL_GPL(__mflow_note_unsuited);

void __mflow_note_copied(struct sk_buff *skb)
{
	const struct mflow_ops *ops;

	local_bh_disable();
	ops = rcu_dereference_bh(mflow_ops);
	if (ops)
		ops->copied(skb);
	local_bh_enable();
}
EXPORT_SYMBOL_GPL(__mflow_note_copied);

void __mflow_note_passed(struct sk_buff *skb)
{
	local_bh_disable();
	mflow_pass(skb);
	local_bh_enable();
}
EXPORT_SYMBOL_GPL(__mflow_note_passed);

bool __mflow_drain(struct sock *sk)
{
	const struct mflow_ops *ops;
	bool got = false;

	/* A program of a sockmap reads where packets are delivered: deliveries would nest there. */
	if (in_softirq())
		return false;
	local_bh_disable();
	ops = rcu_dereference_bh(mflow_ops);
	if (ops)
		got = ops->drain(sk);
	local_bh_enable();
	return got;
}

bool mflow_readers_watched __read_mostly;

/**
 * mflow_watch_readers - count on which CPUs the readers of split flows run, or do not
 * @watch: true to count; the same value twice is harmless
 */
void mflow_watch_readers(bool watch)
{
	WRITE_ONCE(mflow_readers_watched, watch);
}
EXPORT_SYMBOL_GPL(mflow_watch_readers);

/*
 * One look in a tick shows where readers spend their time, and costs those that read often next to
 * nothing. It may be another CPU's by now, which is as good.
 */
void __mflow_note_reader(struct sock *sk)
{
	const struct mflow_ops *ops;
	u32 tick = jiffies;

	if (likely(raw_cpu_read(mflow_cpu.reader_tick) == tick))
		return;
	local_bh_disable();
	this_cpu_write(mflow_cpu.reader_tick, tick);
	ops = rcu_dereference_bh(mflow_ops);
	if (ops && ops->is_merged(sk))
		this_cpu_inc(mflow_cpu.reader_ticks);
	local_bh_enable();
}

/**
 * mflow_cpus_share_cache - cpus_share_cache(), which is not exported
 * @cpu: a CPU
 * @other: another one, or the same
 *
 * Return: true if the scheduler knows of a cache that both have.
 */
bool mflow_cpus_share_cache(unsigned int cpu, unsigned int other)
{
	return cpus_share_cache(cpu, other);
}
EXPORT_SYMBOL_GPL(mflow_cpus_share_cache);

/**
 * mflow_napi_gro_flush - bring all that a NAPI has received to its end
 * @napi: a NAPI that the caller is polling
 */
void mflow_napi_gro_flush(struct napi_struct *napi)
{
	if (napi->gro_bitmask)
		napi_gro_flush(napi, false);
	gro_normal_list(napi);
}
EXPORT_SYMBOL_GPL(mflow_napi_gro_flush);

/* A run belongs to this CPU and to one socket: TCP tells others at once. */
bool __mflow_ready_later(struct sock *sk)
{
	if (this_cpu_read(mflow_cpu.run_sk) != sk)
		return false;
	this_cpu_write(mflow_cpu.run_ready, true);
	return true;
}

/*
 * Tells the reader what __mflow_ready_later() has put off. The socket's lock has
 * been held since then and no reader owns the socket, as where TCP tells it.
 */
static void mflow_ready_now(struct sock *sk)
{
	if (!this_cpu_read(mflow_cpu.run_ready))
		return;
	this_cpu_write(mflow_cpu.run_sk, NULL);
	this_cpu_write(mflow_cpu.run_ready, false);
	if (!sock_flag(sk, SOCK_DEAD))
		tcp_data_ready(sk);
}

/* One segment of a run; the socket's lock is held, and no reader owns it. */
static void mflow_tcp_segment(struct sock *sk, struct sk_buff *skb)
{
	/* A reader learns of the data before it learns of the stream's end. */
	if (tcp_flag_word(tcp_hdr(skb)) & (TCP_FLAG_FIN | TCP_FLAG_RST))
		mflow_ready_now(sk);
	this_cpu_write(mflow_cpu.run_sk, sk);
	sk_backlog_rcv(sk, skb);
}

/* Restores a segment as tcp_v4_rcv() or tcp_v6_rcv() first saw it; false: no device or route. */
static bool mflow_tcp_restore(struct net *net, struct sk_buff *skb)
{
	const struct iphdr *iph = ip_hdr(skb);

	skb->dev = dev_get_by_index_rcu(net, skb->skb_iif);
	if (!skb->dev)
		return false;
	/* It has been verified. */
	if (skb->ip_summed != CHECKSUM_PARTIAL)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	if (skb->protocol == htons(ETH_P_IP)) {
		memmove(IPCB(skb), &TCP_SKB_CB(skb)->header.h4,
			sizeof(struct inet_skb_parm));
		return !ip_route_input_noref(skb, iph->daddr, iph->saddr,
					     iph->tos, skb->dev);
	}
#if IS_ENABLED(CONFIG_IPV6)
	memmove(IP6CB(skb), &TCP_SKB_CB(skb)->header.h6,
		sizeof(struct inet6_skb_parm));
	return !ipv6_stub->ipv6_route_input(skb);
#else
	return false;
#endif
}

/*
 * The socket closed while the segment was parked, or has become a listener. Another may have taken
 * its place: a FIN behind the last acknowledgement is for a time-wait socket. So the segment is
 * looked up once more, and gets the answer that it would have got without a split.
 */
static void mflow_tcp_again(struct sock *sk, struct sk_buff *skb)
{
	if (!mflow_tcp_restore(sock_net(sk), skb)) {
		kfree_skb_reason(skb, SKB_DROP_REASON_TCP_CLOSE);
		return;
	}
	/* It has been counted when it came. */
	TCP_DEC_STATS(sock_net(sk), TCP_MIB_INSEGS);
	if (skb->protocol == htons(ETH_P_IP))
		tcp_v4_rcv(skb);
#if IS_ENABLED(CONFIG_IPV6)
	else
		rcu_dereference(inet6_protos[IPPROTO_TCP])->handler(skb);
#endif
}

/* The end of tcp_v4_rcv() and tcp_v6_rcv() for a run of segments: one lock, one wake-up. */
static void mflow_tcp_run(struct sock *sk, struct sk_buff_head *run)
{
	/* A run that this one is nested in. Nothing in the stack nests them. */
	struct sock *outer_sk = this_cpu_read(mflow_cpu.run_sk);
	bool outer_ready = this_cpu_read(mflow_cpu.run_ready);
	enum skb_drop_reason reason;
	struct sk_buff_head again;
	struct sk_buff *skb;

	__skb_queue_head_init(&again);
	this_cpu_write(mflow_cpu.run_ready, false);
	/* A listener's says which connections it prefers. */
	if (READ_ONCE(sk->sk_state) != TCP_LISTEN)
		sk_incoming_cpu_update(sk);
	bh_lock_sock_nested(sk);
	while ((skb = __skb_dequeue(run))) {
		/* A listener is among them: it needs the route that is gone. */
		if (unlikely(!(1 << sk->sk_state & MFLOW_TCP_STATES))) {
			__skb_queue_tail(&again, skb);
			continue;
		}
		tcp_segs_in(tcp_sk(sk), skb);
		if (!sock_owned_by_user(sk)) {
			mflow_tcp_segment(sk, skb);
		} else if (tcp_add_backlog(sk, skb, &reason)) {
			/* It has given up the lock. */
			__release(&sk->sk_lock.slock);
			sk_drops_add(sk, skb);
			sk_skb_reason_drop(sk, skb, reason);
			bh_lock_sock_nested(sk);
		}
	}
	mflow_ready_now(sk);
	this_cpu_write(mflow_cpu.run_sk, outer_sk);
	this_cpu_write(mflow_cpu.run_ready, outer_ready);
	bh_unlock_sock(sk);
	while ((skb = __skb_dequeue(&again)))
		mflow_tcp_again(sk, skb);
}

/**
 * mflow_deliver - hand merged packets to their sockets
 * @first: packets linked by skb->next; skb->sk is the socket of each, skb->mflow what it counted
 *	   for when it was parked: how many packets it was on the wire in the lower half, its memory
 *	   in the upper one. A packet with a destructor owns a reference that holds for the packets
 *	   of the same socket right before it, too
 * @stamp_ns: the latest time stamp of what was delivered before, of all that has to be in order
 *
 * Softirqs disabled. Packets of one socket that follow each other are handed over under one lock.
 *
 * Return: the sums of both halves, in the lower and the upper half.
 */
u64 mflow_deliver(struct sk_buff *first, u64 *stamp_ns)
{
	struct sk_buff *skb = first;
	u64 parked = 0;

	rcu_read_lock();
	while (skb) {
		struct sock *sk = skb->sk;
		struct sk_buff_head run;
		unsigned int refs = 0;

		__skb_queue_head_init(&run);
		do {
			struct sk_buff *next = skb->next;

			if (skb->destructor)
				refs++;
			skb->destructor = NULL;
			skb->sk = NULL;
			skb->dev = NULL;
			parked += (u64)(skb->mflow >> 16) << 32 | (u16)skb->mflow;
			mflow_tag_clear(skb);
			mflow_stamp_in_order(skb, stamp_ns);
			__skb_queue_tail(&run, skb);
			skb = next;
		} while (skb && skb->sk == sk);

		if (sk->sk_protocol == IPPROTO_TCP)
			mflow_tcp_run(sk, &run);
		else
			udp_queue_rcv_run(sk, &run);
		while (refs--)
			sock_put(sk);
	}
	rcu_read_unlock();
	return parked;
}
EXPORT_SYMBOL_GPL(mflow_deliver);
