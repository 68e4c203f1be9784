// SPDX-License-Identifier: GPL-2.0

//! One row of a benchmark's result: the JSON that `bench --json` writes and `sim` reads.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) suite: String,
    /// The name of the case, such as `udp-16`, across whose modes rows are compared; overhead cases start with `overhead`.
    pub(crate) case: String,
    /// `native`, `vanilla`, `rps`, `mflow`, ..., behind HIKE with `+hike` or `+lanes`; overhead cases have `compiled-out`, `off`, `loaded`, `idle`, `whole`, `on`.
    pub(crate) mode: String,
    /// The way mflow splits: `flow` (the NIC's core builds packets), `irq` (lanes do) or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) split: Option<String>,
    /// `udp` or `tcp`.
    pub(crate) proto: String,
    pub(crate) msg_bytes: u32,
    pub(crate) clients: u32,
    pub(crate) flows: u32,
    /// 0 without mflow.
    pub(crate) lanes: u32,
    /// 0 without mflow.
    pub(crate) batch_pkts: u32,
    /// `virtio`, `mlx5` or `mlx5-striding`.
    pub(crate) nic: String,
    /// The source of the load: `frames`, `forwarded` and `stream` (from outside the guest), `sockperf`, `iperf3`, ...
    pub(crate) load: String,
    /// Wire packets delivered in the window of the median.
    pub(crate) packets: u64,
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
    /// With mflow: packets that reached the merge before their turn in the window of the median, and waited there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) early: Option<u64>,
    /// `None`: this mode does not exist yet, see `note`.
    pub(crate) insn_per_packet: Option<Instructions>,
    /// The instructions of the busiest core per request, where the load is made of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) insn_per_request: Option<f64>,
    /// The busiest core's work with the vanilla stack in the same case, as a multiple of its work in this row; for a router, the
    /// work in the kernel's path that does the same.
    pub(crate) speedup_vs_vanilla: Option<f64>,
    /// (max - min) / median of the primary figure over all windows.
    pub(crate) spread: Option<f64>,
    /// Messages per second of emulated time on this host: secondary.
    pub(crate) wall_msgs_per_s: Option<f64>,
    /// Emulated, too: secondary.
    pub(crate) latency_us: Option<Latency>,
    /// True if the busiest core had no time to spare.
    pub(crate) saturated: bool,
    pub(crate) paper: Option<Paper>,
    /// A remark that a reader of this row has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// Instructions per delivered wire packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Instructions {
    /// Of the core with the most: the primary figure, the median of all windows.
    pub(crate) busiest: f64,
    /// The least and the most of all windows.
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Of all cores that receive; the sender's are left out.
    pub(crate) total: f64,
    pub(crate) by_cpu: Vec<Core>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Core {
    pub(crate) cpu: u32,
    /// `nic`, `lane`, `app`.
    pub(crate) role: String,
    pub(crate) insn_per_packet: f64,
    /// The part of the window in which the core had nothing to do, 0 to 1.
    pub(crate) idle: f64,
    /// Missing in files that were written before these were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Events>,
    /// The functions with the most instructions, most first.
    pub(crate) top: Vec<Function>,
}

/// Interrupts and softirqs of one core per 1000 delivered wire packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Events {
    pub(crate) device_interrupts: f64,
    pub(crate) timer_interrupts: f64,
    /// Interrupts with which one core has another one schedule (RES), and has it call a function (CAL).
    pub(crate) reschedule_interrupts: f64,
    pub(crate) call_interrupts: f64,
    pub(crate) net_rx_softirqs: f64,
    pub(crate) other_softirqs: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) insn_per_packet: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Paper {
    /// Such as `MFLOW Fig. 8`.
    pub(crate) figure: String,
    /// Throughput over the vanilla overlay's.
    pub(crate) speedup_vs_vanilla: f64,
}

impl Row {
    pub(crate) fn busiest(&self) -> Option<f64> {
        self.insn_per_packet.as_ref().map(|insn| insn.busiest)
    }
}

/// Reads the rows that `bench --json` has written.
pub(crate) fn read(file: &Path) -> Result<Vec<Row>> {
    let hint = "`cargo xtask bench --json FILE` writes such a file";
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read {}; {hint}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of a benchmark; {hint}", file.display()))
}
