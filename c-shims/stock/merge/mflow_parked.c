// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that are parked at the merge point, and how they go on in their turn: through the hooks behind ours, as they would
 * have, then to protocol and socket. They keep what was assigned to them on their way: route, connection, marks, and a socket.
 */

#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <net/ip.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/net_namespace.h>
#include <net/netns/hash.h>
#include <net/request_sock.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/**
 * struct mflow_parked - the state that a parked packet needs to go on, behind IP's own control block
 * @dev:	the device by which it came in, with a reference; the field in the packet is a link meanwhile
 * @okfn:	the function that carries it on behind all hooks
 * @net_mix:	a hash of the namespace of @dev, which tells it from others
 * @family:	NFPROTO_IPV4 or NFPROTO_IPV6
 * @holds_socket: we have a reference to the packet's socket, as the packet itself had none
 */
struct mflow_parked {
	struct net_device	*dev;
	int			(*okfn)(struct net *net, struct sock *sk,
					struct sk_buff *skb);
	u32			net_mix;
	u8			family;
	bool			holds_socket;
};

#define MFLOW_PARKED_OFFSET	(sizeof_field(struct sk_buff, cb) - sizeof(struct mflow_parked))

static_assert(sizeof(struct inet_skb_parm) <= MFLOW_PARKED_OFFSET);
static_assert(sizeof(struct inet6_skb_parm) <= MFLOW_PARKED_OFFSET);

static struct mflow_parked *mflow_parked(struct sk_buff *skb)
{
	return (struct mflow_parked *)(skb->cb + MFLOW_PARKED_OFFSET);
}

/*
 * Returns whether a BPF program or TPROXY may have assigned the packet's socket, so that a look-up would find another one. A
 * connected socket does not count: a look-up finds it by its addresses, and early demultiplexing may have found it.
 */
static bool mflow_has_assigned_socket(struct sk_buff *skb)
{
	const struct sock *sk = skb->sk;

	if (!sk)
		return false;
	if (!sk_fullsock(sk))
		return skb_sk_is_prefetched(skb);
	if (inet_sk_transparent(sk))
		return sk->sk_protocol != IPPROTO_TCP || sk->sk_state == TCP_LISTEN;
	return skb_sk_is_prefetched(skb) && sk->sk_state != TCP_ESTABLISHED;
}

/*
 * Returns the socket that the packet uses without a reference, as long as RCU keeps it, or NULL. It is the packet's own socket,
 * or the listener of a request that a BPF program has made of a SYN cookie.
 */
static struct sock *mflow_socket_of_rcu(struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!skb_sk_is_prefetched(skb))
		return NULL;
	if (sk->sk_state == TCP_NEW_SYN_RECV)
		return inet_reqsk(sk)->syncookie ? inet_reqsk(sk)->rsk_listener : NULL;
	return sk_is_refcounted(sk) ? NULL : sk;
}

/*
 * Gives up a socket that early demultiplexing has found: it may close while the packet waits, and is looked up again in the
 * packet's turn. Keeps an assigned socket, and takes a reference if the packet has none. Returns whether it has taken one.
 */
static bool mflow_hold_assigned_socket(struct sk_buff *skb)
{
	struct sock *sk;

	if (mflow_has_assigned_socket(skb)) {
		sk = mflow_socket_of_rcu(skb);
		if (!sk)
			return false;
		if (refcount_inc_not_zero(&sk->sk_refcnt))
			return true;
	}
	skb_orphan(skb);
	return false;
}

/*
 * Takes a reference to the packet's route, which RCU keeps so far. Returns false, and leaves the route to the packet, if it is going away:
 * skb_dst_force() would take it from the packet.
 */
static bool mflow_hold_route(struct sk_buff *skb)
{
	struct dst_entry *dst = skb_dst(skb);

	if (!skb_dst_is_noref(skb))
		return dst;
	if (!dst_hold_safe(dst))
		return false;
	skb_dst_set(skb, dst);
	return true;
}

/*
 * Stores in the packet what it needs to go on later. Returns false, and has done nothing, if the packet's route is going away. Called in a
 * hook at LOCAL_IN, with softirqs disabled.
 */
bool mflow_park(struct sk_buff *skb, const struct nf_hook_state *state)
{
	if (!mflow_hold_route(skb))
		return false;
	*mflow_parked(skb) = (struct mflow_parked){
		.dev = skb->dev,
		.okfn = state->okfn,
		.net_mix = net_hash_mix(state->net),
		.family = state->pf,
		.holds_socket = mflow_hold_assigned_socket(skb),
	};
	dev_hold(skb->dev);
	return true;
}

/* Undoes mflow_park() for a packet that goes on at once. Called in the same hook. */
void mflow_unpark(struct sk_buff *skb)
{
	const struct mflow_parked *parked = mflow_parked(skb);

	if (parked->holds_socket)
		sock_put(mflow_socket_of_rcu(skb));
	dev_put(skb->dev);
}

/*
 * Returns the index of the hook behind ours, from which a parked packet goes on. If ours has just gone, with a flow that could
 * not be drained, no hook is known to be behind it: returns the number of hooks. RCU.
 */
static unsigned int mflow_next_hook(const struct nf_hook_entries *hooks)
{
	unsigned int i;

	for (i = 0; i < hooks->num_hook_entries; i++)
		if (hooks->hooks[i].hook == mflow_local_in)
			return i + 1;
	return i;
}

/* Sends a packet on through the hooks behind ours, and to its protocol. RCU, softirqs disabled. */
static void mflow_go_on(struct sk_buff *skb, const struct mflow_parked *parked)
{
	struct net *net = dev_net(skb->dev);
	const struct nf_hook_entries *hooks;
	struct nf_hook_state state;
	unsigned int next;

	/* The device has gone to another namespace, whose sockets are not meant. */
	if (unlikely(net_hash_mix(net) != parked->net_mix)) {
		kfree_skb(skb);
		return;
	}
	hooks = parked->family == NFPROTO_IPV4 ?
			rcu_dereference(net->nf.hooks_ipv4[NF_INET_LOCAL_IN]) :
			rcu_dereference(net->nf.hooks_ipv6[NF_INET_LOCAL_IN]);
	if (hooks) {
		next = mflow_next_hook(hooks);
		if (next < hooks->num_hook_entries) {
			nf_hook_state_init(&state, NF_INET_LOCAL_IN, parked->family, skb->dev, NULL,
					   NULL, net, parked->okfn);
			if (nf_hook_slow(skb, &state, hooks, next) != 1)
				return;
		}
	}
	parked->okfn(net, NULL, skb);
}

/* Sends packets on, which are linked and were parked for this. Returns the sum of their amounts. Softirqs disabled. */
u64 mflow_deliver(struct sk_buff *first, u64 *stamp_ns)
{
	struct sk_buff *skb, *next;
	u64 sum = 0;

	rcu_read_lock();
	for (skb = first; skb; skb = next) {
		const struct mflow_parked parked = *mflow_parked(skb);
		struct sock *held = parked.holds_socket ? mflow_socket_of_rcu(skb) : NULL;
		u32 amount = mflow_skb_take_parked(skb);

		next = skb->next;
		skb_mark_not_on_list(skb);
		skb->prev = NULL;
		skb->dev = parked.dev;
		mflow_stamp_in_order(skb, stamp_ns);
		sum += (u64)(amount >> 16) << 32 | (u16)amount;
		mflow_go_on(skb, &parked);
		if (held)
			sock_put(held);
		dev_put(parked.dev);
	}
	rcu_read_unlock();
	return sum;
}

/* Returns true: packets hold no sockets but those that were assigned. */
bool mflow_skb_hold_socket(struct sk_buff *skb, struct sock *sk)
{
	return true;
}

/* Returns false: the socket is not known yet. */
bool mflow_sock_is_by_cpu(const struct sock *sk)
{
	return false;
}

/* Returns 0, as the socket is not known yet. mflow_note_receiver() looks it up now and then. */
u32 mflow_sock_receive_bytes(const struct sock *sk)
{
	return 0;
}
