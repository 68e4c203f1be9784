// SPDX-License-Identifier: GPL-2.0

//! What is measured: each case with every stack that a user could pick instead.

use mflow_protocol::bench::{Load, Stack};

/// The batch size where none is said.
const BATCH_PKTS: u32 = 256;
/// Clients of a single-flow UDP case, as in the papers: they share one socket.
const UDP_CLIENTS: u16 = 3;

/// How much is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Suite {
    /// The cases that tell most: within ten minutes
    #[default]
    Quick,
    /// All of the papers' figures that can be measured here: within an hour
    Paper,
}

/// A stack in a case.
#[derive(Clone, Debug)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    pub(super) stack: What,
}

/// What stands behind a mode's name.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// This stack.
    Stack(Stack),
    /// This stack on the kernel that was built without the hooks.
    WithoutHooks(Stack),
    /// Nothing yet, for this reason.
    Missing(&'static str),
}

/// A case: one load, several modes.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) load: Load,
    pub(super) modes: Vec<Mode>,
}

const NO_FALCON: &str = "pipelining by device or function is not built yet";

fn mode(name: &'static str, stack: Stack) -> Mode {
    Mode {
        name,
        stack: What::Stack(stack),
    }
}

fn missing(name: &'static str, why: &'static str) -> Mode {
    Mode {
        name,
        stack: What::Missing(why),
    }
}

fn mflow(lanes: usize, batch_pkts: u32) -> Mode {
    mode("mflow", Stack::Mflow { lanes, batch_pkts })
}

/// The stacks every case compares mflow with.
fn others() -> Vec<Mode> {
    vec![
        mode("native", Stack::Native),
        mode("vanilla", Stack::Vanilla),
        mode("rps", Stack::Rps { cpus: 2 }),
        missing("falcon-dev", NO_FALCON),
        missing("falcon-func", NO_FALCON),
    ]
}

fn udp(bytes: usize) -> Case {
    let mut modes = others();
    modes.extend([1, 2, 4].map(|lanes| mflow(lanes, BATCH_PKTS)));
    Case {
        name: format!("udp-{bytes}"),
        load: Load::Frames {
            flows: UDP_CLIENTS,
            bytes,
        },
        modes,
    }
}

fn tcp(bytes: usize) -> Case {
    let mut modes = others();
    modes.extend([1, 2, 4].map(|lanes| mflow(lanes, BATCH_PKTS)));
    Case {
        name: format!("tcp-{bytes}"),
        load: Load::Iperf3 { flows: 1, bytes },
        modes,
    }
}

fn tcp_flows(flows: u16) -> Case {
    Case {
        name: format!("flows-{flows}"),
        load: Load::Iperf3 {
            flows,
            bytes: 65_536,
        },
        ..tcp(65_536)
    }
}

fn order(batch_pkts: u32) -> Case {
    Case {
        name: format!("order-batch-{batch_pkts}"),
        load: Load::Frames {
            flows: 1,
            bytes: 16,
        },
        modes: vec![mflow(2, batch_pkts)],
    }
}

/// What mflow costs where it does nothing.
fn overhead() -> Case {
    Case {
        name: "overhead-udp-16".to_owned(),
        load: Load::Frames {
            flows: UDP_CLIENTS,
            bytes: 16,
        },
        modes: vec![
            Mode {
                name: "compiled-out",
                stack: What::WithoutHooks(Stack::Vanilla),
            },
            mode("off", Stack::Vanilla),
            mode("idle", Stack::Idle),
            Mode {
                name: "on",
                ..mflow(2, BATCH_PKTS)
            },
        ],
    }
}

/// Returns the cases of a suite.
pub(super) fn all(suite: Suite) -> Vec<Case> {
    match suite {
        Suite::Quick => vec![udp(16), udp(65_507), tcp(65_536), overhead()],
        Suite::Paper => {
            let mut cases = vec![udp(16), udp(4_096), udp(65_507)];
            cases.extend([16, 4_096, 65_536].map(tcp));
            cases.extend([1, 4, 16, 64, 256, 1024].map(order));
            cases.extend([5, 10, 20].map(tcp_flows));
            cases.push(overhead());
            cases
        }
    }
}
