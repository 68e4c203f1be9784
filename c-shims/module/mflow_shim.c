// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of the kernel that Rust cannot call by itself: inline functions, macros, per-CPU
 * data and notifiers. No decisions here.
 */

#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/workqueue.h>
#include <net/busy_poll.h>
#include <net/checksum.h>
#include <net/mflow.h>
#include <net/mflow_module.h>
#include <net/sock.h>

#include "mflow_shim.h"
#include "mflow_versions.h"

/* Lock order: netlink's of families, rtnl, mflow_ops_mutex (net/core/mflow.c), mflow_mutex, CPUs. */
static DEFINE_MUTEX(mflow_mutex);

void mflow_rtnl_lock(void)
{
	rtnl_lock();
}

void mflow_rtnl_unlock(void)
{
	rtnl_unlock();
}

void mflow_config_lock(void)
{
	mutex_lock(&mflow_mutex);
}

void mflow_config_unlock(void)
{
	mutex_unlock(&mflow_mutex);
}

void mflow_synchronize(void)
{
	synchronize_net();
}

void mflow_sleep_ms(unsigned int ms)
{
	msleep(ms);
}

void mflow_sleep_us(unsigned int us)
{
	usleep_range(us, 2 * us);
}

void mflow_bh_disable(void)
{
	local_bh_disable();
}

void mflow_bh_enable(void)
{
	local_bh_enable();
}

/* Returns the device of this name, with a reference, or NULL. */
struct net_device *mflow_device_find(const char *name)
{
	return dev_get_by_name(current->nsproxy->net_ns, name);
}

void mflow_device_put(struct net_device *dev)
{
	dev_put(dev);
}

void mflow_device_name(const struct net_device *dev, char *name)
{
	strscpy(name, dev->name, IFNAMSIZ);
}

bool mflow_cpu_is_online(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

/* Notes that no softirq has been interrupted, and none waits for which packets wait. Interrupt on the CPU. */
static void mflow_look_quiet(void *data)
{
	bool *quiet = data;

	*quiet = !softirq_count() &&
		 !(local_softirq_pending() & BIT(NET_RX_SOFTIRQ));
}

/* Process context. True at a moment when no packet waits in a queue of a softirq of this CPU. */
bool mflow_cpu_is_quiet(unsigned int cpu)
{
	bool quiet = true;

	/* Of a CPU that is offline others have taken over what waited. */
	smp_call_function_single(cpu, mflow_look_quiet, &quiet, 1);
	return quiet;
}

void mflow_stages_set(unsigned int cpu, void *stages)
{
	/* Pairs with the reads at the hooks: filled in first. */
	smp_store_release(per_cpu_ptr(&mflow_cpu.stages, cpu), stages);
}

/* Returns whether the packets that the socket has got last came on a CPU of stages. */
bool mflow_sock_is_staged(const struct sock *sk)
{
	int cpu = READ_ONCE(sk->sk_incoming_cpu);

	/* A program may have set it, to anything. */
	return cpu >= 0 && cpu < nr_cpu_ids && cpu_possible(cpu) &&
	       READ_ONCE(per_cpu(mflow_cpu, cpu).stages);
}

/* Softirqs disabled. */
void *mflow_stages_here(void)
{
	return this_cpu_read(mflow_cpu.stages);
}

/* Softirqs disabled: whether a lane is being polled on this CPU. */
bool mflow_lane_is_here(void)
{
	return this_cpu_read(mflow_cpu.lane);
}

unsigned int mflow_device_index(const struct net_device *dev)
{
	return dev->ifindex;
}

/* Returns the time after which GRO of a device holds no packet that it got before: 0 if it holds none beyond a poll. */
unsigned int mflow_device_gro_holds_ms(const struct net_device *dev)
{
	unsigned long timeout_ns = READ_ONCE(dev->gro_flush_timeout);

	/* Packets that came in the tick in which the timer fires stay until it fires again. */
	return timeout_ns ? 2 * (timeout_ns / NSEC_PER_MSEC + 1 +
				 jiffies_to_msecs(1)) : 0;
}

unsigned int mflow_skb_device_index(const struct sk_buff *skb)
{
	return skb->dev->ifindex;
}

/* Returns a NAPI's number; 0 if it has none, as that of a backlog. */
unsigned int mflow_napi_id(const struct napi_struct *napi)
{
	return napi->napi_id;
}

unsigned int mflow_this_cpu(void)
{
	return smp_processor_id();
}

unsigned int mflow_stack_max_bytes(void)
{
	unsigned int max = 0, cpu;

	for_each_possible_cpu(cpu)
		max = max(max, READ_ONCE(per_cpu(mflow_cpu, cpu).stack_max_bytes));
	return max;
}

static u64 mflow_all_freed_pkts(bool for_lanes)
{
	unsigned int cpu;
	u64 pkts = 0;

	for_each_possible_cpu(cpu) {
		struct mflow_cpu *here = per_cpu_ptr(&mflow_cpu, cpu);

		pkts += for_lanes ? READ_ONCE(here->freed_for_lanes_pkts) :
				    READ_ONCE(here->freed_pkts);
	}
	return pkts;
}

/* The numbers when the module's counters began; written under the configuration lock. */
static u64 mflow_freed_pkts_before[2];

/* Packets that were freed for readers on other CPUs, or of these only those that lanes had no time for. */
u64 mflow_freed_pkts(bool for_lanes)
{
	return mflow_all_freed_pkts(for_lanes) -
	       mflow_freed_pkts_before[for_lanes];
}

void mflow_freed_reset(void)
{
	mflow_freed_pkts_before[false] = mflow_all_freed_pkts(false);
	mflow_freed_pkts_before[true] = mflow_all_freed_pkts(true);
}

/* Memory of those that wait for that. */
u64 mflow_returned_bytes(void)
{
	unsigned int cpu;
	u64 bytes = 0;

	for_each_possible_cpu(cpu)
		bytes += atomic_read(&per_cpu(mflow_returned, cpu).bytes);
	return bytes;
}

void mflow_stack_reset(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		WRITE_ONCE(per_cpu(mflow_cpu, cpu).stack_max_bytes, 0);
}

void mflow_skb_drop(struct sk_buff *skb)
{
	/* Without a destructor the socket is only noted, not held. */
	if (!skb->destructor)
		skb->sk = NULL;
	kfree_skb_reason(skb, SKB_DROP_REASON_SOCKET_CLOSE);
}

/* Drops a packet for which a ring has no room, with the kernel's reason for full queues of CPUs. */
void mflow_skb_drop_queueless(struct sk_buff *skb)
{
	kfree_skb_reason(skb, SKB_DROP_REASON_CPU_BACKLOG);
}

void mflow_request_drop(struct mflow_request *request)
{
	request->ops->drop(request);
}

/* Returns the headers, if the driver has left them in the first fragment, as GRO reads them; else NULL. */
const void *mflow_skb_frag_header(const struct sk_buff *skb,
				  unsigned int *bytes)
{
	const skb_frag_t *frag = skb_shinfo(skb)->frags;

	if (skb_headlen(skb) || !skb_shinfo(skb)->nr_frags ||
	    !skb_frags_readable(skb) || PageHighMem(skb_frag_page(frag)))
		return NULL;
	*bytes = skb_frag_size(frag);
	return skb_frag_address(frag);
}

/* Zeros where the packet is shorter. */
void mflow_skb_copy_header(const struct sk_buff *skb, void *to,
			   unsigned int bytes)
{
	memset(to, 0, bytes);
	if (skb_copy_bits(skb, 0, to, min(skb->len, bytes)))
		memset(to, 0, bytes);
}

/*
 * Pulls headers that mflow_skb_frag_header() has found. A clone shares its linear
 * part, so nothing is pulled there; each layer then pulls its own header.
 */
void mflow_skb_pull_headers(struct sk_buff *skb, unsigned int bytes)
{
	if (!skb_cloned(skb) &&
	    bytes <= skb_end_pointer(skb) - skb_tail_pointer(skb))
		__pskb_pull_tail(skb, bytes);
}

/*
 * Returns the number of checksums that were verified, from the outermost on; negative if there
 * is a sum of the packet instead, or is to be one, or if it was several packets with a checksum
 * each.
 */
int mflow_skb_verified(const struct sk_buff *skb)
{
	if (skb_is_gso(skb))
		return -1;
	switch (skb->ip_summed) {
	case CHECKSUM_NONE:
		return 0;
	case CHECKSUM_UNNECESSARY:
		return skb->csum_level + 1;
	default:
		return -1;
	}
}

/* Returns whether these bytes, which the packet has, and a pseudo header suit the checksum among them. */
bool mflow_skb_sums_up(const struct sk_buff *skb, unsigned int at,
		       unsigned int bytes, u32 pseudo)
{
	return !csum_fold(skb_checksum(skb, at, bytes, (__force __wsum)pseudo));
}

void mflow_skb_set_verified(struct sk_buff *skb, unsigned int count)
{
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb->csum_level = count - 1;
}

/*
 * Counts the segments of a packet that has none yet, as qdisc_pkt_len_init() does. What clones share
 * is not ours to write: such a packet goes on as one.
 */
void mflow_skb_count_segments(struct sk_buff *skb)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	unsigned int header = skb_transport_offset(skb);
	struct tcphdr buffer;
	const struct tcphdr *th;

	if (skb_cloned(skb) || !skb_transport_header_was_set(skb))
		return;
	if (shinfo->gso_type & (SKB_GSO_TCPV4 | SKB_GSO_TCPV6)) {
		th = skb_header_pointer(skb, header, sizeof(buffer), &buffer);
		if (!th)
			return;
		header += __tcp_hdrlen(th);
	} else if (shinfo->gso_type & SKB_GSO_UDP_L4) {
		header += sizeof(struct udphdr);
	} else {
		return;
	}
	if (header < skb->len)
		shinfo->gso_segs = min_t(unsigned int, U16_MAX,
					 DIV_ROUND_UP(skb->len - header, shinfo->gso_size));
}

static void mflow_rescan_work(struct work_struct *work)
{
	mflow_rescan_devices();
}

static DECLARE_WORK(mflow_rescan_item, mflow_rescan_work);

/* Asks for a search of devices for queues without a source, by work. Any context. */
void mflow_rescan(void)
{
	queue_work(mflow_percpu_wq, &mflow_rescan_item);
}

/* Looks after a device that goes, or whose features have changed. Under rtnl. */
static int mflow_netdev_event(struct notifier_block *block,
			      unsigned long event, void *data)
{
	struct net_device *dev = netdev_notifier_info_to_dev(data);

	if (event == NETDEV_UNREGISTER)
		mflow_device_gone(dev, mflow_device_has_port(dev));
	else if (event == NETDEV_FEAT_CHANGE)
		mflow_device_features_changed(dev);
	return NOTIFY_DONE;
}

static struct notifier_block mflow_netdev_block = {
	.notifier_call = mflow_netdev_event,
};

static int mflow_cpu_online(unsigned int cpu)
{
	mflow_cpu_changed(cpu, true);
	return 0;
}

static int mflow_cpu_offline(unsigned int cpu)
{
	mflow_cpu_changed(cpu, false);
	return 0;
}

static enum cpuhp_state mflow_cpuhp_state;

int mflow_shim_init(void)
{
	int err;

	/* An earlier module may have counted. */
	mflow_freed_reset();
	err = mflow_worker_init();
	if (err)
		return err;

	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "net/mflow:online",
				mflow_cpu_online, mflow_cpu_offline);
	if (err < 0)
		goto err_worker;
	mflow_cpuhp_state = err;

	err = register_netdevice_notifier(&mflow_netdev_block);
	if (err)
		goto err_cpuhp;
	return 0;

err_cpuhp:
	cpuhp_remove_state_nocalls(mflow_cpuhp_state);
err_worker:
	mflow_worker_exit();
	return err;
}

/* Ends events and work: none comes any more when it returns. */
void mflow_shim_quiesce(void)
{
	unregister_netdevice_notifier(&mflow_netdev_block);
	cpuhp_remove_state_nocalls(mflow_cpuhp_state);
	cancel_work_sync(&mflow_rescan_item);
	mflow_tell_cancel();
	mflow_placing_stop();
	mflow_sampling_stop();
	mflow_restage_cancel();
}

/* Ends the rest, after mflow_unregister(): nothing starts a timer any more. */
void mflow_shim_exit(void)
{
	cancel_work_sync(&mflow_rescan_item);
	mflow_tell_cancel();
	mflow_worker_exit();
}
