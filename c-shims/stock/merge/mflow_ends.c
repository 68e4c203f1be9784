// SPDX-License-Identifier: GPL-2.0
/*
 * The packets that end at this host, and those that carry others that go on: told by protocol, or by a look-up of the socket.
 */

#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/percpu.h>
#include <linux/udp.h>
#include <net/gre.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>
#include <net/net_namespace.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "../../module/mflow_versions.h"
#include "../mflow_stock.h"
#include "mflow_merge.h"

/**
 * struct mflow_udp_end - the result of the last look-up on this CPU, for as long as a tick
 * @net:	the namespace of the look-up
 * @tick:	the tick of the look-up
 * @address:	the destination address
 * @port:	the destination port
 * @family:	the address family
 * @end:	the answer
 */
struct mflow_udp_end {
	const struct net	*net;
	u32			tick;
	union nf_inet_addr	address;
	__be16			port;
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

static union nf_inet_addr mflow_destination(const struct sk_buff *skb, u8 family)
{
	union nf_inet_addr address = { };

	if (family == NFPROTO_IPV4)
		address.ip = ip_hdr(skb)->daddr;
	else
		address.in6 = ipv6_hdr(skb)->daddr;
	return address;
}

static enum mflow_end mflow_end_of_udp(struct net *net,
				       const struct sk_buff *skb,
				       unsigned int offset, u8 family)
{
	struct mflow_udp_end *last = this_cpu_ptr(&mflow_udp_end);
	union nf_inet_addr address = mflow_destination(skb, family);
	const struct udphdr *uh;
	struct udphdr buffer;
	u32 tick = jiffies;

	uh = skb_header_pointer(skb, offset, sizeof(buffer), &buffer);
	if (!uh)
		return MFLOW_END_DATA;
	if (last->net != net || last->tick != tick ||
	    last->port != uh->dest || last->family != family ||
	    !nf_inet_addr_cmp(&last->address, &address)) {
		*last = (struct mflow_udp_end){
			.net = net,
			.tick = tick,
			.address = address,
			.port = uh->dest,
			.family = family,
			.end = mflow_end_of_socket(mflow_udp_look_up(net, skb, uh,
								     family)),
		};
	}
	return last->end;
}

/* RCU. Returns what an IP packet is that has come to LOCAL_IN. */
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
		/* Put together behind this hook, in order then; what follows here is no header. */
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
		/* TCP, and all that a socket may see the order of. */
		return MFLOW_END_DATA;
	}
}

