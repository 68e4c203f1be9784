// SPDX-License-Identifier: GPL-2.0
/*
 * Moves the epoch when the kernel changes what entries of the cache have come from: without a process, as these programs stay where they
 * are attached.
 *
 * | change | where it is seen, behind it |
 * |---|---|
 * | links, addresses, routes, rules and next hops, by netlink | rtnetlink_rcv_msg |
 * | routes of IPv4, and what else makes the kernel forget those that it has cached | rt_cache_flush |
 * | routes of IPv6: by routers' advertisements, age, links that go | fib6_add, fib6_del, fib6_clean_all(_skip_notify) |
 * | next hops whose link goes | nh_netdev_event |
 * | buckets of resilient groups of next hops, by time (Linux 5.13) | nh_res_table_upkeep_dw |
 * | the address or the state of a neighbour | the tracepoints of neighbours |
 *
 * fib_notifiers are no such place: they are called before some changes, and not for all of them (net/ipv4/fib_trie.c: fib_table_delete,
 * fib_find_alias). What is not here, such as the path's MTU and sysctls, takes effect when entries have been there for a second.
 *
 * Each program is loaded twice, with the same name: the kernel skips one that this CPU runs already, and then runs the other. The second
 * finds nothing to do, or moves the epoch again.
 *
 * Changes of all network namespaces count. That costs speed where there are many.
 */
#include <linux/errno.h>
#include <linux/if_ether.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>

#include "cache/tables.h"
#include "context/kernel.h"

/* Members of a neighbour, whose places are filled in, too. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct neigh_table {
	int family;
};

struct neighbour {
	struct neigh_table *tbl;
	struct net_device *dev;
	__u8 nud_state;
	unsigned char ha[32];
	/* As long as addresses of the family. */
	__u8 primary_key[16];
};

#pragma clang attribute pop

/* Those of sys/socket.h, which is not for BPF. */
#define HIKE_AF_INET 2
#define HIKE_AF_INET6 10

/* The kernel's NUD_VALID: states in which the address may be used. */
#define HIKE_NUD_VALID (NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY)

/* A message of rtnetlink has one of four kinds: new, delete, get, set. */
#define HIKE_KIND_OF_MESSAGE 3
#define HIKE_KIND_GET 2

static __always_inline int hike_move_epoch(void)
{
	struct hike_epoch *moved = hike_this_epoch();

	if (moved)
		__sync_fetch_and_add(&moved->number, 1);
	return 0;
}

#define HIKE_MOVES_BEHIND(FUNCTION)		\
	SEC("fexit/" #FUNCTION)			\
	int hike_##FUNCTION(__u64 *context)	\
	{					\
		return hike_move_epoch();	\
	}

HIKE_MOVES_BEHIND(rt_cache_flush);
HIKE_MOVES_BEHIND(fib6_add);
HIKE_MOVES_BEHIND(fib6_del);
HIKE_MOVES_BEHIND(fib6_clean_all);
HIKE_MOVES_BEHIND(fib6_clean_all_skip_notify);
HIKE_MOVES_BEHIND(nh_netdev_event);
HIKE_MOVES_BEHIND(nh_res_table_upkeep_dw);

/*
 * Neighbours have tracepoints of their own. One who may not change anything has not. What a driver that refuses says, too, comes behind
 * changes of a link, if behind any, of which the functions above hear.
 */
SEC("fexit/rtnetlink_rcv_msg")
int hike_rtnetlink_rcv_msg(__u64 *context)
{
	const struct nlmsghdr *message = (void *)context[1];
	__u16 type = message->nlmsg_type;
	int result = context[3];

	if (result == -EPERM)
		return 0;
	if ((type & HIKE_KIND_OF_MESSAGE) == HIKE_KIND_GET)
		return 0;
	switch (type & ~HIKE_KIND_OF_MESSAGE) {
	case RTM_NEWLINK:
	case RTM_NEWADDR:
	case RTM_NEWROUTE:
	case RTM_NEWRULE:
	case RTM_NEWNETCONF:
	case RTM_NEWNEXTHOP:
	case RTM_NEWNEXTHOPBUCKET:
		return hike_move_epoch();
	}
	return 0;
}

static __always_inline void hike_read_neighbour(const struct neighbour *n, struct hike_neighbour *now)
{
	__u8 state = n->nud_state;

	now->mac = 0;
	bpf_probe_read_kernel(&now->mac, ETH_ALEN, n->ha);
	now->is_valid = !!(state & HIKE_NUD_VALID);
	now->is_stale = !!(state & NUD_STALE);
}

/* Returns whether a neighbour is one of IPv4 or IPv6 in the network namespace of the instance, and its key: others may have the same. */
static __always_inline bool hike_neighbour_key(const struct neighbour *n, struct hike_neighbour_key *key)
{
	const struct hike_epoch *watched = hike_this_epoch();
	int family = n->tbl->family;

	if (!watched || n->dev->nd_net.net->ns.inum != *(const volatile __u64 *)&watched->network)
		return false;
	key->device = n->dev->ifindex;
	if (family == HIKE_AF_INET) {
		key->version = 4;
		return !bpf_probe_read_kernel(key->address, 4, n->primary_key);
	}
	key->version = 6;
	return family == HIKE_AF_INET6 && !bpf_probe_read_kernel(key->address, 16, n->primary_key);
}

/*
 * Notes what a neighbour is now. If another address is used than before, or none, entries of the cache may have the old one.
 *
 * Of two changes at the same time, one looks at the neighbour when the other has written: so it is looked at again after that.
 */
static __always_inline int hike_note_neighbour(const struct neighbour *n)
{
	struct hike_neighbour_key key = {};
	struct hike_neighbour now = {};
	struct hike_neighbour *known;

	if (!hike_neighbour_key(n, &key))
		return 0;
	for (int look = 0; look < 3; look++) {
		hike_read_neighbour(n, &now);
		known = bpf_map_lookup_elem(&neighbours, &key);
		/* It has never had an address. */
		if (!known && !now.is_valid && !now.mac)
			return 0;
		if (known && known->mac == now.mac && known->is_valid == now.is_valid &&
		    known->is_stale == now.is_stale)
			return 0;
		now.asked = known ? known->asked : 0;
		if (!known || known->mac != now.mac || known->is_valid != now.is_valid)
			hike_move_epoch();
		bpf_map_update_elem(&neighbours, &key, &now, BPF_ANY);
	}
	return 0;
}

#define HIKE_NOTES_NEIGHBOUR(TRACEPOINT)						\
	SEC("tp_btf/" #TRACEPOINT)							\
	int hike_##TRACEPOINT(__u64 *context)						\
	{										\
		return hike_note_neighbour((const struct neighbour *)context[0]);	\
	}

HIKE_NOTES_NEIGHBOUR(neigh_update_done);
HIKE_NOTES_NEIGHBOUR(neigh_timer_handler);
HIKE_NOTES_NEIGHBOUR(neigh_event_send_done);

/* Forgets a neighbour that goes; its successor may have another address. */
SEC("tp_btf/neigh_cleanup_and_release")
int hike_neigh_cleanup_and_release(__u64 *context)
{
	const struct neighbour *n = (const struct neighbour *)context[0];
	struct hike_neighbour_key key = {};
	struct hike_neighbour now = {};

	if (!hike_neighbour_key(n, &key))
		return 0;
	hike_read_neighbour(n, &now);
	bpf_map_delete_elem(&neighbours, &key);
	return now.mac ? hike_move_epoch() : 0;
}

char hike_license[] SEC("license") = "GPL";
