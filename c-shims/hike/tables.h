/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures and maps that user space and the programs share: rust/hike/src/layout.rs has the same structures.
 *
 * All maps are pinned by their names, which is how the objects that are loaded one after the other get the same maps.
 */
#ifndef HIKE_TABLES_H
#define HIKE_TABLES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "limits.h"
#include "reasons.gen.h"

/* A destination, or a prefix of some: the key of tries, and of hash tables, where bits that do not count are 0. */
struct hike_prefix {
	/* The number of bits behind this member that count; the default has none. */
	__u32 bits;
	/* 4 or 6, in network byte order; it is part of each prefix. */
	__be32 version;
	/* In network byte order; an IPv4 address has the first four bytes. */
	__u64 address[2];
};

/* A length that keys of classes can have, which is their `bits`. */
struct hike_length {
	/* The first members of keys of this length. */
	__u32 bits;
	__be32 version;
	/* The bits of an address that count. */
	__u64 mask[2];
	/* The next shorter length that some class has; HIKE_NO_LENGTH: there is none. */
	__u64 shorter;
};

/*
 * By version, 4 and 6, and by length; behind them, at HIKE_NO_LENGTH, `shorter` is the longest of all.
 *
 * Lengths that no class has lead on, too: a packet gets on wherever it is when user space changes this.
 */
struct hike_lengths {
	struct hike_length of_version[2][HIKE_NO_LENGTH + 1];
};

/* Set in a class of a destination: some of the flows to it have classes of their own, by ports or by flow label. */
#define HIKE_CLASS_HAS_PORTS 0x8000
#define HIKE_CLASS_HAS_LABELS 0x4000
/* Set in a class of a destination or of a flow: it is for packets alone that come by a device of the group of those inside. */
#define HIKE_CLASS_INSIDE 0x2000
/* The number in a class that is there for these flows alone. */
#define HIKE_CLASS_OF_FLOWS 0x1fff

/* The request of a class to mflow for its flows, in the upper bits of the behaviour's number: 0 is none. */
#define HIKE_CLASS_LANES_SHIFT 14
#define HIKE_CLASS_BEHAVIOUR 0x3fff
#define HIKE_LANES_SPLIT 1
#define HIKE_LANES_NEVER 2

/* The treatment of packets: read in one piece, as user space replaces it in one piece. */
struct hike_class {
	/* Its number, and these bits. */
	__u16 chain;
	/* Of the local SID that packets are for, and those bits. */
	__u16 behaviour;
	__u32 path;
};

/* A flow that has a class of its own: by its ports, or by its flow label. */
struct hike_exact_flow {
	/* In network byte order; an IPv4 address has the first four bytes. */
	__u64 source[2];
	__u64 destination[2];
	/* 4 or 6 if it is one by ports; 0 by flow label, which only IPv6 has. */
	__u32 version;
	__u32 protocol;
	/* The source port in front of the destination port, as in the packet; 0 where there are none. Or the flow label. */
	__be32 ports_or_label;
	__u32 zero;
};

/* Set beside the flags of a device, which have 16 bits: the packet is this host's own answer to a test packet. */
#define HIKE_IS_ANSWER 0x10000

/* The state that the dispatcher and the programs of a chain keep of the packet that their CPU has. */
struct hike_packet {
	/* Offset of the IP header. */
	__u8 ip_at;
	/* 4 or 6. */
	__u8 version;
	/* The number of times that `enc` has put the headers of the class's path in front. */
	__u8 is_on_path;
	/* The place in the chain of the program that has its turn; only the engine that tail-calls uses this and the chain. */
	__u8 position;
	union {
		/* At tcx, of a packet that is several on the wire: how many, and the length of the longest, or 0 if it is not known. */
		struct {
			__u16 segments;
			__u16 segment_bytes;
		};
		/* At XDP: the flags of the device that it came from, and HIKE_IS_ANSWER. */
		__u32 device_flags;
	};
	union {
		struct hike_class class;
		/* Copied in one piece, too. */
		__u64 whole_class;
	};
	__u8 chain[HIKE_CHAIN_PROGRAMS];
};

/* Set: DSCP is that of the inner packet, else that of the header. */
#define HIKE_PATH_COPIES_DSCP 1
/* Set: the flow label tells flows apart, else it is that of the header. */
#define HIKE_PATH_LABELS_FLOWS 2
/* Set: packets that cannot be encapsulated go to the kernel as they are, else they are dropped. */
#define HIKE_PATH_LEAVES_EXCEPTIONS 4
/* Set: the source of a packet that is too big is told so, and the kernel tells that of one whose hop limit has run out. */
#define HIKE_PATH_TELLS 8

/* The outer headers of a path, ready but for what depends on the packet. */
struct hike_path {
	/* Of the headers; 0 if there is no such path. A multiple of 8. */
	__u16 bytes;
	/* The largest outer packet that the path takes. */
	__u16 most_bytes;
	/* Offset of the last next header, which is to name the inner packet. */
	__u8 next_header_at;
	__u8 flags;
	__u8 zero[2];
	/* In words, as they are copied. */
	__u64 header[HIKE_PATH_BYTES / sizeof(__u64)];
};

/* The answers that a CPU may still give: a bucket of time, which fills up as time goes on. All in nanoseconds. */
struct hike_credit {
	/* The time of the last look. */
	__u64 at_ns;
	__u64 left_ns;
};

/* The message to the source of the packet that a CPU has (tell.h), and how many sources this CPU may tell yet. */
struct hike_telling {
	/* That of the tunnel, which says it. */
	__u8 source[16];
	/* The longest packet that the source may send; before that is known, what the next link takes. */
	__u32 mtu;
	/* Offset of the outermost IP header, and the bytes that paths have put in front of the packet of this source. */
	__u32 ip_at;
	__u32 outer_bytes;
	__u32 zero;
	struct hike_credit credit;
};

/* The action of a local SID; none of these: the slot is free. */
#define HIKE_BEHAVIOUR_END 1
#define HIKE_BEHAVIOUR_DEC4 2
#define HIKE_BEHAVIOUR_DEC6 4
/* Flavours of End and End.X. */
#define HIKE_BEHAVIOUR_PSP 8
#define HIKE_BEHAVIOUR_USP 16
#define HIKE_BEHAVIOUR_USD 32

struct hike_behaviour {
	__u32 flags;
	/* The kernel's table in which the inner packet, or a next hop, is looked up; 0: the one that its rules choose. */
	__u32 table;
	/* The address to which End.X sends packets, or what stands for it in that table. */
	__u8 next_hop[16];
	/* That of its counts; 0: it has none. */
	__u64 number;
};

/* The packets that the behaviour of a local SID was done to, on one CPU: RFC 8986, 6. */
struct hike_sid_counts {
	__u64 pkts;
	/* Of the IPv6 packets, as they came. */
	__u64 bytes;
};

/* A set of rules of an access list: a bit for each. */
struct hike_rules {
	__u64 words[HIKE_RULES / 64];
};

/* The set of rules to which a port belongs, for each of the two banks. */
struct hike_rule_port {
	__u16 source[2];
	__u16 destination[2];
};

/*
 * Numbers of sets of rules in a bank: by protocol, by source port, by destination port; then, alone, those that deny.
 *
 * Of ports, the first is that of ports which no rule names and of packets without ports, the second that of ports which cannot be seen.
 */
#define HIKE_RULES_OF_PROTOCOL 0
#define HIKE_RULES_OF_UNSEEN_PROTOCOL 256
#define HIKE_RULES_OF_SOURCE_PORT 257
#define HIKE_RULES_OF_DESTINATION_PORT (HIKE_RULES_OF_SOURCE_PORT + HIKE_RULE_PORT_SETS)
#define HIKE_RULES_THAT_DENY (HIKE_RULES_OF_DESTINATION_PORT + HIKE_RULE_PORT_SETS)
#define HIKE_RULE_SETS (HIKE_RULES_THAT_DENY + 1)
#define HIKE_UNSEEN_PORT 1

/* Set in each device if some of the host's own destinations are prefixes. */
#define HIKE_DEVICE_OWN_PREFIXES 1
/* Set: an SRH that comes to a local SID has to be signed, which the kernel verifies. */
#define HIKE_DEVICE_SIGNED 2

/* A device that packets come from. */
struct hike_device {
	/* Its own Ethernet address: for this one it receives. */
	__u8 mac[6];
	__u16 flags;
	/* The number of its network namespace, in which its index is its own. */
	__u32 network;
};

struct hike_route {
	__u32 port;
	__u16 mtu;
	__u8 source[6];
	__u8 destination[6];
	__u8 zero[2];
};

/*
 * Set in the flags of a family: all of it is left to the kernel. There are IPsec policies; it is not forwarded; routes have several next
 * hops, among which the kernel chooses by what is not known here; the look-up may take packets for those of a VRF; or rules suppress
 * routes, of which the look-up knows nothing.
 */
#define HIKE_ROUTING_IPSEC 1
#define HIKE_ROUTING_DISABLED 2
#define HIKE_ROUTING_UNFORESEEN 4
#define HIKE_ROUTING_VRFS 8
#define HIKE_ROUTING_SUPPRESSED 256
#define HIKE_ROUTING_LEFT 271
/* Set: some routes have several next hops. */
#define HIKE_ROUTING_MULTIPATH 16
/* Set: ICMP is left to the kernel, which chooses next hops for errors by the packet that is in them, or answers for neighbours. */
#define HIKE_ROUTING_ICMP 32
/* Set: rules look at protocols or ports. */
#define HIKE_ROUTING_PORTS 64
/* Set: what would leave by the device that it came by is left to the kernel. */
#define HIKE_ROUTING_REDIRECTS 128

/* The facts about the host's routing of a family that bpf_fib_lookup() does not tell. */
struct hike_family {
	__u32 flags;
	/* The largest packet that no route is too narrow for: the look-up says nothing of the MTU of routes. */
	__u32 most_bytes;
};

struct hike_routing {
	/* IPv4, then IPv6. */
	struct hike_family of_version[2];
	/* Not 0: some devices are not asked for as they are, even without tags. */
	__u64 has_receivers;
};

/* The tags of a frame in the order in which they stand there: kind and VLAN, without the priority; 0: none. */
struct hike_tagged {
	__u32 device;
	__be32 tags[2];
};

/* Set: what comes from there is left to the kernel. */
#define HIKE_RECEIVER_LEFT 1
/* Set: so are sources of IPv4 that are not reached by this device, or by any. */
#define HIKE_RECEIVER_STRICT 2
#define HIKE_RECEIVER_LOOSE 4
/* Set: it has no IPv6. */
#define HIKE_RECEIVER_NO_IPV6 8

/* The device that the kernel takes a packet from. */
struct hike_receiver {
	/* That of the VLAN, if the packet has tags. */
	__u32 device;
	/* The device that rules and tables are asked for: its VRF, if it is in one. */
	__u32 asked;
	__u32 flags;
};

/* The way in which frames leave by a VLAN's device. */
struct hike_sender {
	/* The device below, which is to be a port. */
	__u32 port;
	/* 4 or 8. */
	__u32 tag_bytes;
	__be32 tags[2];
};

/* The end of a flow at which it is counted. */
enum hike_direction {
	HIKE_IN,
	HIKE_OUT,
};

/* Set in a flow's FlowMonID: its packets have the option of RFC 9343. */
#define HIKE_FLOW_HAS_ID 0x80000000

/* A monitored flow; of the SIDs there are as many as the map is for. */
struct hike_flow {
	__u32 direction;
	/* The FlowMonID that its packets have, and that bit; 0: they have no such option. */
	__u32 flow_id;
	__u8 source[16];
	__u8 sids[HIKE_FLOW_SIDS][16];
};

struct hike_block {
	__u64 number;
	__u64 pkts;
};

/* The counts of a flow on one CPU. */
struct hike_counters {
	/* The length of a block. */
	__u64 period_ns;
	/* The bit of the traffic class that is the colour; 0: it is the L bit of the option of RFC 9343. */
	__u32 colour_bit;
	/* The flow's number; 0: it has none, as it is not counted where it enters. */
	__u32 number;
	/* Of all blocks, also of those that are not kept any more. */
	__u64 pkts;
	/* Block n is in place n % HIKE_FLOW_BLOCKS. */
	struct hike_block blocks[HIKE_FLOW_BLOCKS];
};

/* The clock of this host, as answers to test packets tell it. */
struct hike_stamp_clock {
	/* The seconds by which TAI is ahead of UTC, as far as the kernel knows. */
	__u32 tai_ahead_s;
	/* The error estimate of RFC 8762, 4.2.1, in host byte order, without its bit Z. */
	__u16 error;
	__u16 zero;
};

#define HIKE_MAP(NAME, TYPE, ENTRIES, KEY, VALUE, FLAGS)	\
	struct {						\
		__uint(type, TYPE);				\
		__uint(max_entries, ENTRIES);			\
		__uint(key_size, KEY);				\
		__uint(value_size, VALUE);			\
		__uint(map_flags, FLAGS);			\
		__uint(pinning, LIBBPF_PIN_BY_NAME);		\
	} NAME SEC(".maps")

/*
 * The ingress table: destinations, then prefixes of each length in use. The default is the prefix of 0 bits, which both versions have.
 *
 * Both maps replace entries, where an array would write over the one that a packet reads.
 */
HIKE_MAP(classes, BPF_MAP_TYPE_HASH, HIKE_CLASSES, sizeof(struct hike_prefix),
	 sizeof(struct hike_class), BPF_F_NO_PREALLOC);
HIKE_MAP(prefixes, BPF_MAP_TYPE_HASH, HIKE_CLASSES, sizeof(struct hike_prefix),
	 sizeof(struct hike_class), BPF_F_NO_PREALLOC);
HIKE_MAP(lengths_in_use, BPF_MAP_TYPE_ARRAY, 1, sizeof(__u32), sizeof(struct hike_lengths), 0);

/* Flows that have classes of their own: only looked for if the class of their destination says so. */
HIKE_MAP(exact_flows, BPF_MAP_TYPE_HASH, HIKE_CLASSES, sizeof(struct hike_exact_flow),
	 sizeof(struct hike_class), BPF_F_NO_PREALLOC);

/* The devices that packets come from, by their indices. Each entry is replaced as a whole. */
HIKE_MAP(devices, BPF_MAP_TYPE_HASH, HIKE_DEVICES, sizeof(__u32),
	 sizeof(struct hike_device), BPF_F_NO_PREALLOC);
/*
 * The destinations that are the host's own, as keys of classes: its alone, or of several hosts, as those of broadcasts and of anycast are.
 */
#define HIKE_OWNED_BY_THIS 1
#define HIKE_OWNED_BY_SEVERAL 2
HIKE_MAP(own_addresses, BPF_MAP_TYPE_HASH, HIKE_OWN_ADDRESSES, sizeof(struct hike_prefix),
	 sizeof(__u32), BPF_F_NO_PREALLOC);
HIKE_MAP(own_prefixes, BPF_MAP_TYPE_LPM_TRIE, HIKE_OWN_PREFIXES, sizeof(struct hike_prefix),
	 sizeof(__u32), BPF_F_NO_PREALLOC);

/* The groups of each device, a bit for each; a device that is not here is in none. */
#define HIKE_GROUP_INSIDE 1
HIKE_MAP(groups, BPF_MAP_TYPE_HASH, HIKE_GROUPED, sizeof(__u32), sizeof(__u32), BPF_F_NO_PREALLOC);

/* The first program of each chain, and of the engine that tail-calls all programs by their numbers. */
HIKE_MAP(chains, BPF_MAP_TYPE_PROG_ARRAY, HIKE_CHAINS, sizeof(__u32), sizeof(__u32), 0);
HIKE_MAP(programs, BPF_MAP_TYPE_PROG_ARRAY, 256, sizeof(__u32), sizeof(__u32), 0);

HIKE_MAP(packets, BPF_MAP_TYPE_PERCPU_ARRAY, 1, sizeof(__u32), sizeof(struct hike_packet), 0);
HIKE_MAP(paths, BPF_MAP_TYPE_ARRAY, HIKE_PATHS, sizeof(__u32), sizeof(struct hike_path), 0);
/*
 * The counts of flows that packets enter by `enc`: their path says which flow it is, so the addresses need not be looked up.
 * Flows have numbers for that; 0: of this path none is known. Of eight bytes, a number is compared faster than of four.
 */
HIKE_MAP(path_flows, BPF_MAP_TYPE_ARRAY, HIKE_PATHS, sizeof(__u32), sizeof(__u64), 0);
HIKE_MAP(numbered_flows, BPF_MAP_TYPE_PERCPU_HASH, HIKE_FLOWS, sizeof(__u64),
	 sizeof(struct hike_counters), BPF_F_NO_PREALLOC);
HIKE_MAP(behaviours, BPF_MAP_TYPE_ARRAY, HIKE_BEHAVIOURS, sizeof(__u32),
	 sizeof(struct hike_behaviour), 0);
/* The counts of behaviours, by their numbers: twice as many as there are behaviours, as a generation and the next one share them. */
HIKE_MAP(sid_counts, BPF_MAP_TYPE_PERCPU_HASH, 2 * HIKE_BEHAVIOURS, sizeof(__u64),
	 sizeof(struct hike_sid_counts), BPF_F_NO_PREALLOC);
HIKE_MAP(routes, BPF_MAP_TYPE_LPM_TRIE, HIKE_ROUTES, sizeof(struct hike_prefix),
	 sizeof(struct hike_route), BPF_F_NO_PREALLOC);
HIKE_MAP(ports, BPF_MAP_TYPE_DEVMAP_HASH, HIKE_PORTS, sizeof(__u32),
	 sizeof(struct bpf_devmap_val), 0);
/* The ports that send packets in several buffers; the values say nothing. */
HIKE_MAP(wide_ports, BPF_MAP_TYPE_HASH, HIKE_PORTS, sizeof(__u32), sizeof(__u32), BPF_F_NO_PREALLOC);

/*
 * The host's routing, as far as bpf_fib_lookup() does not tell of it: rust/hike/src/routing/ reads it. Entries are written before the
 * word that has packets look for them.
 */
HIKE_MAP(routing, BPF_MAP_TYPE_ARRAY, 1, sizeof(__u32), sizeof(struct hike_routing), 0);
HIKE_MAP(receivers, BPF_MAP_TYPE_HASH, HIKE_RECEIVERS, sizeof(struct hike_tagged),
	 sizeof(struct hike_receiver), BPF_F_NO_PREALLOC);
HIKE_MAP(senders, BPF_MAP_TYPE_HASH, HIKE_SENDERS, sizeof(__u32), sizeof(struct hike_sender),
	 BPF_F_NO_PREALLOC);

/*
 * The access list: which rules have a source, a destination, a protocol and ports like those of a packet; the first rule that is in all
 * these sets counts.
 *
 * There are two banks, of which packets see the one that rule_bank names (1 or 2; 0: there are no rules): user space fills in the other
 * one, and then names it. Keys of the tries have the bank beside the version.
 */
HIKE_MAP(rule_bank, BPF_MAP_TYPE_ARRAY, 1, sizeof(__u32), sizeof(__u32), 0);
HIKE_MAP(rule_sources, BPF_MAP_TYPE_LPM_TRIE, HIKE_RULE_PREFIXES, sizeof(struct hike_prefix),
	 sizeof(struct hike_rules), BPF_F_NO_PREALLOC);
HIKE_MAP(rule_destinations, BPF_MAP_TYPE_LPM_TRIE, HIKE_RULE_PREFIXES, sizeof(struct hike_prefix),
	 sizeof(struct hike_rules), BPF_F_NO_PREALLOC);
HIKE_MAP(rule_sets, BPF_MAP_TYPE_ARRAY, 2 * HIKE_RULE_SETS, sizeof(__u32),
	 sizeof(struct hike_rules), 0);
HIKE_MAP(rule_ports, BPF_MAP_TYPE_ARRAY, 65536, sizeof(__u32), sizeof(struct hike_rule_port), 0);
/* The number of packets that each rule has decided on. */
HIKE_MAP(rule_hits, BPF_MAP_TYPE_PERCPU_ARRAY, 2 * HIKE_RULES, sizeof(__u32), sizeof(__u64), 0);

/* The number of packets that each reason has had. */
HIKE_MAP(reasons, BPF_MAP_TYPE_PERCPU_ARRAY, HIKE_REASONS, sizeof(__u32), sizeof(__u64), 0);

#endif
