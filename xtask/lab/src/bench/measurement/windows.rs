// SPDX-License-Identifier: GPL-2.0

//! The way from the windows of a case to its row: medians, shares, and remarks that a reader has to know.

use anyhow::{Context as _, Result};
use mflow_protocol::bench::{self as protocol, Build, Load, Server, Stack, Transport};
use mflow_protocol::cpus;

use super::session::{Measured, Outcome};
use crate::bench::suites::cases::{Case, Mode, Suite};
use crate::bench::suites::paper;
use crate::bench::tables::notes;
use xtask::results::row::{Core, Events, Function, Instructions, Latency, Row};

/// Functions listed for each core.
const TOP: usize = 400;
/// A core with more idle time than this could have carried more.
const SATURATED_IDLE: f64 = 0.03;
/// The role of the application's core.
const APPLICATION: &str = "app";
/// Bytes of the datagrams that a router forwards.
const FORWARDED_BYTES: usize = 16;

/// Returns the CPUs that receive; the work of senders on the others is not counted.
fn receiving() -> impl Iterator<Item = usize> {
    [cpus::READER, cpus::NIC]
        .into_iter()
        .chain(cpus::BENCH_LANES)
}

/// Returns the row of a mode that cannot be measured in this case.
pub(crate) fn missing(suite: Suite, case: &Case, mode: &Mode, why: &str) -> Row {
    Row {
        note: Some(why.to_owned()),
        paper: paper::of(&case.name, mode.name, 0),
        ..empty(suite, case, mode)
    }
}

/// Returns the row of a mode that was measured.
pub(crate) fn row(
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
        Stack::Mflow {
            lanes, batch_pkts, ..
        } => (lanes as u32, batch_pkts),
        _ => (0, 0),
    };
    let by_cpu = cores(&order.stack, middle);
    let before_socket = by_cpu.iter().filter(|core| core.role != APPLICATION);
    let to_socket = before_socket.map(|core| core.insn_per_packet).sum();
    let idle_of_busiest = by_cpu
        .iter()
        .max_by(|one, other| one.insn_per_packet.total_cmp(&other.insn_per_packet))
        .map_or(1.0, |core| core.idle);
    let window = &middle.window;
    let saturated = idle_of_busiest <= SATURATED_IDLE;
    let spread = (max - min) / median;
    let requests = matches!(order.load, Load::Requests { .. }).then_some(window.delivered);
    Ok(Row {
        split: way_to_split(&order.stack).map(str::to_owned),
        lanes,
        batch_pkts,
        packets: window.packets,
        lost: windows.iter().map(|measured| measured.window.lost).sum(),
        reordered: windows
            .iter()
            .map(|measured| measured.window.reordered)
            .sum(),
        early: window
            .mflow
            .get("early_pkts")
            .filter(|_| lanes > 0)
            .and_then(|&count| u64::try_from(count).ok()),
        joined: window
            .stack_packets
            .map(|count| window.packets.saturating_sub(count)),
        insn_per_packet: Some(Instructions {
            busiest: median,
            min: Some(min),
            max: Some(max),
            total: Some(receiving().map(|cpu| cost(middle, cpu)).sum()),
            to_socket: Some(to_socket),
            by_cpu,
            ..Instructions::default()
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
        saturated: Some(saturated),
        note: notes::of(order, spread, saturated),
        paper: paper::of(&case.name, mode.name, lanes),
        ..empty(suite, case, mode)
    })
}

fn empty(suite: Suite, case: &Case, mode: &Mode) -> Row {
    let (proto, load, bytes, flows) = match case.load {
        Load::Frames { flows, bytes, .. } => ("udp", "frames", bytes, flows),
        Load::Forwarded { flows, .. } => ("udp", "forwarded", FORWARDED_BYTES, flows),
        Load::Stream { bytes } => ("tcp", "stream", bytes, 1),
        Load::Iperf3 { flows, bytes } => ("tcp", "iperf3", bytes, flows),
        Load::Sockperf {
            transport,
            clients,
            bytes,
            ..
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
    Row {
        suite: suite.name().to_owned(),
        case: case.name.clone(),
        mode: mode.name.to_owned(),
        proto: proto.to_owned(),
        // CAST: at most 65,536.
        msg_bytes: bytes as u32,
        clients: u32::from(flows),
        flows: u32::from(flows),
        nic: "virtio".to_owned(),
        load: load.to_owned(),
        ..Row::default()
    }
}

/// Returns the instructions of one CPU per delivered packet. Tasks on the CPUs of lanes have nothing to do with packets.
fn cost(measured: &Measured, cpu: usize) -> f64 {
    let count = if cpus::BENCH_LANES.contains(&cpu) {
        measured.counts.of_kernel(cpu)
    } else {
        measured.counts.of_cpu(cpu)
    };
    // CAST: far from where f64 loses digits.
    count as f64 / measured.window.packets as f64
}

fn busiest(measured: &Measured) -> f64 {
    receiving()
        .map(|cpu| cost(measured, cpu))
        .fold(0.0, f64::max)
}

/// Returns the way mflow splits in a stack, if it is there, by the papers' names; `auto` chooses between them.
fn way_to_split(stack: &Stack) -> Option<&'static str> {
    match stack {
        Stack::Mflow { build, .. } => Some(match build {
            Build::Nic => "flow",
            Build::Lane => "irq",
            Build::Auto => "auto",
        }),
        _ => None,
    }
}

/// Returns the cores that have a part in a stack.
fn cores(stack: &Stack, measured: &Measured) -> Vec<Core> {
    let lanes = &cpus::BENCH_LANES[..stack.cpus()];
    let mut cores = vec![core("nic", cpus::NIC, measured)];
    cores.extend(lanes.iter().map(|&cpu| core("lane", cpu, measured)));
    cores.push(core(APPLICATION, cpus::READER, measured));
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
        events: measured
            .window
            .events
            .get(&number)
            .map(|counted| per_1000_packets(counted, packets)),
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

fn per_1000_packets(counted: &protocol::Events, packets: f64) -> Events {
    // CAST: far from where f64 loses digits.
    let rate = |count: u64| count as f64 * 1e3 / packets;
    Events {
        device_interrupts: rate(counted.device_interrupts),
        timer_interrupts: rate(counted.timer_interrupts),
        reschedule_interrupts: rate(counted.reschedule_interrupts),
        call_interrupts: rate(counted.call_interrupts),
        net_rx_softirqs: rate(counted.net_rx_softirqs),
        other_softirqs: rate(counted.other_softirqs),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mflow_protocol::bench::{End, Latency as Delay, Window};

    use super::*;
    use crate::bench::measurement::instructions::Counts;
    use crate::bench::suites;

    /// Returns a window in which the NIC core spent `nic` instructions and the application `app`.
    fn window(nic: u64, app: u64, packets: u64, delivered: u64) -> Measured {
        let mut cpus = vec![BTreeMap::new(); cpus::NEEDED_TO_BENCH];
        cpus[cpus::NIC].insert("made_up_receive".to_owned(), nic);
        cpus[cpus::READER].insert("[user]".to_owned(), app);
        cpus[cpus::SENDER].insert("[user]".to_owned(), 1_000_000_000);
        cpus[cpus::BENCH_LANES[0]].insert("[user]".to_owned(), 1_000_000_000);
        Measured {
            window: Window {
                delivered,
                packets,
                lost: 1,
                seconds: 2.0,
                idle: BTreeMap::from([(cpus::NIC as u32, 0.02), (cpus::READER as u32, 0.5)]),
                ..Window::default()
            },
            counts: Counts(cpus),
        }
    }

    fn summed_up(case: &str, windows: Vec<Measured>, end: End) -> Row {
        let cases = suites::all(Suite::Paper);
        let case = cases.iter().find(|known| known.name == case);
        let case = case.expect("a case");
        let mode = &case.modes[1];
        let order = protocol::Case {
            stack: Stack::Vanilla,
            front: None,
            load: case.load.clone(),
            windows: 3,
            window_ms: 2000,
        };
        row(Suite::Paper, case, mode, &order, &Outcome { windows, end }).expect("a row")
    }

    #[test]
    fn the_median_window_s_busiest_core_counts() {
        let windows = vec![
            window(8_000_000, 1_000_000, 1_000, 1_000),
            window(7_000_000, 9_000_000, 1_000, 1_000),
            window(8_200_000, 1_000_000, 1_000, 1_000),
        ];
        let row = summed_up("udp-16", windows, End::default());
        assert_eq!((row.mode.as_str(), row.lost), ("vanilla", 3));
        let insn = row.insn_per_packet.expect("measured");
        assert_eq!(
            (insn.min, insn.busiest, insn.max),
            (Some(8000.0), 8200.0, Some(9000.0))
        );
        // The sender's core is not among them, nor are tasks on the CPUs of lanes.
        assert_eq!(insn.total, Some(9200.0));
        assert_eq!(row.saturated, Some(true));
        assert!(row
            .note
            .is_some_and(|note| note.contains("spread above 5 %")));
        assert_eq!((row.insn_per_request, row.latency_us), (None, None));
    }

    #[test]
    fn a_core_that_waits_is_not_saturated() {
        let idle = window(1_000_000, 8_000_000, 1_000, 1_000);
        let row = summed_up("udp-16", vec![idle], End::default());
        assert_eq!(row.saturated, Some(false));
    }

    #[test]
    fn chains_are_compared_with_the_kernel_s_path_that_does_the_same() {
        let measured = |mode: &str, nic: f64| {
            let row = crate::bench::measurement::fixture::row("hike-edge", mode, 0);
            crate::bench::measurement::fixture::with(row, &[("nic", nic)])
        };
        let mut rows = vec![
            measured("kernel-enc", 6000.0),
            measured("kernel-fw", 4000.0),
            measured("kernel-end", 5000.0),
            measured("fw", 2000.0),
            measured("enc+mon+fw", 3000.0),
            measured("mon+kernel-end", 10_000.0),
        ];
        xtask::results::row::compare(&mut rows);
        let speedups: Vec<_> = rows.iter().map(|row| row.speedup_vs_vanilla).collect();
        assert_eq!(speedups, [1.0, 1.0, 1.0, 2.0, 2.0, 0.5].map(Some));
    }

    #[test]
    fn requests_and_latency_are_taken_over() {
        let end = End {
            latency: Some(Delay {
                p50_us: 2048.0,
                p99_us: 8192.0,
            }),
        };
        let row = summed_up(
            "memcached",
            vec![window(8_000_000, 12_000_000, 1_000, 500)],
            end,
        );
        assert_eq!(row.insn_per_request, Some(24_000.0));
        assert_eq!(row.wall_msgs_per_s, Some(250.0));
        let latency = row.latency_us.expect("stated");
        assert_eq!((latency.p50, latency.p99), (2048.0, 8192.0));
        assert_eq!((row.load.as_str(), row.clients), ("memcaslap", 10));
    }
}
