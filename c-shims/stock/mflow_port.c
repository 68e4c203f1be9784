// SPDX-License-Identifier: GPL-2.0
/*
 * Opted-in devices: while splitting is on each has a netfilter hook at its ingress, which takes packets (mflow_ingress.c), and devices of
 * ours beside it let lanes have GRO, which is off at the device itself.
 *
 * Of the two devices of ours one has GRO put datagrams of one size into lists (rx-gro-list of ethtool): all that is
 * between here and the socket sees such a list as one packet, as it does with segments of TCP, and the socket takes it
 * apart.
 *
 * Where lanes are to build packets there is a third one (mflow_frames.c), and packets are dispatched there.
 */

#include <linux/delay.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_netdev.h>
#include <linux/rtnetlink.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/net_namespace.h>
#include <net/rtnetlink.h>

#include "../module/mflow_shim.h"
#include "../module/mflow_versions.h"
#include "../module/mflow_worker.h"
#include "mflow_port.h"
#include "mflow_stock.h"

static LIST_HEAD(mflow_ports);

/* One at a time attaches programs, which takes rtnl now and then. Outside of all locks. */
static DEFINE_MUTEX(mflow_redirect_mutex);

#define MFLOW_VLAN_FEATURES	(NETIF_F_HW_VLAN_CTAG_RX | NETIF_F_HW_VLAN_STAG_RX)

/* GRO holds packets for a poll or a tick, or as long as the device's gro_flush_timeout says. */
#define MFLOW_GRO_ENDS_MS	100

static struct mflow_stock_port *mflow_port_find(const struct net_device *dev)
{
	struct mflow_stock_port *port;

	list_for_each_entry_rcu(port, &mflow_ports, list, lockdep_rtnl_is_held())
		if (port->dev == dev)
			return port;
	return NULL;
}

/* Shows the packet to GRO at our device. Returns false if the port has just gone, and there is no GRO. In a lane's poll. */
bool mflow_port_lane_device(struct sk_buff *skb, bool datagrams)
{
	const struct mflow_stock_port *port = mflow_port_find(skb->dev);

	if (port)
		skb->dev = datagrams ? port->list_dev : port->gro_dev;
	/* Taps that look at all devices have seen it, and do not know ours. */
	skb->tc_skip_classify = 1;
	return port;
}

/* Gives a device of ours the settings of GRO that the operator wants at the NIC. Of lanes that write at the same time, all write the same. */
static void mflow_lane_dev_follow(struct net_device *lane_dev, const struct net_device *dev)
{
	netdev_features_t was = READ_ONCE(lane_dev->features);
	netdev_features_t features = was & ~NETIF_F_GRO;

	features |= READ_ONCE(dev->wanted_features) & NETIF_F_GRO;
	if (unlikely(features != was))
		WRITE_ONCE(lane_dev->features, features);
	mflow_netdev_follow_gro_sizes(lane_dev, dev);
}

/*
 * Lets lanes have GRO if the operator wants it at the device, and make packets as long as it may. Lanes may do so at the same time, and one
 * of them may see the other's change in its next poll only. In a lane's poll.
 */
void mflow_device_lend_gro(const struct net_device *dev)
{
	const struct mflow_stock_port *port = mflow_port_find(dev);

	if (!port)
		return;
	mflow_lane_dev_follow(port->gro_dev, dev);
	mflow_lane_dev_follow(port->list_dev, dev);
}

/* Returns whether GRO holds the packet at a device of ours that belongs to this one. In a lane's poll. */
bool mflow_way_is_of(const struct sk_buff *held, const struct net_device *dev)
{
	const struct mflow_stock_port *port = mflow_port_find(dev);

	return port && (held->dev == port->gro_dev || held->dev == port->list_dev);
}

static int mflow_port_is_lower(struct net_device *lower, struct netdev_nested_priv *priv)
{
	return mflow_port_find(lower) ? 1 : 0;
}

/* Returns whether the device is opted in, or one below it. RCU. */
bool mflow_port_is_at_or_below(struct net_device *dev)
{
	struct netdev_nested_priv priv = { };

	return mflow_port_find(dev) ||
	       netdev_walk_all_lower_dev_rcu(dev, mflow_port_is_lower, &priv);
}

/* Returns whether packets of the device are dispatched before they are built. RCU, or under rtnl. */
bool mflow_port_is_early(const struct net_device *dev)
{
	const struct mflow_stock_port *port = mflow_port_find(dev);

	return port && READ_ONCE(port->early);
}

/* Switches features off, and notes those that were on. Under rtnl. */
static void mflow_port_features_off(struct mflow_stock_port *port, netdev_features_t off)
{
	struct net_device *dev = port->dev;

	off &= dev->wanted_features;
	if (!off)
		return;
	port->had |= off;
	netdev_lock_ops(dev);
	dev->wanted_features &= ~off;
	netdev_update_features(dev);
	netdev_unlock_ops(dev);
}

/* Switches those of them on again that were on. Under rtnl. */
static void mflow_port_features_back(struct mflow_stock_port *port, netdev_features_t back)
{
	struct net_device *dev = port->dev;

	back &= port->had;
	if (!back)
		return;
	port->had &= ~back;
	netdev_lock_ops(dev);
	dev->wanted_features |= back;
	/* If the device goes, nobody wants it any more. */
	if (dev->reg_state == NETREG_REGISTERED)
		netdev_update_features(dev);
	netdev_unlock_ops(dev);
}

/*
 * Returns whether the driver has work with a change of GRO, and would do it twice if the feature changed behind its back. A veth begins to
 * be polled where GRO is switched on. GRO stays on at such a device: what it has joined is dispatched as one packet.
 */
static bool mflow_dev_keeps_gro(const struct net_device *dev)
{
	return dev->rtnl_link_ops && !strcmp(dev->rtnl_link_ops->kind, "veth");
}

/* Switches GRO off, and leaves alone what the operator wants: he still sees it, may change it, and gets it back. Under rtnl. */
static bool mflow_dev_gro_off(struct net_device *dev)
{
	if (!(dev->features & NETIF_F_GRO) || mflow_dev_keeps_gro(dev))
		return false;
	dev->features &= ~NETIF_F_GRO;
	netdev_features_change(dev);
	return true;
}

/* Gives the device GRO back as the operator wants it. Under rtnl. */
static void mflow_dev_gro_back(struct net_device *dev)
{
	netdev_lock_ops(dev);
	/* If the device goes, nobody wants it any more. */
	if (dev->reg_state == NETREG_REGISTERED)
		netdev_update_features(dev);
	netdev_unlock_ops(dev);
}

/* Switches GRO off, and waits until it holds nothing. Under rtnl; no flow is split. */
static void mflow_port_gro_off(struct mflow_stock_port *port)
{
	unsigned int ms;

	WRITE_ONCE(port->gro_ends, true);
	if (!mflow_dev_gro_off(port->dev)) {
		WRITE_ONCE(port->gro_ends, false);
		return;
	}
	/* Polls that have begun may still give it packets. */
	synchronize_net();
	for (ms = 0; mflow_dev_gro_holds(port->dev) && ms < MFLOW_GRO_ENDS_MS; ms++)
		usleep_range(1000, 2000);
	WRITE_ONCE(port->gro_ends, false);
}

/* Registers the port's hook. Under rtnl; the port is listed. The same again is harmless. */
static int mflow_port_hook(struct mflow_stock_port *port)
{
	int err;

	if (port->hooked)
		return 0;
	err = nf_register_net_hook(dev_net(port->dev), &port->hook);
	port->hooked = !err;
	return err;
}

/* Unregisters the port's hook. What is in it now may be there a grace period longer. Under rtnl. */
static void mflow_port_unhook(struct mflow_stock_port *port)
{
	if (!port->hooked)
		return;
	port->hooked = false;
	/* Nobody would verify what came between the one and the other. */
	mflow_dev_gro_back(port->dev);
	nf_unregister_net_hook(dev_net(port->dev), &port->hook);
}

/* Returns a device of ours beside the port's, or NULL. Under rtnl. */
static struct net_device *mflow_lane_dev_create(struct mflow_stock_port *port,
						netdev_features_t features)
{
	struct net_device *lane_dev = alloc_netdev_dummy(0);

	if (!lane_dev)
		return NULL;
	/* GRO looks tunnels' sockets up in the namespace of the device. */
	dev_net_set(lane_dev, dev_net(port->dev));
	lane_dev->features |= features;
	if (netdev_rx_handler_register(lane_dev, mflow_behind_gro, port)) {
		free_netdev(lane_dev);
		return NULL;
	}
	return lane_dev;
}

/* Frees such a device. Under rtnl. */
static void mflow_lane_dev_destroy(struct net_device *lane_dev)
{
	if (!lane_dev)
		return;
	netdev_rx_handler_unregister(lane_dev);
	free_netdev(lane_dev);
}

static int mflow_port_open(struct net_device *dev, void *rust_port)
{
	struct mflow_stock_port *port = kzalloc(sizeof(*port), GFP_KERNEL);
	int err;

	if (!port)
		return -ENOMEM;
	port->dev = dev;
	port->port = rust_port;
	port->gro_dev = mflow_lane_dev_create(port, NETIF_F_GRO);
	port->list_dev = mflow_lane_dev_create(port, NETIF_F_GRO |
						     NETIF_F_GRO_FRAGLIST);
	if (!port->gro_dev || !port->list_dev) {
		err = -ENOMEM;
		goto err_lane_devs;
	}

	port->hook = (struct nf_hook_ops){
		.hook = mflow_ingress,
		.dev = dev,
		.priv = port,
		.pf = NFPROTO_NETDEV,
		.hooknum = NF_NETDEV_INGRESS,
		.priority = INT_MAX,
	};
	list_add_rcu(&port->list, &mflow_ports);
	if (static_key_enabled(&mflow_stock_key)) {
		err = mflow_port_hook(port);
		if (err)
			goto err_listed;
		mflow_port_gro_off(port);
	}
	return 0;

err_listed:
	list_del_rcu(&port->list);
	synchronize_net();
err_lane_devs:
	mflow_lane_dev_destroy(port->list_dev);
	mflow_lane_dev_destroy(port->gro_dev);
	kfree(port);
	return err;
}

/* Ends redirection: all packets come by the hook when it returns. Under rtnl; no lane has packets of the device. */
static void mflow_port_end_redirect(struct mflow_stock_port *port)
{
	if (!port->frames_dev)
		return;
	if (port->xdp)
		mflow_xdp_pass(port->xdp);
	mflow_frames_destroy(port->frames_dev);
	port->frames_dev = NULL;
	WRITE_ONCE(port->early, false);
	if (port->xdp)
		mflow_xdp_end(port->xdp);
	port->xdp = NULL;
	mflow_port_features_back(port, MFLOW_VLAN_FEATURES);
}

/* Closes a port of which no lane has packets any more. What waits on its ordinary path goes on first. */
static void mflow_port_close(struct mflow_stock_port *port)
{
	mflow_port_end_redirect(port);
	mflow_hold_wait();
	mflow_port_unhook(port);
	list_del_rcu(&port->list);
	synchronize_net();
	mflow_hold_end_of(port->dev);
	mflow_lane_dev_destroy(port->list_dev);
	mflow_lane_dev_destroy(port->gro_dev);
	kfree(port);
}

/* Registers the hooks of all ports. On an error some have theirs, and some do not. Under rtnl. The same again is harmless. */
int mflow_ports_hook(void)
{
	struct mflow_stock_port *port;
	int err;

	list_for_each_entry(port, &mflow_ports, list) {
		err = mflow_port_hook(port);
		if (err)
			return err;
	}
	return 0;
}

/* Switches GRO off at all ports. Their hooks are there, as what GRO still holds has others wait. Under rtnl; no flow is split. */
void mflow_ports_gro_off(void)
{
	struct mflow_stock_port *port;

	list_for_each_entry(port, &mflow_ports, list)
		mflow_port_gro_off(port);
}

/* Unregisters the hooks of all ports. Under rtnl; no flow is split. The same again is harmless. */
void mflow_ports_unhook(void)
{
	struct mflow_stock_port *port;

	list_for_each_entry(port, &mflow_ports, list)
		mflow_port_unhook(port);
}

/* Opts a device in for the Rust half's @port, or out (NULL), also where it goes. Under rtnl. */
int mflow_device_set_port(struct net_device *dev, void *port)
{
	struct mflow_stock_port *old = mflow_port_find(dev);

	if (port)
		return mflow_port_open(dev, port);
	if (old)
		mflow_port_close(old);
	return 0;
}

/*
 * Switches GRO off again. Under rtnl. Whatever has the kernel work out the features of a device switches it on, if it
 * is wanted. What comes in this moment may change places with what follows.
 */
void mflow_device_features_changed(struct net_device *dev)
{
	const struct mflow_stock_port *port = mflow_port_find(dev);

	if (port && port->hooked)
		mflow_dev_gro_off(dev);
}

bool mflow_device_has_port(const struct net_device *dev)
{
	return mflow_port_find(dev);
}

/* Makes the device of ours to which packets are redirected. Under rtnl. */
static int mflow_port_begin_redirect(struct net_device *dev)
{
	struct mflow_stock_port *port = mflow_port_find(dev);
	struct net_device *frames_dev;

	if (!port)
		return -ENODEV;
	if (port->frames_dev)
		return -EALREADY;
	/* A NIC that strips tags does not show them to the program, and frames have no place for them. */
	mflow_port_features_off(port, MFLOW_VLAN_FEATURES);
	if (dev->features & MFLOW_VLAN_FEATURES) {
		mflow_port_features_back(port, MFLOW_VLAN_FEATURES);
		return -EPROTONOSUPPORT;
	}
	frames_dev = mflow_frames_create(dev);
	if (IS_ERR(frames_dev)) {
		mflow_port_features_back(port, MFLOW_VLAN_FEATURES);
		return PTR_ERR(frames_dev);
	}
	/* It stays while the program's map is filled. */
	dev_hold(frames_dev);
	port->frames_dev = frames_dev;
	return 0;
}

/*
 * Redirects packets of an opted-in device to one of ours, where they are treated as the device treats them without us.
 * Process context without locks; @dev is in the namespace of this process.
 */
int mflow_device_redirect(struct net_device *dev)
{
	struct net_device *frames_dev = NULL;
	struct mflow_stock_port *port;
	struct mflow_xdp *xdp;
	int err;

	mutex_lock(&mflow_redirect_mutex);
	/* Ours, too, if it is about to leave. */
	mflow_xdp_wait();
	/* While a program comes drivers poll on another CPU, which would overtake what waits. */
	mflow_hold_wait();
	rtnl_lock();
	err = mflow_port_begin_redirect(dev);
	if (!err)
		frames_dev = mflow_port_find(dev)->frames_dev;
	rtnl_unlock();
	if (err)
		goto unlock;

	xdp = mflow_xdp_begin(dev, frames_dev);

	rtnl_lock();
	err = PTR_ERR_OR_ZERO(xdp);
	port = mflow_port_find(dev);
	if (!port || port->frames_dev != frames_dev) {
		/* It was opted out meanwhile. */
		if (!err)
			mflow_xdp_end(xdp);
		err = -ENODEV;
	} else if (err) {
		mflow_port_end_redirect(port);
	} else {
		port->xdp = xdp;
	}
	/* rtnl is given up when nobody has our device any more that has ended. */
	dev_put(frames_dev);
	rtnl_unlock();
unlock:
	mutex_unlock(&mflow_redirect_mutex);
	return err;
}

/* Dispatches what is redirected at our device from now on. Under rtnl; lanes have no packets of the device. */
void mflow_device_dispatch_early(struct net_device *dev)
{
	struct mflow_stock_port *port = mflow_port_find(dev);

	if (!port || !port->xdp)
		return;
	WRITE_ONCE(port->early, true);
	mflow_frames_dispatch(port->frames_dev, port->port);
}

/* Ends redirection, if there is any. Under rtnl; lanes have no packets of the device. */
void mflow_device_end_redirect(struct net_device *dev)
{
	struct mflow_stock_port *port = mflow_port_find(dev);

	if (port)
		mflow_port_end_redirect(port);
}

/* Returns whether a NAPI of the device has one of these numbers. RCU. */
static bool mflow_dev_has_napi(const struct net_device *dev, unsigned int first_id,
			       unsigned int last_id)
{
	const struct napi_struct *napi;
	unsigned int id;

	list_for_each_entry_rcu(napi, &dev->napi_list, dev_list) {
		id = READ_ONCE(napi->napi_id);
		if (first_id <= id && id <= last_id)
			return true;
	}
	return false;
}

/*
 * Returns whether packets may still come through the GRO of a NAPI with this number. Process context. It is
 * looked for at all devices, as a tunnel's packets have that of the NIC. The kernel has a table of
 * them, which not all of its versions show to modules.
 */
bool mflow_napi_is_there(unsigned int napi_id)
{
	const struct net_device *dev;
	const struct net *net;
	bool there = false;

	rcu_read_lock();
	for_each_net_rcu(net) {
		for_each_netdev_rcu(net, dev) {
			there = mflow_dev_has_napi(dev, napi_id, napi_id);
			if (there)
				goto unlock;
		}
	}
unlock:
	rcu_read_unlock();
	return there;
}

/*
 * Returns whether the device has NAPIs that say which they are. Those of tunnels and of WireGuard do
 * not. Process context.
 */
bool mflow_device_has_napi_id(const struct net_device *dev)
{
	bool has_id;

	rcu_read_lock();
	has_id = mflow_dev_has_napi(dev, MIN_NAPI_ID, UINT_MAX);
	rcu_read_unlock();
	return has_id;
}

/* Does nothing: packets are taken behind the GRO of NAPIs, which they name. */
void mflow_device_walk_napis(struct net_device *dev, void *found)
{
}

void *mflow_napi_source(struct napi_struct *napi)
{
	return NULL;
}

void mflow_napi_set_source(struct napi_struct *napi, void *source)
{
}

/* Is never called, as there is no source of a NAPI. */
void mflow_napi_gro_flush(struct napi_struct *napi)
{
}
