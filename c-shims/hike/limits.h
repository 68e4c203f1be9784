/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sizes that user space knows, too: rust/hike/build.rs makes constants of the lines `#define HIKE_NAME NUMBER` of this file, and
 * documents them with the line above.
 */
#ifndef HIKE_LIMITS_H
#define HIKE_LIMITS_H

/* Programs in a chain. */
#define HIKE_CHAIN_PROGRAMS 16
/* Chains that can be in use at the same time. */
#define HIKE_CHAINS 1024
/* Paths that can be in use at the same time. */
#define HIKE_PATHS 16384
/* Behaviours of local SIDs that can be in use at the same time; the first number stands for none. */
#define HIKE_BEHAVIOURS 16384
/* Rules of the access list. */
#define HIKE_RULES 256
/* Prefixes of sources, and as many of destinations: one for each rule and one for each IP version, in two banks. */
#define HIKE_RULE_PREFIXES 1024
/* Sets of ports that the rules can tell apart: two for each range, one for ports in no range, one for unreadable ports. */
#define HIKE_RULE_PORT_SETS 514
/* Destinations that have a class, and as many prefixes, and as many exact flows. */
#define HIKE_CLASSES 131072
/* Stands for 'no length' of a class's key: one more than the longest, version and address of IPv6, which is 160 bits. */
#define HIKE_NO_LENGTH 161
/* Entries of the table of fw-table. */
#define HIKE_ROUTES 131072
/* Devices that packets leave through. */
#define HIKE_PORTS 256
/* Devices that packets come from, and those below them that receive for them. */
#define HIKE_DEVICES 4096
/* Addresses of the host's own, those of broadcasts and of anycast among them. */
#define HIKE_OWN_ADDRESSES 16384
/* Prefixes of addresses that are all the host's own. */
#define HIKE_OWN_PREFIXES 1024
/* Devices that are in a group. */
#define HIKE_GROUPED 256
/* Devices that packets come from, with their VLAN tags. */
#define HIKE_RECEIVERS 16384
/* VLAN devices that packets leave through. */
#define HIKE_SENDERS 16384
/* Monitored flows with the same number of SIDs, both directions. */
#define HIKE_FLOWS 65536
/* SIDs of a monitored flow. */
#define HIKE_FLOW_SIDS 16
/* SIDs of a path: with this number, the outer headers fill the headroom that drivers leave, 256 - 40 bytes. */
#define HIKE_PATH_SIDS 10
/* Bytes of the outer headers of a path: IPv6, destination options, SRH. */
#define HIKE_PATH_BYTES 216
/* The place of the program that tells sources, behind those that chains are made of. */
#define HIKE_TELL 255
/* Sources that a CPU tells in a second: RFC 4443, 2.4 (f). */
#define HIKE_TOLD_PER_S 1000
/* Sources that a CPU tells at once, after a rest. */
#define HIKE_TOLD_AT_ONCE 50
/* Test packets that a CPU answers in a second, and at once after a rest. */
#define HIKE_REFLECTED_PER_S 2000
#define HIKE_REFLECTED_AT_ONCE 1000
/* Blocks of a monitored flow that are kept. */
#define HIKE_FLOW_BLOCKS 4
/* Entries of each CPU's cache, unless user space says otherwise. */
#define HIKE_CACHE_ENTRIES 4096
/* The least entries that it can have: a power of two, as all numbers of them. */
#define HIKE_CACHE_LEAST_ENTRIES 1024
/* The most entries that it can have. */
#define HIKE_CACHE_MOST_ENTRIES 131072
/* Bytes of an entry. */
#define HIKE_CACHE_ENTRY_BYTES 328
/* Neighbours whose state is known. */
#define HIKE_NEIGHBOURS 16384

#endif
