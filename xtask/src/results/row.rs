// SPDX-License-Identifier: GPL-2.0

//! One row of a benchmark's result: the JSON that `bench --json` writes, `sim` reads, and the repository keeps.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::origin::Origin;

/// A mode of a case, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `quick`, `paper` or `builders`.
    pub suite: String,
    /// The name of the case, such as `udp-16`, across whose modes rows are compared; overhead cases start with `overhead`.
    pub case: String,
    /// `native`, `vanilla`, `rps`, `mflow`, ..., behind HIKE with `+hike` or `+lanes`; overhead cases have `compiled-out`, `off`, `loaded`, `idle`, `whole`, `on`.
    pub mode: String,
    /// The way mflow splits: `flow` (the NIC's core builds packets), `irq` (lanes do) or `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// `udp` or `tcp`.
    pub proto: String,
    /// Bytes of a message: a datagram, a write or a read.
    pub msg_bytes: u32,
    /// Those that send.
    pub clients: u32,
    /// Flows in which messages arrive.
    pub flows: u32,
    /// 0 without mflow.
    pub lanes: u32,
    /// 0 without mflow.
    pub batch_pkts: u32,
    /// `virtio`, `mlx5` or `mlx5-striding`.
    pub nic: String,
    /// The name of the distribution's kernel, where it is not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// The source of the load: `frames`, `forwarded` and `stream` (from outside the guest), `sockperf`, `iperf3`, ...
    pub load: String,
    /// Wire packets delivered in the window of the median.
    pub packets: u64,
    /// Packets of all windows that did not arrive; of a stream, segments that were sent again.
    pub lost: u64,
    /// Packets of all windows that reached the application out of order.
    pub reordered: u64,
    /// With mflow: packets that reached the merge before their turn in the window of the median, and waited there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<u64>,
    /// Packets in the window of the median that were in the stack together with others of their flow, and came to the container as a
    /// part of one of those. `None`: not recorded, or no overlay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<u64>,
    /// `None`: this mode does not exist yet, see `note`.
    pub insn_per_packet: Option<Instructions>,
    /// The instructions of the busiest core per request, where the load is made of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insn_per_request: Option<f64>,
    /// The busiest core's work with the vanilla stack in the same case, as a multiple of its work in this row; for a router, the
    /// work in the kernel's path that does the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_vs_vanilla: Option<f64>,
    /// All cores' work, as a multiple of that with the vanilla stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_vs_vanilla: Option<f64>,
    /// (max - min) / median of the primary figure over all windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Messages per second of emulated time on this host: secondary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_msgs_per_s: Option<f64>,
    /// Emulated, too: secondary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// True if the busiest core had no time to spare; `None`: not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturated: Option<bool>,
    /// The statement of a paper about this mode and case, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// A remark that a reader of this row has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The commit, the machine and the command that the row comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// Instructions per delivered wire packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// Of the core with the most: the primary figure, the median of all windows.
    pub busiest: f64,
    /// The least of all windows; missing, as all below, in rows of which only the figure was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The most of all windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Of all cores that receive; the sender's are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Of the cores between the driver and the socket, the application's left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_socket: Option<f64>,
    /// Each core that has a part in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_cpu: Vec<Core>,
    /// The functions with the most instructions on the busiest core, where that is all that is kept of the cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<Function>,
    /// The functions with the most instructions on all cores together, where that is all that is kept of the cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_of_all: Vec<Function>,
}

/// The work of one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// The number of the CPU in the guest.
    pub cpu: u32,
    /// `nic`, `lane`, `app`.
    pub role: String,
    /// Instructions per delivered wire packet.
    pub insn_per_packet: f64,
    /// The part of the window in which the core had nothing to do, 0 to 1.
    pub idle: f64,
    /// Missing in files that were written before these were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// The functions with the most instructions, most first.
    pub top: Vec<Function>,
}

/// Interrupts and softirqs of one core per 1000 delivered wire packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Of the NICs.
    pub device_interrupts: f64,
    /// Of the clock of this CPU.
    pub timer_interrupts: f64,
    /// Interrupts with which one core has another one schedule (RES).
    pub reschedule_interrupts: f64,
    /// Interrupts with which one core has another one call a function (CAL).
    pub call_interrupts: f64,
    /// Those that receive.
    pub net_rx_softirqs: f64,
    /// All others.
    pub other_softirqs: f64,
}

/// A function, and its part of a core's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// The name of the symbol, or of a group of functions.
    pub name: String,
    /// Instructions per delivered wire packet.
    pub insn_per_packet: f64,
}

/// Half a round trip, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// A figure of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paper {
    /// Such as `MFLOW Fig. 8`.
    pub figure: String,
    /// Throughput over the vanilla overlay's.
    pub speedup_vs_vanilla: f64,
}

impl Row {
    /// Returns the primary figure, if there is one.
    pub fn busiest(&self) -> Option<f64> {
        self.insn_per_packet.as_ref().map(|insn| insn.busiest)
    }

    /// Returns how many of 1000 packets these are.
    pub fn per_1000(&self, pkts: Option<u64>) -> Option<f64> {
        // CAST: far from where f64 loses digits.
        let part = pkts? as f64 / self.packets as f64;
        Some(part * 1e3).filter(|_| self.packets > 0)
    }

    /// Returns its case, behind the kernel and the NIC where they are not the usual ones: `udp-16`, `mlx5:udp-16`.
    pub fn place(&self) -> String {
        let nic = Some(&self.nic).filter(|nic| *nic != "virtio");
        let before = self.distribution.iter().chain(nic);
        before.map(|name| format!("{name}:")).collect::<String>() + &self.case
    }

    /// Returns its mode and the number of lanes: `mflow 2`.
    pub fn stack(&self) -> String {
        match self.lanes {
            0 => self.mode.clone(),
            lanes => format!("{} {lanes}", self.mode),
        }
    }

    /// Returns the name that no other row of the results has: `mlx5:udp-16/mflow 2`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.place(), self.stack())
    }

    /// Returns whether the other row is compared with this one.
    pub fn is_base_of(&self, other: &Self) -> bool {
        self.place() == other.place() && is_base(&self.mode, &other.mode)
    }
}

/// Reads the rows that `bench --json` has written.
pub fn read(file: &Path) -> Result<Vec<Row>> {
    let hint = "`cargo xtask bench --json FILE` writes such a file";
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read {}; {hint}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of a benchmark; {hint}", file.display()))
}

/// Fills in how many times less the busiest core does than with the vanilla stack, or of a router, in the kernel's path; and how
/// many times as much all cores do, if both rows say that.
pub fn compare(rows: &mut [Row]) {
    let bases: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let insn = row.insn_per_packet.as_ref()?;
            Some((row.place(), row.mode.clone(), insn.busiest, insn.total))
        })
        .collect();
    for row in rows {
        let place = row.place();
        let base = bases
            .iter()
            .find(|(of, mode, ..)| *of == place && is_base(mode, &row.mode));
        let both = base.zip(row.insn_per_packet.as_ref());
        row.speedup_vs_vanilla = both.map(|((.., base, _), ours)| base / ours.busiest);
        let totals = both.and_then(|((.., base), ours)| Some(ours.total? / (*base)?));
        row.total_vs_vanilla = totals.or(row.total_vs_vanilla);
    }
}

/// Returns whether `mode` is compared with `base`, which for a router is the kernel's path that does the same.
fn is_base(base: &str, mode: &str) -> bool {
    if mode.contains("enc") {
        return base == "kernel-enc";
    }
    if mode.ends_with("end") {
        return base == "kernel-end";
    }
    matches!(base, "vanilla" | "compiled-out" | "kernel-fw")
}
