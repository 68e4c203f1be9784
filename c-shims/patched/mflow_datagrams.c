// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams of a lane in lists: GRO makes one packet of many, which pass the rest of the way together. A list has one of two forms:
 *
 * - A list of packets. At the socket the list is taken apart (udp_rcv_segment()), and each datagram is merged by itself.
 * - An aggregate: one packet with the payload of all datagrams behind the headers of the first. A socket with UDP_GRO reads it as it is.
 *
 * The first list of packets that comes to a socket shows whether the socket takes aggregates. If one is taken apart all the same, by a
 * device on the way or for another socket, the flow has lists of packets until its next probe: to cut an aggregate costs more.
 *
 * Lists begin before the device's taps, as GRO does. While the device is watched there are none.
 */

#include <linux/filter.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <net/checksum.h>
#include <net/gro.h>
#include <net/hotdata.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/sock.h>

#include "../module/mflow_list.h"
#include "../module/mflow_worker.h"
#include "mflow_patched.h"

/*
 * Gives a datagram to GRO. Returns whether GRO has joined it with one before it. A datagram that GRO cannot put into a
 * list (its checksum was seen to by others than that of the one before, it is empty, or padded) is let through, and
 * would overtake the list that GRO holds of its flow.
 */
bool mflow_worker_receive_datagram(struct mflow_worker *worker, struct sk_buff *skb,
				   unsigned int form)
{
	struct napi_struct *napi = &worker->napi;
	gro_result_t result;

	mflow_pass_normal(napi);
	/* At 1, packets that GRO lets through are gone at once, before those that it holds. */
	if (unlikely(READ_ONCE(net_hotdata.gro_normal_batch) < 2))
		napi_gro_flush(napi, false);
	this_cpu_write(mflow_cpu.lane_form, form);
	result = napi_gro_receive(napi, skb);
	this_cpu_write(mflow_cpu.lane_form, MFLOW_FORM_SINGLE);
	if (result == GRO_NORMAL)
		mflow_last_behind_held(napi);
	return result == GRO_MERGED || result == GRO_MERGED_FREE;
}

/* Returns whether a tap sees packets of the device. A packet socket sees those of its namespace. */
static bool mflow_tap_sees(const struct packet_type *tap, const struct net_device *dev)
{
	return !tap->af_packet_net || net_eq(tap->af_packet_net, dev_net(dev));
}

/*
 * Returns the filter of a tap if it is a packet socket with one that only looks (a classic program), or NULL. Others use
 * the private pointer, too, but have no namespace. Those that share packets out have a filter each, and count as
 * without. Under RCU.
 */
static const struct sk_filter *mflow_tap_filter(const struct packet_type *tap)
{
	const struct sock *sk = tap->af_packet_priv;
	const struct sk_filter *filter;

	if (!sk || !tap->af_packet_net || tap->id_match)
		return NULL;
	filter = rcu_dereference(sk->sk_filter);
	return filter && bpf_prog_was_classic(filter->prog) &&
			       filter->prog->orig_prog ? filter : NULL;
}

/* Returns what a list of taps watches: all datagrams, or those that filters let through. */
static unsigned int mflow_taps_watch(const struct list_head *taps,
				     const struct net_device *dev, bool only_ip)
{
	unsigned int watch = MFLOW_WATCH_NOTHING;
	const struct packet_type *tap;

	list_for_each_entry_rcu(tap, taps, list) {
		if (!mflow_tap_sees(tap, dev) ||
		    (only_ip && tap->type != htons(ETH_P_IP) &&
		     tap->type != htons(ETH_P_IPV6)))
			continue;
		if (!mflow_tap_filter(tap))
			return MFLOW_WATCH_ALL;
		watch = MFLOW_WATCH_FILTERED;
	}
	return watch;
}

/*
 * Returns what is watched of the packets that the device receives, by something that would see a list of datagrams as
 * one packet: a generic XDP program, a packet socket, traffic control or a packet filter at ingress. Packet sockets of
 * one protocol that are bound to no device are not found: no module can see their list. Any context; the device is
 * there.
 */
unsigned int mflow_device_watch(const struct net_device *dev)
{
	unsigned int watch;

#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_ingress))
		return MFLOW_WATCH_ALL;
#endif
#ifdef CONFIG_NETFILTER_INGRESS
	if (rcu_access_pointer(dev->nf_hooks_ingress))
		return MFLOW_WATCH_ALL;
#endif
	if (rcu_access_pointer(dev->xdp_prog))
		return MFLOW_WATCH_ALL;
	rcu_read_lock();
	watch = mflow_taps_watch(&net_hotdata.ptype_all, dev, false);
	watch = max(watch, mflow_taps_watch(&dev->ptype_all, dev, false));
	watch = max(watch, mflow_taps_watch(&dev->ptype_specific, dev, true));
	rcu_read_unlock();
	return watch;
}

/* The Rust half reads a program's steps. */
static_assert(sizeof(struct sock_filter) == 8 && offsetof(struct sock_filter, k) == 4);

/* Returns whether a tap may take a datagram of a flow, of which this is one, from Ethernet's header on. */
static bool mflow_tap_takes(const struct packet_type *tap, const u8 *frame, unsigned int bytes)
{
	const struct sk_filter *filter = mflow_tap_filter(tap);
	const struct sock *sk = tap->af_packet_priv;
	const struct sock_fprog_kern *program;

	/* It may have lost its filter just now. */
	if (!filter)
		return true;
	program = filter->prog->orig_prog;
	return mflow_filter_may_take(program->filter, program->len, frame, bytes,
				     sk->sk_type == SOCK_DGRAM ? ETH_HLEN : 0);
}

static bool mflow_taps_take(const struct list_head *taps, const struct sk_buff *skb,
			    bool only_of_protocol, const u8 *frame, unsigned int bytes)
{
	const struct packet_type *tap;

	list_for_each_entry_rcu(tap, taps, list)
		if (mflow_tap_sees(tap, skb->dev) &&
		    (!only_of_protocol || tap->type == skb->protocol) &&
		    mflow_tap_takes(tap, frame, bytes))
			return true;
	return false;
}

/*
 * Returns whether a packet socket may take datagrams of a flow, of which this is one that the device is about to
 * receive. Softirqs disabled.
 */
bool mflow_flow_is_tapped(const struct sk_buff *skb)
{
	/* The headers in which a filter may look for a flow. */
	u8 frame[ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct udphdr)];
	unsigned int bytes = min_t(unsigned int, skb->len, sizeof(frame) - ETH_HLEN);
	bool is_tapped;

	if (skb->dev->type != ARPHRD_ETHER || skb_copy_bits(skb, 0, frame + ETH_HLEN, bytes))
		return true;
	memcpy(frame, skb_mac_header(skb), ETH_HLEN);
	bytes += ETH_HLEN;
	rcu_read_lock();
	is_tapped = mflow_taps_take(&net_hotdata.ptype_all, skb, false, frame, bytes) ||
		    mflow_taps_take(&skb->dev->ptype_all, skb, false, frame, bytes) ||
		    mflow_taps_take(&skb->dev->ptype_specific, skb, true, frame, bytes);
	rcu_read_unlock();
	return is_tapped;
}

/* Returns the family of the packet's network header. Within a tunnel the packet's protocol may be another one. */
static u8 mflow_family(const struct sk_buff *skb)
{
	return ip_hdr(skb)->version == 6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
}

/*
 * Takes the memory of the other datagrams off the first. GRO has added it, and skb_segment_list() leaves it there, as
 * the sender may have been charged for it: without such a sender the receiver would be charged twice. What has copied
 * the list may have counted it differently.
 */
static void mflow_list_count_memory(struct sk_buff *skb)
{
	unsigned int members = 0;
	struct sk_buff *member;

	if (skb->destructor == sock_wfree || !mflow_is_list(skb))
		return;
	skb_walk_frags(skb, member)
		members += member->truesize;
	if (members < skb->truesize)
		skb->truesize -= members;
}

static unsigned int mflow_list_slot(const struct sk_buff *skb)
{
	return mflow_tag_get(skb) >> MFLOW_SLOT_SHIFT & (MFLOW_SLOTS - 1);
}

static bool mflow_is_aggregate(const struct sk_buff *skb)
{
	return !(skb_shinfo(skb)->gso_type & SKB_GSO_FRAGLIST);
}

/* Returns a sum of an aggregate's first datagram, whose payload is here; never 0, which stands for an aggregate that nobody has noted. */
static u32 mflow_aggregate_sum(const struct sk_buff *skb, unsigned int payload_at)
{
	return (__force u32)skb_checksum(skb, payload_at, skb_shinfo(skb)->gso_size, 0) ?: ~0U;
}

/*
 * Notes the sum of the first datagram of an aggregate that GRO lets go, in a field that only packets with a sender's
 * timestamp use.
 */
static void mflow_aggregate_note(struct sk_buff *skb)
{
	unsigned int payload_at = skb_checksum_start_offset(skb) + sizeof(struct udphdr);

	if (!skb_shinfo(skb)->tx_flags)
		skb_shinfo(skb)->tskey = mflow_aggregate_sum(skb, payload_at);
}

/* Returns whether the payload of an aggregate, which begins at its transport header, has been written to or cut. */
static bool mflow_aggregate_is_written(const struct sk_buff *skb)
{
	unsigned int payload_at = sizeof(struct udphdr);
	unsigned int bytes = skb_shinfo(skb)->gso_size;
	u32 noted = skb_shinfo(skb)->tx_flags ? 0 : skb_shinfo(skb)->tskey;

	/* UDP cuts a packet to the length that its header says. */
	if (unlikely(skb->len <= payload_at + bytes))
		return true;
	if (unlikely(noted && skb->len - payload_at <= (skb_shinfo(skb)->gso_segs - 1) * bytes))
		return true;
	return noted && csum_fold((__force __wsum)noted) !=
			csum_fold((__force __wsum)mflow_aggregate_sum(skb, payload_at));
}

/*
 * Notes a list of packets that GRO lets go, whose datagrams it has verified. A NIC's sum over all of a packet would be
 * that of the first alone. GRO does not set the place of the transport header in a tunnel here, where a device that
 * sends a copy looks for it (qdisc_pkt_len_init()).
 */
static void mflow_packets_at_begin(struct sk_buff *skb)
{
	if (skb->ip_summed == CHECKSUM_COMPLETE) {
		skb->ip_summed = CHECKSUM_UNNECESSARY;
		skb->csum_level = skb->encapsulation;
	}
	if (skb->encapsulation)
		skb->inner_transport_header = skb->transport_header;
	mflow_list_note(skb);
}

/* Notes a list that GRO lets go, but no aggregate of the NIC's own GRO, as lanes do not choose its form. */
void mflow_list_at_begin(struct sk_buff *skb)
{
	if (!mflow_is_aggregate(skb))
		mflow_packets_at_begin(skb);
	else if (this_cpu_read(mflow_cpu.lane))
		mflow_aggregate_note(skb);
}

/* Makes the members of a list follow its head. It is taken apart next, and begins at its transport header. */
void mflow_list_at_end(struct sk_buff *skb)
{
	int network_bytes = -skb_network_offset(skb);
	u8 family = mflow_family(skb);

	if (mflow_is_aggregate(skb)) {
		mflow_slot_takes_aggregates(mflow_list_slot(skb), false);
		return;
	}
	mflow_list_count_memory(skb);
	__skb_push(skb, network_bytes);
	if (unlikely(mflow_list_is_written(skb, family)))
		mflow_slot_takes_lists(mflow_list_slot(skb), false);
	mflow_list_follow(skb, family);
	__skb_pull(skb, network_bytes);
}

/*
 * Notes what a socket takes. The list has come to it, and begins at its transport header, or at a tunnel's in front of
 * the datagrams'.
 */
void mflow_list_at_socket(const struct sock *sk, struct sk_buff *skb)
{
	if (!(skb_shinfo(skb)->gso_type & SKB_GSO_UDP_L4) || skb->encapsulation)
		return;
	if (mflow_is_aggregate(skb)) {
		if (unlikely(mflow_aggregate_is_written(skb)))
			mflow_slot_takes_lists(mflow_list_slot(skb), false);
	} else if (udp_test_bit(ACCEPT_L4, sk) && !READ_ONCE(udp_sk(sk)->encap_rcv)) {
		/* A tunnel's socket would have an aggregate taken apart. */
		mflow_slot_takes_aggregates(mflow_list_slot(skb), true);
	}
}

/* Returns whether datagrams like a probe may come in lists. It has come to its socket, and begins at its transport header. */
bool mflow_probe_suits_lists(struct sk_buff *skb, const struct sock *sk, unsigned int slot)
{
	int network_bytes = -skb_network_offset(skb);
	bool is_written;

	if (sk->sk_protocol != IPPROTO_UDP)
		return false;
	__skb_push(skb, network_bytes);
	is_written = mflow_probe_is_written(skb, slot, mflow_family(skb));
	__skb_pull(skb, network_bytes);
	return !is_written;
}
