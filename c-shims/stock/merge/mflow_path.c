// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of a packet's way by its last device, and by the device at which a tunnel ends. The devices are looked at because there is
 * no hook where packets are queued, or where they have to be in order. The checks are made for each probe, and once a tick while a
 * flow is split.
 */

#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <net/ip6_tunnel.h>
#include <net/ip_tunnels.h>
#include <net/mflow.h>
#include <net/rtnetlink.h>
#include <net/sch_generic.h>

#include "../../module/mflow_versions.h"
#include "../mflow_stock.h"
#include "mflow_merge.h"

/*
 * Returns whether packets that are sent to @dev may wait in a queueing discipline. A device whose other end is down has noop_qdisc,
 * which drops packets. RCU.
 */
static bool mflow_dev_queues(const struct net_device *dev)
{
	unsigned int i, nr = READ_ONCE(dev->real_num_tx_queues);

	for (i = 0; i < nr; i++) {
		const struct Qdisc *qdisc;

		qdisc = rcu_dereference_bh(netdev_get_tx_queue(dev, i)->qdisc);
		if (qdisc && qdisc->enqueue && qdisc != &noop_qdisc)
			return true;
	}
	return false;
}

/*
 * Returns whether packets that are sent to @dev come to a namespace of this host at once. Any other device may lead out of the
 * host: it may be a NIC, or lead to a NIC. RCU.
 */
bool mflow_dev_leads_inside(const struct net_device *dev)
{
	const struct net_device_ops *ops = dev->netdev_ops;

	return ((ops && ops->ndo_get_peer_dev) || netif_is_bridge_master(dev) ||
		netif_is_l3_master(dev)) &&
	       !mflow_dev_queues(dev);
}

/* The features of a device without which the kernel takes a list of datagrams apart (skb_gso_ok()). */
#define MFLOW_LIST_FEATURES	(NETIF_F_GSO_FRAGLIST | NETIF_F_GSO_UDP_L4 | NETIF_F_FRAGLIST)
/* Every list is shorter than this. */
#define MFLOW_LIST_BYTES	65536

/* Returns whether a list that is sent to @dev stays as it is. */
static bool mflow_dev_sends_lists(const struct net_device *dev)
{
	return (dev->features & MFLOW_LIST_FEATURES) == MFLOW_LIST_FEATURES &&
	       READ_ONCE(dev->gso_max_segs) >= MFLOW_LIST_PKTS &&
	       READ_ONCE(dev->gso_max_size) >= MFLOW_LIST_BYTES;
}

/*
 * Returns whether @dev gets lists of datagrams as they are. If @dev is one end of a veth, lists were sent at the other end,
 * perhaps by a bridge. If a device does not take lists, the stack takes them apart, and the members lack what was written to the
 * head. RCU.
 */
bool mflow_dev_takes_lists(struct net_device *dev)
{
	const struct net_device_ops *ops = dev->netdev_ops;
	struct net_device *peer, *bridge;

	peer = ops && ops->ndo_get_peer_dev ? ops->ndo_get_peer_dev(dev) : NULL;
	if (!peer)
		return true;
	bridge = netdev_master_upper_dev_get_rcu(peer);
	return mflow_dev_sends_lists(peer) &&
	       (!bridge || mflow_dev_sends_lists(bridge));
}

/*
 * Returns whether @dev is a tunnel of GRE that wants sequence numbers. Such a tunnel drops a packet whose number is lower than that
 * of an earlier packet. Packets of GRE show their numbers at LOCAL_IN. Packets of GRE in UDP (FOU, GUE) do not: they go from the UDP
 * socket to the tunnel.
 */
static bool mflow_dev_is_numbered(const struct net_device *dev)
{
	const char *kind = dev->rtnl_link_ops ? dev->rtnl_link_ops->kind : "";
	const struct ip_tunnel *tunnel = netdev_priv(dev);
	const struct ip6_tnl *tunnel6 = netdev_priv(dev);

	if (!strcmp(kind, "gre") || !strcmp(kind, "gretap") || !strcmp(kind, "erspan"))
		return mflow_tunnel_is_numbered(tunnel->parms.i_flags);
	if (!strcmp(kind, "ip6gre") || !strcmp(kind, "ip6gretap") || !strcmp(kind, "ip6erspan"))
		return mflow_tunnel_is_numbered(tunnel6->parms.i_flags);
	return false;
}

static int mflow_is_ordered(struct net_device *lower, struct netdev_nested_priv *priv)
{
	return netif_is_macsec(lower) || mflow_dev_is_numbered(lower);
}

/* Returns whether @dev needs packets in order. MACsec drops packets that come too late for its replay window. RCU. */
bool mflow_dev_needs_order(struct net_device *dev)
{
	struct netdev_nested_priv priv = { };

	return mflow_is_ordered(dev, &priv) ||
	       netdev_walk_all_lower_dev_rcu(dev, mflow_is_ordered, &priv);
}

/*
 * Returns the fault of the way to @dev if @dev is one end of a veth or of a similar pair, and 0 otherwise. Packets were sent at the
 * other end, so that end is looked at. RCU.
 */
static unsigned int mflow_peer_fault(struct net_device *dev)
{
	const struct net_device_ops *ops = dev->netdev_ops;
	struct net_device *peer, *bridge;

	peer = ops && ops->ndo_get_peer_dev ? ops->ndo_get_peer_dev(dev) : NULL;
	if (!peer)
		return 0;
	if (mflow_dev_queues(peer) || dev_xdp_prog_count(dev))
		return MFLOW_PATH_QUEUES;
	bridge = netdev_master_upper_dev_get_rcu(peer);
	if (bridge && mflow_dev_needs_order(bridge))
		return MFLOW_PATH_ORDERED;
	return 0;
}

/*
 * Returns whether the packet is a multicast or a broadcast, and its device is one of several that share another device (macvlan,
 * ipvlan). Such devices have a queue for these packets, which a kernel thread empties on any CPU. Since Linux 6.3 macvlan uses this
 * queue only if several devices want the packet. RCU.
 */
static bool mflow_dev_copies_later(const struct sk_buff *skb)
{
	const struct rtnl_link_ops *kind = skb->dev->rtnl_link_ops;

	if (skb->pkt_type != PACKET_MULTICAST && skb->pkt_type != PACKET_BROADCAST)
		return false;
	return netif_is_macvlan(skb->dev) || (kind && !strcmp(kind->kind, "ipvlan"));
}

static int mflow_lower_fault(struct net_device *lower, struct netdev_nested_priv *priv)
{
	unsigned int *fault = priv->data;

	*fault = mflow_peer_fault(lower);
	return *fault;
}

/*
 * Returns the fault of the packet's way (MFLOW_PATH_QUEUES, ...), or 0. The packet's last device may be a VLAN device or a VRF above
 * the device by which the packet came in, so each device below is looked at too. Softirqs disabled.
 */
unsigned int mflow_path_fault(const struct sk_buff *skb)
{
	unsigned int fault = mflow_peer_fault(skb->dev);
	struct netdev_nested_priv priv = { .data = &fault };

	if (fault)
		return fault;
	if (mflow_dev_copies_later(skb))
		return MFLOW_PATH_QUEUES;
	if (mflow_dev_needs_order(skb->dev))
		return MFLOW_PATH_ORDERED;
	netdev_walk_all_lower_dev_rcu(skb->dev, mflow_lower_fault, &priv);
	return fault;
}
