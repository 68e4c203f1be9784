/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's C and Rust halves, as each sees the other. It lies with the kernel's headers because
 * bindgen reads it there: the Rust half is checked against these prototypes.
 */
#ifndef _NET_MFLOW_MODULE_H
#define _NET_MFLOW_MODULE_H

#include <linux/numa.h>
#include <linux/types.h>
#include <net/mflow.h>

struct mflow_worker;
struct net_device;
struct sock_filter;

enum {
	MFLOW_HZ		= HZ,
};

/* Of its own: with it, bindgen takes all of an enum for signed. */
enum {
	MFLOW_NO_NODE		= NUMA_NO_NODE,
};

/* The packets of a device that something watches which would see a list of datagrams as one packet. */
#define MFLOW_WATCH_NOTHING	0U
#define MFLOW_WATCH_FILTERED	1U	/* Those that the filters of packet sockets let through. */
#define MFLOW_WATCH_ALL		2U

/**
 * struct mflow_cpu_times - the time of a CPU by kind of work since boot, in microseconds
 * @at_us:	the time of the look-up
 * @idle_us:	without work, exactly; U64_MAX if the kernel cannot tell
 * @softirq_us:	in softirqs, as ticks have met them
 * @interrupt_us: in hard interrupts
 * @guest_us:	in guests of a hypervisor, and taken by the one below
 * @task_us:	in tasks
 */
struct mflow_cpu_times {
	u64	at_us;
	u64	idle_us;
	u64	softirq_us;
	u64	interrupt_us;
	u64	guest_us;
	u64	task_us;
};

/**
 * struct mflow_cpu_place - the place of a CPU
 * @usable:	it is online, and nobody has isolated it: isolcpus, nohz_full, a partition of cpusets
 * @node:	its NUMA node
 * @reader_ticks: the number of ticks in which a reader of a split flow was seen there; wraps
 */
struct mflow_cpu_place {
	bool	usable;
	int	node;
	u32	reader_ticks;
};

/* The rules by which GRO has the identifiers of IPv4 go on (struct mflow_held). */
#define MFLOW_ID_RULE_PACKET	0	/* one bit for the packet; not looked at: an outer header with don't-fragment */
#define MFLOW_ID_RULE_INNERMOST	1	/* a bit for the innermost header alone; not looked at: the same */
#define MFLOW_ID_RULE_EACH	2	/* a bit for each header, the outermost one's first; each is looked at */

/**
 * struct mflow_held - a packet that GRO holds
 * @skb:	the packet
 * @headers:	its bytes from Ethernet's header on
 * @linear_bytes: this many of them are there
 * @outer_at:	the network header of a tunnel's packet; 0 if it is none
 * @network_at:	the network header of the packet that ends at a socket
 * @transport_at: the header behind that
 * @bytes:	all of it, from Ethernet's header on
 * @limit_bytes: it has less than that, always
 * @frame_payload_bytes: the payload of each frame
 * @frames:	the number of its frames
 * @room_frames: GRO would join this many frames, and go on to hold the packet
 * @room_fragments: of this many frames the payload can be a fragment
 * @summed:	the NIC has summed it
 * @list:	it is a list of datagrams
 * @id_rule:	how identifiers of IPv4 go on (%MFLOW_ID_RULE_PACKET, ...)
 * @fixed_ids:	by that rule, the headers in which all have the identifier of the first, a bit for each
 */
struct mflow_held {
	struct sk_buff	*skb;
	const void	*headers;
	unsigned int	linear_bytes;
	unsigned int	outer_at;
	unsigned int	network_at;
	unsigned int	transport_at;
	unsigned int	bytes;
	unsigned int	limit_bytes;
	unsigned int	frame_payload_bytes;
	u16		frames;
	u16		room_frames;
	u16		room_fragments;
	bool		summed;
	bool		list;
	u8		id_rule;
	u8		fixed_ids;
};

/**
 * struct mflow_change - a flow that begins to be split, or stops
 * @device:	the name of the device that it comes through, without NUL
 * @reason:	the name of the reason why it stops, without NUL
 * @words:	the reason in words, without NUL
 * @from:	the outer address of its sender
 * @to:		that of its receiver
 * @device_bytes: the length of the device's name
 * @reason_bytes: the length of the reason's name
 * @words_bytes: the length of the words
 * @address_bytes: the length of each address: 4, 16, or 0 if addresses, ports and protocol are unknown
 * @cpu:	the CPU that dispatches it
 * @pps:	its packets per second
 * @lost:	the number of changes just before this one for which there was no room
 * @from_port:	the outer port of its sender
 * @to_port:	that of its receiver
 * @queue:	the device's receive queue
 * @protocol:	UDP's or TCP's number
 * @has_queue:	the queue is known
 * @has_pps:	the rate is known
 * @begins:	it begins to be split; else it stops
 */
struct mflow_change {
	const char		*device;
	const char		*reason;
	const char		*words;
	const void		*from;
	const void		*to;
	unsigned int		device_bytes;
	unsigned int		reason_bytes;
	unsigned int		words_bytes;
	unsigned int		address_bytes;
	u32			cpu;
	u32			pps;
	u32			lost;
	u16			from_port;
	u16			to_port;
	u16			queue;
	u8			protocol;
	bool			has_queue;
	bool			has_pps;
	bool			begins;
};

/* Module parameters by name, debugfs files by the number that they are given. */
int mflow_param(const char *name, const char **value);
int mflow_files_create(void);
void mflow_files_remove(void);
int mflow_file_add(const char *name, umode_t mode, unsigned int file);
void mflow_complain(const char *text, unsigned int len);

/* The files over netlink, and notifications of changes. They are sent under the module's own lock. */
int mflow_netlink_register(void);
void mflow_netlink_unregister(void);
bool mflow_changes_wanted(void);
bool mflow_tell_change(const struct mflow_change *change);
void mflow_tell_soon(void);

/* Events, for those who trace. mflow_merges_traced is not 0 while somebody listens to merges. */
extern unsigned int mflow_merges_traced;
bool mflow_flows_traced(void);
void mflow_trace_flow(const struct net_device *dev,
		      const struct mflow_change *change, unsigned int slot);
unsigned int mflow_trace_batch(unsigned int slot, u32 batch, int lane_cpu);
void mflow_trace_merge(unsigned int slot, u32 batch, u64 waited_us);
void mflow_trace_given_up(unsigned int slot, u32 batch, u64 waited_us,
			  u32 parked_pkts, bool overflowed);
void mflow_trace_late(unsigned int slot, u32 batch, u32 pkts);

/* Locks: rtnl, then the module's own. Process context. */
void mflow_rtnl_lock(void);
void mflow_rtnl_unlock(void);
void mflow_config_lock(void);
void mflow_config_unlock(void);
void mflow_synchronize(void);
void mflow_sleep_ms(unsigned int ms);
void mflow_sleep_us(unsigned int us);
void mflow_bh_disable(void);
void mflow_bh_enable(void);

/* Workers: the NAPI of a lane, on the CPU of the lane, or of what builds packets for it. */
struct mflow_worker *mflow_worker_create(unsigned int cpu, void *lane,
					 bool builds);
void mflow_worker_destroy(struct mflow_worker *worker);
void mflow_worker_kick(struct mflow_worker *worker);
void mflow_worker_kick_on(struct mflow_worker *worker, unsigned int cpu);
struct sk_buff *mflow_worker_build(struct mflow_worker *worker,
				   struct mflow_request *request);
bool mflow_worker_receive(struct mflow_worker *worker, struct sk_buff *skb,
			  unsigned int form);
void mflow_worker_receive_past_gro(struct mflow_worker *worker,
				   struct sk_buff *skb);
void mflow_worker_receive_stage(struct mflow_worker *worker,
				struct sk_buff *skb);
void mflow_worker_set_sums(bool sums);
bool mflow_worker_held(struct mflow_worker *worker, u32 tag,
		       struct mflow_held *held);
bool mflow_worker_holds(struct mflow_worker *worker, const struct sk_buff *skb,
			u32 tag);
int mflow_held_append(struct sk_buff *held, struct sk_buff *skb,
		      unsigned int network_at, unsigned int transport_at,
		      unsigned int payload_at, u8 fixed_ids);
bool mflow_request_frag(const struct mflow_request *request,
			struct mflow_frag *frag);
u32 mflow_frag_sum(const struct mflow_frag *frag, unsigned int at);
bool mflow_held_join(struct sk_buff *held, const struct mflow_request *request,
		     const struct mflow_frag *frag, unsigned int payload_at,
		     u8 fixed_ids);
void mflow_worker_flush(struct mflow_worker *worker);

/* Deadlines, one timer for each slot. */
void mflow_deadline_start(unsigned int slot, unsigned int after_us);
void mflow_deadlines_cancel(void);

/* Devices and NAPIs, under rtnl. */
struct net_device *mflow_device_find(const char *name);
void mflow_device_put(struct net_device *dev);
void mflow_device_name(const struct net_device *dev, char *name);
int mflow_device_set_port(struct net_device *dev, void *port);
void mflow_device_walk_napis(struct net_device *dev, void *found);
unsigned int mflow_device_watch(const struct net_device *dev);
bool mflow_flow_is_tapped(const struct sk_buff *skb);
void *mflow_napi_source(struct napi_struct *napi);
void mflow_napi_set_source(struct napi_struct *napi, void *source);
unsigned int mflow_napi_id(const struct napi_struct *napi);
void mflow_rescan(void);

bool mflow_cpu_is_online(unsigned int cpu);
bool mflow_cpu_is_quiet(unsigned int cpu);
unsigned int mflow_this_cpu(void);

/* Stages: what takes a lane's packets at the end of one, for each CPU. */
void mflow_stages_set(unsigned int cpu, void *stages);
void *mflow_stages_here(void);
bool mflow_sock_is_staged(const struct sock *sk);
bool mflow_lane_is_here(void);
unsigned int mflow_device_index(const struct net_device *dev);
unsigned int mflow_device_gro_holds_ms(const struct net_device *dev);
unsigned int mflow_skb_device_index(const struct sk_buff *skb);
unsigned int mflow_skb_napi_id(const struct sk_buff *skb);
u64 mflow_freed_pkts(bool for_lanes);
void mflow_freed_reset(void);
u64 mflow_returned_bytes(void);
unsigned int mflow_stack_max_bytes(void);
void mflow_stack_reset(void);

/* The load controller's samples: one every so often, from start to stop. Process context. */
void mflow_sampling_start(unsigned int period_ms);
void mflow_sampling_stop(void);
void mflow_cpu_times(unsigned int cpu, struct mflow_cpu_times *times);
void mflow_restage(void);

/*
 * The CPUs that lanes may have, and a look at them every so often, from start on as long as there
 * are to be more.
 */
void mflow_cpu_place(unsigned int cpu, struct mflow_cpu_place *place);
bool mflow_cpus_are_one_core(unsigned int cpu, unsigned int other);
int mflow_device_node(const struct net_device *dev);
void mflow_placing_start(unsigned int period_ms);

/* Packets and sockets. */
void mflow_skb_drop(struct sk_buff *skb);
void mflow_skb_drop_queueless(struct sk_buff *skb);
void mflow_request_drop(struct mflow_request *request);
const void *mflow_skb_frag_header(const struct sk_buff *skb,
				  unsigned int *bytes);
void mflow_skb_copy_header(const struct sk_buff *skb, void *to,
			   unsigned int bytes);
void mflow_skb_count_segments(struct sk_buff *skb);
void mflow_skb_pull_headers(struct sk_buff *skb, unsigned int bytes);
int mflow_skb_verified(const struct sk_buff *skb);
bool mflow_skb_sums_up(const struct sk_buff *skb, unsigned int at,
		       unsigned int bytes, u32 pseudo);
void mflow_skb_set_verified(struct sk_buff *skb, unsigned int count);
bool mflow_skb_hold_socket(struct sk_buff *skb, struct sock *sk);
void mflow_probe_note(const struct sk_buff *skb, unsigned int slot);
bool mflow_probe_suits_lists(struct sk_buff *skb, const struct sock *sk,
			     unsigned int slot);
void mflow_list_at_begin(struct sk_buff *skb);
void mflow_list_at_end(struct sk_buff *skb);
void mflow_list_at_socket(const struct sock *sk, struct sk_buff *skb);

int mflow_shim_init(void);
void mflow_shim_quiesce(void);
void mflow_shim_exit(void);

/* The functions that the Rust half gives to the C half. */
int mflow_lane_poll(void *lane, int budget);
int mflow_lane_build(void *lane, int budget);
bool mflow_filter_may_take(const struct sock_filter *steps, unsigned int nr_steps,
			   const void *frame, unsigned int bytes,
			   unsigned int shown_from);
void mflow_slot_takes_lists(unsigned int slot, bool takes);
void mflow_slot_takes_aggregates(unsigned int slot, bool takes);
void mflow_deadline_expired(unsigned int slot);
ssize_t mflow_file_read(unsigned int file, char *text, size_t size);
int mflow_file_write(unsigned int file, const char *text, size_t len,
		     char *said, size_t said_bytes);
int mflow_file_named(const char *name, char *said, size_t said_bytes);
void mflow_tell_changes(void);
void mflow_napi_found(void *found, struct napi_struct *napi);
void mflow_device_gone(struct net_device *dev, bool opted_in);
void mflow_rescan_devices(void);
void mflow_cpu_changed(unsigned int cpu, bool online);
void mflow_sample(void);
bool mflow_place_lanes(void);
void mflow_restage_flows(void);

/* The trial of the join, for tests (CONFIG_MFLOW_JOIN_TRIAL), and its lane, which the Rust half has. */
void mflow_trial_init(void);
void mflow_trial_exit(void);
void *mflow_trial_lane_start(unsigned int cpu);
void mflow_trial_lane_stop(void *lane);
struct mflow_worker *mflow_trial_worker(void *lane);
struct mflow_request *mflow_trial_request(void *lane, u32 tag,
					  unsigned int memory_bytes);
bool mflow_trial_packet(void *lane, struct sk_buff *skb);
void mflow_trial_publish(void *lane);
u64 mflow_trial_joined(void *lane);
void mflow_trial_set_form(unsigned int slot, unsigned int form);

#endif /* _NET_MFLOW_MODULE_H */
