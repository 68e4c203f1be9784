/* SPDX-License-Identifier: GPL-2.0 */
#ifndef MFLOW_PORT_H
#define MFLOW_PORT_H

#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/rtnetlink.h>

#include "../module/mflow_versions.h"

struct mflow_xdp;

/**
 * struct mflow_stock_port - an opted-in device
 * @list:	all of them; written under rtnl, read under RCU
 * @dev:	the device, whose reference is the Rust half's
 * @gro_dev:	through which lanes give packets to GRO; nobody sees it
 * @list_dev:	the same for datagrams
 * @hook:	at the ingress of @dev
 * @hooked:	@hook is registered
 * @frames_dev:	the device of ours that takes packets that lanes build, or NULL
 * @xdp:	the program that redirects them there; NULL: not yet
 * @port:	the Rust half's
 * @gro_ends:	GRO has just been switched off, and may hold packets still
 * @had:	features of @dev that were on, and are to be so again
 * @early:	packets are dispatched at @frames_dev: what is on the way of all of @dev's packets up to @hook has not seen those
 *		of lanes. Changes while lanes have none
 */
struct mflow_stock_port {
	struct list_head	list;
	struct net_device	*dev;
	struct net_device	*gro_dev;
	struct net_device	*list_dev;
	struct nf_hook_ops	hook;
	bool			hooked;
	struct net_device	*frames_dev;
	struct mflow_xdp	*xdp;
	void			*port;
	bool			gro_ends;
	netdev_features_t	had;
	bool			early;
};

/* RCU, or under rtnl. While GRO is off this only falls. */
static inline bool mflow_dev_gro_holds(const struct net_device *dev)
{
	const struct napi_struct *napi;

	list_for_each_entry_rcu(napi, &dev->napi_list, dev_list, lockdep_rtnl_is_held())
		if (MFLOW_GRO_HOLDS(napi))
			return true;
	return false;
}

unsigned int mflow_ingress(void *priv, struct sk_buff *skb, const struct nf_hook_state *state);
rx_handler_result_t mflow_behind_gro(struct sk_buff **pskb);

#endif
