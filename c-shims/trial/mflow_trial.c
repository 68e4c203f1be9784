// SPDX-License-Identifier: GPL-2.0
/*
 * The trial of the join (CONFIG_MFLOW_JOIN_TRIAL), for tests. A test writes runs of frames into a debugfs file. Each run goes through the
 * kernel's GRO, with a packet for each frame, and through a lane of its own, which joins frames. The test reads which packets have come
 * of it. Where lanes have GRO put datagrams into lists, both keep those behind it that GRO lets through (mflow_worker_receive_datagram()).
 *
 * What it writes, in the machine's byte order:
 *
 *	struct mflow_trial_batch, and then for each run
 *		struct mflow_trial_run, and for each of its frames
 *			struct mflow_trial_frame, and the frame's bytes
 *
 * What it reads for each run:
 *
 *	struct mflow_trial_result, and then, if that has lengths, the packets of GRO, and those of the lane. A packet is
 *		struct mflow_trial_packet, and then the frames that skb_segment() makes of it, each with its length (u32) in front.
 *		A packet that stays whole has the length of all of it. Bytes of zero follow, up to the next multiple of four.
 */

#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/gfp.h>
#include <linux/math.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/uaccess.h>
#include <net/checksum.h>
#include <net/gro.h>
#include <net/gso.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/page_pool/helpers.h>

#include "../module/mflow_worker.h"

/* A poll of a lane takes no more, and ends what it has taken. */
#define MFLOW_TRIAL_FRAMES	NAPI_POLL_WEIGHT
#define MFLOW_TRIAL_IN_BYTES	(1U << 20)
#define MFLOW_TRIAL_OUT_BYTES	(4U << 20)
#define MFLOW_TRIAL_COPY_BYTES	128U
#define MFLOW_TRIAL_FORMS	(MFLOW_FORM_AGGREGATE + 1)

/* All packets are taken apart. Otherwise those of one buffer stay whole. */
#define MFLOW_TRIAL_APART	1U
/* Of runs whose packets are equal, only that is told. */
#define MFLOW_TRIAL_QUIET	2U

/* Features of devices. */
#define MFLOW_TRIAL_LISTS	1U
#define MFLOW_TRIAL_FORWARDS	2U

/* The frame of the NIC's core, which builds its packet. */
#define MFLOW_TRIAL_BUILT	1U
/* The driver copies it, and gives the page back. */
#define MFLOW_TRIAL_COPIED	2U
/* Its headers are copied. Otherwise GRO takes them from the fragment. */
#define MFLOW_TRIAL_PULLED	4U
/* Its page is one of a pool. */
#define MFLOW_TRIAL_POOLED	8U

/**
 * struct mflow_trial_batch - the part of a write that all its runs share
 * @flags:	%MFLOW_TRIAL_APART, ...
 * @form:	the form of datagrams on the lane (%MFLOW_FORM_SINGLE, ...)
 * @features:	the features of both devices (%MFLOW_TRIAL_LISTS, ...)
 */
struct mflow_trial_batch {
	u32	flags;
	u32	form;
	u32	features;
};

/**
 * struct mflow_trial_run - a run
 * @frames:	the number of its frames
 * @gro_max_bytes: the length below which GRO keeps packets: gro_max_size of both devices
 * @gro_ipv4_max_bytes: the same for IPv4: gro_ipv4_max_size
 */
struct mflow_trial_run {
	u32	frames;
	u32	gro_max_bytes;
	u32	gro_ipv4_max_bytes;
};

/**
 * struct mflow_trial_frame - a frame
 * @bytes:	its length
 * @flags:	%MFLOW_TRIAL_BUILT, ...
 * @sums:	the NIC's word: this many checksums are verified; with %MFLOW_TRIAL_SUMMED it has summed the frame
 * @flow:	the number of its flow: frames of two flows have two tags
 */
struct mflow_trial_frame {
	u16	bytes;
	u8	flags;
	u8	sums;
	u32	flow;
};

#define MFLOW_TRIAL_SUMMED	0xff

/**
 * struct mflow_trial_result - what has come of a run
 * @joined:	frames of which the lane has built no packet, or that have gone past the layers of GRO
 * @packets:	packets that GRO has let go
 * @gro_bytes:	length of these, as they are read
 * @lane_bytes:	of those of the lane. 0 and 0: they are equal, and count for the memory of which they are made
 * @gro_memory:	the memory for which all packets of GRO count (truesize)
 * @lane_memory: likewise
 * @allowance:	the lane's packets may count for so much more than those of GRO. 0: they have to count for the same
 * @held_pages:	pages of the pool that nobody has given back
 */
struct mflow_trial_result {
	u32	joined;
	u32	packets;
	u32	gro_bytes;
	u32	lane_bytes;
	u32	gro_memory;
	u32	lane_memory;
	u32	allowance;
	s32	held_pages;
};

/**
 * struct mflow_trial_packet - a packet
 * @frames:	the number of the frames that follow
 * @gso_segs:	as in struct skb_shared_info, if it is more than one frame; else 0, and so are all others
 * @gso_size:	likewise
 * @gso_type:	likewise
 * @sums:	%CHECKSUM_PARTIAL, and from bit 16 on the place to write the checksum; or 0
 * @network_at:	places from Ethernet's header on
 * @transport_at: likewise
 * @inner_at:	likewise: the inner network header, or 0
 * @memory_error: the bytes by which the memory for which it counts is not that of which it is made
 */
struct mflow_trial_packet {
	u32	frames;
	u16	gso_segs;
	u16	gso_size;
	u32	gso_type;
	u32	sums;
	u16	network_at;
	u16	transport_at;
	u16	inner_at;
	u16	unused;
	u32	memory_error;
};

/* A frame as its driver has it. The request of the lane leads here. */
struct mflow_trial_received {
	struct mflow_trial_frame frame;
	struct net_device	*dev;
	void			*data;
	/* The head of the packet that was built of it, which GRO may make a fragment. */
	void			*head;
	unsigned int		head_bytes;
	/* That packet is a copy, and the frame's page was given back. */
	bool			copied;
	bool			owned;
};

struct mflow_trial {
	/* One run at a time. */
	struct mutex		lock;
	void			*lane;
	/* It has no lane, and is never polled. */
	struct mflow_worker	*gro;
	/* The first of its slots, one for each form. An aggregate that is taken apart changes what its slot says. */
	unsigned int		slot;
	struct net_device	*gro_dev;
	struct net_device	*lane_dev;
	struct page_frag_cache	pages;
	struct page_pool	*pool;
	/* The pages of the pool that nobody had given back when the last run ended. */
	s64			held_pages;
	struct sk_buff_head	caught;
	/* The frames of the run, what its result says, and whether a packet of it counts for wrong memory. */
	struct mflow_trial_received frames[MFLOW_TRIAL_FRAMES];
	unsigned int		nr_frames;
	u32			allowance;
	bool			has_memory_error;
	u8			*in;
	u8			*out;
	size_t			filled;
	size_t			taken;
};

static struct dentry *mflow_trial_file;
/* The number of trials that were opened. */
static atomic_t mflow_trials;

/* Makes one owner more of a frame's page. */
static void mflow_trial_get_page(const struct mflow_trial_received *received)
{
	struct page *page = virt_to_head_page(received->data);

	if (received->frame.flags & MFLOW_TRIAL_POOLED)
		page_pool_ref_page(page);
	else
		get_page(page);
}

/* Makes one owner less of a frame's page. */
static void mflow_trial_put_page(const struct mflow_trial_received *received)
{
	struct page *page = virt_to_head_page(received->data);

	if (received->frame.flags & MFLOW_TRIAL_POOLED)
		page_pool_put_full_page(page->pp, page, false);
	else
		put_page(page);
}

/*
 * Makes a packet of a frame, as virtio_net does of a buffer, or mlx5e of a page of a pool. It owns the page then; if there is no memory,
 * nobody does.
 */
static struct sk_buff *mflow_trial_build(struct mflow_trial_received *received, struct net_device *dev,
					 struct napi_struct *napi)
{
	const struct mflow_trial_frame *frame = &received->frame;
	struct page *page = virt_to_head_page(received->data);
	unsigned int copied = ETH_HLEN;
	struct sk_buff *skb;

	if (frame->flags & MFLOW_TRIAL_COPIED)
		copied = frame->bytes;
	else if (frame->flags & MFLOW_TRIAL_PULLED)
		copied = min_t(unsigned int, MFLOW_TRIAL_COPY_BYTES, frame->bytes);
	skb = napi_alloc_skb(napi, max(MFLOW_TRIAL_COPY_BYTES, copied));
	if (!skb) {
		mflow_trial_put_page(received);
		return NULL;
	}
	received->head = skb->head;
	received->head_bytes = skb_end_offset(skb);
	received->copied = copied == frame->bytes;
	skb_put_data(skb, received->data, copied);
	if (copied < frame->bytes)
		skb_add_rx_frag(skb, 0, page, received->data + copied - page_address(page),
				frame->bytes - copied, SKB_DATA_ALIGN(frame->bytes));
	if (frame->sums == MFLOW_TRIAL_SUMMED) {
		skb->ip_summed = CHECKSUM_COMPLETE;
		skb->csum = csum_partial(received->data + ETH_HLEN, frame->bytes - ETH_HLEN, 0);
	} else if (frame->sums) {
		skb->ip_summed = CHECKSUM_UNNECESSARY;
		skb->csum_level = frame->sums - 1;
	}
	if (received->copied)
		mflow_trial_put_page(received);
	if (frame->flags & MFLOW_TRIAL_POOLED)
		skb_mark_for_recycle(skb);
	skb->protocol = eth_type_trans(skb, dev);
	return skb;
}

static struct mflow_trial_received *mflow_trial_received(const struct mflow_request *request)
{
	return (struct mflow_trial_received *)request->driver[0];
}

static struct sk_buff *mflow_trial_build_request(struct mflow_request *request, struct napi_struct *napi)
{
	struct mflow_trial_received *received = mflow_trial_received(request);

	return mflow_trial_build(received, received->dev, napi);
}

static void mflow_trial_drop_request(struct mflow_request *request)
{
	mflow_trial_put_page(mflow_trial_received(request));
}

static bool mflow_trial_frag(const struct mflow_request *request, struct mflow_frag *frag)
{
	const struct mflow_trial_received *received = mflow_trial_received(request);
	const struct mflow_trial_frame *frame = &received->frame;

	frag->dev = received->dev;
	frag->data = received->data;
	frag->page = virt_to_head_page(received->data);
	frag->bytes = frame->bytes;
	frag->memory_bytes = SKB_DATA_ALIGN(frame->bytes);
	frag->recycles = !!(frame->flags & MFLOW_TRIAL_POOLED);
	frag->copies = !!(frame->flags & MFLOW_TRIAL_COPIED);
	if (frame->sums == MFLOW_TRIAL_SUMMED) {
		frag->sums = MFLOW_SUMS_COMPLETE;
		frag->sum = (__force u32)csum_partial(frag->data + ETH_HLEN, frag->bytes - ETH_HLEN, 0);
	} else {
		frag->sums = MFLOW_SUMS_VERIFIED;
		frag->sum = frame->sums;
	}
	return true;
}

static const struct mflow_request_ops mflow_trial_ops = {
	.build = mflow_trial_build_request,
	.drop = mflow_trial_drop_request,
	.frag = mflow_trial_frag,
};

/* Takes each packet of the devices, where the stack has it from GRO. */
static rx_handler_result_t mflow_trial_catch(struct sk_buff **pskb)
{
	struct mflow_trial *trial = rcu_dereference((*pskb)->dev->rx_handler_data);

	__skb_queue_tail(&trial->caught, *pskb);
	return RX_HANDLER_CONSUMED;
}

/* Returns room for so many bytes, or NULL. What follows is aligned. */
static void *mflow_trial_room(struct mflow_trial *trial, size_t bytes)
{
	size_t aligned = ALIGN(bytes, sizeof(u32));
	void *room = trial->out + trial->filled;

	if (MFLOW_TRIAL_OUT_BYTES - trial->filled < aligned)
		return NULL;
	memset(room + bytes, 0, aligned - bytes);
	trial->filled += aligned;
	return room;
}

static int mflow_trial_put_frame(struct mflow_trial *trial, const struct sk_buff *skb)
{
	void *room = mflow_trial_room(trial, sizeof(u32) + skb->len);
	u32 bytes = skb->len;

	if (!room)
		return -ENOSPC;
	memcpy(room, &bytes, sizeof(bytes));
	return skb_copy_bits(skb, 0, room + sizeof(bytes), bytes);
}

/*
 * Returns what the memory costs in which a fragment is: that of a frame, or the head that GRO has taken from a packet. The memory of a
 * packet that is gone may be that of a later one, so the last frame that has it is right.
 */
static unsigned int mflow_trial_fragment_cost(const struct mflow_trial *trial, const void *fragment)
{
	unsigned int i = trial->nr_frames;

	while (i--) {
		const struct mflow_trial_received *received = &trial->frames[i];

		if (!received->copied && (size_t)(fragment - received->data) < received->frame.bytes)
			return SKB_DATA_ALIGN(received->frame.bytes);
		if (received->head && (size_t)(fragment - received->head) < received->head_bytes)
			return SKB_HEAD_ALIGN(received->head_bytes);
	}
	return 0;
}

/* Returns what a packet costs without those behind it. */
static unsigned int mflow_trial_cost(const struct mflow_trial *trial, const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);
	unsigned int cost = SKB_TRUESIZE(skb_end_offset(skb));
	unsigned int i;

	for (i = 0; i < shared->nr_frags; i++)
		cost += mflow_trial_fragment_cost(trial, skb_frag_address(&shared->frags[i]));
	return cost;
}

/*
 * Returns the bytes by which the memory for which a joined packet counts, and each packet behind it, is not what they cost. The stack warns
 * of a packet that counts for less than its length.
 */
static u32 mflow_trial_memory_error(const struct mflow_trial *trial, const struct sk_buff *skb)
{
	unsigned int cost = mflow_trial_cost(trial, skb);
	const struct sk_buff *member;
	u32 error = 0;

	skb_walk_frags(skb, member) {
		unsigned int member_cost = mflow_trial_cost(trial, member);

		error += abs_diff(member->truesize, member_cost);
		cost += member_cost;
	}
	if (skb->truesize < skb->len)
		error += skb->len - skb->truesize;
	return error + abs_diff(skb->truesize, cost);
}

static void mflow_trial_describe(struct mflow_trial *trial, const struct sk_buff *skb,
				 struct mflow_trial_packet *packet)
{
	const struct skb_shared_info *shared = skb_shinfo(skb);

	if (!skb_is_gso(skb))
		return;
	packet->gso_segs = shared->gso_segs;
	packet->gso_size = shared->gso_size;
	packet->gso_type = shared->gso_type;
	/* The NIC's word for a list is that for its first frame, unless somebody has seen to that. */
	if (skb->ip_summed == CHECKSUM_PARTIAL)
		packet->sums = (skb_checksum_start_offset(skb) + skb->csum_offset) << 16 | CHECKSUM_PARTIAL;
	packet->network_at = skb_network_offset(skb);
	packet->transport_at = skb_transport_offset(skb);
	if (skb->encapsulation)
		packet->inner_at = skb_inner_network_offset(skb);
	packet->memory_error = mflow_trial_memory_error(trial, skb);
	trial->has_memory_error |= packet->memory_error != 0;
}

/* Notes a packet, which is gone then. */
static int mflow_trial_put(struct mflow_trial *trial, struct sk_buff *skb, bool apart)
{
	struct mflow_trial_packet *packet = mflow_trial_room(trial, sizeof(*packet));
	struct sk_buff *frames = NULL, *frame, *next;
	int err = -ENOSPC;

	if (!packet)
		goto free;
	memset(packet, 0, sizeof(*packet));
	skb_push(skb, skb->data - skb_mac_header(skb));
	mflow_trial_describe(trial, skb, packet);
	/* A list has headers beside those of the first. */
	if (skb_is_gso(skb) && (apart || skb_shinfo(skb)->gso_type & SKB_GSO_FRAGLIST)) {
		/* The module is called from there, and uses RCU and data of its CPU as the stack has them: with softirqs disabled. */
		local_bh_disable();
		frames = skb_gso_segment(skb, 0);
		local_bh_enable();
		err = PTR_ERR_OR_ZERO(frames);
		if (err || !frames) {
			frames = NULL;
			goto free;
		}
		skb_list_walk_safe(frames, frame, next) {
			err = mflow_trial_put_frame(trial, frame);
			if (err)
				goto free;
			packet->frames++;
		}
	} else {
		err = mflow_trial_put_frame(trial, skb);
		packet->frames = 1;
	}
free:
	kfree_skb_list(frames);
	kfree_skb(skb);
	return err;
}

/* Notes all packets that have come, adds the memory for which they count, and returns their number. */
static int mflow_trial_put_caught(struct mflow_trial *trial, bool apart, u32 *memory)
{
	int packets = 0, err = 0;
	struct sk_buff *skb;

	while ((skb = __skb_dequeue(&trial->caught))) {
		packets++;
		*memory += skb->truesize;
		if (err)
			kfree_skb(skb);
		else
			err = mflow_trial_put(trial, skb, apart);
	}
	return err ?: packets;
}

static u32 mflow_trial_tag(const struct mflow_trial *trial, const struct mflow_trial_frame *frame, unsigned int form)
{
	return MFLOW_KIND_SPLIT << MFLOW_KIND_SHIFT | (trial->slot + form) << MFLOW_SLOT_SHIFT | frame->flow;
}

/*
 * Returns how much more memory the lane's packets may count for because of this frame, of which @skb is the packet for GRO.
 *
 * Without payload in the heads of packets there is no difference: GRO and the lane make a fragment of each frame, and where there is no
 * room for one, the frame's packet goes behind. Of a head with payload GRO makes a fragment, too, beside that of the page. The lane has the
 * page alone, or puts the packet behind if the driver copies all. So their packets may be full at other frames, but GRO's are so first:
 * they have at least as many fragments of the same frames. For each frame for which only the lane has no room, GRO had none for one before
 * it, which is a fragment on the lane. If neither was copied, they cost the same. So the lane has one head more at most for each frame that
 * was.
 */
static u32 mflow_trial_allowance(const struct mflow_trial_frame *frame, const struct sk_buff *skb)
{
	return frame->flags & (MFLOW_TRIAL_COPIED | MFLOW_TRIAL_PULLED) ? SKB_TRUESIZE(skb_end_offset(skb)) : 0;
}

/*
 * Gives the frames to GRO, as a driver does in its poll. Each page has one more owner. A packet whose form a lane has chosen has the lane's
 * tag, too.
 */
static int mflow_trial_through_gro(struct mflow_trial *trial, unsigned int form)
{
	struct mflow_trial_received *received;
	struct sk_buff *skb;
	unsigned int i;
	int err = 0;

	local_bh_disable();
	for (i = 0; i < trial->nr_frames; i++) {
		received = &trial->frames[i];
		mflow_trial_get_page(received);
		skb = mflow_trial_build(received, trial->gro_dev, &trial->gro->napi);
		if (!skb) {
			err = -ENOMEM;
			break;
		}
		trial->allowance += mflow_trial_allowance(&received->frame, skb);
		if (form != MFLOW_FORM_SINGLE)
			skb->mflow = mflow_trial_tag(trial, &received->frame, form);
		mflow_worker_receive(trial->gro, skb, form);
	}
	mflow_worker_flush(trial->gro);
	local_bh_enable();
	return err;
}

/* Puts a frame into the lane's ring, which owns its page then. */
static int mflow_trial_to_lane(struct mflow_trial *trial, struct mflow_trial_received *received, unsigned int form)
{
	u32 tag = mflow_trial_tag(trial, &received->frame, form);
	struct mflow_request *request;
	struct sk_buff *skb;

	received->dev = trial->lane_dev;
	received->head = NULL;
	received->copied = false;
	received->owned = false;
	if (received->frame.flags & MFLOW_TRIAL_BUILT) {
		skb = mflow_trial_build(received, received->dev, &trial->gro->napi);
		if (!skb)
			return -ENOMEM;
		skb->mflow = tag;
		return mflow_trial_packet(trial->lane, skb) ? 0 : -ENOBUFS;
	}
	request = mflow_trial_request(trial->lane, tag, SKB_DATA_ALIGN(received->frame.bytes));
	if (!request) {
		received->owned = true;
		return -ENOBUFS;
	}
	request->ops = &mflow_trial_ops;
	request->driver[0] = (unsigned long)received;
	return 0;
}

/* Polls the lane until its ring is empty, as net_rx_action() does. */
static int mflow_trial_poll(struct mflow_worker *worker)
{
	struct napi_struct *napi = &worker->napi;

	if (!napi_schedule_prep(napi))
		return -EBUSY;
	/* There is less than two polls' work. */
	while (napi->poll(napi, NAPI_POLL_WEIGHT) == NAPI_POLL_WEIGHT)
		;
	return 0;
}

static int mflow_trial_through_lane(struct mflow_trial *trial, unsigned int form)
{
	unsigned int i;
	int err = 0;

	local_bh_disable();
	for (i = 0; i < trial->nr_frames && !err; i++)
		err = mflow_trial_to_lane(trial, &trial->frames[i], form);
	mflow_trial_publish(trial->lane);
	err = mflow_trial_poll(mflow_trial_worker(trial->lane)) ?: err;
	local_bh_enable();
	return err;
}

/* Returns memory for a frame, or NULL. */
static void *mflow_trial_alloc(struct mflow_trial *trial, const struct mflow_trial_frame *frame)
{
	struct page *page;

	if (!(frame->flags & MFLOW_TRIAL_POOLED))
		return page_frag_alloc(&trial->pages, frame->bytes, GFP_KERNEL);
	page = page_pool_alloc_pages(trial->pool, GFP_KERNEL);
	return page ? page_address(page) : NULL;
}

/* Takes the frames of a run from what was written. Returns the bytes that they had there. */
static ssize_t mflow_trial_receive(struct mflow_trial *trial, const u8 *in, size_t bytes)
{
	size_t at = 0;
	unsigned int i;

	for (i = 0; i < trial->nr_frames; i++) {
		struct mflow_trial_received *received = &trial->frames[i];
		struct mflow_trial_frame *frame = &received->frame;

		if (bytes - at < sizeof(*frame))
			return -EINVAL;
		memcpy(frame, in + at, sizeof(*frame));
		at += sizeof(*frame);
		if (frame->bytes < ETH_HLEN + 1 || frame->bytes > bytes - at || frame->flow >> MFLOW_SLOT_SHIFT)
			return -EINVAL;
		if (frame->flags & MFLOW_TRIAL_POOLED && frame->bytes > PAGE_SIZE)
			return -EINVAL;
		received->data = mflow_trial_alloc(trial, frame);
		if (!received->data)
			return -ENOMEM;
		received->owned = true;
		memcpy(received->data, in + at, frame->bytes);
		at += frame->bytes;
	}
	return at;
}

/*
 * Returns how many pages of the pool nobody has given back. A page that has come back while it had another owner is one of them: the pool
 * has let it go.
 */
static s64 mflow_trial_held_pages(const struct mflow_trial *trial)
{
	struct page_pool_stats stats = {};
	const struct page_pool_alloc_stats *given = &stats.alloc_stats;
	const struct page_pool_recycle_stats *back = &stats.recycle_stats;

	page_pool_get_stats(trial->pool, &stats);
	return given->fast + given->refill + given->slow - back->cached - back->ring - back->ring_full;
}

/* Sets the length below which GRO keeps a device's packets. Pairs with the reads in netif_get_gro_max_size(). */
static void mflow_trial_set_gro_max(struct net_device *dev, const struct mflow_trial_run *run)
{
	WRITE_ONCE(dev->gro_max_size, run->gro_max_bytes);
	WRITE_ONCE(dev->gro_ipv4_max_size, run->gro_ipv4_max_bytes);
}

/*
 * Carries the frames of a run through both, and notes what comes of them. Packets that are taken apart change what the slot says of the
 * form.
 */
static int mflow_trial_through_both(struct mflow_trial *trial, const struct mflow_trial_batch *batch,
				    struct mflow_trial_result *result)
{
	bool apart = batch->flags & MFLOW_TRIAL_APART;
	size_t begin = trial->filled, middle;
	u64 joined;
	s64 pages;
	int err;

	mflow_trial_set_form(trial->slot + batch->form, batch->form);
	err = mflow_trial_through_gro(trial, batch->form);
	if (err)
		return err;
	err = mflow_trial_put_caught(trial, apart, &result->gro_memory);
	if (err < 0)
		return err;
	result->packets = err;
	middle = trial->filled;

	joined = mflow_trial_joined(trial->lane);
	mflow_trial_set_form(trial->slot + batch->form, batch->form);
	err = mflow_trial_through_lane(trial, batch->form);
	if (err)
		return err;
	result->joined = mflow_trial_joined(trial->lane) - joined;
	err = mflow_trial_put_caught(trial, apart, &result->lane_memory);
	if (err < 0)
		return err;
	result->allowance = trial->allowance;
	pages = mflow_trial_held_pages(trial);
	result->held_pages = pages - trial->held_pages;
	trial->held_pages = pages;

	result->gro_bytes = middle - begin;
	result->lane_bytes = trial->filled - middle;
	if (batch->flags & MFLOW_TRIAL_QUIET && !trial->has_memory_error &&
	    result->gro_bytes == result->lane_bytes &&
	    !memcmp(trial->out + begin, trial->out + middle, result->gro_bytes)) {
		trial->filled = begin;
		result->gro_bytes = 0;
		result->lane_bytes = 0;
	}
	return 0;
}

/* Carries out a run. Returns the bytes that it had. */
static ssize_t mflow_trial_run(struct mflow_trial *trial, const struct mflow_trial_batch *batch, const u8 *in, size_t bytes)
{
	struct mflow_trial_result *result;
	struct mflow_trial_run run;
	unsigned int i;
	ssize_t read;
	int err;

	if (bytes < sizeof(run))
		return -EINVAL;
	memcpy(&run, in, sizeof(run));
	if (!run.frames || run.frames > MFLOW_TRIAL_FRAMES)
		return -EINVAL;
	if (run.gro_max_bytes > GRO_MAX_SIZE || run.gro_ipv4_max_bytes > GRO_MAX_SIZE)
		return -EINVAL;
	result = mflow_trial_room(trial, sizeof(*result));
	if (!result)
		return -ENOSPC;
	memset(result, 0, sizeof(*result));
	trial->nr_frames = run.frames;
	trial->allowance = 0;
	trial->has_memory_error = false;
	for (i = 0; i < trial->nr_frames; i++)
		trial->frames[i].owned = false;
	mflow_trial_set_gro_max(trial->gro_dev, &run);
	mflow_trial_set_gro_max(trial->lane_dev, &run);

	read = mflow_trial_receive(trial, in + sizeof(run), bytes - sizeof(run));
	err = read < 0 ? read : mflow_trial_through_both(trial, batch, result);
	if (!err)
		return sizeof(run) + read;

	__skb_queue_purge(&trial->caught);
	for (i = 0; i < trial->nr_frames; i++)
		if (trial->frames[i].owned)
			mflow_trial_put_page(&trial->frames[i]);
	return err;
}

static void mflow_trial_set_features(struct net_device *dev, u32 wanted)
{
	const netdev_features_t all = NETIF_F_GRO_FRAGLIST | NETIF_F_GRO_UDP_FWD;
	netdev_features_t features = 0;

	if (wanted & MFLOW_TRIAL_LISTS)
		features |= NETIF_F_GRO_FRAGLIST;
	if (wanted & MFLOW_TRIAL_FORWARDS)
		features |= NETIF_F_GRO_UDP_FWD;
	if ((dev->features & all) == features)
		return;
	rtnl_lock();
	dev->wanted_features = (dev->wanted_features & ~all) | features;
	netdev_update_features(dev);
	rtnl_unlock();
}

/* Carries out all runs of a write. The next read begins with the first of their results. */
static ssize_t mflow_trial_write(struct file *file, const char __user *from, size_t bytes, loff_t *pos)
{
	struct mflow_trial *trial = file->private_data;
	struct mflow_trial_batch batch;
	ssize_t err = 0;
	size_t at;

	if (bytes > MFLOW_TRIAL_IN_BYTES || bytes < sizeof(batch))
		return -EINVAL;
	mutex_lock(&trial->lock);
	trial->filled = 0;
	trial->taken = 0;
	if (copy_from_user(trial->in, from, bytes)) {
		err = -EFAULT;
		goto unlock;
	}
	memcpy(&batch, trial->in, sizeof(batch));
	if (batch.form > MFLOW_FORM_AGGREGATE) {
		err = -EINVAL;
		goto unlock;
	}
	mflow_trial_set_features(trial->gro_dev, batch.features);
	mflow_trial_set_features(trial->lane_dev, batch.features);
	for (at = sizeof(batch); at < bytes; at += err) {
		err = mflow_trial_run(trial, &batch, trial->in + at, bytes - at);
		if (err < 0)
			break;
		cond_resched();
	}
unlock:
	mutex_unlock(&trial->lock);
	return err < 0 ? err : bytes;
}

static ssize_t mflow_trial_read(struct file *file, char __user *to, size_t bytes, loff_t *pos)
{
	struct mflow_trial *trial = file->private_data;
	ssize_t read;

	mutex_lock(&trial->lock);
	read = min(bytes, trial->filled - trial->taken);
	if (copy_to_user(to, trial->out + trial->taken, read))
		read = -EFAULT;
	else
		trial->taken += read;
	mutex_unlock(&trial->lock);
	return read;
}

static netdev_tx_t mflow_trial_xmit(struct sk_buff *skb, struct net_device *dev)
{
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops mflow_trial_dev_ops = {
	.ndo_start_xmit = mflow_trial_xmit,
};

static void mflow_trial_del_device(struct net_device *dev)
{
	if (!dev)
		return;
	rtnl_lock();
	netdev_rx_handler_unregister(dev);
	unregister_netdevice(dev);
	rtnl_unlock();
	free_netdev(dev);
}

/* Adds a device to the caller's network namespace, whose tunnels are asked for what GRO gets. */
static struct net_device *mflow_trial_add_device(struct mflow_trial *trial)
{
	struct net_device *dev = alloc_netdev(0, "trial%d", NET_NAME_ENUM, ether_setup);
	int err;

	if (!dev)
		return NULL;
	dev->netdev_ops = &mflow_trial_dev_ops;
	dev_net_set(dev, current->nsproxy->net_ns);
	eth_hw_addr_random(dev);
	rtnl_lock();
	err = register_netdevice(dev);
	if (!err) {
		err = netdev_rx_handler_register(dev, mflow_trial_catch, trial);
		if (err)
			unregister_netdevice(dev);
	}
	rtnl_unlock();
	if (!err)
		return dev;
	free_netdev(dev);
	return NULL;
}

static void mflow_trial_free(struct mflow_trial *trial)
{
	if (trial->lane)
		mflow_trial_lane_stop(trial->lane);
	if (trial->gro)
		mflow_worker_destroy(trial->gro);
	mflow_trial_del_device(trial->gro_dev);
	mflow_trial_del_device(trial->lane_dev);
	page_frag_cache_drain(&trial->pages);
	page_pool_destroy(trial->pool);
	kvfree(trial->out);
	kvfree(trial->in);
	kvfree(trial);
}

static int mflow_trial_open(struct inode *inode, struct file *file)
{
	const struct page_pool_params pages = { .pool_size = MFLOW_TRIAL_FRAMES, .nid = NUMA_NO_NODE };
	struct mflow_trial *trial = kvzalloc(sizeof(*trial), GFP_KERNEL);
	unsigned int cpu = raw_smp_processor_id();

	if (!trial)
		return -ENOMEM;
	mutex_init(&trial->lock);
	trial->slot = (unsigned int)atomic_inc_return(&mflow_trials) % (MFLOW_SLOTS / MFLOW_TRIAL_FORMS) * MFLOW_TRIAL_FORMS;
	__skb_queue_head_init(&trial->caught);
	trial->in = kvmalloc(MFLOW_TRIAL_IN_BYTES, GFP_KERNEL);
	trial->out = kvmalloc(MFLOW_TRIAL_OUT_BYTES, GFP_KERNEL);
	trial->pool = page_pool_create(&pages);
	if (IS_ERR(trial->pool))
		trial->pool = NULL;
	trial->gro_dev = mflow_trial_add_device(trial);
	trial->lane_dev = mflow_trial_add_device(trial);
	trial->gro = mflow_worker_create(cpu, NULL, false);
	trial->lane = mflow_trial_lane_start(cpu);
	if (!trial->in || !trial->out || !trial->pool || !trial->gro_dev || !trial->lane_dev || !trial->gro || !trial->lane) {
		mflow_trial_free(trial);
		return -ENOMEM;
	}
	file->private_data = trial;
	return nonseekable_open(inode, file);
}

static int mflow_trial_release(struct inode *inode, struct file *file)
{
	mflow_trial_free(file->private_data);
	return 0;
}

static const struct file_operations mflow_trial_fops = {
	.owner = THIS_MODULE,
	.open = mflow_trial_open,
	.release = mflow_trial_release,
	.read = mflow_trial_read,
	.write = mflow_trial_write,
};

void mflow_trial_init(void)
{
	mflow_trial_file = debugfs_create_file("mflow_trial", 0600, NULL, NULL, &mflow_trial_fops);
}

void mflow_trial_exit(void)
{
	debugfs_remove(mflow_trial_file);
}
