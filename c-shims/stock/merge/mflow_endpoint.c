// SPDX-License-Identifier: GPL-2.0
/*
 * The difference between packets that end at this host and packets of a tunnel, whose inner packets go on. The protocol shows the
 * difference, or a look-up of the socket does.
 */

#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/percpu.h>
#include <linux/udp.h>
#include <net/gre.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>
#include <net/mflow_reuseport.h>
#include <net/net_namespace.h>
#include <net/udp.h>

#include "../../module/mflow_versions.h"
#include "../mflow_stock.h"
#include "mflow_merge.h"

/**
 * struct mflow_udp_end - the last look-up of a socket on this CPU: its keys and its result, which is good for one tick
 * @net:	the namespace of the look-up
 * @from:	the source address
 * @to:		the destination address
 * @source:	the source port
 * @dest:	the destination port
 * @dif:	the device, or the VRF of which it is a part
 * @sdif:	the device if that is a part of a VRF, or 0
 * @tick:	the tick of the look-up
 * @family:	the address family
 * @end:	the answer
 */
struct mflow_udp_end {
	struct net		*net;
	union nf_inet_addr	from;
	union nf_inet_addr	to;
	__be16			source;
	__be16			dest;
	int			dif;
	int			sdif;
	u32			tick;
	u8			family;
	enum mflow_end		end;
};

static DEFINE_PER_CPU(struct mflow_udp_end, mflow_udp_end);

static enum mflow_end mflow_end_of_socket(const struct sock *sk)
{
	const struct sock_reuseport *group;

	if (!sk)
		return MFLOW_END_DATA;
	switch (READ_ONCE(udp_sk(sk)->encap_type)) {
	case 0:
		group = rcu_dereference_bh(sk->sk_reuseport_cb);
		return group && mflow_group_is_by_cpu(group) ? MFLOW_END_BY_CPU :
							       MFLOW_END_DATA;
	case UDP_ENCAP_ESPINUDP:
	case UDP_ENCAP_L2TPINUDP:
#ifdef UDP_ENCAP_OVPNINUDP
	/* Since 6.16. */
	case UDP_ENCAP_OVPNINUDP:
#endif
		return MFLOW_END_ORDERED;
	default:
		return MFLOW_END_TUNNEL;
	}
}

static const struct sock *mflow_udp_look_up(const struct mflow_udp_end *by)
{
	if (by->family == NFPROTO_IPV4)
		return mflow_udp4_look_up(by->net, by->from.ip, by->source, by->to.ip, by->dest,
					  by->dif, by->sdif, NULL);
#if IS_ENABLED(CONFIG_IPV6)
	return mflow_udp6_look_up(by->net, &by->from.in6, by->source, &by->to.in6, by->dest,
				  by->dif, by->sdif, NULL);
#else
	return NULL;
#endif
}

/* Sets the addresses and devices by which the packet's socket is looked up. */
static void mflow_set_look_up(struct mflow_udp_end *by, const struct sk_buff *skb)
{
	if (by->family == NFPROTO_IPV4) {
		by->from.ip = ip_hdr(skb)->saddr;
		by->to.ip = ip_hdr(skb)->daddr;
		by->dif = inet_iif(skb);
		by->sdif = inet_sdif(skb);
		return;
	}
#if IS_ENABLED(CONFIG_IPV6)
	by->from.in6 = ipv6_hdr(skb)->saddr;
	by->to.in6 = ipv6_hdr(skb)->daddr;
	by->dif = inet6_iif(skb);
	by->sdif = inet6_sdif(skb);
#endif
}

/*
 * Returns whether two look-ups find the same socket. Several sockets may share an address and a port: one of a tunnel, and another
 * one that is bound to another device or connected to a peer. So sources and devices are compared too.
 */
static bool mflow_is_same_look_up(const struct mflow_udp_end *a, const struct mflow_udp_end *b)
{
	return a->tick == b->tick && a->net == b->net && a->family == b->family &&
	       a->source == b->source && a->dest == b->dest && a->dif == b->dif &&
	       a->sdif == b->sdif && nf_inet_addr_cmp(&a->from, &b->from) &&
	       nf_inet_addr_cmp(&a->to, &b->to);
}

static enum mflow_end mflow_end_of_udp(struct net *net,
				       const struct sk_buff *skb,
				       unsigned int offset, u8 family)
{
	struct mflow_udp_end *last = this_cpu_ptr(&mflow_udp_end);
	struct mflow_udp_end now = { .net = net, .tick = jiffies, .family = family };
	const struct udphdr *uh;
	struct udphdr buffer;

	uh = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
	if (!uh)
		return MFLOW_END_DATA;
	now.source = uh->source;
	now.dest = uh->dest;
	mflow_set_look_up(&now, skb);
	if (!mflow_is_same_look_up(last, &now)) {
		now.end = mflow_end_of_socket(mflow_udp_look_up(&now));
		*last = now;
	}
	return last->end;
}

/* Returns the end of the way of an IP packet that has come to LOCAL_IN. RCU. */
enum mflow_end mflow_end_of(struct net *net, const struct sk_buff *skb, u8 family)
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
		/* Behind this hook, fragments become one packet, which is in order. Here only the first fragment has a header. */
		if (frag_off & htons(IP6_OFFSET))
			return MFLOW_END_DATA;
		protocol = next;
	}

	switch (protocol) {
	case IPPROTO_UDP:
		return mflow_end_of_udp(net, skb, offset, family);
	case IPPROTO_ESP:
	case IPPROTO_AH:
	case IPPROTO_COMP:
	case IPPROTO_L2TP:
		return MFLOW_END_ORDERED;
	case IPPROTO_IPIP:
	case IPPROTO_IPV6:
	case IPPROTO_MPLS:
		return MFLOW_END_TUNNEL;
	case IPPROTO_GRE:
		gre = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
		return gre && gre->flags & GRE_SEQ ? MFLOW_END_ORDERED :
						     MFLOW_END_TUNNEL;
	default:
		/* TCP, and all other protocols: a socket may see the order of the packets. */
		return MFLOW_END_DATA;
	}
}

