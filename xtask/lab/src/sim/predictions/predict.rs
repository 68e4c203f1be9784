// SPDX-License-Identifier: GPL-2.0

//! One flow on 1 to 64 cores and 25 to 400 Gb/s: throughput, latency, and what is in the way.

use serde::Serialize;

use super::validate::{Case, Split};
use crate::sim::costs::rows::{Costs, Path};
use crate::sim::costs::settings::{self, counted, Settings};
use crate::sim::model::arrivals::Load;
use crate::sim::model::calendar;
use crate::sim::model::pipeline::simulate;
use crate::sim::model::scene::{Count, Limit, Outcome, Scene, WhenFull};
use crate::sim::model::wire::Wire;

#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Question {
    /// Cores that receive: the NIC's, the application's, and as many lanes as are left
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64], value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) cores: Vec<u32>,
    /// Links, in Gb/s
    #[arg(long, value_name = "GBPS,...", value_delimiter = ',', default_values_t = [25.0, 40.0, 100.0, 200.0, 400.0], value_parser = settings::positive)]
    pub(crate) link_gbps: Vec<f64>,
    /// The load at which latency is given, as a share of the throughput
    #[arg(long, value_name = "SHARE", default_value_t = 0.8, value_parser = load)]
    pub(crate) load: f64,
    /// Messages come evenly, not at random (Poisson), when latency is looked at
    #[arg(long)]
    pub(crate) even: bool,
    /// Message size on the link, if not that of the case; the cost of a packet stays the case's
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) msg_bytes: Option<u32>,
}

/// All predictions for one case and one way to split.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Prediction {
    pub(crate) case: String,
    pub(crate) split: String,
    /// Lanes of the row that the costs are from.
    pub(crate) from_lanes: u32,
    pub(crate) msg_bytes: u32,
    pub(crate) packet_bytes: f64,
    pub(crate) batch_us: f64,
    pub(crate) cells: Vec<Cell>,
    pub(crate) copy: CopyThread,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) cores: u32,
    pub(crate) lanes: u32,
    pub(crate) link_gbps: f64,
    pub(crate) pkts_per_s: f64,
    pub(crate) wire_gbps: f64,
    pub(crate) limit: Limit,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Packets lost at that load, in per cent: bursts may not fit where the mean does.
    pub(crate) lost_percent: f64,
}

/// The point at which the copy thread becomes the limit, on a link that never is the limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CopyThread {
    /// From this many lanes on; `None`: not with the lanes allowed.
    pub(crate) from_lanes: Option<u32>,
    /// The number of lanes of the figures below: `from_lanes`, or else all lanes allowed.
    pub(crate) most_lanes: u32,
    pub(crate) pkts_per_s: f64,
    pub(crate) wire_gbps: f64,
    pub(crate) limit: Limit,
    /// The load of the copy thread with these lanes, as a share.
    pub(crate) copy_busy: f64,
}

pub(crate) fn predict(
    case: &Case,
    split: &Split,
    question: &Question,
    settings: &Settings,
) -> Prediction {
    let msg_bytes = question.msg_bytes.unwrap_or(case.msg_bytes);
    let wire = Wire::of(&case.proto, msg_bytes, true);
    let mut cells: Vec<Cell> = Vec::new();
    for cores in &question.cores {
        for link_gbps in &question.link_gbps {
            let lanes = lanes_on(*cores, settings);
            // More cores than can be used change nothing.
            let twin = cells
                .iter()
                .find(|cell| *cores > 2 && cell.lanes == lanes && cell.link_gbps == *link_gbps);
            cells.push(match twin {
                Some(twin) => Cell {
                    cores: *cores,
                    ..twin.clone()
                },
                None => Machine {
                    case,
                    split,
                    settings,
                    wire,
                    cores: *cores,
                    lanes,
                }
                .cell(*link_gbps, question),
            });
        }
    }
    Prediction {
        case: case.name.clone(),
        split: split.name.clone(),
        from_lanes: split.from_lanes,
        msg_bytes,
        packet_bytes: wire.packet_bytes,
        batch_us: batch_us(&split.costs, settings),
        cells,
        copy: copy(split, wire, settings),
    }
}

/// Returns the lanes that `cores` leave; two are the NIC's and the application's.
fn lanes_on(cores: u32, settings: &Settings) -> u32 {
    cores.saturating_sub(2).min(settings.lanes)
}

fn batch_us(costs: &Costs, settings: &Settings) -> f64 {
    match &costs.path {
        Path::Lanes(insn) => {
            settings.insn_ps(*insn) * f64::from(settings.batch_pkts) / calendar::PS_PER_US
        }
        Path::Hops(_) => 0.0,
    }
}

struct Machine<'a> {
    case: &'a Case,
    split: &'a Split,
    settings: &'a Settings,
    wire: Wire,
    cores: u32,
    lanes: u32,
}

impl Machine<'_> {
    fn cell(&self, link_gbps: f64, question: &Question) -> Cell {
        let packet_ps = self.wire.packet_ps(link_gbps);
        let scene = self.scene(Load::BackToBack { packet_ps });
        let full = simulate(&scene);
        let pkts_per_s = full.pkts_per_s();
        let packets = self.wire.packets;
        let below = simulate(&self.scene(Load::Messages {
            packets,
            packet_ps,
            gap_ps: f64::from(packets) / (pkts_per_s * question.load) * calendar::PS_PER_S,
            random: !question.even,
        }));
        Cell {
            cores: self.cores,
            lanes: self.lanes,
            link_gbps,
            pkts_per_s,
            wire_gbps: self.wire.link_gbps(pkts_per_s),
            limit: full.limit(&scene),
            p50_us: below.latency_us(0.5),
            p99_us: below.latency_us(0.99),
            lost_percent: lost_percent(&below),
        }
    }

    fn scene(&self, load: Load) -> Scene {
        let settings = self.settings;
        match self.cores {
            1 => counted(settings.one_core(&self.case.vanilla, load)),
            2 => settings.scene(&self.case.vanilla, 0, load, WhenFull::Inline),
            _ => lanes(settings, &self.split.costs, self.lanes, load),
        }
    }
}

fn lanes(settings: &Settings, costs: &Costs, lanes: u32, load: Load) -> Scene {
    settings.scene(costs, lanes as usize, load, WhenFull::Inline)
}

fn lost_percent(outcome: &Outcome) -> f64 {
    let lost = outcome.counted.lost() as f64;
    let delivered = outcome.counted.get(Count::Delivered) as f64;
    lost / (lost + delivered).max(1.0) * 100.0
}

/// Adds lanes until the copy thread is the limit.
fn copy(split: &Split, wire: Wire, settings: &Settings) -> CopyThread {
    let run = |count: u32| {
        let scene = lanes(settings, &split.costs, count, Load::Endless);
        let outcome = simulate(&scene);
        let limit = outcome.limit(&scene);
        (outcome, limit, scene)
    };
    let mut from_lanes = None;
    let mut count = 1;
    let (outcome, limit, scene) = loop {
        let last = run(count);
        if last.1 == Limit::Copy {
            from_lanes = Some(count);
        }
        if from_lanes.is_some() || count >= settings.lanes {
            break last;
        }
        count += 1;
    };
    let app = scene.streams.first().map_or(0, |stream| stream.app.core);
    CopyThread {
        from_lanes,
        most_lanes: count,
        pkts_per_s: outcome.pkts_per_s(),
        wire_gbps: wire.link_gbps(outcome.pkts_per_s()),
        limit,
        copy_busy: outcome.busy.get(app).copied().unwrap_or(0.0),
    }
}

fn load(text: &str) -> Result<f64, String> {
    settings::share(text)
        .ok()
        .filter(|share| *share >= 0.01)
        .ok_or_else(|| "0.01 to 0.99 is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{question, rows, settings};
    use crate::sim::predictions::validate::validate;

    fn predicted(app_insn: f64, question: &Question) -> Prediction {
        let mut case = validate(&rows(), &settings()).cases.remove(0);
        case.splits[0].costs.app = app_insn;
        predict(&case, &case.splits[0], question, &settings())
    }

    #[test]
    fn cores_help_until_something_else_is_the_limit() {
        let question = Question {
            link_gbps: vec![25.0],
            ..question()
        };
        let cells = predicted(1_600.0, &question).cells;
        let rates: Vec<f64> = cells.iter().map(|cell| cell.pkts_per_s).collect();
        assert!(
            rates.windows(2).all(|two| two[1] > two[0] * 0.995),
            "{rates:?}"
        );
        let limits: Vec<Limit> = cells.iter().map(|cell| cell.limit).collect();
        assert_eq!(limits[..3], [Limit::Core, Limit::Nic, Limit::Lanes]);
        assert_eq!(limits[3..], [Limit::Copy; 4]);
        // 3 GHz, 1600 instructions.
        assert!((rates[6] / 1.875e6 - 1.0).abs() < 0.02, "{rates:?}");
        assert!(cells.iter().all(|cell| cell.p50_us <= cell.p99_us));
    }

    #[test]
    fn a_slow_link_comes_first() {
        let question = Question {
            link_gbps: vec![1.0],
            cores: vec![8],
            msg_bytes: Some(1_400),
            ..question()
        };
        let prediction = predicted(1_300.0, &question);
        assert_eq!(prediction.cells[0].limit, Limit::Link);
        assert!((prediction.cells[0].wire_gbps - 1.0).abs() < 0.02);
    }

    #[test]
    fn it_says_where_the_copy_thread_is_the_limit() {
        let question = Question {
            cores: vec![1],
            link_gbps: vec![25.0],
            ..question()
        };
        let copy = predicted(1_600.0, &question).copy;
        // The NIC core carries what lanes cannot: (1400 + 6000) / 5 is below 1600, over 4 it is not.
        assert_eq!((copy.from_lanes, copy.limit), (Some(4), Limit::Copy));
        let copy = predicted(700.0, &question).copy;
        assert_eq!((copy.from_lanes, copy.limit), (None, Limit::Nic));
        assert!((copy.copy_busy - 0.5).abs() < 0.02, "{}", copy.copy_busy);
    }
}
