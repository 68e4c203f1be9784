// SPDX-License-Identifier: GPL-2.0

//! The host's orders to a guest, and the reports of the guest's programs.
//!
//! ```text
//!   host                                      guest
//!   ORDER_FILE: Order, in the initramfs ────▶ init: runs one command
//!                   ◀── VERDICTS_PORT ─────── one Message as JSON in each line; the last one is Exit
//! ```
//!
//! A word that the other side does not know is an error there: the two are built from one state of this file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bench::{End, Outside, Window};

/// The file of the initramfs with the [`Order`].
pub const ORDER_FILE: &str = "/mflow/run.json";
/// The serial port of the command's standard input, output and error.
pub const TERMINAL_PORT: &str = "/dev/ttyS0";
/// The serial port of the [`Message`]s.
pub const VERDICTS_PORT: &str = "/dev/ttyS1";
/// The serial port of the kernel's log.
pub const KERNEL_LOG_PORT: &str = "/dev/ttyS2";
/// The boot parameter with which a checking kernel finds memory that nothing points to any more.
pub const LEAK_DETECTOR: &str = "kmemleak=on";
/// The boot parameter of a kernel whose drivers have no files in debugfs.
pub const NO_DEBUGFS: &str = "debugfs=off";
/// The serial port on which the receiver of ready-made frames says how far it is.
pub const CREDIT_PORT: &str = "/dev/ttyS3";
/// The variable of an order that says how many channels the NICs shall have, if not as many as they come with.
pub const CHANNELS: &str = "MFLOW_CHANNELS";
/// The variable of an order with the seed of all that is drawn in the guest.
pub const SEED: &str = "MFLOW_SEED";
/// The variable of an order that says which core builds packets where a case does not choose it. Without it, that is drawn.
pub const BUILD: &str = "MFLOW_BUILD";
/// The variable of an order that has a benchmark say where the kernel's functions are, for a kernel whose packages do not.
pub const KERNEL_FUNCTIONS: &str = "MFLOW_KERNEL_FUNCTIONS";
/// The parts of the chaos that is run by default, one after the other: together they have each kind of step.
pub const CHAOS_PARTS: [ChaosPart; 4] = [
    chaos_part(49_806, 60, ChaosKernel::Plain),
    chaos_part(175_680, 20, ChaosKernel::Checking),
    chaos_part(300_121, 10, ChaosKernel::CheckingUnhooked),
    chaos_part(10_740, 30, ChaosKernel::Distribution),
];
/// The number of steps in a sequence of chaos.
pub const CHAOS_SEQUENCE: u64 = 10;

/// A part of the chaos that is run by default.
#[derive(Clone, Copy, Debug)]
pub struct ChaosPart {
    /// The seed of its sequences. Their numbers go on from part to part.
    pub seed: u64,
    /// The number of its steps.
    pub steps: u64,
    /// The kernel that it runs on.
    pub kernel: ChaosKernel,
}

/// A kernel, and the module's way into its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChaosKernel {
    /// Ours, with our hooks.
    Plain,
    /// Ours with its checks, with our hooks.
    Checking,
    /// The same without our hooks.
    CheckingUnhooked,
    /// A distribution's.
    Distribution,
}

const fn chaos_part(seed: u64, steps: u64, kernel: ChaosKernel) -> ChaosPart {
    ChaosPart {
        seed,
        steps,
        kernel,
    }
}

/// The command that the guest's init shall run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// True if a person is at the terminal.
    pub interactive: bool,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
}

/// A test case, as `mflow-guest cases --list`, and `driver` and `chaos` likewise, print it: JSON, one in each line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedCase {
    /// Its name.
    pub name: String,
    /// True if the kernel patches code of the packet path under load, which takes a guest with one thread.
    pub patches_code: bool,
    /// The statement that holds if the case passes.
    pub proves: String,
    /// The steps of the case in their order, if they were drawn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ListedStep>,
}

/// A step of a case that was drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedStep {
    /// Its place among all that were drawn, of which some may be left out.
    pub place: usize,
    /// The description of the step; the text before a colon names its kind.
    pub text: String,
}

/// A report from the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Message {
    /// A test case begins.
    Start(String),
    /// The case takes its next step. Cases with many steps may take long.
    Step(String),
    /// It has ended.
    Result(CaseResult),
    /// It has failed while the host was too busy, and is run once more.
    Again(CaseAgain),
    /// Frames per second that are offered where nothing may be lost.
    Rate(f64),
    /// An order for the ConnectX model, such as `0 link down`.
    Card(String),
    /// A card shall receive a capture again.
    Replay {
        /// The card.
        card: usize,
        /// The number of times.
        times: u64,
        /// The capture, in pcap's format.
        capture: Vec<u8>,
    },
    /// One stack of the demo has been measured.
    Row(DemoRow),
    /// The loss of one block has been measured.
    Loss(LossRow),
    /// The traffic that a benchmark wants from outside; `None` ends it.
    Load(Option<Outside>),
    /// The functions of the guest's modules: names by address, in hexadecimal.
    Symbols(BTreeMap<String, String>),
    /// The functions of the guest's kernel, likewise, with [`KERNEL_FUNCTIONS`].
    KernelSymbols(BTreeMap<String, String>),
    /// A window of a benchmark is over.
    Window(Window),
    /// A case of a benchmark is over.
    End(End),
    /// A case of a benchmark could not be measured.
    Error(String),
    /// The command of the order has ended with this status.
    Exit(i32),
}

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseResult {
    /// Its name.
    pub case: String,
    /// The time that it took.
    pub seconds: f64,
    /// The description of the failure; none if the case has passed.
    pub error: Option<String>,
    /// The measurements, if the case is about traffic.
    pub measured: Option<Measured>,
}

/// The repetition of a test case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseAgain {
    /// Its name.
    pub case: String,
    /// The reason for which the failure may be the host's fault.
    pub why: String,
    /// The description of the failure.
    pub error: String,
    /// The time that the first run took.
    pub seconds: f64,
}

/// The part of a run of traffic that is worth a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Datagrams, or for byte streams packets on the wire, that were sent.
    pub sent: u64,
    /// Those that arrived whole.
    pub delivered: u64,
    /// Those that never arrived, or were sent again.
    pub lost: u64,
    /// Those that arrived after one of their flow that was sent later.
    pub reordered: u64,
    /// Those that are not as they were sent.
    pub corrupt: u64,
    /// Those that the sender kept up per second.
    pub offered_per_s: u64,
    /// The longest time between two arrivals.
    pub longest_stall_us: u64,
    /// Bytes of TCP streams that were compared.
    pub stream_bytes: u64,
}

/// One stack of the demo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemoRow {
    /// The number of lanes; 0 is the vanilla stack.
    pub lanes: usize,
    /// The numbered datagrams.
    pub numbered: Measured,
    /// The sockperf clients.
    pub sockperf: Sockperf,
    /// The results that must not be, in sentences.
    pub errors: Vec<String>,
}

/// Packets of one block of a monitored flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossRow {
    /// The number of the block.
    pub block: u64,
    /// Those that the monitor counted where the flow enters.
    pub entered: u64,
    /// Those that the monitor counted where it leaves.
    pub left: u64,
    /// Those that a filter in between has dropped.
    pub dropped: u64,
}

/// The measurements while sockperf clients streamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockperf {
    /// Messages per second that the server's application received.
    pub messages_per_s: u64,
    /// The length of the measurement.
    pub seconds: f64,
    /// Packets taken through the stack, by CPU (a packet counts once per device).
    pub softnet_pkts: BTreeMap<usize, u64>,
    /// The increases of the module's counters; empty without the module.
    pub mflow: BTreeMap<String, i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> serde_json::Result<Message> {
        serde_json::from_str(line)
    }

    #[test]
    fn messages_are_understood_and_unknown_words_are_not() {
        let again = Message::Again(CaseAgain {
            case: "main".to_owned(),
            why: "a CPU was away".to_owned(),
            error: "late".to_owned(),
            seconds: 1.5,
        });
        for message in [again, Message::Load(None), Message::Exit(0)] {
            let line = serde_json::to_string(&message).expect("JSON");
            assert_eq!(read(&line).expect("known"), message);
        }
        for unknown in [
            r#"{"verdict":"main"}"#,
            r#"{"again":{"case":"main","why":"a CPU was away","error":"late","seconds":1.5,"more":1}}"#,
            r#"{"replay":{"card":0,"times":1,"capture":[],"more":1}}"#,
            r#"{"load":{"frames":{"nic_mac":"","overlay":true,"flows":1,"bytes":1,"credit":1,"more":1}}}"#,
            r#"{"load":{"connection":{"nic_mac":"","overlay":true,"segments":1,"more":1}}}"#,
            "exit 0",
            "",
        ] {
            assert!(read(unknown).is_err(), "{unknown}");
        }
        let order = r#"{"argv":[],"interactive":false,"env":{},"more":1}"#;
        assert!(serde_json::from_str::<Order>(order).is_err());
    }
}
