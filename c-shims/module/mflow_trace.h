/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The events of the module: flows that begin to be split or stop, and the batches of those that are split. `perf`, bpftrace and
 * `mflow trace` read them. A flow has a slot from its flow_start to its flow_stop, and all other events name the slot.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM mflow

#if !defined(_MFLOW_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _MFLOW_TRACE_H

#include <linux/netdevice.h>
#include <linux/tracepoint.h>
#include <net/mflow_module.h>

/* An address of IPv6 in brackets, with its port. */
#define MFLOW_END_BYTES		48
#define MFLOW_QUEUE_BYTES	8
#define MFLOW_PROTOCOL_BYTES	4
#define MFLOW_REASON_BYTES	16

/* mflow_trace.c */
int mflow_merges_begin(void);
void mflow_merges_end(void);
void mflow_text_of_queue(char *text, const struct mflow_change *change);
void mflow_text_of_protocol(char *text, const struct mflow_change *change);
void mflow_text_of_end(char *text, const void *address, u16 port, unsigned int address_bytes);

/* The names of the flow are those of the file flows, a dash for what is unknown; its packets per second are -1 then. */
DECLARE_EVENT_CLASS(mflow_flow,

	TP_PROTO(const struct net_device *dev, const struct mflow_change *change, unsigned int slot),

	TP_ARGS(dev, change, slot),

	TP_STRUCT__entry(
		__array(char, device, IFNAMSIZ)
		__array(char, queue, MFLOW_QUEUE_BYTES)
		__array(char, proto, MFLOW_PROTOCOL_BYTES)
		__array(char, from, MFLOW_END_BYTES)
		__array(char, to, MFLOW_END_BYTES)
		__array(char, reason, MFLOW_REASON_BYTES)
		__field(s64, pps)
		__field(u32, cpu)
		__field(u32, slot)
	),

	TP_fast_assign(
		strscpy(__entry->device, dev->name, IFNAMSIZ);
		mflow_text_of_queue(__entry->queue, change);
		mflow_text_of_protocol(__entry->proto, change);
		mflow_text_of_end(__entry->from, change->from, change->from_port,
				  change->address_bytes);
		mflow_text_of_end(__entry->to, change->to, change->to_port,
				  change->address_bytes);
		snprintf(__entry->reason, MFLOW_REASON_BYTES, "%.*s",
			 change->begins ? 1 : (int)change->reason_bytes,
			 change->begins ? "-" : change->reason);
		__entry->pps = change->has_pps ? change->pps : -1;
		__entry->cpu = change->cpu;
		__entry->slot = slot;
	),

	TP_printk("device %s queue %s proto %s from %s to %s cpu %u pps %lld slot %u reason %s",
		  __entry->device, __entry->queue, __entry->proto,
		  __entry->from, __entry->to, __entry->cpu, __entry->pps,
		  __entry->slot, __entry->reason)
);

/* A flow begins to be split: its next packets go into batches. */
DEFINE_EVENT(mflow_flow, flow_start,

	TP_PROTO(const struct net_device *dev, const struct mflow_change *change, unsigned int slot),

	TP_ARGS(dev, change, slot)
);

/* A flow stops being split, for the reason that flows says. Its last batches may still be under way. */
DEFINE_EVENT(mflow_flow, flow_stop,

	TP_PROTO(const struct net_device *dev, const struct mflow_change *change, unsigned int slot),

	TP_ARGS(dev, change, slot)
);

/* A batch is opened. CPU @cpu carries its packets: that of a lane, or this one (inline), which gives batches out. */
TRACE_EVENT(batch,

	TP_PROTO(unsigned int slot, u32 batch, u32 cpu, bool is_inline),

	TP_ARGS(slot, batch, cpu, is_inline),

	TP_STRUCT__entry(
		__field(u32, slot)
		__field(u32, batch)
		__field(u32, cpu)
		__field(u32, is_inline)
	),

	TP_fast_assign(
		__entry->slot = slot;
		__entry->batch = batch;
		__entry->cpu = cpu;
		__entry->is_inline = is_inline;
	),

	TP_printk("slot %u batch %u cpu %u inline %u", __entry->slot,
		  __entry->batch, __entry->cpu, __entry->is_inline)
);

/*
 * The turn of a batch has passed: its packets have been delivered, but for those that come late. Packets of later batches have
 * waited for it for @waited_us, 0 if none have. Fences are batches, too, and no event tells that they are opened.
 */
TRACE_EVENT_FN(merge,

	TP_PROTO(unsigned int slot, u32 batch, u64 waited_us),

	TP_ARGS(slot, batch, waited_us),

	TP_STRUCT__entry(
		__field(u64, waited_us)
		__field(u32, slot)
		__field(u32, batch)
	),

	TP_fast_assign(
		__entry->waited_us = waited_us;
		__entry->slot = slot;
		__entry->batch = batch;
	),

	TP_printk("slot %u batch %u waited_us %llu", __entry->slot,
		  __entry->batch, __entry->waited_us),

	mflow_merges_begin, mflow_merges_end
);

/* A batch is given up, as the deadline has passed or too much has been parked behind it. What is left of it comes late. */
TRACE_EVENT(given_up,

	TP_PROTO(unsigned int slot, u32 batch, u64 waited_us, u32 parked_pkts, bool overflowed),

	TP_ARGS(slot, batch, waited_us, parked_pkts, overflowed),

	TP_STRUCT__entry(
		__field(u64, waited_us)
		__field(u32, slot)
		__field(u32, batch)
		__field(u32, parked_pkts)
		__field(u32, overflowed)
	),

	TP_fast_assign(
		__entry->waited_us = waited_us;
		__entry->slot = slot;
		__entry->batch = batch;
		__entry->parked_pkts = parked_pkts;
		__entry->overflowed = overflowed;
	),

	TP_printk("slot %u batch %u waited_us %llu parked_pkts %u reason %s",
		  __entry->slot, __entry->batch, __entry->waited_us,
		  __entry->parked_pkts,
		  __entry->overflowed ? "overflow" : "deadline")
);

/* Packets have come after their batch's turn, and were delivered at once. It is the turn of @batch now. */
TRACE_EVENT(late,

	TP_PROTO(unsigned int slot, u32 batch, u32 pkts),

	TP_ARGS(slot, batch, pkts),

	TP_STRUCT__entry(
		__field(u32, slot)
		__field(u32, batch)
		__field(u32, pkts)
	),

	TP_fast_assign(
		__entry->slot = slot;
		__entry->batch = batch;
		__entry->pkts = pkts;
	),

	TP_printk("slot %u batch %u pkts %u", __entry->slot, __entry->batch,
		  __entry->pkts)
);

#endif /* _MFLOW_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE mflow_trace
#include <trace/define_trace.h>
