// SPDX-License-Identifier: GPL-2.0

//! The cache by flow: what has changed, and who has changed it, packets do not leave as before.
//!
//! Datagrams cross a router ([`ways`]) all the time, and each carries the time at which it was sent. So each that arrives shows which
//! state of the router it has met.

mod daemon;
mod devices;
mod entries;
mod flows;
mod host_changes;
mod kernel_changes;
mod next_hop;
mod own_changes;
mod times;
mod traced;
mod ways;

use crate::hike::Case;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "cache/kernel-changes",
            proves: "routes, rules, neighbours, links and next hops change under packets: none that was sent afterwards leaves as before, or, where the kernel cannot be traced, none that was sent a second later",
            run: kernel_changes::run,
        },
        Case {
            name: "cache/own-changes",
            proves: "classes, chains, paths, routes, ports and monitors change under packets: none that was sent afterwards leaves as before",
            run: |_| own_changes::run(),
        },
        Case {
            name: "cache/host-changes",
            proves: "own addresses, devices inside, Ethernet addresses and routing change under packets, and VLANs that packets leave by: none that was sent afterwards leaves as before, and the cache knows tags",
            run: |_| host_changes::run(),
        },
        Case {
            name: "cache/daemon",
            proves: "without tracing, packets do without the cache while hiked stands still or is not there, and take the kernel's changes at once",
            run: |_| daemon::run(),
        },
        Case {
            name: "cache/flows",
            proves: "a cache with room for 10,000 flows in turn is good for nine of ten packets, and one that is too small for some; each leaves as its flow does",
            run: |scale| flows::run(scale.seed),
        },
        Case {
            name: "cache/entries",
            proves: "hiked changes the number of the cache's entries under traffic, and refuses what cannot be",
            run: |_| entries::run(),
        },
        Case {
            name: "cache/next-hop",
            proves: "a next hop that has another Ethernet address and says nothing gets its packets again as soon as it does from the kernel",
            run: |_| next_hop::run(),
        },
        Case {
            name: "cache/second",
            proves: "a sysctl of which nobody tells takes effect within a second",
            run: |_| times::of_entries(),
        },
        Case {
            name: "cache/colours",
            proves: "packets of a block leave as their colour says, though those of the block before left otherwise",
            run: |_| times::of_colours(),
        },
        Case {
            name: "cache/inside",
            proves: "what is known of a flow inside of the SR domain is not good for the same frames from outside",
            run: |_| devices::of_the_domain(),
        },
        Case {
            name: "cache/namespaces",
            proves: "packets do without the cache while devices of several network namespaces are attached",
            run: |_| devices::of_namespaces(),
        },
        Case {
            name: "traced/without-hiked",
            proves: "where the kernel is traced, the cache goes on when hiked has been killed, and takes the kernel's changes at once; not while the kernel runs no programs behind its functions",
            run: |_| traced::run(),
        },
    ]
}
