/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way through an unpatched kernel: what its files share, and what they give to the Rust half beyond
 * net/mflow.h and net/mflow_module.h.
 */
#ifndef _MFLOW_STOCK_H
#define _MFLOW_STOCK_H

#include <linux/bitops.h>
#include <linux/jump_label.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <net/mflow.h>

#include "mflow_way.h"

struct net;
struct net_device;

/* mflow_stock.c */
DECLARE_STATIC_KEY_FALSE(mflow_stock_key);
extern const struct mflow_ops __rcu *mflow_stock_ops;

void *mflow_alloc(size_t size, bool by_pages);
void mflow_free(void *memory);
void mflow_print(unsigned int level, const char *text, unsigned int len);
int mflow_switch_on(void);
void mflow_switch_off(bool drained);
void __noreturn mflow_bug(void);

/* The Rust half. */
int mflow_rust_init(void);
void mflow_rust_exit(void);
void mflow_run_park(void *collector);
void mflow_run_flush(struct mflow_source *source);
void mflow_packet_verify(struct sk_buff *skb);
void mflow_note_path_fault(unsigned int slot, unsigned int fault);
void mflow_note_receive_pkts(unsigned int slot, unsigned int pkts);
bool mflow_tag_may_come(u32 tag);

struct mflow_source *mflow_port_source(void *port);
struct mflow_request *mflow_take_requests(struct mflow_source *source, u16 protocol, const void *header,
					  unsigned int header_bytes, unsigned int memory_bytes, unsigned int *pkts);

/*
 * Of the word in IPv4's header that has fragment, hop limit and protocol: all but the hop limit. What is left is the protocol alone
 * if the packet is whole. <net/ip.h> has the flags.
 */
#define MFLOW_IPV4_WHOLE_MASK	(((IP_MF | IP_OFFSET) << 16) | 0xff)

/* mflow_xdp.c: the program in a device's driver that redirects packets to ours. */
struct mflow_xdp;

struct mflow_xdp *mflow_xdp_begin(struct net_device *nic, const struct net_device *to);
void mflow_xdp_pass(struct mflow_xdp *xdp);
void mflow_xdp_end(struct mflow_xdp *xdp);
void mflow_xdp_wait(void);

/* mflow_frames.c: packets that lanes build. */
struct net_device *mflow_frames_create(struct net_device *nic);
void mflow_frames_dispatch(struct net_device *dev, void *port);
void mflow_frames_destroy(struct net_device *dev);
bool mflow_frames_has_dispatched(const struct sk_buff *skb);

/* mflow_port.c: devices, and where packets are taken. */
bool mflow_port_lane_device(struct sk_buff *skb, bool datagrams);
int mflow_ports_hook(void);
void mflow_ports_gro_off(void);
void mflow_ports_unhook(void);
void mflow_device_lend_gro(const struct net_device *dev);
bool mflow_port_is_early(const struct net_device *dev);
bool mflow_port_is_at_or_below(struct net_device *dev);
bool mflow_napi_is_there(unsigned int napi_id);
bool mflow_device_has_napi_id(const struct net_device *dev);
int mflow_device_redirect(struct net_device *dev);
void mflow_device_dispatch_early(struct net_device *dev);
void mflow_device_end_redirect(struct net_device *dev);

/* mflow_ingress.c: the hook that takes them. */
bool mflow_runs_xdp(const struct net_device *dev);
void mflow_verify_as_gro(struct sk_buff *skb);

/* mflow_probe_hold.c: the order of the ordinary path around tags. */
bool mflow_hold_back(struct sk_buff *skb);
bool mflow_hold_back_on(unsigned int cpu, struct sk_buff *skb);
bool mflow_hold_is_clear(void);
void mflow_hold_begin(void);
void mflow_hold_wait(void);
void mflow_hold_end(void);
void mflow_hold_end_of(const struct net_device *dev);
int mflow_hold_init(void);
void mflow_hold_exit(void);

/* mflow_nets.c: what namespaces have while splitting is on. */
int mflow_nets_begin(void);
void mflow_nets_end(void);
int mflow_nets_init(void);
void mflow_nets_exit(void);

/* merge/mflow_frag.c: fragments of a datagram on several lanes. */
int mflow_frag_widen(struct net *net);
void mflow_frag_narrow(struct net *net, int was);

/* merge/mflow_readers.c: where readers run. */
void mflow_readers_exit(void);

/* mflow_run.c: what is there, until it is parked. */

/* The size of a collector (rust/algo/merge/lane_run.rs), of which zeros are an empty one. */
#define MFLOW_COLLECTOR_WORDS	8

void *mflow_run_here(void);
void mflow_run_schedule(void);
void mflow_run_flush_later(struct mflow_source *source);
void mflow_run_forget(struct mflow_source *source);
bool mflow_run_is_empty(unsigned int cpu);
int mflow_run_init(void);
void mflow_run_exit(void);

/* merge/mflow_merge.c: where they come back. */

/* The slots whose last packet was a datagram, a probe or a split one. Written where that changes. */
extern unsigned long mflow_datagrams[BITS_TO_LONGS(MFLOW_SLOTS)];

int mflow_merge_begin(struct net *net);
void mflow_merge_end(struct net *net);

/* merge/mflow_trust.c: the tags that are believed */
void mflow_probe_is_tagged(u32 tag);
bool mflow_probe_is_known(u32 tag);
bool mflow_probe_begins(u32 tag);

/* mflow_carry.c: between the two. */

/* The steps of a path to which it is looked at: a socket, the end of a tunnel, a route to elsewhere. */
enum mflow_step {
	MFLOW_STEP_SOCKET,
	MFLOW_STEP_TUNNEL,
	MFLOW_STEP_ROUTE,
	MFLOW_STEPS,
};

/**
 * struct mflow_looked - the paths that were looked at last
 * @dev:	the device to which they lead; it is only compared
 * @tick:	the tick in which they were looked at
 * @slots:	the slots whose paths they are, a bit for each
 */
struct mflow_looked {
	const struct net_device	*dev;
	u32			tick;
	u64			slots;
};

/* Batches of a slot whose packets may be under way on a CPU. */
#define MFLOW_OWED		4

/**
 * struct mflow_owed - a batch whose packets are under way on a CPU
 * @tag:	its tag; 0: there has been none
 * @pkts:	the packets on the wire that lanes have given, and that have not arrived
 * @since:	the number of packets that lanes had given before the first of these
 */
struct mflow_owed {
	u32	tag;
	u32	pkts;
	u32	since;
};

/**
 * struct mflow_carried - the packets that lanes have given to the stack on a CPU, and those that are not under way any more
 * @given:	packets on the wire; wraps
 * @arrived:	the same: those that have come to the merge point, or have been given up. The rest is @pkts of @owed together.
 * @tags:	for each slot, the tag that a lane has given last
 * @datagrams:	the slots whose packets were datagrams when the lane began its batch, a bit for each
 * @heir:	the CPU to which the kernel has moved this one's packets, as it is gone; MFLOW_NO_CPU: it is there, or about to go
 * @looked:	the paths that were looked at last, to each kind of step
 * @surplus_tick:	the tick from which on @surplus_pkts count
 * @surplus_given:	the value of @given at that tick
 * @surplus_pkts:	for each slot, packets that have come though no lane of this CPU waited for them
 * @owed:	for each slot, the batches whose packets are under way
 */
struct mflow_carried {
	u32	given;
	u32	arrived;
	u32	tags[MFLOW_SLOTS];
	u64	datagrams;
	u32	heir;
	struct mflow_looked	looked[MFLOW_STEPS];
	u32			surplus_tick;
	u32			surplus_given;
	u8			surplus_pkts[MFLOW_SLOTS];
	struct mflow_owed	owed[MFLOW_SLOTS][MFLOW_OWED];
};

DECLARE_PER_CPU(struct mflow_carried, mflow_carried);

/* Packets that a NAPI takes in one turn. */
#define MFLOW_TURN_PKTS		64

struct mflow_worker;

int mflow_receive_behind_hook(struct sk_buff *skb);
void mflow_owe(struct mflow_carried *carried, u32 tag, u32 pkts);
void mflow_worker_settle(struct mflow_worker *worker, u32 tag);
bool mflow_worker_has_settled(struct mflow_worker *worker);

/* mflow_cpu_change.c: where a worker has moved */
bool mflow_worker_follows(struct mflow_worker *worker);
int mflow_follow_init(void);
void mflow_follow_exit(void);

/* mflow_skb.c */

/**
 * struct mflow_skb_layout - the offsets, in bytes, of the fields of a packet that the Rust half reads for each, on this kernel
 * @len:	in struct sk_buff, as those that follow
 * @data_len:	see @len
 * @protocol:	see @len
 * @end:	see @len
 * @head:	see @len
 * @data:	see @len
 * @truesize:	see @len
 * @gso_size:	in struct skb_shared_info
 * @gso_segs:	the same
 */
struct mflow_skb_layout {
	u16	len;
	u16	data_len;
	u16	protocol;
	u16	end;
	u16	head;
	u16	data;
	u16	truesize;
	u16	gso_size;
	u16	gso_segs;
};

extern const struct mflow_skb_layout mflow_skb_layout;
u32 mflow_skb_tag(const struct sk_buff *skb);
void mflow_skb_set_tag(struct sk_buff *skb, u32 tag);
void mflow_skb_set_parked(struct sk_buff *skb, u32 amount);
u32 mflow_skb_take_parked(struct sk_buff *skb);
u16 mflow_skb_rx_queue(const struct sk_buff *skb);
bool mflow_skb_metadata(const struct sk_buff *skb, u8 *to, unsigned int bytes);

#ifndef CONFIG_NETWORK_SECMARK
#error "mflow needs a kernel whose packets have security marks (CONFIG_NETWORK_SECMARK)"
#endif

/*
 * A tag is in a packet's security mark, which goes along through tunnels, GRO, bridges and veths, to clones and segments, and which
 * nothing on the way looks at or chooses anything by. Rules of nft may write any number there, in each namespace: merge/mflow_trust.c
 * says which tags are believed. Labels for SELinux are small numbers, and no tags. 0: none.
 */
static inline u32 mflow_stock_tag(const struct sk_buff *skb)
{
	return MFLOW_WAY_TAG(skb);
}

static inline unsigned int mflow_stock_slot(u32 tag)
{
	return tag >> MFLOW_SLOT_SHIFT & (MFLOW_SLOTS - 1);
}

/* Returns this CPU's count of the batch, or NULL if no packet of the batch is under way on it. */
static inline struct mflow_owed *mflow_owed_find(struct mflow_carried *carried, u32 tag)
{
	struct mflow_owed *owed = carried->owed[mflow_stock_slot(tag)];
	unsigned int i;

	for (i = 0; i < MFLOW_OWED; i++)
		if (owed[i].tag == tag)
			return owed[i].pkts ? &owed[i] : NULL;
	return NULL;
}

/* Of two tags of one kind and slot: whether @tag's batch comes after @other's. */
static inline bool mflow_stock_is_after(u32 tag, u32 other)
{
	return (s32)((tag - other) << (32 - MFLOW_SLOT_SHIFT)) > 0;
}

static inline u32 mflow_stock_wire_pkts(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->gso_segs ?: 1;
}

#endif /* _MFLOW_STOCK_H */
