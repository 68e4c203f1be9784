// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of datagrams, which pass the stack as one packet. Whatever a step on the way writes into the headers of a packet, it
 * writes to the head of a list alone: marks of congestion and of class, hop limits, addresses and ports. GRO has put datagrams
 * into one list only if these were the same, so each member gets what its head has.
 *
 * Changes behind the headers cannot be given to the members, whose bytes are their own. So a flow gets no lists if something on
 * its way changes such bytes. Its probe, which is no list, shows that: it has other bytes at the end of its way than at the
 * beginning. Each list is looked at, too, as the way may have changed since.
 *
 * The last functions here keep a datagram that GRO cannot put into a list behind the list that GRO holds.
 */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>

#include "mflow_list.h"
#include "mflow_versions.h"
#include "mflow_worker.h"

/* Returns whether @skb is a list of datagrams, or was one until something on its way has put the datagrams together. */
static bool mflow_was_list(const struct sk_buff *skb)
{
	const unsigned int type = SKB_GSO_FRAGLIST | SKB_GSO_UDP_L4;

	return skb_is_gso(skb) && (skb_shinfo(skb)->gso_type & type) == type;
}

bool mflow_is_list(const struct sk_buff *skb)
{
	return mflow_was_list(skb) && skb_has_frag_list(skb);
}

/*
 * Returns the length of the network header of the list's datagrams, or 0 if a tunnel's header is in front of them. The head's own
 * datagram is as long as gso_size says.
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

/* Returns a sum of the head's own datagram, without headers; never 0, which stands for a list that nobody has noted. */
static u32 mflow_list_sum(const struct sk_buff *skb)
{
	unsigned int bytes = skb_shinfo(skb)->gso_size;

	return (__force u32)skb_checksum(skb, skb_pagelen(skb) - bytes, bytes, 0) ?: ~0U;
}

/*
 * Notes a sum of the head's own datagram where a list begins its way. The sum is kept in a field of the first member. Nobody
 * looks at that field, and it is lost where the list is taken apart.
 */
void mflow_list_note(struct sk_buff *skb)
{
	MFLOW_LIST_SUM(skb_shinfo(skb)->frag_list) = mflow_list_sum(skb);
}

/*
 * Returns whether the datagrams of a list have been written to behind their headers, or put together. Called at the end of the
 * list's way.
 */
bool mflow_list_is_written(const struct sk_buff *skb, u8 family)
{
	u32 noted;

	if (likely(!mflow_was_list(skb)))
		return false;
	/* A step that needs all bytes of a packet in one place has put the datagrams together. */
	if (!skb_has_frag_list(skb) || mflow_list_network_bytes(skb, family) <= 0)
		return true;
	noted = MFLOW_LIST_SUM(skb_shinfo(skb)->frag_list);
	return noted && csum_fold((__force __wsum)mflow_list_sum(skb)) != csum_fold((__force __wsum)noted);
}

/* The most bytes of headers that a probe may have. */
#define MFLOW_PROBE_HEADERS	128

/**
 * struct mflow_probe - a slot's last probe, as it was where it began its way
 * @bytes:	the length of the packet, from its outer network header on
 * @sum:	a sum of these bytes
 * @header:	the first of these bytes
 */
struct mflow_probe {
	unsigned int	bytes;
	__wsum		sum;
	u8		header[MFLOW_PROBE_HEADERS];
};

/* A slot has one probe under way at a time. It ends on the CPU where it began. */
static struct mflow_probe mflow_probes[MFLOW_SLOTS];

/* Returns the length of the packet without the bytes with which short frames are filled up. */
static unsigned int mflow_bytes_of_ip(const struct sk_buff *skb)
{
	unsigned int bytes = skb->len;
	const struct ipv6hdr *v6;
	const struct iphdr *v4;
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} copy;

	if (skb->protocol == htons(ETH_P_IP)) {
		v4 = skb_header_pointer(skb, 0, sizeof(copy.v4), &copy.v4);
		if (v4)
			bytes = ntohs(v4->tot_len);
	} else if (skb->protocol == htons(ETH_P_IPV6)) {
		v6 = skb_header_pointer(skb, 0, sizeof(copy.v6), &copy.v6);
		if (v6)
			bytes = sizeof(*v6) + ntohs(v6->payload_len);
	}
	return min(bytes, skb->len);
}

/*
 * Notes the length, the sum and the first bytes of a probe where it begins its way. @skb begins at its network header. Softirqs
 * disabled.
 */
void mflow_probe_note(const struct sk_buff *skb, unsigned int slot)
{
	struct mflow_probe *probe = &mflow_probes[slot];

	probe->bytes = mflow_bytes_of_ip(skb);
	probe->sum = skb_checksum(skb, 0, probe->bytes, 0);
	skb_copy_bits(skb, 0, probe->header, min(probe->bytes, sizeof(probe->header)));
}

/* Returns whether a probe, which is a datagram, has been written to behind its headers. Called at the end of its way. */
bool mflow_probe_is_written(const struct sk_buff *skb, unsigned int slot, u8 family)
{
	const struct mflow_probe *probe = &mflow_probes[slot];
	unsigned int headers = sizeof(struct udphdr) +
			       (family == NFPROTO_IPV4 ? ip_hdrlen(skb) : sizeof(struct ipv6hdr));
	unsigned int data = skb->len - headers, before = probe->bytes - data;
	__wsum sum;

	/* The probe has become longer, or has had more headers than were kept. */
	if (headers > skb->len || data > probe->bytes || before > sizeof(probe->header))
		return true;
	sum = csum_block_add(csum_partial(probe->header, before, 0),
			     skb_checksum(skb, headers, data, 0), before);
	return csum_fold(sum) != csum_fold(probe->sum);
}

/* Returns whether a datagram of UDP has a sum: 0 stands for none. */
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

/* Returns whether a header is like the head's. The first word has version, class and label. */
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
 * Returns whether the headers of the list's first datagram differ from those of @member, because something has written to them.
 * The network header has @bytes bytes. All members are alike.
 */
static bool mflow_has_changed(const struct sk_buff *skb, const struct sk_buff *member, int bytes, u8 family)
{
	const struct udphdr *udp = (const struct udphdr *)member->data - 1;
	const void *ip = (const void *)udp - bytes, *head = skb_network_header(skb);
	const struct udphdr *head_udp = head + bytes;

	if (udp->source != head_udp->source || udp->dest != head_udp->dest)
		return true;
	return family == NFPROTO_IPV4 ? !mflow_is_like_v4(ip, head) : !mflow_is_like_v6(ip, head);
}

/* Makes the memory of all members the list's alone: taps and mirrors may have clones. Returns whether there was memory for that. */
static bool mflow_list_unshare(struct sk_buff *skb)
{
	struct sk_buff **link, *member, *copy;

	if (skb_unclone(skb, GFP_ATOMIC))
		return false;
	for (link = &skb_shinfo(skb)->frag_list; *link; link = &(*link)->next) {
		member = *link;
		if (skb_shared(member)) {
			copy = skb_clone(member, GFP_ATOMIC);
			if (!copy)
				return false;
			copy->next = member->next;
			*link = copy;
			consume_skb(member);
			member = copy;
		}
		if (skb_unclone(member, GFP_ATOMIC))
			return false;
	}
	return true;
}

/*
 * Gives all datagrams of a list what has been written to the headers of the first. @skb begins at IP's header, which has to be
 * that of the datagrams. In front of each member's data are headers of its own, of the same length. Softirqs disabled.
 */
void mflow_list_follow(struct sk_buff *skb, u8 family)
{
	struct sk_buff *member;
	const void *head;
	int bytes;

	if (likely(!mflow_is_list(skb)))
		return;
	bytes = mflow_list_network_bytes(skb, family);
	if (bytes <= 0 || likely(!mflow_has_changed(skb, skb_shinfo(skb)->frag_list, bytes, family)) ||
	    !mflow_list_unshare(skb))
		return;
	head = skb_network_header(skb);
	skb_walk_frags(skb, member) {
		struct udphdr *udp = (struct udphdr *)member->data - 1;
		void *ip = (void *)udp - bytes;

		if (family == NFPROTO_IPV4)
			mflow_follow_v4(member, ip, udp, head);
		else
			mflow_follow_v6(member, ip, udp, head);
		mflow_follow_ports(member, udp, head + bytes);
	}
}

/* Gives the stack what GRO has let through or let go. */
void mflow_pass_normal(struct napi_struct *napi)
{
	typeof(MFLOW_GRO_OF(napi)) gro = MFLOW_GRO_OF(napi);

	if (!gro->rx_count)
		return;
	netif_receive_skb_list(&gro->rx_list);
	INIT_LIST_HEAD(&gro->rx_list);
	gro->rx_count = 0;
}

/* Puts the packet that GRO has let through last behind those that it holds. False: it has left. */
bool mflow_last_behind_held(struct napi_struct *napi)
{
	typeof(MFLOW_GRO_OF(napi)) gro = MFLOW_GRO_OF(napi);
	struct sk_buff *skb;

	if (!gro->rx_count)
		return false;
	skb = list_last_entry(&gro->rx_list, struct sk_buff, list);
	list_del(&skb->list);
	gro->rx_count--;
	napi_gro_flush(napi, false);
	list_add_tail(&skb->list, &gro->rx_list);
	gro->rx_count++;
	return true;
}
