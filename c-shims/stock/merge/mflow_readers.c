// SPDX-License-Identifier: GPL-2.0
/*
 * The CPUs on which readers of split flows run, for `cpus` `auto`. Since 6.3 a kernel with tracepoints says in one how much a
 * process has received from a socket, and on which CPU. The merge point finds out which sockets are those of split flows: it
 * looks one up for each slot once in a tick. Nothing of that is there while nobody wants to know.
 */

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/mflow.h>
#include <net/mflow_module.h>

#include "../../module/mflow_versions.h"
#include "../mflow_stock.h"
#include "mflow_merge.h"

/* The tracepoint that reports how many bytes processes receive. */
#define MFLOW_TRACEPOINT	"sock_recv_length"

/* A flow whose packets have come to the merge point for as long is not split any more, or sleeps. */
#define MFLOW_RECEIVER_TICKS	(HZ / 4)

/**
 * struct mflow_receiver_seen - the socket to which a slot's packets go
 * @sk:		compared only: it may be gone
 * @tick:	the tick of its last look-up. It is written before @sk, so a reader of the socket before may count for one tick
 *		more
 */
struct mflow_receiver_seen {
	const struct sock	*sk;
	u32			tick;
};

static struct mflow_receiver_seen mflow_receivers[MFLOW_SLOTS];

bool mflow_readers_watched __read_mostly;

#ifdef CONFIG_TRACEPOINTS
static bool mflow_is_receiver(const struct sock *sk, u32 tick)
{
	unsigned int slot;

	for (slot = 0; slot < MFLOW_SLOTS; slot++) {
		const struct mflow_receiver_seen *seen = &mflow_receivers[slot];

		if (READ_ONCE(seen->sk) == sk &&
		    tick - READ_ONCE(seen->tick) < MFLOW_RECEIVER_TICKS)
			return true;
	}
	return false;
}

/*
 * Process context. One look in a tick shows where readers spend their time, and costs those that read often next to nothing. It may be
 * another CPU's by now, which is as good.
 */
static void mflow_reader_seen(void *unused, struct sock *sk, int result, int flags)
{
	u32 tick = jiffies;

	if (likely(raw_cpu_read(mflow_cpu.reader_tick) == tick))
		return;
	this_cpu_write(mflow_cpu.reader_tick, tick);
	if (mflow_is_receiver(sk, tick))
		this_cpu_inc(mflow_cpu.reader_ticks);
}

static void mflow_find_tracepoint(struct tracepoint *tracepoint, void *found)
{
	if (!strcmp(tracepoint->name, MFLOW_TRACEPOINT))
		*(struct tracepoint **)found = tracepoint;
}

/* Process context, one at a time. */
void mflow_watch_readers(bool watch)
{
	struct tracepoint *tracepoint = NULL;

	if (watch == READ_ONCE(mflow_readers_watched))
		return;
	for_each_kernel_tracepoint(mflow_find_tracepoint, &tracepoint);
	if (!tracepoint)
		return;
	if (!watch) {
		WRITE_ONCE(mflow_readers_watched, false);
		tracepoint_probe_unregister(tracepoint, mflow_reader_seen, NULL);
		return;
	}
	if (!tracepoint_probe_register(tracepoint, mflow_reader_seen, NULL))
		WRITE_ONCE(mflow_readers_watched, true);
}
#else
/* Does nothing: nobody tells where readers run. */
void mflow_watch_readers(bool watch)
{
}
#endif

/* Gives the reference of a look-up back. */
static const struct sock *mflow_put(struct sock *sk)
{
	if (sk)
		sock_gen_put(sk);
	return sk;
}

static const struct sock *mflow_receiver4(struct net *net, struct sk_buff *skb)
{
	const struct iphdr *iph = ip_hdr(skb);
	const __be16 *ports;
	__be16 buffer[2];

	ports = skb_header_pointer(skb, skb_network_offset(skb) + ip_hdrlen(skb),
				   sizeof(buffer), buffer);
	if (!ports)
		return NULL;
	if (iph->protocol == IPPROTO_UDP)
		return mflow_udp4_look_up(net, iph->saddr, ports[0], iph->daddr,
					  ports[1], inet_iif(skb), inet_sdif(skb),
					  NULL);
	return mflow_put(mflow_tcp4_established(net, iph->saddr, ports[0], iph->daddr,
						ntohs(ports[1]), inet_iif(skb),
						inet_sdif(skb)));
}

#if IS_ENABLED(CONFIG_IPV6)
static const struct sock *mflow_receiver6(struct net *net, struct sk_buff *skb)
{
	const struct ipv6hdr *hdr = ipv6_hdr(skb);
	u8 protocol = hdr->nexthdr;
	const __be16 *ports;
	__be16 buffer[2];
	__be16 frag_off;
	int offset;

	offset = ipv6_skip_exthdr(skb, skb_network_offset(skb) + sizeof(*hdr),
				  &protocol, &frag_off);
	/* Behind this hook fragments are put together: only the first one has ports. */
	if (offset < 0 || frag_off & htons(IP6_OFFSET))
		return NULL;
	ports = skb_header_pointer(skb, offset, sizeof(buffer), buffer);
	if (!ports)
		return NULL;
	if (protocol == IPPROTO_UDP)
		return mflow_udp6_look_up(net, &hdr->saddr, ports[0], &hdr->daddr,
					  ports[1], inet6_iif(skb), inet6_sdif(skb),
					  NULL);
	return mflow_put(mflow_tcp6_established(net, &hdr->saddr, ports[0], &hdr->daddr,
						ntohs(ports[1]), inet6_iif(skb),
						inet6_sdif(skb)));
}
#else
static const struct sock *mflow_receiver6(struct net *net, struct sk_buff *skb)
{
	return NULL;
}
#endif

/*
 * Returns the number of packets like this one that fit into the socket's buffer. 0: that is not known, or the sender looks after
 * it, as TCP's does.
 */
static u32 mflow_receive_pkts(const struct sock *sk, const struct sk_buff *skb, u8 family)
{
	u8 protocol = family == NFPROTO_IPV4 ? ip_hdr(skb)->protocol : ipv6_hdr(skb)->nexthdr;

	if (!sk || protocol != IPPROTO_UDP)
		return 0;
	return (u64)READ_ONCE(sk->sk_rcvbuf) * mflow_stock_wire_pkts(skb) / skb->truesize;
}

/*
 * Softirqs disabled, at the merge point; the packet is a datagram or a segment that ends here. Of TCP the socket is but compared, and may
 * be gone.
 */
void mflow_note_receiver(struct net *net, struct sk_buff *skb, unsigned int slot, u8 family)
{
	struct mflow_receiver_seen *seen = &mflow_receivers[slot];
	const struct sock *sk;
	u32 tick = jiffies;

	if (READ_ONCE(seen->tick) == tick)
		return;
	/* Lanes may do that at the same time, and find the same. */
	WRITE_ONCE(seen->tick, tick);
	if (skb->sk)
		sk = sk_fullsock(skb->sk) ? skb->sk : NULL;
	else if (family == NFPROTO_IPV4)
		sk = mflow_receiver4(net, skb);
	else
		sk = mflow_receiver6(net, skb);
	mflow_note_receive_pkts(slot, mflow_receive_pkts(sk, skb, family));
	if (sk)
		WRITE_ONCE(seen->sk, sk);
}

/* Process context. When it returns, no reader is in the probe. */
void mflow_readers_exit(void)
{
	mflow_watch_readers(false);
	tracepoint_synchronize_unregister();
}
