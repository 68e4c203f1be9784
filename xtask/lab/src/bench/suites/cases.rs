// SPDX-License-Identifier: GPL-2.0

//! The cases of the benchmark: each is measured with every stack that a user could pick instead.

use mflow_protocol::bench::{
    Build, Falcon, Front, Layout, Load, Pace, Reading, Scaling, Server, Stack, Transport, Tuning,
    LOAD_THRESHOLD_PCT,
};

pub(crate) const BATCH_PKTS: u32 = 256;
/// Clients of a single-flow UDP case, as in the papers: they share one socket.
const UDP_CLIENTS: u16 = 3;
/// The number of datagrams that a reader asks for at once with `recvmmsg`, as DNS servers and QUIC libraries do.
const BURST: usize = 64;
/// The size of datagrams that QUIC may begin with on any path (RFC 9000, section 14.1).
pub(super) const QUIC_BYTES: usize = 1_200;
/// The number of CPUs of a pipeline: one for each stage of a flow, and one more for the stages of other flows.
const FALCON_CPUS: usize = 4;
/// A larger datagram comes in fragments.
const MOST_UNFRAGMENTED_BYTES: usize = 1_422;
/// The reason for which pipelines are not measured with such datagrams.
const NONE_WHOLE: &str =
    "flat out, a stage that cannot keep up drops fragments of nearly each datagram: none arrives whole";
const SOCKPERF_MAX_BYTES: usize = 65_507;
/// Connections to an application, as in the papers.
const APPLICATION_CLIENTS: u16 = 10;
/// The number of lanes for which a benchmark's guest has CPUs.
pub(super) const MOST_LANES: usize = 8;
/// The number of CPUs that packet steering chooses from, where it can.
const STEERED_CPUS: usize = 2;
/// The number of CPUs that tasks take in the case in which all are busy.
const BUSY_CPUS: usize = 4;
/// Rates that overload no stack, not even an emulated one. The papers' rates are a hundred times as high.
const RATES_MSGS_PER_S: [u32; 3] = [1_000, 2_000, 4_000];

/// The cases that are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// The cases that show most: within ten minutes
    #[default]
    Quick,
    /// All of the papers' figures that can be measured here: takes long
    Paper,
    /// The knob `build`, with each of its values and each number of lanes
    Builders,
}

impl Suite {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Paper => "paper",
            Self::Builders => "builders",
        }
    }

    /// Returns how often a case is measured without `--windows`.
    pub(crate) fn windows(self) -> u32 {
        match self {
            Self::Quick => 3,
            Self::Paper | Self::Builders => 5,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) stack: StackChoice,
    /// The instance of HIKE on the NIC in front of the stack.
    pub(crate) front: Option<Front>,
}

#[derive(Clone, Debug)]
pub(crate) enum StackChoice {
    Stack(Stack),
    /// This stack on the kernel that was built without the hooks.
    WithoutHooks(Stack),
    /// Nothing that could be measured, and why.
    Missing(&'static str),
}

/// A case: one load, several modes.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) load: Load,
    pub(crate) modes: Vec<Mode>,
    /// True if each window has a boot of its own.
    pub(crate) every_boot: bool,
}

impl Mode {
    /// Returns whether a kernel without our patches can run it.
    pub(crate) fn is_without_patches(&self) -> bool {
        if self.front.is_some() {
            return false;
        }
        match &self.stack {
            StackChoice::Stack(
                Stack::Native
                | Stack::Vanilla
                | Stack::Loaded
                | Stack::Idle
                | Stack::Whole
                | Stack::Rps { .. }
                | Stack::Tuned(_)
                | Stack::Mflow {
                    scaling: Scaling::Path,
                    build: Build::Auto | Build::Lane,
                    layout: Layout::Lane,
                    load_threshold_pct: 0,
                    ..
                },
            ) => true,
            StackChoice::Stack(_) | StackChoice::WithoutHooks(_) | StackChoice::Missing(_) => false,
        }
    }

    /// Returns the name of its row: the case, the mode, and the number of lanes.
    pub(crate) fn name_in(&self, case: &Case) -> String {
        let name = format!("{}/{}", case.name, self.name);
        match self.stack {
            StackChoice::Stack(Stack::Mflow { lanes, .. }) => format!("{name} {lanes}"),
            _ => name,
        }
    }

    fn leave_out_pipeline(&mut self) {
        if matches!(self.stack, StackChoice::Stack(Stack::Falcon { .. })) {
            self.stack = StackChoice::Missing(NONE_WHOLE);
        }
    }
}

pub(crate) fn mode(name: &'static str, stack: Stack) -> Mode {
    Mode {
        name,
        stack: StackChoice::Stack(stack),
        front: None,
    }
}

fn falcon(name: &'static str, cpus: usize, mode: Falcon) -> Mode {
    self::mode(name, Stack::Falcon { cpus, mode })
}

pub(super) fn mflow(lanes: usize, batch_pkts: u32) -> Mode {
    built("mflow", lanes, batch_pkts, Build::Auto)
}

pub(crate) fn built(name: &'static str, lanes: usize, batch_pkts: u32, build: Build) -> Mode {
    let stack = Stack::Mflow {
        lanes,
        batch_pkts,
        scaling: Scaling::Path,
        build,
        layout: Layout::Lane,
        load_threshold_pct: 0,
    };
    mode(name, stack)
}

/// Returns the same case with two more modes: mflow where the NIC's core builds all packets, and where lanes do.
fn with_builders(mut case: Case) -> Case {
    for lanes in [2, 4] {
        case.modes.extend([
            built("mflow-nic", lanes, BATCH_PKTS, Build::Nic),
            built("mflow-lane", lanes, BATCH_PKTS, Build::Lane),
        ]);
    }
    case
}

/// Returns the same case with one more mode: mflow that splits behind the NIC's GRO, as MFLOW's single-device scaling does.
fn with_device_scaling(mut case: Case) -> Case {
    let stack = Stack::Mflow {
        lanes: 2,
        batch_pkts: BATCH_PKTS,
        scaling: Scaling::Device,
        build: Build::Nic,
        layout: Layout::Lane,
        load_threshold_pct: 0,
    };
    case.modes.push(mode("mflow-dev", stack));
    case
}

/// Returns the same case with one more mode: mflow with two cores in each branch, as in MFLOW's set-up for TCP.
fn with_two_cores_a_lane(mut case: Case) -> Case {
    let stack = Stack::Mflow {
        lanes: 2,
        batch_pkts: BATCH_PKTS,
        scaling: Scaling::Path,
        build: Build::Auto,
        layout: Layout::LaneStage,
        load_threshold_pct: 0,
    };
    case.modes.push(mode("mflow-stage", stack));
    case
}

/// Adds two modes to a case: FALCON with two CPUs, as few as mflow has lanes in the papers.
fn with_two_falcon_cpus(mut case: Case) -> Case {
    case.modes.extend([
        falcon("falcon-dev-2", 2, Falcon::Dev),
        falcon("falcon-func-2", 2, Falcon::Func),
    ]);
    case
}

/// Returns mflow that gives flows lanes by need, of as many as these.
pub(super) fn mflow_by_need(lanes: usize) -> Mode {
    let stack = Stack::Mflow {
        lanes,
        batch_pkts: BATCH_PKTS,
        scaling: Scaling::Path,
        build: Build::Auto,
        layout: Layout::Lane,
        load_threshold_pct: LOAD_THRESHOLD_PCT,
    };
    mode("mflow-need", stack)
}

/// Adds a mode to a case: mflow that gives flows lanes by need, of as many as there are.
fn with_lanes_by_need(mut case: Case) -> Case {
    case.modes.push(mflow_by_need(MOST_LANES));
    case
}

/// Returns the same case with two more modes: tasks take all CPUs that flows could use, without mflow and with it.
fn with_busy_cpus(mut case: Case) -> Case {
    case.modes.extend(
        [("vanilla-busy", false), ("mflow-busy", true)].map(|(name, mflow)| {
            let cpus = BUSY_CPUS;
            mode(name, Stack::Busy { cpus, mflow })
        }),
    );
    case
}

/// Returns the same case with one more mode: no overlay, and GRO on another CPU than the NIC's, as in FALCON's Fig. 13.
fn with_host_plus(mut case: Case) -> Case {
    let stack = Stack::HostPlus { cpus: 1 };
    case.modes.push(mode("host+", stack));
    case
}

/// Adds modes to a case: Linux as an operator tunes it without the module, by one means each and by those that gain together.
fn with_tuned_linux(mut case: Case) -> Case {
    let none = Tuning::default();
    // GRO's lists do nothing for segments, and cost them the look-up of a socket.
    let (lists, aggregates) = match case.load {
        Load::Frames { reading, .. } => {
            (reading != Reading::Aggregate, reading == Reading::Aggregate)
        }
        _ => (false, false),
    };
    let (name, aggregation) = match aggregates {
        true => ("gro-forwarding", Tuning { aggregates, ..none }),
        false => (
            "gro-list",
            Tuning {
                lists: true,
                ..none
            },
        ),
    };
    let steering = Tuning {
        rps_cpus: STEERED_CPUS,
        ..none
    };
    let follows_reader = Tuning {
        follows_reader: true,
        ..steering
    };
    let threaded = Tuning {
        threaded: true,
        ..none
    };
    let redirected = Tuning {
        redirected: true,
        ..none
    };
    let together = Tuning {
        lists,
        aggregates,
        threaded: true,
        ..steering
    };
    case.modes.extend(
        [
            (name, aggregation),
            ("rfs", follows_reader),
            ("threaded", threaded),
            ("cpumap", redirected),
            ("tuned", together),
        ]
        .map(|(name, tuning)| mode(name, Stack::Tuned(tuning))),
    );
    case
}

/// Returns mflow with these numbers of lanes, and the stacks it is compared with.
fn stacks(lanes: &[usize]) -> Vec<Mode> {
    let mut modes = vec![
        mode("native", Stack::Native),
        mode("vanilla", Stack::Vanilla),
        mode("rps", Stack::Rps { cpus: STEERED_CPUS }),
        falcon("falcon-dev", FALCON_CPUS, Falcon::Dev),
        falcon("falcon-func", FALCON_CPUS, Falcon::Func),
    ];
    modes.extend(lanes.iter().map(|&lanes| mflow(lanes, BATCH_PKTS)));
    modes
}

pub(super) fn case(name: impl Into<String>, load: Load, modes: Vec<Mode>) -> Case {
    Case {
        name: name.into(),
        load,
        modes,
        every_boot: false,
    }
}

/// Datagrams that a reader takes one at a time.
fn frames(flows: u16, bytes: usize) -> Load {
    let reading = Reading::One;
    Load::Frames {
        flows,
        bytes,
        reading,
    }
}

pub(super) fn udp(bytes: usize) -> Case {
    let load = frames(UDP_CLIENTS, bytes);
    let mut modes = stacks(&[1, 2, 4, 8]);
    if bytes > MOST_UNFRAGMENTED_BYTES {
        modes.iter_mut().for_each(Mode::leave_out_pipeline);
    }
    case(format!("udp-{bytes}"), load, modes)
}

/// Returns a case whose reader takes many datagrams at a time: the plain one is a limit of its own.
fn udp_bursts(bytes: usize) -> Case {
    let load = Load::Frames {
        flows: UDP_CLIENTS,
        bytes,
        reading: Reading::Burst(BURST),
    };
    let name = format!("udp-{bytes}-recvmmsg");
    case(name, load, stacks(&[1, 2, 4, 8]))
}

/// Returns a case whose reader takes many datagrams as one, as QUIC servers and WireGuard's in user space do.
pub(super) fn udp_aggregates(bytes: usize) -> Case {
    let load = Load::Frames {
        flows: UDP_CLIENTS,
        bytes,
        reading: Reading::Aggregate,
    };
    case(format!("udp-{bytes}-gro"), load, stacks(&[1, 2, 4, 8]))
}

fn tcp(bytes: usize) -> Case {
    let load = Load::Iperf3 { flows: 1, bytes };
    case(format!("tcp-{bytes}"), load, stacks(&[1, 2, 4]))
}

/// Returns a case of TCP with clients outside the guest. In the guest, clients would cost more than their packets cost the
/// receiver.
pub(super) fn stream(bytes: usize) -> Case {
    let load = Load::Stream { bytes };
    case(format!("stream-{bytes}"), load, stacks(&[1, 2, 4, 8]))
}

fn tcp_flows(flows: u16, bytes: usize) -> Case {
    let load = Load::Iperf3 { flows, bytes };
    case(format!("flows-{bytes}-{flows}"), load, stacks(&[2, 4]))
}

fn latency(name: impl Into<String>, transport: Transport, clients: u16, bytes: usize) -> Case {
    let load = Load::Sockperf {
        transport,
        clients,
        bytes,
        pace: Pace::FlatOut,
    };
    case(name, load, stacks(&[2]))
}

/// Returns a case of one client that sends at a fixed rate: what cores do, and how often they are interrupted, for the same work.
fn rate(transport: Transport, bytes: usize, msgs_per_s: u32) -> Case {
    let load = Load::Sockperf {
        transport,
        clients: 1,
        bytes,
        pace: Pace::Rate {
            msgs_per_s,
            all_answered: false,
        },
    };
    let name = format!("rate-{}-{bytes}-{msgs_per_s}", name_of(transport));
    case(name, load, stacks(&[2]))
}

pub(super) fn name_of(transport: Transport) -> &'static str {
    match transport {
        Transport::Udp => "udp",
        Transport::Tcp => "tcp",
    }
}

fn udp_flows(flows: u16, bytes: usize) -> Case {
    let name = format!("flows-udp-{bytes}-{flows}");
    case(name, frames(flows, bytes), stacks(&[2, 4]))
}

fn latency_udp(bytes: usize) -> Case {
    let name = format!("latency-udp-{bytes}");
    latency(name, Transport::Udp, UDP_CLIENTS, bytes)
}

fn latency_tcp(name: &str, bytes: usize) -> Case {
    latency(name, Transport::Tcp, 1, bytes)
}

fn application(name: &str, server: Server, clients: u16, bytes: usize) -> Case {
    let load = Load::Requests {
        server,
        clients,
        bytes,
    };
    case(name, load, stacks(&[2]))
}

/// Returns a case of one batch size with both builders: lanes that build packets must not make small batches dearer.
fn order(transport: &str, load: Load, batch_pkts: u32) -> Case {
    let name = format!("order-{transport}-batch-{batch_pkts}");
    let nic_builds = built("mflow-nic", 2, batch_pkts, Build::Nic);
    case(name, load, vec![mflow(2, batch_pkts), nic_builds])
}

fn overhead() -> Case {
    Case {
        name: "overhead-udp-16".to_owned(),
        load: frames(UDP_CLIENTS, 16),
        modes: vec![
            Mode {
                name: "compiled-out",
                stack: StackChoice::WithoutHooks(Stack::Vanilla),
                front: None,
            },
            mode("off", Stack::Vanilla),
            mode("loaded", Stack::Loaded),
            mode("idle", Stack::Idle),
            mode("whole", Stack::Whole),
            Mode {
                name: "on",
                ..mflow(2, BATCH_PKTS)
            },
        ],
        every_boot: true,
    }
}

/// Returns the cases of a suite without those that have a file of their own.
pub(super) fn all(suite: Suite) -> Vec<Case> {
    match suite {
        Suite::Quick => vec![
            with_tuned_linux(udp(16)),
            with_tuned_linux(udp_aggregates(QUIC_BYTES)),
            udp(65_507),
            with_tuned_linux(stream(65_536)),
            latency_udp(16),
            overhead(),
        ],
        Suite::Paper => {
            let mut cases = vec![
                with_busy_cpus(with_lanes_by_need(with_two_falcon_cpus(with_builders(
                    with_device_scaling(with_tuned_linux(udp(16))),
                )))),
                with_tuned_linux(udp_bursts(16)),
                with_tuned_linux(udp_aggregates(QUIC_BYTES)),
                with_tuned_linux(udp(1_024)),
                with_tuned_linux(udp(4_096)),
                with_lanes_by_need(with_builders(with_tuned_linux(udp(65_507)))),
                tcp(16),
                tcp(4_096),
                with_lanes_by_need(with_two_falcon_cpus(with_builders(with_device_scaling(
                    tcp(65_536),
                )))),
            ];
            cases.extend([
                with_host_plus(with_tuned_linux(stream(4_096))),
                with_busy_cpus(with_lanes_by_need(with_two_cores_a_lane(with_builders(
                    with_tuned_linux(stream(65_536)),
                )))),
            ]);
            let batches = [1, 4, 16, 64, 256, 1024];
            cases.extend(batches.map(|pkts| order("udp", frames(1, 16), pkts)));
            let stream = Load::Stream { bytes: 65_536 };
            cases.extend(batches.map(|pkts| order("tcp", stream.clone(), pkts)));
            cases.extend([5, 10].map(|flows| udp_flows(flows, 16)));
            for bytes in [16, 4_096, 65_536] {
                cases.extend([5, 10, 20].map(|flows| match bytes {
                    4_096 => with_host_plus(tcp_flows(flows, bytes)),
                    _ => tcp_flows(flows, bytes),
                }));
            }
            cases.extend([16, 4_096, SOCKPERF_MAX_BYTES].map(latency_udp));
            cases.extend([
                latency_tcp("latency-tcp-16", 16),
                latency_tcp("latency-tcp-4096", 4_096),
                // As the papers call it; sockperf's messages end a little before.
                latency_tcp("latency-tcp-65536", SOCKPERF_MAX_BYTES),
            ]);
            cases.extend(RATES_MSGS_PER_S.map(|msgs| rate(Transport::Udp, 16, msgs)));
            cases.push(rate(Transport::Tcp, 4_096, RATES_MSGS_PER_S[0]));
            cases.push(overhead());
            let memcached = |name, clients| application(name, Server::Memcached, clients, 1_024);
            cases.push(memcached("memcached-1", 1));
            cases.push(memcached("memcached", APPLICATION_CLIENTS));
            cases.push(application(
                "nginx",
                Server::Nginx,
                APPLICATION_CLIENTS,
                4_096,
            ));
            cases
        }
        Suite::Builders => Vec::new(),
    }
}
