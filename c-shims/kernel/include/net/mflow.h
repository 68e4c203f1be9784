/* SPDX-License-Identifier: GPL-2.0 */
/*
 * mflow: hooks that let one flow use several CPUs. net/core/mflow.c hands them to the module that
 * registered struct mflow_ops. With no module, or with splitting switched off, each hook is one NOP
 * (static key). Contract of each hook: the table in c-shims/README.md of the project.
 *
 * skb->mflow has 32 bits. Their meaning depends on the packet's place:
 *
 *	in the stack, in a ring			its tag; 0: it belongs to no split flow
 *	in a ring of a mode of FALCON		the stage from which it goes on
 *	parked, until mflow_deliver()		the packets and the memory that it counts for, in 16 bits each
 *	first member of a list of datagrams	a sum of the list's head; the member's tag is the head's
 *
 * A tag:
 *
 *	bits 31-29  kind of tag, MFLOW_KIND_*; 0: not tagged
 *	bits 28-23  slot of the flow
 *	bits 22-0   micro-flow (batch) number, wraps
 */
#ifndef _NET_MFLOW_H
#define _NET_MFLOW_H

#include <linux/in6.h>
#include <linux/jump_label.h>
#include <linux/llist.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/skbuff.h>
#include <linux/time64.h>
#include <linux/timekeeping.h>
#include <linux/timer.h>
#include <linux/types.h>

struct dst_entry;
struct mflow_request;
struct napi_struct;
struct net;
struct net_device;
struct sock;
struct udp_table;

/* Version of everything between the hooks and the module. */
#define MFLOW_ABI		17

#define MFLOW_SLOT_SHIFT	23
#define MFLOW_KIND_SHIFT	29
/* Flows that can be split at once. */
#define MFLOW_SLOTS		64

#define MFLOW_KIND_NONE		0U	/* Not ours. */
#define MFLOW_KIND_SPLIT	1U	/* Carried by a lane, runs to completion. */
#define MFLOW_KIND_FENCE	2U	/* Last packet on the ordinary path before a split. */
#define MFLOW_KIND_PROBE	3U	/* Asks whether the flow ends at a merge point here. */
#define MFLOW_KIND_QUEUED	4U	/* Was split; something on the path queued it. */

/* Why a path does not suit a split flow. */
#define MFLOW_PATH_QUEUES	1U	/* Something queues packets: lanes gain nothing. */
#define MFLOW_PATH_ORDERED	2U	/* A step before the merge point needs their order. */

/*
 * Fragments of a datagram may come from several CPUs, which run apart by more
 * than ipfrag_max_dist; so may those without a tag, beside which lanes count
 * theirs. Identifiers come again after 65536 datagrams of two fragments at
 * least, before which an old queue has to be gone, with its tag.
 */
#define MFLOW_FRAG_DIST		32768U

/* The points at which a flow that is not split can go on to the next CPU. */
#define MFLOW_STAGE_NIC		1U	/* Behind the GRO of a NIC. */
#define MFLOW_STAGE_GRO		2U	/* Before it. */
#define MFLOW_STAGE_TUNNEL	3U	/* Behind a tunnel's header, before GRO. */
#define MFLOW_STAGE_VETH	4U	/* On the other side of a veth. */

/* The answers of a driver about a queue: which core builds its packets, and if no lane may, why. */
#define MFLOW_BUILDER_UNASKED	0U
#define MFLOW_BUILDER_LANE	1U
#define MFLOW_BUILDER_XDP	2U	/* XDP comes before that. */
#define MFLOW_BUILDER_AF_XDP	3U	/* They belong to a socket of AF_XDP. */
#define MFLOW_BUILDER_BUFFERS	4U	/* Buffers of a kind that cannot be handed over. */

/* The forms in which a lane's datagrams pass the stack. */
#define MFLOW_FORM_SINGLE	0U
#define MFLOW_FORM_LIST		1U	/* A list of packets, each a datagram with its headers. */
#define MFLOW_FORM_AGGREGATE	2U	/* One packet with the headers of the first, for sockets with UDP_GRO. */

/* GRO lets a list go that has so many datagrams: UDP_GRO_CNT_MAX, held against this in udp_offload.c. */
#define MFLOW_LIST_PKTS		64U

/* The answers of a driver about the checksums of a frame. */
#define MFLOW_SUMS_VERIFIED	0U	/* Some of them are verified, from the outermost one on. */
#define MFLOW_SUMS_COMPLETE	1U	/* The frame is summed, from the network header on. */

/**
 * struct mflow_frag - the frame of a request, as it would be a fragment of a packet
 * @dev:	the device that has received it
 * @data:	Ethernet's header
 * @page:	the page, of which the request has a reference
 * @bytes:	length of the frame
 * @memory_bytes: memory that the frame costs (truesize)
 * @recycles:	the page is that of a pool
 * @copies:	a packet of its own would be a copy, and cost less memory than the page
 * @sums:	%MFLOW_SUMS_VERIFIED or %MFLOW_SUMS_COMPLETE
 * @sum:	the number of checksums that are verified, or the sum
 * @note:	the driver's
 */
struct mflow_frag {
	struct net_device	*dev;
	void			*data;
	struct page		*page;
	unsigned int		bytes;
	unsigned int		memory_bytes;
	u8			recycles;
	u8			copies;
	u8			sums;
	u8			note;
	u32			sum;
};

/**
 * struct mflow_request_ops - the driver's work on requests, on any CPU
 * @build:	makes the packet and gives up what the request holds; NULL if it had to drop it, and
 *		has counted that. Called in the poll of @napi, which is a lane's.
 * @drop:	gives up what the request holds
 * @frag:	describes the frame; false if nothing is to be done but to build a packet. The request
 *		keeps what it holds.
 * @joined:	counts a frame that has become a fragment of a packet before it, which owns the page
 *		now; NULL: there is nothing to count
 */
struct mflow_request_ops {
	struct sk_buff *(*build)(struct mflow_request *request,
				 struct napi_struct *napi);
	void (*drop)(struct mflow_request *request);
	bool (*frag)(const struct mflow_request *request,
		     struct mflow_frag *frag);
	void (*joined)(const struct mflow_request *request,
		       const struct mflow_frag *frag);
};

/**
 * struct mflow_request - a packet that a driver has received and not built yet
 * @ops:	the driver's
 * @driver:	the data that the driver needs to build it: references that it owns, and nothing
 *		that the receive queue or its descriptors may change meanwhile
 * @memory_bytes: the module's
 *
 * netif_napi_del() waits for the requests of its NAPI.
 */
struct mflow_request {
	const struct mflow_request_ops *ops;
	u64		driver[6];
	unsigned int	memory_bytes;
};

/**
 * struct mflow_source - the head of what takes a NAPI's packets; the rest is the module's
 * @takes_requests: the next packet may be left to a lane. If not, there is no need to ask.
 * @rests: until the end of this poll, packets are none of the module's business
 */
struct mflow_source {
	bool		takes_requests;
	bool		rests;
};

/**
 * struct mflow_port - an opted-in device; the rest of it is the module's
 * @uses_gro: its driver gives packets to GRO
 * @splits_behind_gro: packets are taken behind GRO
 */
struct mflow_port {
	bool		uses_gro;
	bool		splits_behind_gro;
};

/**
 * struct mflow_ops - the work of the module at the hooks
 * @split_napi:	a packet of @source's NAPI is about to enter GRO. Owner of
 *		@skb on true: the module.
 * @builder:	@source's NAPI is being polled. Says whether a lane may build its packets,
 *		%MFLOW_BUILDER_LANE, or why not
 * @take_request: a packet of @source's NAPI has been received and not built: @header_bytes of
 *		it are at @header, from the network header on, and it will hold @memory_bytes. The
 *		place for its request, which is filled before the next call for @source, or NULL:
 *		build it.
 * @split_ingress: the same as @split_napi for packets of @port that never see GRO, or shall be
 *		split behind it: where RPS would choose a CPU.
 * @napi_flush:	@source's NAPI has handed on all it has for now. @ended: as a rule its NIC has no more.
 * @napi_del:	the NAPI goes away; sleeps until nothing refers to it.
 * @want_source: a packet came on an opted-in device through a NAPI that has no source yet.
 * @arrived:	a tagged packet, which was @pkts on the wire, has reached its
 *		socket, where it is merged. Owner of @skb, and of the reference that its destructor
 *		gives back if it has one, on true: the module.
 * @passed:	a socket takes this tagged packet out of turn: nothing may wait
 *		for it. The packet stays the caller's.
 * @unsuited:	changes the tag of a split packet or a probe that meets something for which its
 *		path does not suit (%MFLOW_PATH_QUEUES, ...). A split packet becomes a queued one:
 *		it may arrive after its lane's receive call has returned. A probe, which has its
 *		answer, loses its tag. The packet stays the caller's; locks may be held.
 * @copied:	makes a queued packet of a copy of a fence or of a queued packet, which is about to
 *		go its own way; locks may be held
 * @drain:	a reader of @sk is about to wait; true if it got something.
 * @hand_on:	an untagged packet that @lane carries has come to the end of a stage
 *		(%MFLOW_STAGE_TUNNEL, ...); @stages is what this CPU's field says. Owner of
 *		@skb on true: the module.
 * @list_begins: GRO lets go a list of datagrams, of either form
 * @list_ends:	a list of datagrams, of either form, is about to be taken apart. @skb begins at its transport header
 * @list_arrives: a list of datagrams, of either form, has come to a socket. @skb begins at its transport header
 * @is_merged:	true if the packets of a split flow are merged for @sk, which is being read, or
 *		come to it from a stage
 *
 * All but @napi_del run in softirq context or with softirqs disabled.
 */
struct mflow_ops {
	bool (*split_napi)(void *source, struct napi_struct *napi,
			   struct sk_buff *skb);
	void (*builder)(void *source, unsigned int builder);
	struct mflow_request *(*take_request)(void *source, u16 protocol,
					      const void *header,
					      unsigned int header_bytes,
					      unsigned int memory_bytes);
	bool (*split_ingress)(void *port, struct sk_buff *skb);
	void (*napi_flush)(void *source, bool ended);
	void (*napi_del)(struct napi_struct *napi);
	void (*want_source)(void *port);
	bool (*arrived)(struct sock *sk, struct sk_buff *skb, void *lane,
			unsigned int pkts);
	void (*passed)(struct sk_buff *skb);
	void (*unsuited)(struct sk_buff *skb, void *lane, unsigned int path);
	void (*copied)(struct sk_buff *skb);
	bool (*drain)(struct sock *sk);
	bool (*hand_on)(void *stages, void *lane, struct sk_buff *skb,
			unsigned int stage);
	void (*list_begins)(struct sk_buff *skb);
	void (*list_ends)(struct sk_buff *skb);
	void (*list_arrives)(const struct sock *sk, struct sk_buff *skb);
	bool (*is_merged)(struct sock *sk);
};

/* The queues that a split packet passes by. At the next one it waits like any other packet. */
#define MFLOW_DEPTH_MAX		3

/*
 * The packets that may wait to go on: some of a driver's, and a copy of each for every port of a bridge that
 * floods. A packet that finds no room takes the queue.
 */
#define MFLOW_ONWARD_MAX	8192

/**
 * struct mflow_route - the route to this host that the last packet of IPv4 found at one point of a path
 * @dst:	the route, without a reference: it is valid until the end of the lane's poll. NULL: none
 * @dev:	with the rest, what it was looked up by
 */
struct mflow_route {
	struct dst_entry	*dst;
	const struct net_device	*dev;
	__be32			saddr;
	__be32			daddr;
	u32			mark;
	u8			tos;
};

/* The same of IPv6. */
struct mflow_route6 {
	struct dst_entry	*dst;
	const struct net_device	*dev;
	struct in6_addr		saddr;
	struct in6_addr		daddr;
	u32			mark;
};

/**
 * struct mflow_cpu - the state that the hooks need on this CPU
 * @lane:	the lane that is polling right now, or NULL
 * @lane_stack:	a stack address at the start of that poll
 * @onward:	split packets that go on as soon as the stack has returned, or NULL: it has not been called
 * @depth:	queues that the packets which are carried now have passed by
 * @stack_max_bytes: deepest stack seen at a merge point, from @lane_stack on
 * @run_sk:	the socket to which a run of segments is being delivered, or NULL
 * @run_ready:	its reader is to be told at the end of the run that there is data
 * @stages:	the source that takes packets which @lane carries at the end of a stage, or NULL:
 *		no mode wants that
 * @freed_pkts:	packets that were freed here for readers on other CPUs
 * @freed_for_lanes_pkts: those of @freed_pkts that lanes elsewhere had no time for
 * @reader_tick: the tick in which a reader was last looked at here
 * @reader_ticks: the number of ticks in which it was one of a split flow's
 * @lane_form:	the form that GRO gives to datagrams of @lane (%MFLOW_FORM_SINGLE, ...)
 * @lane_sums:	@lane sums the checksums of datagrams in fragments, which readers sum otherwise
 * @looks_up:	the look-up of a socket that @lane will remember is under way
 * @routes:	routes that @lane's packets have found in this poll, by @depth
 * @routes6:	the same of IPv6
 */
struct mflow_cpu {
	void		*lane;
	unsigned long	lane_stack;
	struct sk_buff_head *onward;
	unsigned int	depth;
	unsigned int	stack_max_bytes;
	void		*stages;
	struct sock	*run_sk;
	bool		run_ready;
	u8		lane_form;
	bool		lane_sums;
	bool		looks_up;
	u64		freed_pkts;
	u64		freed_for_lanes_pkts;
	u32		reader_tick;
	u32		reader_ticks;
	struct mflow_route routes[MFLOW_DEPTH_MAX + 1];
	struct mflow_route6 routes6[MFLOW_DEPTH_MAX + 1];
};

/* Memory of the packets that wait to be freed on one CPU; each reader may add one more. */
#define MFLOW_RETURNED_MAX	(1 << 20)

/**
 * struct mflow_returned - packets that readers leave to the CPU that has built them: it frees them when
 * its lanes have nothing else to do, or lanes elsewhere do
 * @packets:	pushed by readers, in process context on any CPU; taken all at once, by a lane's poll
 *		on this CPU, by one on any CPU once the list has been full, or by @timer on any
 * @rest:	what a poll has taken and not freed; for the next one of these
 * @bytes:	their memory
 * @timer:	frees what no poll has freed for long
 * @lanes:	lanes on this CPU; readers leave nothing to a CPU without
 */
struct mflow_returned {
	struct llist_head	packets;
	struct llist_node	*rest;
	atomic_t		bytes;
	struct timer_list	timer;
	unsigned int		lanes;
} ____cacheline_aligned_in_smp;

/* So much of a packet is looked at: all headers of a tunnel and of what it carries (OVERLAY_HEADER_BYTES). */
#define MFLOW_REQUEST_HEADER	192U

DECLARE_PER_CPU(struct mflow_cpu, mflow_cpu);
extern bool mflow_readers_watched;
extern bool mflow_gro_lists_looked_at;
DECLARE_PER_CPU(struct mflow_returned, mflow_returned);

/* Calls of these are dead code if the hooks are off at build time. */
bool __mflow_split_napi(struct napi_struct *napi, struct sk_buff *skb);
struct mflow_source *__mflow_request_source(struct napi_struct *napi,
					    unsigned int builder);
struct mflow_request *mflow_take_request(struct mflow_source *source,
					 __be16 protocol, const void *header,
					 unsigned int header_bytes,
					 unsigned int memory_bytes);
bool __mflow_split_ingress(struct sk_buff *skb);
void __mflow_split_list(struct list_head *head);
void __mflow_napi_flush(struct napi_struct *napi, bool ended);
bool __mflow_merge(struct sock *sk, struct sk_buff *skb);
bool __mflow_merge_tcp(struct sock *sk, struct sk_buff *skb, bool refcounted);
bool __mflow_merge_handshake(struct sock *listener, struct sk_buff *skb);
void __mflow_note_unsuited(struct sk_buff *skb, unsigned int path);
void __mflow_note_copied(struct sk_buff *skb);
void __mflow_note_passed(struct sk_buff *skb);
void __mflow_list_begins(struct sk_buff *skb);
void __mflow_list_ends(struct sk_buff *skb);
void __mflow_list_arrives(const struct sock *sk, struct sk_buff *skb);
void __mflow_route_use(struct sk_buff *skb, const struct net_device *dev);
void __mflow_route_note(const struct sk_buff *skb,
			const struct net_device *dev);
void __mflow_route6_use(struct sk_buff *skb);
void __mflow_route6_note(const struct sk_buff *skb);
struct sock *mflow_receiver_use(const struct net *net, __be32 saddr,
				__be16 sport, __be32 daddr, __be16 dport,
				int dif, int sdif,
				const struct udp_table *table);
void mflow_receiver_note(struct sock *sk, const struct net *net, __be32 saddr,
			 __be16 sport, __be32 daddr, __be16 dport, int dif,
			 int sdif, const struct udp_table *table);
struct sock *mflow_receiver6_use(const struct net *net,
				 const struct in6_addr *saddr, __be16 sport,
				 const struct in6_addr *daddr, __be16 dport,
				 int dif, int sdif,
				 const struct udp_table *table);
void mflow_receiver6_note(struct sock *sk, const struct net *net,
			  const struct in6_addr *saddr, __be16 sport,
			  const struct in6_addr *daddr, __be16 dport, int dif,
			  int sdif, const struct udp_table *table);
bool __mflow_drain(struct sock *sk);
void __mflow_note_reader(struct sock *sk);
bool __mflow_ready_later(struct sock *sk);
bool __mflow_gro_alone(struct napi_struct *napi, struct sk_buff *skb);
bool __mflow_hand_on(struct sk_buff *skb, unsigned int stage);
bool __mflow_return(struct sk_buff *skb);
int mflow_put_onward(struct sk_buff *skb);
void __mflow_leave_stack(void);
void udp_queue_rcv_run(struct sock *sk, struct sk_buff_head *run);

/* For the module. */
int mflow_register(const struct mflow_ops *ops);
void mflow_unregister(void);
void mflow_set_enabled(bool enabled);
void mflow_look_at_gro_lists(bool look);
void mflow_napi_gro_flush(struct napi_struct *napi);
void mflow_receive_skb(struct sk_buff *skb);
void mflow_lookups_forget(void);
bool mflow_free_returned(void);
bool mflow_returned_is_full(void);
void mflow_watch_readers(bool watch);
bool mflow_cpus_share_cache(unsigned int cpu, unsigned int other);
bool mflow_sock_is_by_cpu(const struct sock *sk);
u32 mflow_sock_receive_bytes(const struct sock *sk);
u64 mflow_deliver(struct sk_buff *first, u64 *stamp_ns);

#ifdef CONFIG_MFLOW_HOOKS

DECLARE_STATIC_KEY_FALSE(mflow_key);

void mflow_napi_init(struct napi_struct *napi);
void mflow_napi_del(struct napi_struct *napi);

static inline bool mflow_is_on(void)
{
	return static_branch_unlikely(&mflow_key);
}

static inline u32 mflow_tag_get(const struct sk_buff *skb)
{
	return READ_ONCE(skb->mflow);
}

/*
 * True: the module has nothing to do with @skb. Either @napi's source rests, and the packet has no tag; or @napi has no
 * source, and the packet's device is not opted in.
 */
static inline bool mflow_passes_by(const struct napi_struct *napi,
				   const struct sk_buff *skb)
{
	const struct mflow_source *source = READ_ONCE(napi->mflow_source);

	if (!source)
		return !READ_ONCE(skb->dev->mflow_port);
	return READ_ONCE(source->rests) && !mflow_tag_get(skb);
}

static inline void mflow_tag_clear(struct sk_buff *skb)
{
	skb->mflow = 0;
}

static inline void mflow_tag_copy(struct sk_buff *to,
				  const struct sk_buff *from)
{
	to->mflow = from->mflow;
}

/*
 * A reassembled datagram takes the tag of the fragment that completed it; but probes and fences are
 * one of a kind, and stand for the whole datagram. (Macros: inet_frag_queue is not known here.)
 */
static inline u32 mflow_frag_tag(u32 kept, u32 tag)
{
	switch (tag >> MFLOW_KIND_SHIFT) {
	case MFLOW_KIND_FENCE:
	case MFLOW_KIND_PROBE:
		return tag;
	default:
		return kept ?: tag;
	}
}

static inline u32 mflow_frag_result(u32 kept, u32 tag)
{
	switch (kept >> MFLOW_KIND_SHIFT) {
	case MFLOW_KIND_FENCE:
	case MFLOW_KIND_PROBE:
		return kept;
	default:
		return tag;
	}
}

#define mflow_frag_note(q, skb)						\
	((q)->mflow = mflow_frag_tag((q)->mflow, (skb)->mflow))

#define mflow_frag_reassembled(q, head, tag)				\
	((head)->mflow = mflow_frag_result((q)->mflow, tag))

#define mflow_frag_forget(q)		((q)->mflow = 0)

/* The value that applies as ipfrag_max_dist; 0 is no limit. */
#define mflow_frag_dist(q, dist)					\
	((dist) && (mflow_is_on() || (q)->mflow) ?			\
	 max_t(unsigned int, dist, MFLOW_FRAG_DIST) : (dist))

#else /* !CONFIG_MFLOW_HOOKS */

static inline void mflow_napi_init(struct napi_struct *napi) { }
static inline void mflow_napi_del(struct napi_struct *napi) { }

static inline bool mflow_is_on(void)
{
	return false;
}

static inline u32 mflow_tag_get(const struct sk_buff *skb)
{
	return 0;
}

static inline bool mflow_passes_by(const struct napi_struct *napi,
				   const struct sk_buff *skb)
{
	return false;
}

static inline void mflow_tag_clear(struct sk_buff *skb) { }
static inline void mflow_tag_copy(struct sk_buff *to,
				  const struct sk_buff *from) { }

#define mflow_frag_note(q, skb)		((void)(q), (void)(skb))
#define mflow_frag_reassembled(q, head, tag)				\
	((void)(q), (void)(head), (void)(tag))
#define mflow_frag_forget(q)		((void)(q))
#define mflow_frag_dist(q, dist)	((void)(q), dist)

#endif /* CONFIG_MFLOW_HOOKS */

static inline u32 mflow_tag_differs(const struct sk_buff *a,
				    const struct sk_buff *b)
{
	return mflow_tag_get(a) ^ mflow_tag_get(b);
}

static inline unsigned int mflow_kind(const struct sk_buff *skb)
{
	return mflow_tag_get(skb) >> MFLOW_KIND_SHIFT;
}

/*
 * Packets that are not tagged pass most hooks with this comparison alone. READ_ONCE() in mflow_tag_get()
 * keeps the compiler from putting it together with the one of the kind, which takes more.
 */
static inline bool mflow_is_tagged(const struct sk_buff *skb)
{
	return mflow_is_on() && likely(mflow_tag_get(skb));
}

static inline bool mflow_split_napi(struct napi_struct *napi,
				    struct sk_buff *skb)
{
	return mflow_is_on() && unlikely(!mflow_passes_by(napi, skb)) &&
	       __mflow_split_napi(napi, skb);
}

/*
 * Returns the source that takes requests of @napi, which is being polled, for as long as the
 * poll lasts; NULL: there is none, or it rests. For packets of the NAPI's own device. @builder:
 * MFLOW_BUILDER_LANE, or why not.
 */
static inline struct mflow_source *
mflow_request_source(struct napi_struct *napi, unsigned int builder)
{
	return mflow_is_on() ? __mflow_request_source(napi, builder) : NULL;
}

/* Cheap test before mflow_take_request(). */
static inline bool mflow_takes_request(const struct mflow_source *source)
{
	return mflow_is_on() && source && READ_ONCE(source->takes_requests);
}

/* Cheap test before work that only mflow_split_napi() needs. */
static inline bool mflow_wants(const struct napi_struct *napi,
			       const struct sk_buff *skb)
{
	return mflow_is_on() && !mflow_passes_by(napi, skb);
}

static inline bool mflow_split_ingress(struct sk_buff *skb)
{
	return mflow_is_on() && __mflow_split_ingress(skb);
}

/* @is_of_gro: GRO has made the list. */
static inline void mflow_split_list(struct list_head *head, bool is_of_gro)
{
	if (mflow_is_on() &&
	    (!is_of_gro || READ_ONCE(mflow_gro_lists_looked_at)))
		__mflow_split_list(head);
}

static inline void mflow_napi_flush(struct napi_struct *napi)
{
	if (mflow_is_on())
		__mflow_napi_flush(napi, false);
}

/* The same where the NAPI ends its polls for now. */
static inline void mflow_napi_ended(struct napi_struct *napi)
{
	if (mflow_is_on())
		__mflow_napi_flush(napi, true);
}

static inline bool mflow_merge(struct sock *sk, struct sk_buff *skb)
{
	return mflow_is_tagged(skb) && __mflow_merge(sk, skb);
}

/* True: the module has @skb and the caller's reference to @sk. */
static inline bool mflow_merge_tcp(struct sock *sk, struct sk_buff *skb,
				   bool refcounted)
{
	return mflow_is_tagged(skb) && __mflow_merge_tcp(sk, skb, refcounted);
}

static inline bool mflow_drain(struct sock *sk)
{
	return mflow_is_on() && __mflow_drain(sk);
}

/* A reader wants what has come to a socket; the module may want to know on which CPUs readers run. */
static inline void mflow_note_reader(struct sock *sk)
{
	if (mflow_is_on() && READ_ONCE(mflow_readers_watched))
		__mflow_note_reader(sk);
}

/* True: the reader is told at the end of the run of segments. */
static inline bool mflow_ready_later(struct sock *sk)
{
	return mflow_is_on() && __mflow_ready_later(sk);
}

/* A packet whose CPU is settled: RPS must not move it. */
static inline bool mflow_is_split(const struct sk_buff *skb)
{
	return mflow_is_tagged(skb) && mflow_kind(skb) == MFLOW_KIND_SPLIT;
}

/* Before a route is looked up: a packet of a split flow takes that of the one before it. */
static inline void mflow_route_use(struct sk_buff *skb,
				   const struct net_device *dev)
{
	if (mflow_is_split(skb))
		__mflow_route_use(skb, dev);
}

/* Behind a look-up. */
static inline void mflow_route_note(const struct sk_buff *skb,
				    const struct net_device *dev)
{
	if (mflow_is_split(skb))
		__mflow_route_note(skb, dev);
}

static inline void mflow_route6_use(struct sk_buff *skb)
{
	if (mflow_is_split(skb))
		__mflow_route6_use(skb);
}

static inline void mflow_route6_note(const struct sk_buff *skb)
{
	if (mflow_is_split(skb))
		__mflow_route6_note(skb);
}

/* A lane polls on this CPU. Process context sees none: it goes on when the poll has ended. */
static inline bool mflow_is_lane(void)
{
	return mflow_is_on() && likely(this_cpu_read(mflow_cpu.lane));
}

/* The form of the datagram that GRO gets now: a lane has said so, for the packet that it gives to GRO. */
static inline unsigned int mflow_lane_form(void)
{
	return mflow_is_on() ? this_cpu_read(mflow_cpu.lane_form) :
			       MFLOW_FORM_SINGLE;
}

/* Behind GRO's work on a list of datagrams, of either form. */
static inline void mflow_list_begins(struct sk_buff *skb)
{
	if (mflow_is_split(skb))
		__mflow_list_begins(skb);
}

/* Before a list of datagrams, of either form, is taken apart. Something on its way may have queued it. */
static inline void mflow_list_ends(struct sk_buff *skb)
{
	if (mflow_is_tagged(skb))
		__mflow_list_ends(skb);
}

/* Behind a look-up, before the socket takes a packet or has it taken apart. */
static inline void mflow_list_arrives(const struct sock *sk,
				      struct sk_buff *skb)
{
	if (mflow_is_tagged(skb) && skb_is_gso(skb))
		__mflow_list_arrives(sk, skb);
}

/* Before a look-up. True: a lane looks up a socket, and goes the way that remembers sockets. */
static inline bool mflow_remembers_receiver(void)
{
	return mflow_is_lane() && !this_cpu_read(mflow_cpu.looks_up);
}

static inline void mflow_set_looks_up(bool looks_up)
{
	this_cpu_write(mflow_cpu.looks_up, looks_up);
}

static inline bool mflow_is_probe(const struct sk_buff *skb)
{
	return mflow_is_tagged(skb) && mflow_kind(skb) == MFLOW_KIND_PROBE;
}

/*
 * Around the outermost call of the stack. True: mflow_leave_stack() is to receive what has been put onward.
 * Softirqs stay disabled in between, so process context is never in there.
 */
static inline bool mflow_enter_stack(struct sk_buff_head *onward)
{
	if (!mflow_is_on() || this_cpu_read(mflow_cpu.onward) || !in_softirq())
		return false;
	__skb_queue_head_init(onward);
	this_cpu_write(mflow_cpu.onward, onward);
	return true;
}

static inline void mflow_leave_stack(bool entered)
{
	if (entered)
		__mflow_leave_stack();
}

/* True: hand @skb to mflow_put_onward() instead of a per-CPU queue. */
static inline bool mflow_is_direct(const struct sk_buff *skb)
{
	const struct sk_buff_head *onward;

	if (!mflow_is_split(skb))
		return false;
	onward = this_cpu_read(mflow_cpu.onward);
	return onward && skb_queue_len(onward) < MFLOW_ONWARD_MAX &&
	       this_cpu_read(mflow_cpu.depth) < MFLOW_DEPTH_MAX;
}

/* Cheap test before work that only mflow_hand_on() needs. */
static inline bool mflow_may_hand_on(void)
{
	return mflow_is_on() && this_cpu_read(mflow_cpu.stages);
}

/* True: the module, and with it the CPU of the next stage, has @skb. */
static inline bool mflow_hand_on(struct sk_buff *skb, unsigned int stage)
{
	return mflow_may_hand_on() && __mflow_hand_on(skb, stage);
}

/*
 * A reader has done with a datagram. True: a lane's poll or a timer frees it. That is done on the CPU that has
 * built the datagram if lanes there have time.
 */
static inline bool mflow_return(struct sk_buff *skb)
{
	return mflow_is_on() && __mflow_return(skb);
}

/*
 * Before a packet is put on a queue that others may take it from. A probe says so before anything
 * is split.
 */
static inline void mflow_note_queued(struct sk_buff *skb)
{
	if (mflow_is_tagged(skb) &&
	    (mflow_is_split(skb) || mflow_is_probe(skb)))
		__mflow_note_unsuited(skb, MFLOW_PATH_QUEUES);
}

/* The same for the queues that split packets pass by, but those that are nested too deep. */
static inline void mflow_note_backlog(struct sk_buff *skb)
{
	if (mflow_is_split(skb))
		__mflow_note_unsuited(skb, MFLOW_PATH_QUEUES);
}

/* Before a step that drops or delays what comes out of order. */
static inline void mflow_note_ordered(struct sk_buff *skb)
{
	if (mflow_is_split(skb) || mflow_is_probe(skb))
		__mflow_note_unsuited(skb, MFLOW_PATH_ORDERED);
}

/* A packet that the merger waits for by itself. */
static inline bool mflow_is_awaited(const struct sk_buff *skb)
{
	return mflow_is_tagged(skb) &&
	       (mflow_kind(skb) == MFLOW_KIND_FENCE ||
		mflow_kind(skb) == MFLOW_KIND_QUEUED);
}

/* Before a clone goes its own way to a socket. */
static inline void mflow_note_copied(struct sk_buff *skb)
{
	if (mflow_is_awaited(skb))
		__mflow_note_copied(skb);
}

/* Notes that the part of @skb that goes on reaches no merge point. */
static inline void mflow_note_passed(struct sk_buff *skb)
{
	if (mflow_is_awaited(skb))
		__mflow_note_passed(skb);
}

/*
 * A queued packet is waited for as what it was on the wire, which its segments are. Of a fence the
 * last segment stands for the packet that they were, the others are copies.
 */
static inline void mflow_note_segments(struct sk_buff *segs)
{
	if (!mflow_is_on() || IS_ERR_OR_NULL(segs) ||
	    mflow_kind(segs) != MFLOW_KIND_FENCE)
		return;
	for (; segs->next; segs = segs->next)
		mflow_note_copied(segs);
}

/*
 * Lanes stamp packets as they come to them, and readers rely on stamps that only grow. A packet that is to
 * be delivered has no stamp before @stamp_ns, which becomes the latest of all. What is back by more than
 * lanes wait for each other is a clock that was set. So is a latest stamp that is still to come: the packets
 * that follow are not to have that time until it has come.
 */
static inline void mflow_stamp_in_order(struct sk_buff *skb, u64 *stamp_ns)
{
	u64 stamp = skb->tstamp;

	if (likely(!stamp))
		return;
	if (*stamp_ns - stamp < NSEC_PER_SEC &&
	    *stamp_ns <= ktime_get_real_ns())
		skb->tstamp = *stamp_ns;
	else
		*stamp_ns = stamp;
}

/*
 * GRO does not join fences, probes and queued packets with others, and they do
 * not overtake what it holds.
 */
static inline bool mflow_gro_alone(struct napi_struct *napi,
				   struct sk_buff *skb)
{
	return mflow_is_tagged(skb) && __mflow_gro_alone(napi, skb);
}

#endif /* _NET_MFLOW_H */
