// SPDX-License-Identifier: GPL-2.0
/*
 * The fields that the hooks find at devices, NAPIs and packets.
 */

#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <net/busy_poll.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/sock.h>

#include "../module/mflow_shim.h"

int mflow_device_set_port(struct net_device *dev, void *port)
{
	/* Pairs with the reads at the hooks: filled in first. */
	smp_store_release(&dev->mflow_port, port);
	return 0;
}

bool mflow_device_has_port(const struct net_device *dev)
{
	return dev->mflow_port;
}

/* Does nothing, as GRO stays on. */
void mflow_device_features_changed(struct net_device *dev)
{
}

void mflow_device_walk_napis(struct net_device *dev, void *found)
{
	struct napi_struct *napi;

	ASSERT_RTNL();
	/* Its NAPIs may go without rtnl, see mflow_napi_del(). */
	if (!netif_device_present(dev))
		return;
	list_for_each_entry(napi, &dev->napi_list, dev_list)
		mflow_napi_found(found, napi);
}

void *mflow_napi_source(struct napi_struct *napi)
{
	return READ_ONCE(napi->mflow_source);
}

void mflow_napi_set_source(struct napi_struct *napi, void *source)
{
	/* Pairs with the READ_ONCE() in __mflow_split_napi(): filled in first. */
	smp_store_release(&napi->mflow_source, source);
}

/* Returns the number of the NAPI whose GRO it came through last; 0 if that is not known. */
unsigned int mflow_skb_napi_id(const struct sk_buff *skb)
{
#ifdef CONFIG_NET_RX_BUSY_POLL
	/* Below, it is a CPU that has sent the packet. */
	return skb->napi_id >= MIN_NAPI_ID ? skb->napi_id : 0;
#else
	return 0;
#endif
}

/*
 * Takes a reference of the socket for a run's last packet, as UDP look-ups give none. It keeps the
 * socket for the whole run: packets are delivered and freed in order. Each TCP packet has come with one.
 */
bool mflow_skb_hold_socket(struct sk_buff *skb, struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP)
		return true;
	if (unlikely(!refcount_inc_not_zero(&sk->sk_refcnt)))
		return false;
	skb->destructor = sock_efree;
	return true;
}
