// SPDX-License-Identifier: GPL-2.0

//! Rows for tests. Every number in this file is made up: nothing here has been measured.

use crate::bench::suites::paper;
use xtask::results::row::{Core, Events, Function, Instructions, Latency, Row};

/// Returns rows of every figure, with everything that may be missing missing somewhere.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for case in ["udp-16", "udp-65507", "tcp-65536"] {
        rows.push(with(row(case, "native", 0), &[("nic", 3000.0)]));
        rows.push(with(row(case, "vanilla", 0), &[("nic", 8000.0)]));
        rows.push(with(
            row(case, "rps", 0),
            &[("nic", 6000.0), ("lane", 3000.0)],
        ));
        rows.push(with(
            row(case, "mflow", 2),
            &[("nic", 1500.0), ("lane", 3200.0), ("lane", 3100.0)],
        ));
        rows.push(with(
            row(case, "mflow", 4),
            &[
                ("nic", 1500.0),
                ("lane", 1650.0),
                ("lane", 1600.0),
                ("lane", 1550.0),
                ("lane", 1500.0),
            ],
        ));
        let mut missing = row(case, "falcon-func", 0);
        missing.note = Some("this mode does not exist yet".to_owned());
        rows.push(missing);
    }
    // Not in the order of their numbers.
    for (batch_pkts, early) in [(256, 3), (1, 9000), (16, 400)] {
        let case = format!("order-batch-{batch_pkts}");
        let mut row = with(row(&case, "mflow", 2), &[("nic", 1500.0), ("lane", 3200.0)]);
        row.batch_pkts = batch_pkts;
        row.early = Some(early);
        rows.push(row);
    }
    for (mode, lanes, p99) in [("vanilla", 0, 4000.0), ("mflow", 2, 3000.0)] {
        let mut row = with(row("latency-tcp-65536", mode, lanes), &[("nic", 2000.0)]);
        row.latency_us = Some(Latency { p50: 1000.0, p99 });
        rows.push(row);
    }
    for (mode, lanes) in [("vanilla", 0), ("mflow", 2)] {
        let mut row = with(
            row("flows-4096-10", mode, lanes),
            &[("nic", 2000.0), ("lane", 1000.0)],
        );
        row.flows = 10;
        rows.push(row);
    }
    for (mode, busiest) in [("compiled-out", 8000.0), ("off", 8040.0), ("on", 3000.0)] {
        rows.push(with(row("overhead-udp-16", mode, 0), &[("nic", busiest)]));
    }
    let mut idle = with(row("memcached", "vanilla", 0), &[("nic", 5000.0)]);
    idle.saturated = Some(false);
    idle.spread = Some(0.08);
    rows.push(idle);
    rows.push(row("nginx", "mflow", 2));
    rows
}

/// Returns rows of one case at a fixed rate, with interrupts counted.
pub(crate) fn rates() -> Vec<Row> {
    let counted = |mode, softirqs| {
        let mut row = with(row("rate-udp-16-1000", mode, 0), &[("nic", 8000.0)]);
        row.saturated = Some(false);
        for core in row
            .insn_per_packet
            .iter_mut()
            .flat_map(|insn| &mut insn.by_cpu)
        {
            core.events = Some(Events {
                net_rx_softirqs: softirqs,
                device_interrupts: 10.0,
                ..Events::default()
            });
        }
        row
    };
    vec![counted("native", 500.0), counted("vanilla", 1000.0)]
}

/// Returns a row without a primary figure.
pub(crate) fn row(case: &str, mode: &str, lanes: u32) -> Row {
    let udp = case.contains("udp") || case.starts_with("order");
    Row {
        suite: "quick".to_owned(),
        case: case.to_owned(),
        mode: mode.to_owned(),
        proto: if udp { "udp" } else { "tcp" }.to_owned(),
        msg_bytes: crate::bench::tables::figure::number(case).unwrap_or(4096),
        clients: 3,
        flows: 1,
        lanes,
        batch_pkts: if lanes > 0 { 256 } else { 0 },
        nic: "virtio".to_owned(),
        load: if case == "hike-edge" {
            "forwarded"
        } else {
            "frames"
        }
        .to_owned(),
        packets: 100_000,
        saturated: Some(true),
        paper: paper::of(case, mode, lanes),
        ..Row::default()
    }
}

/// Gives a row cores, the first of which is CPU 1, and an application core.
pub(crate) fn with(mut row: Row, cores: &[(&str, f64)]) -> Row {
    let most = cores.iter().map(|core| core.1).fold(0.0, f64::max);
    let app = ("app", 1300.0);
    let by_cpu: Vec<Core> = (1..)
        .zip(cores.iter().chain([&app]))
        .map(|(cpu, (role, insn))| Core {
            cpu: if *role == "app" { 6 } else { cpu },
            role: (*role).to_owned(),
            insn_per_packet: *insn,
            idle: 1.0 - insn / most.max(1300.0),
            events: None,
            top: vec![
                function("made_up_receive", insn / 2.0),
                function(&format!("made_up_{role}"), insn / 4.0),
            ],
        })
        .collect();
    row.insn_per_packet = Some(Instructions {
        busiest: most,
        min: Some(most * 0.99),
        max: Some(most * 1.01),
        total: Some(by_cpu.iter().map(|core| core.insn_per_packet).sum()),
        by_cpu,
        ..Instructions::default()
    });
    row.speedup_vs_vanilla = Some(8000.0 / most);
    row.spread = Some(0.02);
    row.wall_msgs_per_s = Some(20_000.0);
    row
}

fn function(name: &str, insn_per_packet: f64) -> Function {
    Function {
        name: name.to_owned(),
        insn_per_packet,
    }
}
