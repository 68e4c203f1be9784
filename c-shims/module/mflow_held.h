/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The notes of GRO about a packet that it holds, which differ between kernels: where headers are, and how their identifiers go on.
 */
#ifndef _MFLOW_HELD_H
#define _MFLOW_HELD_H

#include <linux/ip.h>
#include <linux/skbuff.h>
#include <net/gro.h>
#include <net/mflow_module.h>

#include "mflow_versions.h"

/*
 * 6.18: GRO has a bit for each header of IPv4 whose identifier stays the same, and looks at each. 6.10: it has one bit for all, and
 * looks at an outer header without don't-fragment only. Before, it has one for the innermost header.
 */
#if MFLOW_SINCE(6, 18)
#define MFLOW_HELD_ID_RULE	MFLOW_ID_RULE_EACH
#elif MFLOW_SINCE(6, 10)
#define MFLOW_HELD_ID_RULE	MFLOW_ID_RULE_PACKET
#else
#define MFLOW_HELD_ID_RULE	MFLOW_ID_RULE_INNERMOST
#endif

#if MFLOW_SINCE(6, 10)
/* Returns where the network header of a tunnel's packet is, from the packet's data on. */
static inline unsigned int mflow_held_outer_offset(const struct sk_buff *skb)
{
	return NAPI_GRO_CB(skb)->network_offset;
}

/* Returns where the innermost network header is, from the packet's data on. */
static inline unsigned int mflow_held_network_offset(const struct sk_buff *skb)
{
	return NAPI_GRO_CB(skb)->network_offsets[NAPI_GRO_CB(skb)->encap_mark];
}

static inline u8 mflow_held_fixed_ids(const struct sk_buff *skb)
{
	return NAPI_GRO_CB(skb)->ip_fixedid;
}

static inline void mflow_held_set_fixed_ids(struct sk_buff *skb, u8 fixed_ids)
{
	NAPI_GRO_CB(skb)->ip_fixedid = fixed_ids;
}
#else
/*
 * Returns where the data begin: GRO has no note of the outer header. The Rust half finds out whether it is there, behind Ethernet's header.
 */
static inline unsigned int mflow_held_outer_offset(const struct sk_buff *skb)
{
	return 0;
}

static inline unsigned int mflow_held_network_offset(const struct sk_buff *skb)
{
	return skb_network_offset(skb);
}

/*
 * Returns 1 if the identifiers of the innermost header stay the same. With each segment GRO notes whether they do. Of datagrams the last
 * one tells: GRO of early releases of 6.1 looks at no identifiers of theirs.
 */
static inline u8 mflow_held_fixed_ids(const struct sk_buff *skb)
{
	const struct napi_gro_cb *gro = NAPI_GRO_CB(skb);

	if (gro->count < 2 || ip_hdr(skb)->version != 4)
		return 0;
	if (gro->is_flist)
		return ip_hdr(gro->last)->id == ip_hdr(skb)->id;
	return gro->is_atomic;
}

static inline void mflow_held_set_fixed_ids(struct sk_buff *skb, u8 fixed_ids)
{
	if (ip_hdr(skb)->version == 4)
		NAPI_GRO_CB(skb)->is_atomic = fixed_ids;
}
#endif

/* 6.3: GRO notes the protocol behind a header of IPv4, too. Before, only that behind one of IPv6, which may be the outer one. */
static inline bool mflow_held_is_datagram(const struct sk_buff *skb)
{
#if !MFLOW_SINCE(6, 3)
	if (ip_hdr(skb)->version == 4)
		return ip_hdr(skb)->protocol == IPPROTO_UDP;
#endif
	return NAPI_GRO_CB(skb)->proto == IPPROTO_UDP;
}

/* 6.5: a fragment is filled by itself. */
static inline void mflow_frag_fill(skb_frag_t *frag, struct page *page, unsigned int at,
				   unsigned int bytes)
{
#if MFLOW_SINCE(6, 5)
	skb_frag_fill_page_desc(frag, page, at, bytes);
#else
	__skb_frag_set_page(frag, page);
	skb_frag_off_set(frag, at);
	skb_frag_size_set(frag, bytes);
#endif
}

#endif /* _MFLOW_HELD_H */
