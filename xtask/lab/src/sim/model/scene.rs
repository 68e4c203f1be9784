// SPDX-License-Identifier: GPL-2.0

//! The scene of a simulation and its outcome: the machine, its streams, and the counts.

use mflow_algo::algo::stage::StageKey;

use super::arrivals::Load;
use super::calendar::PS_PER_S;
use super::paper_balance::PaperBalance;

/// Packets that a softirq carries before it lets others have the core: Linux's NAPI weight.
pub(crate) const POLL_PKTS: usize = 64;

/// The core that does the work of a stage, and the time that a packet takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Several stages may share a core: it serves them in turn, a poll at a time.
    pub(crate) core: usize,
    pub(crate) packet_ps: f64,
}

/// A flow, from its NIC queue to its reader.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) load: Load,
    pub(crate) nic: Place,
    /// Stages that every packet passes one after the other, such as the core that RPS chooses.
    pub(crate) hops: Vec<Place>,
    /// Cores that share the packets, a batch each; with them there are no hops.
    pub(crate) lanes: Vec<Place>,
    /// The time that the NIC's core takes for a packet that no lane gets, beside [`nic`](Self::nic); none: the time that a lane
    /// takes.
    pub(crate) whole_ps: Option<f64>,
    /// True if GRO joins its packets on lanes.
    pub(crate) gro_joins: bool,
    /// Stages that may each be on any of some cores; with them there are neither hops nor lanes.
    pub(crate) stages: Option<Stages>,
    pub(crate) app: Place,
}

/// The stages of pipelined flows behind the NIC's core.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    /// The cores that each of them may be on: with [`Control`] those whose loads count.
    pub(crate) cores: Vec<usize>,
    pub(crate) packet_ps: Vec<f64>,
    /// The additional time for a packet that comes from another core.
    pub(crate) hop_ps: f64,
    /// The time that all of them take on the NIC's core, where it does them.
    pub(crate) whole_ps: f64,
    pub(crate) balance: Balance,
}

/// The way stages find their cores.
#[derive(Clone, Debug)]
pub(crate) enum Balance {
    /// As the module has it. The stream is made of these flows, whose packets take turns.
    Module(Vec<StageKey>),
    /// As the paper has it.
    Paper(PaperBalance),
}

/// The controller, which samples loads.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) period_ps: u64,
    /// The cores whose loads count: `cpus`.
    pub(crate) cores: Vec<usize>,
    pub(crate) follows: Follows,
}

/// The parts of the module that follow the loads. Thresholds are in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Follows {
    /// Nothing of the module's.
    Nothing,
    /// Lanes and batches.
    Lanes(u32),
    /// Stages.
    Stages(u32),
}

/// The treatment of a batch when no lane's ring has room for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WhenFull {
    /// The NIC core carries it, as the module does.
    Inline,
    /// Packets are lost: the NIC core never takes part.
    Lose,
}

#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) batch_pkts: u32,
    pub(crate) merge_timeout_us: u32,
    pub(crate) lane_ring_pkts: u32,
    pub(crate) nic_ring_pkts: usize,
    /// The size of the queue in front of a hop: `netdev_max_backlog`.
    pub(crate) backlog_pkts: usize,
    pub(crate) socket_pkts: usize,
    pub(crate) ipi_ps: u64,
    pub(crate) wake_up_ps: u64,
    /// A packet's cost is even between (1 - spread) and (1 + spread) of its mean.
    pub(crate) cost_spread: f64,
    pub(crate) when_full: WhenFull,
    /// The time that a batch costs its lane beside its packets.
    pub(crate) batch_ps: f64,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) core: usize,
    pub(crate) from_ps: u64,
    pub(crate) to_ps: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) cores: usize,
    pub(crate) streams: Vec<Stream>,
    pub(crate) knobs: Knobs,
    pub(crate) stall: Option<Stall>,
    pub(crate) control: Option<Control>,
    /// Each stream ends after this many packets.
    pub(crate) stream_pkts: u64,
    /// Deliveries before the counting begins.
    pub(crate) warm_up_pkts: u64,
    /// Deliveries that are counted.
    pub(crate) count_pkts: u64,
}

impl Scene {
    /// Returns a scene without an end, of which nothing is counted yet.
    pub(crate) fn of(cores: usize, streams: Vec<Stream>, knobs: Knobs) -> Self {
        Self {
            cores,
            streams,
            knobs,
            stall: None,
            control: None,
            stream_pkts: u64::MAX,
            warm_up_pkts: 0,
            count_pkts: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Count {
    Delivered,
    /// Lost at the NIC's ring, at a hop's queue, at a lane's ring, at the socket.
    NicFull,
    BacklogFull,
    LaneFull,
    SocketFull,
    /// Carried by the NIC core because the lanes had no room.
    Inline,
    /// Runs of packets, and packets, that reached the merge point before their turn.
    EarlyRuns,
    EarlyPkts,
    /// Packets that came to the merge point after their batch was given up.
    LatePkts,
    DeadlineBatches,
    /// Packets that were read after one with a higher number.
    Reordered,
}

const COUNTS: usize = Count::Reordered as usize + 1;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts([u64; COUNTS]);

impl Counts {
    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    pub(crate) fn add(&mut self, count: Count, by: u64) {
        self.0[count as usize] += by;
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (now, before) in difference.0.iter_mut().zip(earlier.0) {
            *now -= before;
        }
        difference
    }

    pub(crate) fn lost(&self) -> u64 {
        [
            Count::NicFull,
            Count::BacklogFull,
            Count::LaneFull,
            Count::SocketFull,
        ]
        .iter()
        .map(|count| self.get(*count))
        .sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Limit {
    /// Everything that arrived was delivered.
    Link,
    Nic,
    Hop,
    Lanes,
    /// The thread that copies to the application.
    Copy,
    Core,
}

impl Limit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Nic => "nic",
            Self::Hop => "hop",
            Self::Lanes => "lanes",
            Self::Copy => "copy",
            Self::Core => "core",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) all: Counts,
    /// While it was counted.
    pub(crate) counted: Counts,
    pub(crate) counted_ps: u64,
    /// Packets that had arrived.
    pub(crate) arrived: u64,
    /// Packets that were still on their way at the end.
    pub(crate) inside: u64,
    /// The latencies of the packets delivered in the counted time, from the NIC's ring to the end of the copy; sorted.
    pub(crate) latencies_ps: Vec<u64>,
    /// The share of the counted time in which each core was busy.
    pub(crate) busy: Vec<f64>,
}

impl Outcome {
    pub(crate) fn pkts_per_s(&self) -> f64 {
        if self.counted_ps == 0 {
            return 0.0;
        }
        self.counted.get(Count::Delivered) as f64 / self.counted_ps as f64 * PS_PER_S
    }

    pub(crate) fn latency_us(&self, share: f64) -> f64 {
        // CAST: a place in the list.
        let place = (self.latencies_ps.len() as f64 * share) as usize;
        let last = self.latencies_ps.len().saturating_sub(1);
        self.latencies_ps
            .get(place.min(last))
            .map_or(0.0, |ps| *ps as f64 / super::calendar::PS_PER_US)
    }

    /// Returns what limited the only stream of `scene`: the last place where packets piled up.
    pub(crate) fn limit(&self, scene: &Scene) -> Limit {
        let Some(stream) = scene.streams.first() else {
            return Limit::Link;
        };
        let delivered = self.counted.get(Count::Delivered) as f64;
        let many = |count: Count| self.counted.get(count) as f64 > 0.01 * delivered;
        let endless = matches!(stream.load, Load::Endless);
        let lost = self.counted.lost() as f64 > 0.01 * delivered;
        let full = |core: usize| self.busy.get(core).is_some_and(|busy| *busy > 0.98);
        if scene.cores == 1 && (lost || endless) {
            Limit::Core
        } else if let Some(stages) = &stream.stages {
            // What is under way is limited, so nothing is lost.
            if full(stream.app.core) {
                Limit::Copy
            } else if full(stream.nic.core) {
                Limit::Nic
            } else if stages.cores.iter().any(|core| full(*core)) {
                Limit::Hop
            } else {
                Limit::Link
            }
        } else if self.counted.get(Count::SocketFull) > 0 && full(stream.app.core) {
            Limit::Copy
        } else if many(Count::Inline) || many(Count::LaneFull) {
            Limit::Lanes
        } else if many(Count::BacklogFull) {
            Limit::Hop
        } else if many(Count::NicFull) || endless {
            Limit::Nic
        } else {
            Limit::Link
        }
    }
}
