// SPDX-License-Identifier: GPL-2.0

//! Counters: one for each thing that can happen to a packet, a batch or a flow.
//!
//! The comment of each says what it counts, and then what it means if it grows. The operator's manual has both (`cargo xtask docs`).

use super::join::{Alone, NR_ALONE};
use super::sync::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $text:literal])* $variant:ident = $name:literal,)*) => {
        /// A counter. Its name in `stats` is [`Counter::name`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[doc = $text])* $variant,)*
        }

        impl Counter {
            /// All counters, in the order of `stats`.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// Returns the stable name under which `stats` prints it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name,)*
                }
            }

            /// Returns the lines of its comment: two paragraphs, of which the first says what it counts.
            pub const fn comment(self) -> &'static [&'static str] {
                match self {
                    $(Counter::$variant => &[$($text,)*],)*
                }
            }
        }
    };
}

counters! {
    /// Fast flows that were asked where they end, by a probe on the ordinary path.
    ///
    /// More than `probes_seen`: fast flows that are forwarded, or that are neither UDP nor TCP inside.
    ProbesSent = "probes_sent",
    /// Probes that reached a merge point: the flow ends in a socket here.
    ///
    /// Healthy.
    ProbesSeen = "probes_seen",
    /// Flows that began to be split.
    ///
    /// Fast, as `flows_stopped` does: `min_flow_pps` is near the rate of flows.
    FlowsSplit = "flows_split",
    /// Flows that stopped being split, for any reason.
    ///
    /// See `flows_split`.
    FlowsStopped = "flows_stopped",
    /// Flows that stopped because their packets no longer reached a merge point.
    ///
    /// The socket or the route of flows went away.
    PathsLost = "paths_lost",
    /// Flows that stopped, or did not start, because something on their path queues packets.
    ///
    /// A queueing discipline, an XDP program, NFQUEUE and their like; `flows` says which flow.
    PathsAsync = "paths_async",
    /// Flows that stopped, or did not start, because a step on their path needs their order.
    ///
    /// IPsec, MACsec, GRE with sequence numbers, IPVS, or sockets that are chosen by CPU.
    PathsOrdered = "paths_ordered",
    /// Fast flows that were not split because all slots were taken.
    ///
    /// Raise `min_flow_pps`.
    NoSlot = "no_slot",
    /// Fast flows that were not split, or not any longer, because the lanes' cores were busy.
    ///
    /// Give other `cpus`, or none: splitting gains nothing here.
    CpusBusy = "cpus_busy",
    /// Batches started.
    ///
    /// Healthy.
    Batches = "batches",
    /// Times a batch was carried on by the NIC's core beyond `batch_pkts` because the merge window was full.
    ///
    /// Lanes do not keep up: more of them, or larger batches.
    BatchesGrown = "batches_grown",
    /// Batches carried by the NIC's core because too much memory waited in rings already.
    ///
    /// Lanes do not keep up.
    MemoryBatches = "memory_batches",
    /// Packets handed to lanes.
    ///
    /// Healthy.
    LanePkts = "lane_pkts",
    /// Packets that were handed over to lanes, the NIC core's own one among them, before they were built: the lane builds them.
    ///
    /// Healthy: the NIC's core has less to do.
    RequestPkts = "request_pkts",
    /// Packets that a lane gave to the stack past GRO, which had joined none of their flow.
    ///
    /// Few. Nearly all of UDP where datagrams have no lists: with `join` 0, where something writes into them, or where `builders` says
    /// `watched`.
    PastGroPkts = "past_gro_pkts",
    /// Packets that a lane added to the one that GRO held, past GRO: segments, of which no packet was built, and datagrams.
    ///
    /// Most, where lanes build packets.
    JoinedPkts = "joined_pkts",
    /// Packets that a lane built, and left to GRO, because `join` is 0.
    ///
    /// None with `join` 1.
    AloneOffPkts = "alone_off_pkts",
    /// The same because GRO held none of their flow that goes on: most are the first of a batch.
    ///
    /// Batches are small, or datagrams have no lists.
    AloneFirstPkts = "alone_first_pkts",
    /// The same because what the driver had was no fragment for that packet: of a small segment it makes a copy.
    ///
    /// Segments are small.
    AloneDriverPkts = "alone_driver_pkts",
    /// The same because the packet before had no room: it was as long as GRO lets it be (64 KB, or `gro_max_size`), or of 64 datagrams.
    ///
    /// Healthy.
    AloneFullPkts = "alone_full_pkts",
    /// The same because their headers did not continue those of the packet before: other flags, a gap, another length.
    ///
    /// Segments are lost or change places before they come here, or messages are short.
    AloneHeadersPkts = "alone_headers_pkts",
    /// The same because a checksum was wrong, or there was none.
    ///
    /// Senders of datagrams leave the checksum out, or packets are damaged.
    AloneChecksumPkts = "alone_checksum_pkts",
    /// Packets that the NIC's core carried itself: lanes had enough to do, packets came one at a time, or a flow stopped.
    ///
    /// Many: the lanes are the limit, or flows need none.
    InlinePkts = "inline_pkts",
    /// Packets delivered in their turn.
    ///
    /// Healthy.
    MergedPkts = "merged_pkts",
    /// Packets that reached the merge point before their batch's turn, and waited.
    ///
    /// Healthy; the smaller the batches, the more.
    EarlyPkts = "early_pkts",
    /// Packets that came after their batch's turn; delivered at once.
    ///
    /// A lane was silent for too long: another load on its CPU?
    LatePkts = "late_pkts",
    /// Times that a packet came, without our patches, with a tag of no batch that was under way.
    ///
    /// Few, behind a reload. Many: a container makes tags up.
    UnknownTags = "unknown_tags",
    /// Batches given up by the deadline: the next one was delivered without them.
    ///
    /// A lane was silent for too long; raise `merge_timeout_us`.
    DeadlineBatches = "deadline_batches",
    /// Batches given up because too many packets were parked behind them.
    ///
    /// A lane was silent for too long.
    OverflowBatches = "overflow_batches",
    /// Packets dropped at the merge point because their socket was being destroyed.
    ///
    /// Healthy where sockets are closed.
    DroppedDeadSocket = "dropped_dead_socket",
    /// Times a device was searched for queues and CPUs that have no lanes yet.
    ///
    /// A NAPI is not on the device's list: at most once a minute.
    DeviceSearches = "device_searches",
    /// Packets merged by a reader that would have slept otherwise.
    ///
    /// Healthy.
    ReaderPkts = "reader_pkts",
    /// Packets that another CPU carried on from the NIC, in the modes of FALCON.
    ///
    /// Healthy; about the same as the next two, unless flows take different ways.
    StageNicPkts = "stage_nic_pkts",
    /// Packets that another CPU carried on from the end of a tunnel.
    ///
    /// Healthy.
    StageTunnelPkts = "stage_tunnel_pkts",
    /// Packets that another CPU carried on from a veth.
    ///
    /// Healthy.
    StageVethPkts = "stage_veth_pkts",
    /// Packets that waited for those before them to leave the stages, while these ended.
    ///
    /// A few at changes of `mode`, `cpus` and `devices`.
    HeldPkts = "held_pkts",
    /// Packets dropped because too many waited for the next stage.
    ///
    /// The CPU of a stage does not keep up: more `cpus`, fewer `stages`, or `mode` `mflow`.
    DroppedStageFull = "dropped_stage_full",
    /// Times the stages were laid out again because loads had changed.
    ///
    /// Loads are about `load_threshold_pct`: another value, or more `cpus`.
    StagesMoved = "stages_moved",
    /// Flows that began to be split, or stopped, of which netlink has nothing to tell: too many did at one moment, or memory is short.
    ///
    /// They count though nobody listens. See `flows_split`.
    LostNotifications = "lost_notifications",
}

/// Number of counters.
pub const NR_COUNTERS: usize = Counter::ALL.len();

impl Counter {
    /// The counters of packets that came alone, in the order of the reasons.
    pub const OF_ALONE: [Self; NR_ALONE] = {
        let mut counters = [Self::AloneOffPkts; NR_ALONE];
        counters[Alone::First as usize] = Self::AloneFirstPkts;
        counters[Alone::Driver as usize] = Self::AloneDriverPkts;
        counters[Alone::Full as usize] = Self::AloneFullPkts;
        counters[Alone::Headers as usize] = Self::AloneHeadersPkts;
        counters[Alone::Checksum as usize] = Self::AloneChecksumPkts;
        counters
    };

    /// Returns whether lanes count it, and nobody else.
    pub fn is_of_lanes(self) -> bool {
        matches!(self, Self::PastGroPkts | Self::JoinedPkts) || Self::OF_ALONE.contains(&self)
    }
}

/// A set of all counters. Memory of zeros is a new one.
#[derive(Debug)]
pub struct Counters([AtomicU64; NR_COUNTERS]);

impl Counters {
    /// Returns counters that are all zero.
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Adds `n`, for a set with one writer at a time: no locked instruction.
    #[inline]
    pub fn add_owned(&self, counter: Counter, n: u64) {
        // PANIC: the enum's values are below the length.
        let place = &self.0[counter as usize];
        // ORDERING: Relaxed: readers want a recent value, not an order.
        place.store(
            place.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// Adds `n`, for a set with several writers.
    #[inline]
    pub fn add_shared(&self, counter: Counter, n: u64) {
        // ORDERING: Relaxed: each addition counts once; readers want a recent value, not an order.
        self.0[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self, counter: Counter) -> u64 {
        // ORDERING: Relaxed: a recent value will do; nothing is read on the strength of it.
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}
