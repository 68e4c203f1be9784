// SPDX-License-Identifier: GPL-2.0

//! The causes that are looked for. Each is a function of a snapshot alone.

pub mod cores;
pub mod mtu;
pub mod offloads;
pub mod sockets;
pub mod splitting;
pub mod steering;

use super::finding::Finding;
use super::snapshot::Snapshot;

type Cause = fn(&Snapshot) -> Vec<Finding>;

/// All causes, in the order in which they are reported.
pub const ALL: &[Cause] = &[
    offloads::gro_off,
    offloads::checksums_off,
    offloads::tunnel_checksums_off,
    offloads::lists_off,
    mtu::tunnel_too_long,
    mtu::ports_differ,
    mtu::fragments,
    steering::rps_under_splitting,
    steering::interrupt_on_lane,
    steering::interrupts_move,
    cores::nic_drops,
    cores::backlog_drops,
    cores::squeezed,
    sockets::datagrams_dropped,
    sockets::streams_pruned,
    splitting::whole_flows,
    splitting::none_split,
    splitting::late,
    splitting::unreadable,
];
