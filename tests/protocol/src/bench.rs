// SPDX-License-Identifier: GPL-2.0

//! A benchmark, as the host orders it and the guest reports it.
//!
//! ```text
//!   host                                   guest
//!   order: Vec<Case>  ───────────────────▶ for each case: network, stack
//!   frames            ◀── Load(Some) ───── if the load comes from outside
//!                     ─── frames ────────▶
//!                     ◀── credit port ──── how far each flow has arrived, so that not too many datagrams are on their way
//!                     ◀── frames ───────── what acknowledges segments
//!                     ◀── Window ───────── after each window
//!                     ◀── Load(None) ───── enough
//!                     ◀── End or Error ─── when the case is over
//! ```
//!
//! Each report of the guest is a [`Message`](crate::guest::Message).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The load of a CPU, in per cent, that lanes by need are not to reach: FALCON's threshold (section 6.1), and ours.
pub const LOAD_THRESHOLD_PCT: u32 = 85;

/// The stack that carries the packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Stack {
    /// No overlay: the datagrams go to the host's own address.
    Native,
    /// No overlay, and GRO runs on another CPU than the NIC's: FALCON's Host+.
    HostPlus {
        /// CPUs that stages are on.
        cpus: usize,
    },
    /// The overlay as it is.
    Vanilla,
    /// The overlay with receive packet steering on the VXLAN device, to these many CPUs.
    Rps {
        /// CPUs to choose from.
        cpus: usize,
    },
    /// The overlay on a Linux that is tuned by hand, without the module.
    Tuned(Tuning),
    /// The overlay with the module loaded and no device opted in.
    Loaded,
    /// The overlay with the module loaded, its device opted in, and splitting switched off.
    Idle,
    /// The overlay with the module loaded, its device opted in, and splitting switched on, where no flow is fast enough to be split.
    Whole,
    /// The overlay with mflow.
    Mflow {
        /// Lanes, each on a CPU of its own or, as `layout` says, on two.
        lanes: usize,
        /// Packets in a batch.
        batch_pkts: u32,
        /// The place at which flows are split: the knob `scaling`.
        scaling: Scaling,
        /// The core that builds packets: the knob `build`.
        build: Build,
        /// The number of CPUs of a lane: the knob `layout`.
        layout: Layout,
        /// The load of a CPU from which flows get lanes by need, 0 for all lanes always: the knob `load_threshold_pct`.
        load_threshold_pct: u32,
    },
    /// The overlay while tasks take all CPUs that flows could use.
    Busy {
        /// CPUs with a task.
        cpus: usize,
        /// True if mflow is loaded, which then splits no flow.
        mflow: bool,
    },
    /// The overlay with flows that go from CPU to CPU, as in FALCON.
    Falcon {
        /// CPUs that stages are on.
        cpus: usize,
        /// The place at which flows leave the NIC's core: the knob `mode`.
        mode: Falcon,
    },
    /// No overlay, and no application: a router.
    Router(Router),
}

/// The settings by which an operator makes the overlay faster without the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tuning {
    /// True if the NIC's GRO puts datagrams into lists, also those that end at no socket of the NIC's namespace.
    pub lists: bool,
    /// True if the NIC's GRO makes one packet of such datagrams.
    pub aggregates: bool,
    /// The number of CPUs that packet steering on the VXLAN device chooses from.
    pub rps_cpus: usize,
    /// True if packet steering follows the reader (RFS), where the reader's CPU is known.
    pub follows_reader: bool,
    /// True if a thread on a CPU of its own polls the NIC.
    pub threaded: bool,
    /// True if an XDP program in the NIC's driver sends all packets to a CPU of their own (`cpumap`), where they are joined from Linux
    /// 6.15 on.
    pub redirected: bool,
}

impl Stack {
    /// Returns whether packets go through the overlay.
    pub fn has_overlay(&self) -> bool {
        !matches!(self, Self::Native | Self::HostPlus { .. } | Self::Router(_))
    }

    /// Returns how many CPUs it is given beside those of the NIC and the application.
    pub fn cpus(&self) -> usize {
        match *self {
            Self::Native
            | Self::Vanilla
            | Self::Loaded
            | Self::Idle
            | Self::Whole
            | Self::Router(_) => 0,
            Self::Rps { cpus }
            | Self::Busy { cpus, .. }
            | Self::Falcon { cpus, .. }
            | Self::HostPlus { cpus } => cpus,
            Self::Tuned(tuning) => {
                tuning.rps_cpus + usize::from(tuning.threaded) + usize::from(tuning.redirected)
            }
            Self::Mflow { lanes, layout, .. } => match layout {
                Layout::Lane => lanes,
                Layout::LaneStage => 2 * lanes,
            },
        }
    }
}

/// The work of a router on packets before they leave by its only other device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Router {
    /// The kernel forwards by a route.
    Kernel,
    /// The kernel is where the first SID of packets is, and sends them on to the next one (`End`).
    KernelEnd,
    /// The kernel puts packets into SRv6 (`H.Encaps`) and forwards them.
    KernelEncaps {
        /// SIDs of each path.
        sids: u16,
    },
    /// A BPF program at XDP that sends all packets out as they are.
    PassThrough,
    /// A chain of HIKE.
    Chain {
        /// As the library reads it, such as `enc,mon-in,fw-fib`.
        programs: String,
        /// The place at which packets take the chain.
        hook: Hook,
        /// The number of lengths, from 64 bits on, of the prefixes that have classes; those of packets have 64 bits. 0: addresses
        /// have classes.
        lengths: u8,
        /// Classes of the same kind that no packet has.
        others: u32,
        /// The way the chain is run.
        engine: Engine,
        /// SIDs of each path, for chains that put packets into SRv6.
        sids: u16,
        /// True if there is a cache by flow in front of it.
        cache: bool,
        /// The number of entries that it has for each CPU; `None`: as many as by default.
        cache_entries: Option<u32>,
    },
}

/// An instance of HIKE on the NIC, in front of a stack that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// It has a class, which no packet of the load has.
    NoClass,
    /// All packets of the load take the chain `lanes,fw-kernel`, which asks for their flow to be split.
    Lanes,
}

/// The place at which packets take a chain of HIKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// On arrival at the NIC.
    Xdp,
    /// On departure, after the kernel has forwarded them.
    Tcx,
}

/// The way HIKE runs chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// One program is made of a chain.
    Compiled,
    /// One tail call for each program of a chain.
    TailCalls,
}

/// The place at which a flow leaves the NIC's core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Falcon {
    /// Behind GRO: pipelining by device.
    Dev,
    /// Before GRO: splitting by function.
    Func,
}

/// The part of a packet's path that the lanes of mflow carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// From before GRO on.
    Path,
    /// From behind the NIC's GRO on.
    Device,
}

/// The core that builds the packets of split flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Build {
    /// For each batch, the core that has less to do.
    Auto,
    /// The core that the NIC interrupts.
    Nic,
    /// The batch's lane.
    Lane,
}

/// The number of CPUs of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// One.
    Lane,
    /// Two: one builds packets, the other carries them.
    LaneStage,
}

/// The way in which a reader takes datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reading {
    /// One with each system call.
    One,
    /// As many as there are with each system call, up to this number (`recvmmsg`).
    Burst(usize),
    /// As many as one packet has (`UDP_GRO`).
    Aggregate,
}

/// The traffic of a case, and its sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// UDP datagrams in ready-made frames from outside the guest, as fast as they are taken.
    Frames {
        /// Flows that take turns.
        flows: u16,
        /// Bytes per datagram.
        bytes: usize,
        /// The way in which the reader takes them.
        reading: Reading,
    },
    /// Packets in ready-made frames from outside the guest, as fast as they are forwarded.
    Forwarded {
        /// The kind of packets.
        packets: Packets,
        /// Destinations that take turns.
        flows: u16,
    },
    /// One TCP connection from outside the guest, as fast as it is read.
    Stream {
        /// Bytes per read.
        bytes: usize,
    },
    /// One `iperf3` client in the guest for each flow, TCP.
    Iperf3 {
        /// Clients.
        flows: u16,
        /// Bytes per write.
        bytes: usize,
    },
    /// `sockperf` clients in the guest; some messages are answered, which tells the latency.
    Sockperf {
        /// The protocol that carries the messages.
        transport: Transport,
        /// Clients, each with a flow of its own.
        clients: u16,
        /// Bytes per message.
        bytes: usize,
        /// The time at which each client sends its next one.
        pace: Pace,
    },
    /// A server that people run in containers, and a load generator for it in the guest, TCP.
    Requests {
        /// The server.
        server: Server,
        /// Connections.
        clients: u16,
        /// Bytes of what is asked for.
        bytes: usize,
    },
}

/// Packets that a router gets; all carry a small datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Packets {
    /// IPv4, to one destination.
    V4,
    /// IPv6.
    V6,
    /// IPv6 in SRv6, on its way to the first SID.
    Srv6 {
        /// SIDs of the path.
        sids: u16,
    },
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A stream.
    Tcp,
}

/// The time at which a client of `sockperf` sends its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pace {
    /// At once; a few messages are answered.
    FlatOut,
    /// So that as many are sent in each second.
    Rate {
        /// Messages per second.
        msgs_per_s: u32,
        /// True if each message is answered, false if a few are.
        all_answered: bool,
    },
    /// When the one before has been answered.
    PingPong,
}

/// A server program of the distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Nine reads and one write out of ten requests.
    Memcached,
    /// One small file.
    Nginx,
}

/// One case for one stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The stack.
    pub stack: Stack,
    /// The instance of HIKE on the NIC in front of the stack; only of a stream.
    pub front: Option<Front>,
    /// The load.
    pub load: Load,
    /// The number of measurements.
    pub windows: u32,
    /// The length of a measurement.
    pub window_ms: u64,
}

/// The traffic that is sent from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outside {
    /// Datagrams.
    Frames(Frames),
    /// The same frame again and again.
    Copies(Copies),
    /// Whatever a TCP connection takes.
    Connection(Connection),
}

/// A TCP connection from the client to [`PORT`], on which the client sends without end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// The address of the NIC the frames go to.
    pub nic_mac: String,
    /// True if the frames go through the overlay.
    pub overlay: bool,
    /// Full segments that may be on their way at most.
    pub segments: usize,
}

/// Datagrams in frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// The address of the NIC the frames go to.
    pub nic_mac: String,
    /// True if the frames go through the overlay.
    pub overlay: bool,
    /// Flows that take turns.
    pub flows: u16,
    /// Bytes per datagram.
    pub bytes: usize,
    /// Datagrams of a flow that may be on their way.
    pub credit: u64,
}

/// One frame for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// The whole frame.
    pub frame: Vec<u8>,
    /// Flows that take turns.
    pub flows: u16,
    /// The offset in the frame of the flow's number, two bytes in network byte order; none: all frames are alike.
    pub flow_at: Option<usize>,
    /// Frames that may be on their way.
    pub credit: u64,
}

/// The measurements that the guest makes in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Datagrams that the application took, requests that it answered, or else packets of a stream.
    pub delivered: u64,
    /// Packets on the wire that carried them.
    pub packets: u64,
    /// Datagrams that never arrived, or segments of a stream that were sent again.
    pub lost: u64,
    /// Datagrams that arrived after one of their flow that was sent later.
    pub reordered: u64,
    /// Packets of the stack that came to the container: fewer than on the wire where it has joined some. `None` without an overlay.
    pub stack_packets: Option<u64>,
    /// Its length on the guest's clock.
    pub seconds: f64,
    /// The part of it in which a CPU had nothing to do, by CPU.
    pub idle: BTreeMap<u32, f64>,
    /// The number of interrupts, by CPU.
    pub events: BTreeMap<u32, Events>,
    /// The counts of the module, if it is loaded.
    pub mflow: BTreeMap<String, i64>,
}

/// Interrupts of one CPU, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Interrupts of devices.
    pub device_interrupts: u64,
    /// Interrupts of the CPU's own timer.
    pub timer_interrupts: u64,
    /// Interrupts with which one CPU has another one schedule (RES).
    pub reschedule_interrupts: u64,
    /// Interrupts with which one CPU has another one call a function, that of a softirq for instance (CAL).
    pub call_interrupts: u64,
    /// Softirqs that receive packets (NET_RX).
    pub net_rx_softirqs: u64,
    /// All other softirqs.
    pub other_softirqs: u64,
}

impl Events {
    /// Returns what was added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let added = |now: u64, before: u64| now.saturating_sub(before);
        Self {
            device_interrupts: added(self.device_interrupts, earlier.device_interrupts),
            timer_interrupts: added(self.timer_interrupts, earlier.timer_interrupts),
            reschedule_interrupts: added(self.reschedule_interrupts, earlier.reschedule_interrupts),
            call_interrupts: added(self.call_interrupts, earlier.call_interrupts),
            net_rx_softirqs: added(self.net_rx_softirqs, earlier.net_rx_softirqs),
            other_softirqs: added(self.other_softirqs, earlier.other_softirqs),
        }
    }
}

/// The measurements that the guest has when a case is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// If the load generator tells it: over its whole life, which is longer than the windows.
    pub latency: Option<Latency>,
}

/// Latency in microseconds of the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Its median.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
}

/// The first port of the container's sockets: flow `n` goes to `PORT + n`, or all to `PORT`.
pub const PORT: u16 = 5001;
