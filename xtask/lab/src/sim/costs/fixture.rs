// SPDX-License-Identifier: GPL-2.0

//! For tests only: scenes and benchmark rows. All figures are made up.

use xtask::results::row::{Core, Function, Instructions, Row};

use super::settings::Settings;
use crate::sim::model::arrivals::Load;
use crate::sim::model::scene::{Knobs, Place, Scene, Stream, WhenFull};
use crate::sim::predictions::predict::Question;

/// Defaults without delays.
pub(crate) fn knobs() -> Knobs {
    Knobs {
        batch_pkts: 64,
        merge_timeout_us: 200,
        lane_ring_pkts: 1_024,
        nic_ring_pkts: 1_024,
        backlog_pkts: 1_000,
        socket_pkts: 4_096,
        ipi_ps: 0,
        wake_up_ps: 0,
        cost_spread: 0.1,
        when_full: WhenFull::Lose,
        batch_ps: 0.0,
        seed: 1,
    }
}

/// Returns a scene of one stream over `lanes` lanes; the NIC on core 0, the application on core 1.
pub(crate) fn scene(load: Load, nic_ps: f64, lane_ps: f64, lanes: usize, app_ps: f64) -> Scene {
    let place = |core, packet_ps| Place { core, packet_ps };
    let stream = Stream {
        load,
        nic: place(0, nic_ps),
        hops: Vec::new(),
        lanes: (0..lanes).map(|lane| place(2 + lane, lane_ps)).collect(),
        whole_ps: None,
        gro_joins: false,
        stages: None,
        app: place(1, app_ps),
    };
    Scene {
        warm_up_pkts: 20_000,
        count_pkts: 40_000,
        ..Scene::of(2 + lanes, vec![stream], knobs())
    }
}

/// Returns a row of the case `made-up`, with the costs of the busiest NIC core, each lane and the application.
pub(crate) fn row(mode: &str, nic: f64, lanes: &[f64], app: f64) -> Row {
    let core = |cpu, role: &str, insn_per_packet| Core {
        cpu,
        role: role.to_owned(),
        insn_per_packet,
        events: None,
        idle: 0.0,
        top: Vec::new(),
    };
    let mut by_cpu = vec![core(1, "nic", nic)];
    by_cpu.extend((2..).zip(lanes).map(|(cpu, insn)| core(cpu, "lane", *insn)));
    by_cpu.push(core(0, "app", app));
    let all = by_cpu.iter().map(|core| core.insn_per_packet);
    let busiest = all.clone().fold(0.0, f64::max);
    let is_mflow = mode == "mflow";
    Row {
        suite: "made-up".to_owned(),
        case: "made-up".to_owned(),
        mode: mode.to_owned(),
        split: is_mflow.then(|| "flow".to_owned()),
        proto: "udp".to_owned(),
        msg_bytes: 16,
        clients: 3,
        flows: 3,
        // CAST: a handful.
        lanes: if is_mflow { lanes.len() as u32 } else { 0 },
        batch_pkts: if is_mflow { 256 } else { 0 },
        nic: "virtio".to_owned(),
        load: "frames".to_owned(),
        packets: 100_000,
        insn_per_packet: Some(Instructions {
            busiest,
            min: Some(busiest),
            max: Some(busiest),
            total: Some(all.sum()),
            by_cpu,
            ..Instructions::default()
        }),
        saturated: Some(true),
        ..Row::default()
    }
}

/// Returns a row of flows in stages, with the cost of the NIC's core and GRO's part of it; `first` is the number of flows whose
/// first stage is on each CPU.
pub(crate) fn staged_row(
    mode: &str,
    (nic, gro): (f64, f64),
    first: &[usize],
    stages: [f64; 3],
) -> Row {
    let flows: usize = first.iter().sum();
    // One CPU on with each stage, as the module has it with 2 to 4 CPUs.
    let share = |cpu: usize, stage: usize| {
        let nr = first.len();
        first[(cpu + stage * (nr - 1)) % nr] as f64 / flows as f64
    };
    let lanes =
        (0..first.len()).map(|cpu| (0..3).map(|stage| share(cpu, stage) * stages[stage]).sum());
    let mut row = row(mode, nic, &Vec::from_iter(lanes), 1_300.0);
    // CAST: a handful.
    row.flows = flows as u32;
    let function = |name: &str, insn_per_packet| Function {
        name: name.to_owned(),
        insn_per_packet,
    };
    let by_cpu = row
        .insn_per_packet
        .iter_mut()
        .flat_map(|insn| &mut insn.by_cpu);
    for (place, core) in by_cpu.enumerate() {
        match core.role.as_str() {
            "nic" => {
                core.top = vec![
                    function("virtnet_poll", nic - gro),
                    function("inet_gro_receive", gro / 2.0),
                    function("__udp4_lib_lookup", gro / 2.0),
                ];
            }
            "lane" => {
                // The NIC's core is the first.
                let marker = |name, stage, insn| function(name, share(place - 1, stage) * insn);
                core.top = vec![
                    marker("vxlan_rcv", 0, 160.0),
                    marker("__udp_enqueue_schedule_skb", 2, 75.0),
                ];
                core.top.retain(|function| function.insn_per_packet > 0.0);
            }
            _ => {}
        }
    }
    row
}

/// Returns the rows of a case with all modes. Two lanes and four are what one lane lets expect, but for a few per cent.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        row("native", 3_000.0, &[], 1_100.0),
        row("vanilla", 8_000.0, &[], 1_300.0),
        row("rps", 6_000.0, &[2_500.0], 1_250.0),
        row("mflow", 1_400.0, &[6_000.0], 1_300.0),
        row("mflow", 1_450.0, &[3_050.0, 3_000.0], 1_300.0),
        row(
            "mflow",
            1_500.0,
            &[1_560.0, 1_550.0, 1_550.0, 1_540.0],
            1_300.0,
        ),
        staged_row(
            "falcon-dev",
            (3_000.0, 1_400.0),
            &[3, 0, 0, 0],
            [2_500.0, 2_000.0, 2_000.0],
        ),
    ]
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    question: Question,
}

/// Returns the settings that the command line has without options, except for sizes and intervals: small rings fill faster, and
/// loads that are sampled more often settle sooner.
pub(crate) fn settings() -> Settings {
    Settings {
        batch_pkts: 64,
        lane_ring_pkts: 1_024,
        lanes: 8,
        load_sample_ms: 0.5,
        placements: 1,
        ..<Line as clap::Parser>::parse_from(["sim"]).settings
    }
}

pub(crate) fn question() -> Question {
    <Line as clap::Parser>::parse_from(["sim"]).question
}
