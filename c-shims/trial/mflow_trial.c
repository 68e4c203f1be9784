// SPDX-License-Identifier: GPL-2.0
/*
 * The trial of the join (CONFIG_MFLOW_JOIN_TRIAL), for tests. A test writes runs of frames into a debugfs file. Each run goes through the
 * kernel's GRO, with a packet for each frame, and through a lane of its own, which joins frames. The test reads which packets have come
 * of it. Where lanes have GRO put datagrams into lists, both keep those behind it that GRO lets through (mflow_worker_receive_datagram()).
 *
 * What it writes, in the machine's byte order:
 *
 *	struct mflow_trial_batch, and then for each run
 *		u32, the number of its frames, and for each of these
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
 * @lane_bytes:	of those of the lane. 0 and 0: they are equal
 */
struct mflow_trial_result {
	u32	joined;
	u32	packets;
	u32	gro_bytes;
	u32	lane_bytes;
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
};

/* A frame as its driver has it. The request of the lane leads here. */
struct mflow_trial_received {
	struct mflow_trial_frame frame;
	struct net_device	*dev;
	void			*data;
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
	struct sk_buff_head	caught;
	struct mflow_trial_received frames[MFLOW_TRIAL_FRAMES];
	u8			*in;
	u8			*out;
	size_t			filled;
	size_t			taken;
};

static struct dentry *mflow_trial_file;
/* The number of trials that were opened. */
static atomic_t mflow_trials;

/* Makes a packet of a frame, as virtio_net does of a buffer. It owns the page then; if there is no memory, nobody does. */
static struct sk_buff *mflow_trial_build(const struct mflow_trial_received *received, struct net_device *dev,
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
		put_page(page);
		return NULL;
	}
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
	if (copied == frame->bytes)
		put_page(page);
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
	put_page(virt_to_head_page(mflow_trial_received(request)->data));
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
	frag->recycles = false;
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

static void mflow_trial_describe(const struct sk_buff *skb, struct mflow_trial_packet *packet)
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
	mflow_trial_describe(skb, packet);
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

/* Notes all packets that have come, and returns their number. */
static int mflow_trial_put_caught(struct mflow_trial *trial, bool apart)
{
	int packets = 0, err = 0;
	struct sk_buff *skb;

	while ((skb = __skb_dequeue(&trial->caught))) {
		packets++;
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
 * Gives the frames to GRO, as a driver does in its poll. Each page has one more owner. A packet whose form a lane has chosen has the lane's
 * tag, too.
 */
static int mflow_trial_through_gro(struct mflow_trial *trial, unsigned int frames, unsigned int form)
{
	struct sk_buff *skb;
	unsigned int i;
	int err = 0;

	local_bh_disable();
	for (i = 0; i < frames; i++) {
		get_page(virt_to_head_page(trial->frames[i].data));
		skb = mflow_trial_build(&trial->frames[i], trial->gro_dev, &trial->gro->napi);
		if (!skb) {
			err = -ENOMEM;
			break;
		}
		if (form != MFLOW_FORM_SINGLE)
			skb->mflow = mflow_trial_tag(trial, &trial->frames[i].frame, form);
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

static int mflow_trial_through_lane(struct mflow_trial *trial, unsigned int frames, unsigned int form)
{
	unsigned int i;
	int err = 0;

	local_bh_disable();
	for (i = 0; i < frames && !err; i++)
		err = mflow_trial_to_lane(trial, &trial->frames[i], form);
	mflow_trial_publish(trial->lane);
	err = mflow_trial_poll(mflow_trial_worker(trial->lane)) ?: err;
	local_bh_enable();
	return err;
}

/* Takes the frames of a run from what was written. Returns the bytes that they had there. */
static ssize_t mflow_trial_receive(struct mflow_trial *trial, const u8 *in, size_t bytes, unsigned int frames)
{
	size_t at = 0;
	unsigned int i;

	for (i = 0; i < frames; i++) {
		struct mflow_trial_received *received = &trial->frames[i];
		struct mflow_trial_frame *frame = &received->frame;

		if (bytes - at < sizeof(*frame))
			return -EINVAL;
		memcpy(frame, in + at, sizeof(*frame));
		at += sizeof(*frame);
		if (frame->bytes < ETH_HLEN + 1 || frame->bytes > bytes - at || frame->flow >> MFLOW_SLOT_SHIFT)
			return -EINVAL;
		received->data = page_frag_alloc(&trial->pages, frame->bytes, GFP_KERNEL);
		if (!received->data)
			return -ENOMEM;
		received->owned = true;
		memcpy(received->data, in + at, frame->bytes);
		at += frame->bytes;
	}
	return at;
}

/* Carries out a run. Returns the bytes that it had. Its packets, as they are taken apart, change what the slot says of the form. */
static ssize_t mflow_trial_run(struct mflow_trial *trial, const struct mflow_trial_batch *batch, const u8 *in, size_t bytes)
{
	bool apart = batch->flags & MFLOW_TRIAL_APART;
	struct mflow_trial_result *result;
	size_t begin, middle;
	unsigned int i;
	ssize_t read;
	u32 frames;
	u64 joined;
	int err;

	if (bytes < sizeof(frames))
		return -EINVAL;
	memcpy(&frames, in, sizeof(frames));
	if (!frames || frames > MFLOW_TRIAL_FRAMES)
		return -EINVAL;
	result = mflow_trial_room(trial, sizeof(*result));
	if (!result)
		return -ENOSPC;
	memset(result, 0, sizeof(*result));
	for (i = 0; i < frames; i++)
		trial->frames[i].owned = false;

	read = mflow_trial_receive(trial, in + sizeof(frames), bytes - sizeof(frames), frames);
	if (read < 0) {
		err = read;
		goto drop;
	}
	begin = trial->filled;
	mflow_trial_set_form(trial->slot + batch->form, batch->form);
	err = mflow_trial_through_gro(trial, frames, batch->form);
	if (err)
		goto drop;
	err = mflow_trial_put_caught(trial, apart);
	if (err < 0)
		goto drop;
	result->packets = err;
	middle = trial->filled;

	joined = mflow_trial_joined(trial->lane);
	mflow_trial_set_form(trial->slot + batch->form, batch->form);
	err = mflow_trial_through_lane(trial, frames, batch->form);
	if (err)
		goto drop;
	result->joined = mflow_trial_joined(trial->lane) - joined;
	err = mflow_trial_put_caught(trial, apart);
	if (err < 0)
		goto drop;
	result->gro_bytes = middle - begin;
	result->lane_bytes = trial->filled - middle;
	if (batch->flags & MFLOW_TRIAL_QUIET && result->gro_bytes == result->lane_bytes &&
	    !memcmp(trial->out + begin, trial->out + middle, result->gro_bytes)) {
		trial->filled = begin;
		result->gro_bytes = 0;
		result->lane_bytes = 0;
	}
	return sizeof(frames) + read;

drop:
	__skb_queue_purge(&trial->caught);
	for (i = 0; i < frames; i++)
		if (trial->frames[i].owned)
			put_page(virt_to_head_page(trial->frames[i].data));
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
	kvfree(trial->out);
	kvfree(trial->in);
	kvfree(trial);
}

static int mflow_trial_open(struct inode *inode, struct file *file)
{
	struct mflow_trial *trial = kvzalloc(sizeof(*trial), GFP_KERNEL);
	unsigned int cpu = raw_smp_processor_id();

	if (!trial)
		return -ENOMEM;
	mutex_init(&trial->lock);
	trial->slot = (unsigned int)atomic_inc_return(&mflow_trials) % (MFLOW_SLOTS / MFLOW_TRIAL_FORMS) * MFLOW_TRIAL_FORMS;
	__skb_queue_head_init(&trial->caught);
	trial->in = kvmalloc(MFLOW_TRIAL_IN_BYTES, GFP_KERNEL);
	trial->out = kvmalloc(MFLOW_TRIAL_OUT_BYTES, GFP_KERNEL);
	trial->gro_dev = mflow_trial_add_device(trial);
	trial->lane_dev = mflow_trial_add_device(trial);
	trial->gro = mflow_worker_create(cpu, NULL, false);
	trial->lane = mflow_trial_lane_start(cpu);
	if (!trial->in || !trial->out || !trial->gro_dev || !trial->lane_dev || !trial->gro || !trial->lane) {
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
