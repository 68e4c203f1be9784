/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The differences between the kernels that the module is built for. The source speaks as 6.12
 * does, but for the names below that begin with mflow_; each difference stands here with the
 * version it came with.
 */
#ifndef _MFLOW_VERSIONS_H
#define _MFLOW_VERSIONS_H

#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <net/genetlink.h>
#include <net/gro.h>
#include <net/ip_tunnels.h>
#include <net/net_namespace.h>
#include <net/udp.h>

/* The kernel is of this version, or newer. */
#define MFLOW_SINCE(major, minor)	(KERNEL_VERSION(major, minor, 0) <= LINUX_VERSION_CODE)

/* 6.2: each namespace may have a table of UDP sockets of its own. 7.3: as UDP-Lite has none any more, look-ups ask for no table. */
#if MFLOW_SINCE(7, 3)
#define mflow_udp4_look_up	__udp4_lib_lookup
#define mflow_udp6_look_up	__udp6_lib_lookup
#else
static inline struct udp_table *mflow_udp_table(struct net *net)
{
#if MFLOW_SINCE(6, 2)
	return net->ipv4.udp_table;
#else
	return &udp_table;
#endif
}

static inline const struct sock *mflow_udp4_look_up(struct net *net, __be32 saddr, __be16 sport,
						    __be32 daddr, __be16 dport, int dif, int sdif,
						    struct sk_buff *skb)
{
	return __udp4_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif, mflow_udp_table(net), skb);
}

static inline const struct sock *mflow_udp6_look_up(struct net *net,
						    const struct in6_addr *saddr, __be16 sport,
						    const struct in6_addr *daddr, __be16 dport,
						    int dif, int sdif, struct sk_buff *skb)
{
	return __udp6_lib_lookup(net, saddr, sport, daddr, dport, dif, sdif, mflow_udp_table(net), skb);
}
#endif

/* 6.18: look-ups of TCP find the table in the namespace. */
#if MFLOW_SINCE(6, 18)
#define mflow_tcp4_established(net, ...)	__inet_lookup_established(net, __VA_ARGS__)
#define mflow_tcp6_established(net, ...)	__inet6_lookup_established(net, __VA_ARGS__)
#else
#define mflow_tcp4_established(net, ...)	\
	__inet_lookup_established(net, (net)->ipv4.tcp_death_row.hashinfo, __VA_ARGS__)
#define mflow_tcp6_established(net, ...)	\
	__inet6_lookup_established(net, (net)->ipv4.tcp_death_row.hashinfo, __VA_ARGS__)
#endif

#if !MFLOW_SINCE(6, 10)
/*
 * 6.10: devices that only NAPIs and GRO see are allocated like others, with the queue that RPS looks at. Before, there was but
 * init_dummy_netdev() for devices within other structures, which have none. free_netdev() frees at once what was never
 * registered.
 */
static inline void mflow_netdev_setup(struct net_device *dev)
{
	set_bit(__LINK_STATE_PRESENT, &dev->state);
	set_bit(__LINK_STATE_START, &dev->state);
}

static inline struct net_device *alloc_netdev_dummy(int sizeof_priv)
{
	return alloc_netdev(sizeof_priv, "mflow#", NET_NAME_UNKNOWN,
			    mflow_netdev_setup);
}
#endif

#if !MFLOW_SINCE(6, 12)
/* Packets of sockets that were closed have no reason of their own in 6.1. */
#define SKB_DROP_REASON_SOCKET_CLOSE	SKB_DROP_REASON_NOT_SPECIFIED

/* 6.12: packets may lie in memory of devices. */
static inline bool skb_frags_readable(const struct sk_buff *skb)
{
	return true;
}
#endif

/* 6.3: a device says what it does for XDP, and frames are redirected only to one that takes them. */
static inline void mflow_netdev_takes_frames(struct net_device *dev)
{
#if MFLOW_SINCE(6, 3)
	dev->xdp_features = NETDEV_XDP_ACT_NDO_XMIT;
#endif
}

/* 6.12: what stays in its namespace is no feature any more. */
static inline void mflow_netdev_stays_in_namespace(struct net_device *dev)
{
#if MFLOW_SINCE(6, 12)
	dev->netns_immutable = true;
#else
	dev->features |= NETIF_F_NETNS_LOCAL;
#endif
}

/* 6.10: flags of tunnels are a bitmap. Before, they are those of the header of GRE. */
#if MFLOW_SINCE(6, 10)
static inline bool mflow_tunnel_is_numbered(const unsigned long *flags)
{
	return test_bit(IP_TUNNEL_SEQ_BIT, flags);
}
#else
static inline bool mflow_tunnel_is_numbered(__be16 flags)
{
	return flags & TUNNEL_SEQ;
}
#endif

/* 6.13: namespaces of symbols are strings. 6.1 has none for BPF, whose calls are declared nowhere. */
#if MFLOW_SINCE(6, 13)
#define MFLOW_IMPORT_BPF	MODULE_IMPORT_NS("BPF_INTERNAL")
#else
#define MFLOW_IMPORT_BPF	MODULE_IMPORT_NS(BPF_INTERNAL)
#endif

int kern_sys_bpf(int cmd, union bpf_attr *attr, unsigned int size);

/* 6.13: a timer gets its function with its clock, and 6.15 knows no other way. */
static inline void mflow_hrtimer_setup(struct hrtimer *timer,
				       enum hrtimer_restart (*fired)(struct hrtimer *),
				       clockid_t clock, enum hrtimer_mode mode)
{
#if MFLOW_SINCE(6, 13)
	hrtimer_setup(timer, fired, clock, mode);
#else
	hrtimer_init(timer, clock, mode);
	timer->function = fired;
#endif
}

/* 6.6: receive queues have a header of their own. 6.9: RPS, too. */
#if MFLOW_SINCE(6, 6)
#include <net/netdev_rx_queue.h>
#endif
#if MFLOW_SINCE(6, 9)
#include <net/rps.h>
#endif

/* 6.15: what GRO of a NAPI holds is in a structure of its own. */
#if MFLOW_SINCE(6, 15)
#define MFLOW_GRO_OF(napi)	(&(napi)->gro)
#define MFLOW_GRO_HOLDS(napi)	READ_ONCE((napi)->gro.bitmask)
#define MFLOW_GRO_LIST(napi, of_hash) \
	(&(napi)->gro.hash[(of_hash) & (GRO_HASH_BUCKETS - 1)])
#else
#define MFLOW_GRO_OF(napi)	(napi)
#define MFLOW_GRO_HOLDS(napi)	READ_ONCE((napi)->gro_bitmask)
#define MFLOW_GRO_LIST(napi, of_hash) \
	(&(napi)->gro_hash[(of_hash) & (GRO_HASH_BUCKETS - 1)])
#endif

/* 6.3: GRO of IPv4 has a size of its own. A device of ours has GRO make no packets beyond 64 KB. */
static inline void mflow_netdev_follow_gro_sizes(struct net_device *own, const struct net_device *dev)
{
	unsigned int bytes = min(READ_ONCE(dev->gro_max_size), GRO_LEGACY_MAX_SIZE);

	if (unlikely(own->gro_max_size != bytes))
		WRITE_ONCE(own->gro_max_size, bytes);
#if MFLOW_SINCE(6, 3)
	bytes = min(READ_ONCE(dev->gro_ipv4_max_size), GRO_LEGACY_MAX_SIZE);
	if (unlikely(own->gro_ipv4_max_size != bytes))
		WRITE_ONCE(own->gro_ipv4_max_size, bytes);
#endif
}

/* Returns the length below which GRO keeps a packet at a device of ours, from the network header on. */
static inline unsigned int mflow_netdev_gro_size(const struct net_device *own,
						 const struct sk_buff *skb)
{
#if MFLOW_SINCE(6, 3)
	return netif_get_gro_max_size(own, skb);
#else
	return READ_ONCE(own->gro_max_size);
#endif
}

/* 6.15: of some drivers a lock of the device's guards its features, inside rtnl. */
#if MFLOW_SINCE(6, 15)
#include <net/netdev_lock.h>
#else
static inline void netdev_lock_ops(struct net_device *dev)
{
}

static inline void netdev_unlock_ops(struct net_device *dev)
{
}
#endif

/* Late releases of 6.1 have a name of their own for groups of those with rights; the number is that of requests. */
#ifndef GENL_MCAST_CAP_NET_ADMIN
#define GENL_MCAST_CAP_NET_ADMIN	GENL_UNS_ADMIN_PERM
#endif

/* 6.6: a dump has what requests have. */
static inline struct nlattr **mflow_dump_attrs(struct netlink_callback *cb)
{
#if MFLOW_SINCE(6, 6)
	return genl_info_dump(cb)->attrs;
#else
	return genl_dumpit_info(cb)->attrs;
#endif
}

/* 6.17: queues for work have names that say where it runs, and the old ones are to go. */
#if MFLOW_SINCE(6, 17)
#define mflow_percpu_wq		system_percpu_wq
#define mflow_unbound_wq	system_dfl_wq
#else
#define mflow_percpu_wq		system_wq
#define mflow_unbound_wq	system_unbound_wq
#endif

#endif /* _MFLOW_VERSIONS_H */
