// SPDX-License-Identifier: GPL-2.0

//! From the windows of a case to its row: medians, shares, and how it compares with the vanilla stack.

use anyhow::{Context as _, Result};
use mflow_protocol::bench::{self as protocol, Load, Server, Stack, Transport};
use mflow_protocol::cpus;

use super::cases::{Case, Mode, Suite};
use super::measure::{Measured, Outcome};
use super::row::{Core, Function, Instructions, Latency, Row};
use super::{notes, paper};

/// Functions listed for each core.
const TOP: usize = 40;
/// A core with more idle time than this could have carried more.
const SATURATED_IDLE: f64 = 0.03;
/// The CPUs that receive; what the senders do on the others is not counted.
const RECEIVING: [usize; 6] = [
    cpus::READER,
    cpus::NIC,
    cpus::LANES[0],
    cpus::LANES[1],
    cpus::LANES[2],
    cpus::LANES[3],
];

/// Returns the row of a mode that does not exist yet.
pub(super) fn missing(suite: Suite, case: &Case, mode: &Mode, why: &str) -> Row {
    Row {
        note: Some(why.to_owned()),
        paper: paper::of(&case.name, mode.name, 0),
        ..empty(suite, case, mode)
    }
}

/// Returns the row of a mode that was measured.
pub(super) fn row(
    suite: Suite,
    case: &Case,
    mode: &Mode,
    order: &protocol::Case,
    outcome: &Outcome,
) -> Result<Row> {
    let windows = &outcome.windows;
    let mut by_cost: Vec<(f64, &Measured)> = windows
        .iter()
        .map(|measured| (busiest(measured), measured))
        .collect();
    by_cost.sort_by(|one, other| one.0.total_cmp(&other.0));
    let &(median, middle) = by_cost.get(by_cost.len() / 2).context("no window")?;
    let (min, max) = (by_cost[0].0, by_cost[by_cost.len() - 1].0);
    let (lanes, batch_pkts) = match order.stack {
        // CAST: at most 16 lanes.
        Stack::Mflow { lanes, batch_pkts } => (lanes as u32, batch_pkts),
        _ => (0, 0),
    };
    let by_cpu = cores(&order.stack, middle);
    let idle_of_busiest = by_cpu
        .iter()
        .max_by(|one, other| one.insn_per_packet.total_cmp(&other.insn_per_packet))
        .map_or(1.0, |core| core.idle);
    let window = &middle.window;
    let saturated = idle_of_busiest <= SATURATED_IDLE;
    let spread = (max - min) / median;
    let requests = matches!(order.load, Load::Requests { .. }).then_some(window.delivered);
    Ok(Row {
        split: (lanes > 0).then(|| "flow".to_owned()),
        lanes,
        batch_pkts,
        packets: window.packets,
        lost: windows.iter().map(|measured| measured.window.lost).sum(),
        reordered: windows
            .iter()
            .map(|measured| measured.window.reordered)
            .sum(),
        insn_per_packet: Some(Instructions {
            busiest: median,
            min,
            max,
            total: RECEIVING.iter().map(|&cpu| cost(middle, cpu)).sum(),
            by_cpu,
        }),
        // CAST: far from where f64 loses digits.
        insn_per_request: requests.map(|count| median * window.packets as f64 / count as f64),
        spread: Some(spread),
        // CAST: far from where f64 loses digits.
        wall_msgs_per_s: Some(window.delivered as f64 / window.seconds),
        latency_us: outcome.end.latency.map(|latency| Latency {
            p50: latency.p50_us,
            p99: latency.p99_us,
        }),
        saturated,
        note: notes::of(order, spread, saturated),
        paper: paper::of(&case.name, mode.name, lanes),
        ..empty(suite, case, mode)
    })
}

/// Fills in how many times less the busiest core does than with the vanilla stack.
pub(super) fn compare(rows: &mut [Row]) {
    let busiest = |row: &Row| row.insn_per_packet.as_ref().map(|insn| insn.busiest);
    let vanilla: Vec<(String, f64)> = rows
        .iter()
        .filter(|row| matches!(row.mode.as_str(), "vanilla" | "compiled-out"))
        .filter_map(|row| Some((row.case.clone(), busiest(row)?)))
        .collect();
    for row in rows {
        let base = vanilla.iter().find(|(case, _)| *case == row.case);
        row.speedup_vs_vanilla = base
            .zip(busiest(row))
            .map(|((_, base), busiest)| base / busiest);
    }
}

fn empty(suite: Suite, case: &Case, mode: &Mode) -> Row {
    let (proto, load, bytes, flows) = match case.load {
        Load::Frames { flows, bytes } => ("udp", "frames", bytes, flows),
        Load::Iperf3 { flows, bytes } => ("tcp", "iperf3", bytes, flows),
        Load::Sockperf {
            transport,
            clients,
            bytes,
        } => match transport {
            Transport::Udp => ("udp", "sockperf", bytes, clients),
            Transport::Tcp => ("tcp", "sockperf", bytes, clients),
        },
        Load::Requests {
            server,
            clients,
            bytes,
        } => match server {
            Server::Memcached => ("tcp", "memcaslap", bytes, clients),
            Server::Nginx => ("tcp", "wrk", bytes, clients),
        },
    };
    let suite = match suite {
        Suite::Quick => "quick",
        Suite::Paper => "paper",
    };
    Row {
        suite: suite.to_owned(),
        case: case.name.clone(),
        mode: mode.name.to_owned(),
        split: None,
        proto: proto.to_owned(),
        // CAST: at most 65,536.
        msg_bytes: bytes as u32,
        clients: u32::from(flows),
        flows: u32::from(flows),
        lanes: 0,
        batch_pkts: 0,
        nic: "virtio".to_owned(),
        load: load.to_owned(),
        packets: 0,
        lost: 0,
        reordered: 0,
        insn_per_packet: None,
        insn_per_request: None,
        speedup_vs_vanilla: None,
        spread: None,
        wall_msgs_per_s: None,
        latency_us: None,
        saturated: false,
        paper: None,
        note: None,
    }
}

/// Returns the instructions of one CPU per delivered packet.
fn cost(measured: &Measured, cpu: usize) -> f64 {
    // CAST: far from where f64 loses digits.
    measured.counts.of_cpu(cpu) as f64 / measured.window.packets as f64
}

fn busiest(measured: &Measured) -> f64 {
    RECEIVING
        .iter()
        .map(|&cpu| cost(measured, cpu))
        .fold(0.0, f64::max)
}

/// Returns the cores that have a part in a stack.
fn cores(stack: &Stack, measured: &Measured) -> Vec<Core> {
    let lanes = match *stack {
        Stack::Mflow { lanes, .. } => &cpus::LANES[..lanes],
        Stack::Rps { cpus } => &cpus::LANES[..cpus],
        _ => &[],
    };
    let mut cores = vec![core("nic", cpus::NIC, measured)];
    cores.extend(lanes.iter().map(|&cpu| core("lane", cpu, measured)));
    cores.push(core("app", cpus::READER, measured));
    cores
}

fn core(role: &str, cpu: usize, measured: &Measured) -> Core {
    // CAST: a CPU number; counts are far from where f64 loses digits.
    let number = cpu as u32;
    let packets = measured.window.packets as f64;
    let top = measured.counts.top(cpu);
    Core {
        cpu: number,
        role: role.to_owned(),
        insn_per_packet: cost(measured, cpu),
        idle: measured.window.idle.get(&number).copied().unwrap_or(1.0),
        top: top
            .into_iter()
            .take(TOP)
            .map(|(name, count)| Function {
                name: name.to_owned(),
                insn_per_packet: count as f64 / packets,
            })
            .collect(),
    }
}
