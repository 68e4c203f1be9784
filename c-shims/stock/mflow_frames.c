// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that lanes build: a device of ours beside an opted-in one, to which the program of mflow_xdp.c redirects what could be
 * split. It gets frames before anything is allocated for them, on the NIC's core, as drivers with our hooks ask before they build.
 *
 * Here packets are dispatched before the device's taps, classifiers and ingress hooks, which see them when they come from a lane,
 * or when they take the ordinary path: all of them, and each once.
 */

#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/ip.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <net/ip.h>
#include <net/mflow.h>
#include <net/xdp.h>

#include "../module/mflow_versions.h"
#include "mflow_stock.h"

/* 6.4: packets give pages back to their pool. Before, a page leaves the pool with its packet. 6.14: the kind of memory has a name. */
#if MFLOW_SINCE(6, 14)
static inline bool mflow_frame_recycles(const struct xdp_frame *frame)
{
	return frame->mem_type == MEM_TYPE_PAGE_POOL;
}

static inline void mflow_frame_release(struct xdp_frame *frame)
{
}
#elif MFLOW_SINCE(6, 4)
static inline bool mflow_frame_recycles(const struct xdp_frame *frame)
{
	return frame->mem.type == MEM_TYPE_PAGE_POOL;
}

static inline void mflow_frame_release(struct xdp_frame *frame)
{
}
#else
static inline bool mflow_frame_recycles(const struct xdp_frame *frame)
{
	return false;
}

static inline void mflow_frame_release(struct xdp_frame *frame)
{
	xdp_release_frame(frame);
}
#endif

/**
 * struct mflow_frames - the NIC to which a device of ours belongs, and its port
 * @nic:	the NIC that receives the packets; it goes after our device
 * @port:	the Rust half's, while packets are dispatched here; NULL: they are where they are without us
 */
struct mflow_frames {
	struct net_device	*nic;
	void			*port;
};

/* A frame in a request. */
struct mflow_frame {
	struct xdp_frame	*frame;
	struct net_device	*nic;
};

/* The packet that takes the ordinary path on this CPU, and need not be dispatched at the device's hook any more. */
static DEFINE_PER_CPU(const struct sk_buff *, mflow_frame_dispatched);

/* Returns whether the packet has been dispatched here, and says so once. Softirqs disabled. */
bool mflow_frames_has_dispatched(const struct sk_buff *skb)
{
	if (likely(this_cpu_read(mflow_frame_dispatched) != skb))
		return false;
	this_cpu_write(mflow_frame_dispatched, NULL);
	return true;
}

/* Builds the packet of a frame. Returns NULL if it had to be dropped, and has counted that. */
static struct sk_buff *mflow_frame_build(struct xdp_frame *frame, struct net_device *nic)
{
	struct sk_buff *skb = NULL;

	/* The program has looked at longer headers, but anybody's may redirect to our device. */
	if (likely(frame->len >= ETH_HLEN))
		skb = xdp_build_skb_from_frame(frame, nic);
	if (likely(skb))
		return skb;
	dev_core_stats_rx_dropped_inc(nic);
	xdp_return_frame(frame);
	return NULL;
}

/* Builds the packet of a request. In a lane's poll. */
static struct sk_buff *mflow_request_build(struct mflow_request *request, struct napi_struct *napi)
{
	const struct mflow_frame *frame = (void *)request->driver;

	return mflow_frame_build(frame->frame, frame->nic);
}

static void mflow_request_give_up(struct mflow_request *request)
{
	const struct mflow_frame *frame = (void *)request->driver;

	xdp_return_frame(frame->frame);
}

/* Returns false for a frame that is no piece of one page, or brings a program's metadata, which GRO compares. */
static bool mflow_request_describe(const struct mflow_request *request, struct mflow_frag *frag)
{
	const struct mflow_frame *place = (void *)request->driver;
	struct xdp_frame *frame = place->frame;
	struct page *page = virt_to_head_page(frame->data);

	if (unlikely(frame->len < ETH_HLEN || frame->metasize || xdp_frame_has_frags(frame) ||
		     page_is_pfmemalloc(page)))
		return false;
	frag->dev = place->nic;
	frag->data = frame->data;
	frag->page = page;
	frag->bytes = frame->len;
	frag->memory_bytes = frame->frame_sz;
	frag->recycles = mflow_frame_recycles(frame);
	frag->copies = false;
	frag->sums = MFLOW_SUMS_VERIFIED;
	frag->sum = 0;
	return true;
}

static void mflow_request_joined(const struct mflow_request *request, const struct mflow_frag *frag)
{
	const struct mflow_frame *place = (void *)request->driver;

	mflow_frame_release(place->frame);
}

static const struct mflow_request_ops mflow_frame_ops = {
	.build = mflow_request_build,
	.drop = mflow_request_give_up,
	.frag = mflow_request_describe,
	.joined = mflow_request_joined,
};

/**
 * struct mflow_frame_words - a frame of UDP in IPv4 without options, in words
 * @macs:	Ethernet's addresses
 * @start:	Ethernet's type; of IPv4, version, size of the header, class of traffic
 * @length_id:	length, identification
 * @middle:	fragment, hop limit, protocol
 * @check:	sum of the header
 * @addresses:	of both ends
 * @ports:	of both ends
 *
 * Addresses and ports are its flow. All else may differ within that.
 */
struct mflow_frame_words {
	u8	macs[2 * ETH_ALEN];
	__be32	start;
	__be32	length_id;
	__be32	middle;
	__sum16	check;
	__be64	addresses;
	__be32	ports;
} __packed;

/* No options, any class. */
#define MFLOW_FRAME_START	((ETH_P_IP << 16) | 0x4500)
#define MFLOW_FRAME_START_MASK	0xffffff00
static bool mflow_frame_has_words(const struct xdp_frame *frame)
{
	const struct mflow_frame_words *words = frame->data;

	return frame->len >= sizeof(*words) &&
	       (words->start & htonl(MFLOW_FRAME_START_MASK)) == htonl(MFLOW_FRAME_START) &&
	       (words->middle & htonl(MFLOW_IPV4_WHOLE_MASK)) == htonl(IPPROTO_UDP);
}

/*
 * Moves the frames of the first one's flow to @flow. The first one has such words. The search ends at a frame that has none, as that
 * may be of any flow. The other frames move up in @frames, and all keep their order. Returns how many are of the flow; @bytes is what
 * the largest of them holds.
 */
static unsigned int mflow_frames_divide(struct xdp_frame **frames, unsigned int nr_frames,
					struct xdp_frame **flow, unsigned int *bytes)
{
	const struct mflow_frame_words *first = frames[0]->data, *other;
	unsigned int most = frames[0]->frame_sz, pkts = 1, i;

	BUILD_BUG_ON(sizeof(*first) != ETH_HLEN + sizeof(struct iphdr) + sizeof(__be32));
	flow[0] = frames[0];
	for (i = 1; i < nr_frames && mflow_frame_has_words(frames[i]); i++) {
		other = frames[i]->data;
		if (other->ports == first->ports && other->addresses == first->addresses) {
			flow[pkts++] = frames[i];
			most = max(most, frames[i]->frame_sz);
		} else {
			frames[i - pkts] = frames[i];
		}
	}
	for (; i < nr_frames; i++)
		frames[i - pkts] = frames[i];
	*bytes = most;
	return pkts;
}

/* Frames of one flow, which hold @bytes each at most. Returns how many of them a lane builds; 0: the first one is built here. */
static unsigned int mflow_frame_requests(struct mflow_source *source, struct xdp_frame *const *frames,
					 unsigned int nr_frames, unsigned int bytes, struct net_device *nic)
{
	unsigned int memory_bytes = bytes + sizeof(struct mflow_request);
	const struct ethhdr *eth = frames[0]->data;
	struct mflow_request *requests;
	struct mflow_frame *place;
	unsigned int pkts = nr_frames, i;

	BUILD_BUG_ON(sizeof(*place) > sizeof(requests->driver));
	if (unlikely(frames[0]->len < ETH_HLEN))
		return 0;
	requests = mflow_take_requests(source, ntohs(eth->h_proto), eth + 1,
				       min_t(unsigned int, frames[0]->len - ETH_HLEN, MFLOW_REQUEST_HEADER),
				       memory_bytes, &pkts);
	for (i = 0; i < pkts; i++) {
		requests[i].ops = &mflow_frame_ops;
		requests[i].memory_bytes = memory_bytes;
		place = (void *)requests[i].driver;
		place->frame = frames[i];
		place->nic = nic;
	}
	return pkts;
}

/* Builds a frame's packet here, and dispatches it. */
static void mflow_frame_receive(const struct mflow_ops *ops, void *port, struct xdp_frame *frame,
				struct net_device *nic)
{
	struct sk_buff *skb = mflow_frame_build(frame, nic);

	if (!skb)
		return;
	if (port) {
		if (ops->split_ingress(port, skb))
			return;
		this_cpu_write(mflow_frame_dispatched, skb);
	} else if (nic->features & NETIF_F_GRO) {
		/* With GRO, which a redirected frame passes by, it would be verified. */
		mflow_packet_verify(skb);
	}
	netif_receive_skb_core(skb);
	if (port)
		this_cpu_write(mflow_frame_dispatched, NULL);
}

/* Gives on frames of one flow, which hold @bytes each at most. Returns whether lanes build some of them. */
static bool mflow_frames_give(const struct mflow_ops *ops, void *port, struct mflow_source *source,
			      struct xdp_frame *const *frames, unsigned int nr_frames, unsigned int bytes,
			      struct net_device *nic)
{
	unsigned int i = 0, pkts;
	bool requests = false;

	while (i < nr_frames) {
		pkts = 0;
		if (source && READ_ONCE(source->takes_requests))
			pkts = mflow_frame_requests(source, frames + i, nr_frames - i, bytes, nic);
		if (pkts) {
			requests = true;
			i += pkts;
		} else {
			mflow_frame_receive(ops, port, frames[i++], nic);
		}
	}
	return requests;
}

/*
 * Takes frames in the poll of the NAPI that they have come through. Where lanes build packets, those of a flow are
 * dispatched together: most of what a packet costs here is the look-up of its flow. Flows may overtake one another. All
 * frames are taken, so that the caller looks at @frames no more, and they may change places in it.
 */
static int mflow_frames_xmit(struct net_device *dev, int nr_frames, struct xdp_frame **frames, u32 flags)
{
	struct xdp_frame *flow[XDP_BULK_QUEUE_SIZE];
	const struct mflow_frames *here = netdev_priv(dev);
	const struct mflow_ops *ops = rcu_dereference_bh(mflow_stock_ops);
	struct mflow_source *source = NULL;
	void *port = READ_ONCE(here->port);
	unsigned int nr_left, pkts, bytes;
	bool requests = false;

	if (!static_branch_unlikely(&mflow_stock_key) || !ops)
		port = NULL;
	if (port)
		source = mflow_port_source(port);
	for (nr_left = nr_frames; nr_left; nr_left -= pkts) {
		if (source && READ_ONCE(source->takes_requests) && nr_left <= ARRAY_SIZE(flow) &&
		    mflow_frame_has_words(frames[0])) {
			pkts = mflow_frames_divide(frames, nr_left, flow, &bytes);
			requests |= mflow_frames_give(ops, port, source, flow, pkts, bytes, here->nic);
		} else {
			pkts = 1;
			bytes = frames[0]->frame_sz;
			requests |= mflow_frames_give(ops, port, source, frames++, 1, bytes, here->nic);
		}
	}
	if (requests)
		mflow_run_flush_later(source);
	return nr_frames;
}

/* Drops a packet: nobody has anything to send here. */
static netdev_tx_t mflow_frames_start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops mflow_frames_ops = {
	.ndo_start_xmit = mflow_frames_start_xmit,
	.ndo_xdp_xmit = mflow_frames_xmit,
};

/*
 * Is not called, as no packet comes from here. While it is there, our device cannot be put below a bridge, a bond or a
 * macvlan.
 */
static rx_handler_result_t mflow_frames_receive(struct sk_buff **pskb)
{
	return RX_HANDLER_PASS;
}

static void mflow_frames_setup(struct net_device *dev)
{
	dev->netdev_ops = &mflow_frames_ops;
	dev->needs_free_netdev = true;
	/* A type that IPv6 gives no address. */
	dev->type = ARPHRD_VOID;
	dev->flags = IFF_NOARP;
	dev->priv_flags |= IFF_NO_QUEUE;
	dev->tx_queue_len = 0;
	/* All packets that the NIC can receive pass. */
	dev->min_mtu = 0;
	dev->max_mtu = ETH_MAX_MTU;
	dev->mtu = ETH_MAX_MTU;
	dev->hard_header_len = ETH_HLEN;
	mflow_netdev_stays_in_namespace(dev);
	mflow_netdev_takes_frames(dev);
}

/* Returns a device of ours beside @nic, in the same namespace, or an error pointer. Under rtnl. */
struct net_device *mflow_frames_create(struct net_device *nic)
{
	struct mflow_frames *frames;
	struct net_device *dev;
	char name[IFNAMSIZ];
	int err;

	snprintf(name, sizeof(name), "mflow-%d", nic->ifindex);
	dev = alloc_netdev(sizeof(*frames), name, NET_NAME_ENUM, mflow_frames_setup);
	if (!dev)
		return ERR_PTR(-ENOMEM);
	dev_net_set(dev, dev_net(nic));
	frames = netdev_priv(dev);
	frames->nic = nic;
	err = register_netdevice(dev);
	if (err) {
		free_netdev(dev);
		/* Its name is taken: EEXIST is what the kernel says of a program. */
		return ERR_PTR(err == -EEXIST ? -EINVAL : err);
	}
	err = netdev_rx_handler_register(dev, mflow_frames_receive, NULL);
	if (!err)
		err = dev_open(dev, NULL);
	if (err) {
		mflow_frames_destroy(dev);
		return ERR_PTR(err);
	}
	return dev;
}

/* Dispatches packets here for the Rust half's @port from now on, or no longer (NULL). Under rtnl. */
void mflow_frames_dispatch(struct net_device *dev, void *port)
{
	struct mflow_frames *frames = netdev_priv(dev);

	WRITE_ONCE(frames->port, port);
}

/* Ends our device, to which no program redirects. No frame comes then; those in rings hold nothing of it. Under rtnl. */
void mflow_frames_destroy(struct net_device *dev)
{
	mflow_frames_dispatch(dev, NULL);
	/* If a namespace ends, the stack has begun that. */
	if (dev->reg_state != NETREG_REGISTERED)
		return;
	if (netdev_is_rx_handler_busy(dev))
		netdev_rx_handler_unregister(dev);
	unregister_netdevice(dev);
}
