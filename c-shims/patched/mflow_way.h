/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of a worker for the way through the hooks. Included by mflow_worker.h.
 */
#ifndef _MFLOW_WAY_H
#define _MFLOW_WAY_H

#include <linux/list.h>
#include <linux/skbuff.h>
#include <net/gro.h>
#include <net/ipv6.h>

struct mflow_worker;

/**
 * struct mflow_way - packets that skip GRO, until they go on together
 * @past_gro:	the packets
 * @nr_past_gro: the number of packets
 */
struct mflow_way {
	struct list_head	past_gro;
	unsigned int		nr_past_gro;
};

static inline void mflow_way_init(struct mflow_way *way)
{
	INIT_LIST_HEAD(&way->past_gro);
}

/* Returns false: all work ends in this poll. */
static inline bool mflow_way_polls_again(const struct mflow_way *way)
{
	return false;
}

/* The first member's field that holds the head's sum. The member gets the head's tag when the list is taken apart. */
#define MFLOW_LIST_SUM(skb)	((skb)->mflow)

/* The packet's field that has its tag. */
#define MFLOW_WAY_TAG(skb)	((skb)->mflow)

/*
 * Returns the length below which GRO keeps a packet, from the network header on, as skb_gro_receive() and skb_gro_receive_list() say. Only
 * a stream outside a tunnel may have more than 64 KB. With IPv6 that takes one header more, for which there has to be room.
 */
static inline unsigned int mflow_way_held_limit(const struct sk_buff *skb)
{
	const struct napi_gro_cb *gro = NAPI_GRO_CB(skb);
	bool may_be_larger = gro->proto == IPPROTO_TCP && !gro->encap_mark && !skb->encapsulation;

	if (gro->is_flist)
		return GRO_LEGACY_MAX_SIZE;
	if (skb->protocol == htons(ETH_P_IPV6))
		may_be_larger &= skb->mac_header >= sizeof(struct hop_jumbo_hdr);
	else
		may_be_larger &= skb->protocol == htons(ETH_P_IP);
	return min(netif_get_gro_max_size(skb->dev, skb), may_be_larger ? GRO_MAX_SIZE : GRO_LEGACY_MAX_SIZE);
}

/* Returns whether GRO holds the packet for this device. */
static inline bool mflow_way_is_of(const struct sk_buff *held, const struct net_device *dev)
{
	return held->dev == dev;
}

/* Does nothing: GRO sees each packet at its own device. */
static inline void mflow_way_show_to_gro(const struct sk_buff *held, struct sk_buff *skb)
{
}

/* Does nothing: nobody counts what a lane has given. */
static inline void mflow_way_note_joined(const struct sk_buff *held)
{
}

#endif /* _MFLOW_WAY_H */
