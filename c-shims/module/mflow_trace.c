// SPDX-License-Identifier: GPL-2.0
/*
 * The calls of the module's events. Rust makes none of them per packet. Batches are told where Rust asks for the CPU anyway, flows,
 * batches that were given up and late packets are rare, and merges are told only while somebody listens.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <net/mflow_module.h>

#define CREATE_TRACE_POINTS
#include "mflow_trace.h"

/* Not 0 while somebody listens to merges. Rust reads it once per batch. */
unsigned int mflow_merges_traced;

/* The kernel calls both under its lock of tracepoints, for the first who listens and for the last. */
int mflow_merges_begin(void)
{
	WRITE_ONCE(mflow_merges_traced, 1);
	return 0;
}

void mflow_merges_end(void)
{
	WRITE_ONCE(mflow_merges_traced, 0);
}

void mflow_text_of_queue(char *text, const struct mflow_change *change)
{
	if (change->has_queue)
		snprintf(text, MFLOW_QUEUE_BYTES, "%u", change->queue);
	else
		strscpy(text, "-", MFLOW_QUEUE_BYTES);
}

void mflow_text_of_protocol(char *text, const struct mflow_change *change)
{
	const char *name = change->protocol == IPPROTO_TCP ? "tcp" : "udp";

	strscpy(text, change->address_bytes ? name : "-", MFLOW_PROTOCOL_BYTES);
}

void mflow_text_of_end(char *text, const void *address, u16 port, unsigned int address_bytes)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (address_bytes == sizeof(six.sin6_addr)) {
		memcpy(&six.sin6_addr, address, sizeof(six.sin6_addr));
		snprintf(text, MFLOW_END_BYTES, "%pISpc", &six);
	} else if (address_bytes == sizeof(four.sin_addr)) {
		memcpy(&four.sin_addr, address, sizeof(four.sin_addr));
		snprintf(text, MFLOW_END_BYTES, "%pISpc", &four);
	} else {
		strscpy(text, "-", MFLOW_END_BYTES);
	}
}

/* Returns whether somebody listens to flows. Any context. */
bool mflow_flows_traced(void)
{
	return trace_flow_start_enabled() || trace_flow_stop_enabled();
}

/* Tells of a flow that begins to be split, or stops. The device's name in @change is not looked at. Any context. */
void mflow_trace_flow(const struct net_device *dev, const struct mflow_change *change,
		      unsigned int slot)
{
	if (change->begins)
		trace_flow_start(dev, change, slot);
	else
		trace_flow_stop(dev, change, slot);
}

/*
 * Tells of a batch that is opened. @lane_cpu is the CPU that carries it, or negative if this one does. Returns the number of this
 * CPU. Softirqs disabled.
 */
unsigned int mflow_trace_batch(unsigned int slot, u32 batch, int lane_cpu)
{
	unsigned int here = smp_processor_id();

	trace_batch(slot, batch, lane_cpu < 0 ? here : lane_cpu, lane_cpu < 0);
	return here;
}

/* Tells of a batch whose turn has passed. Softirqs disabled. */
void mflow_trace_merge(unsigned int slot, u32 batch, u64 waited_us)
{
	trace_merge(slot, batch, waited_us);
}

/* Tells of a batch that is given up. Softirqs disabled. */
void mflow_trace_given_up(unsigned int slot, u32 batch, u64 waited_us, u32 parked_pkts,
			  bool overflowed)
{
	trace_given_up(slot, batch, waited_us, parked_pkts, overflowed);
}

/* Tells of packets that were delivered after their turn. Softirqs disabled. */
void mflow_trace_late(unsigned int slot, u32 batch, u32 pkts)
{
	trace_late(slot, batch, pkts);
}
