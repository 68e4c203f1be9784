// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of datagrams, which pass the stack as one packet. What the way writes into the headers of a packet, it writes to the head of
 * a list alone: marks of congestion and of class, hop limits, addresses and ports. GRO has put datagrams into one list only if they had
 * the same there, so each member gets what its head has.
 */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "../mflow_stock.h"
#include "mflow_merge.h"

/* Returns whether @skb is a list of datagrams. */
static bool mflow_is_list(const struct sk_buff *skb)
{
	const unsigned int type = SKB_GSO_FRAGLIST | SKB_GSO_UDP_L4;

	return skb_is_gso(skb) && (skb_shinfo(skb)->gso_type & type) == type;
}

/*
 * Returns how many bytes the network header of the list's datagrams has, or 0: in front of them is a tunnel's. The head's own datagram
 * is as long as gso_size says.
 */
static int mflow_list_network_bytes(const struct sk_buff *skb, u8 family)
{
	int bytes = skb_pagelen(skb) - sizeof(struct udphdr) - skb_shinfo(skb)->gso_size;
	int offset = skb_network_offset(skb);
	__be16 frag_off;
	u8 protocol;

	if (family == NFPROTO_IPV4)
		return ip_hdr(skb)->protocol == IPPROTO_UDP && bytes == (int)ip_hdrlen(skb) ? bytes : 0;
	protocol = ipv6_hdr(skb)->nexthdr;
	if (ipv6_skip_exthdr(skb, offset + sizeof(struct ipv6hdr), &protocol, &frag_off) !=
	    offset + bytes)
		return 0;
	return protocol == IPPROTO_UDP ? bytes : 0;
}

/* Of UDP, a sum of 0 stands for none. */
static bool mflow_has_sum(const struct udphdr *udp, const struct sk_buff *member)
{
	return udp->check || member->ip_summed == CHECKSUM_PARTIAL;
}

static void mflow_follow_ports(struct sk_buff *member, struct udphdr *udp, const struct udphdr *head)
{
	if (mflow_has_sum(udp, member)) {
		inet_proto_csum_replace2(&udp->check, member, udp->source, head->source, false);
		inet_proto_csum_replace2(&udp->check, member, udp->dest, head->dest, false);
		if (!udp->check)
			udp->check = CSUM_MANGLED_0;
	}
	udp->source = head->source;
	udp->dest = head->dest;
}

/* Returns whether @ip has all that is the same in each datagram of a list. */
static bool mflow_is_like_v4(const struct iphdr *ip, const struct iphdr *head)
{
	return ip->tos == head->tos && ip->ttl == head->ttl && ip->saddr == head->saddr &&
	       ip->daddr == head->daddr;
}

static void mflow_follow_v4_address(struct sk_buff *member, struct iphdr *ip, struct udphdr *udp,
				    __be32 *from, __be32 to)
{
	csum_replace4(&ip->check, *from, to);
	if (mflow_has_sum(udp, member))
		inet_proto_csum_replace4(&udp->check, member, *from, to, true);
	*from = to;
}

static void mflow_follow_v4(struct sk_buff *member, struct iphdr *ip, struct udphdr *udp,
			    const struct iphdr *head)
{
	/* Version, length and class are one word, hop limit and protocol another. */
	__be16 *words = (__be16 *)ip;
	const __be16 *to = (const __be16 *)head;

	csum_replace2(&ip->check, words[0], to[0]);
	words[0] = to[0];
	csum_replace2(&ip->check, words[4], to[4]);
	words[4] = to[4];
	mflow_follow_v4_address(member, ip, udp, &ip->saddr, head->saddr);
	mflow_follow_v4_address(member, ip, udp, &ip->daddr, head->daddr);
}

/* The first word has version, class and label. */
static bool mflow_is_like_v6(const struct ipv6hdr *ip, const struct ipv6hdr *head)
{
	return *(const __be32 *)ip == *(const __be32 *)head && ip->hop_limit == head->hop_limit &&
	       ipv6_addr_equal(&ip->saddr, &head->saddr) && ipv6_addr_equal(&ip->daddr, &head->daddr);
}

static void mflow_follow_v6_address(struct sk_buff *member, struct udphdr *udp,
				    struct in6_addr *from, const struct in6_addr *to)
{
	if (mflow_has_sum(udp, member))
		inet_proto_csum_replace16(&udp->check, member, from->s6_addr32, to->s6_addr32, true);
	*from = *to;
}

static void mflow_follow_v6(struct sk_buff *member, struct ipv6hdr *ip, struct udphdr *udp,
			    const struct ipv6hdr *head)
{
	*(__be32 *)ip = *(const __be32 *)head;
	ip->hop_limit = head->hop_limit;
	mflow_follow_v6_address(member, udp, &ip->saddr, &head->saddr);
	mflow_follow_v6_address(member, udp, &ip->daddr, &head->daddr);
}

/*
 * Softirqs disabled; @skb begins at IP's header. Where it is a list of datagrams of this header, gives to each what has been written to
 * the first. In front of each member's data are its own headers, which are as long.
 */
void mflow_list_follow(struct sk_buff *skb, u8 family)
{
	const struct udphdr *head_udp;
	const void *head = skb_network_header(skb);
	struct sk_buff *member;
	int bytes;

	if (likely(!mflow_is_list(skb)))
		return;
	bytes = mflow_list_network_bytes(skb, family);
	if (bytes <= 0)
		return;
	head_udp = head + bytes;
	skb_walk_frags(skb, member) {
		struct udphdr *udp = (struct udphdr *)member->data - 1;
		void *ip = (void *)udp - bytes;
		bool ports = udp->source == head_udp->source && udp->dest == head_udp->dest;
		bool addresses = family == NFPROTO_IPV4 ? mflow_is_like_v4(ip, head) :
							  mflow_is_like_v6(ip, head);

		/* All are alike: where the first is as the head, nothing was written. */
		if (likely(ports && addresses))
			return;
		if (!addresses && family == NFPROTO_IPV4)
			mflow_follow_v4(member, ip, udp, head);
		else if (!addresses)
			mflow_follow_v6(member, ip, udp, head);
		mflow_follow_ports(member, udp, head_udp);
	}
}
