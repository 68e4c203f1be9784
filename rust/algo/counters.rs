// SPDX-License-Identifier: GPL-2.0

//! Counters: one for each thing that can happen to a packet, a batch or a flow.

use super::sync::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $text:literal])* $variant:ident = $name:literal,)*) => {
        /// What is counted. The name in `stats` is [`Counter::name`].
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
        }
    };
}

counters! {
    /// Probes sent along the ordinary path to see where a flow ends.
    ProbesSent = "probes_sent",
    /// Probes that reached a merge point.
    ProbesSeen = "probes_seen",
    /// Flows that began to be split.
    FlowsSplit = "flows_split",
    /// Flows that stopped being split, for whatever reason.
    FlowsStopped = "flows_stopped",
    /// Flows that stopped because their packets no longer reached a merge point.
    PathsLost = "paths_lost",
    /// Flows that stopped, or did not start, because something on their path queues packets.
    PathsAsync = "paths_async",
    /// Flows that stopped, or did not start, because a step on their path needs their order: IPsec, GRE with sequence
    /// numbers, sockets that are chosen by CPU.
    PathsOrdered = "paths_ordered",
    /// Fast flows that were not split because all slots were taken.
    NoSlot = "no_slot",
    /// Fast flows that were not split, or not any longer, because the lanes' cores were busy.
    CpusBusy = "cpus_busy",
    /// Batches started.
    Batches = "batches",
    /// Times a batch was carried on by the NIC's core beyond `batch_pkts` because the merge window was full.
    BatchesGrown = "batches_grown",
    /// Batches carried by the NIC's core because too much memory waited in rings already.
    MemoryBatches = "memory_batches",
    /// Packets handed to lanes.
    LanePkts = "lane_pkts",
    /// Packets of those that were handed over before they were built: the lane builds them.
    RequestPkts = "request_pkts",
    /// Packets that a lane gave to the stack past GRO, which had joined none of their flow.
    PastGroPkts = "past_gro_pkts",
    /// Packets that the NIC's core carried itself because no lane had room, or while a flow stopped.
    InlinePkts = "inline_pkts",
    /// Packets delivered in order.
    MergedPkts = "merged_pkts",
    /// Packets that reached the merge point before their batch's turn, and waited.
    EarlyPkts = "early_pkts",
    /// Packets that came after their batch's turn; delivered at once.
    LatePkts = "late_pkts",
    /// Batches given up by the deadline: the next one was delivered without them.
    DeadlineBatches = "deadline_batches",
    /// Batches given up because too many packets were parked behind them.
    OverflowBatches = "overflow_batches",
    /// Packets dropped at the merge point because their socket was being destroyed.
    DroppedDeadSocket = "dropped_dead_socket",
    /// Times a device was searched for queues and CPUs that have no lanes yet.
    DeviceSearches = "device_searches",
    /// Packets drained by a reader that was about to wait.
    ReaderPkts = "reader_pkts",
    /// Packets that another CPU carried on from the NIC, in the modes of FALCON.
    StageNicPkts = "stage_nic_pkts",
    /// Packets that another CPU carried on from the end of a tunnel.
    StageTunnelPkts = "stage_tunnel_pkts",
    /// Packets that another CPU carried on from a veth.
    StageVethPkts = "stage_veth_pkts",
    /// Packets that waited for those before them to leave the stages, while these ended.
    HeldPkts = "held_pkts",
    /// Packets dropped because too many waited for the next stage.
    DroppedStageFull = "dropped_stage_full",
    /// Times the stages were laid out anew because loads had changed.
    StagesMoved = "stages_moved",
}

/// Number of counters.
pub const NR_COUNTERS: usize = Counter::ALL.len();

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
