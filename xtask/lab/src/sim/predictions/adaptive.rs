// SPDX-License-Identifier: GPL-2.0

//! mflow with lanes by need and batches by load against every fixed number of lanes, and its latency against the vanilla
//! stack's.

use serde::Serialize;

use super::validate::{Case, Split};
use crate::sim::costs::rows::Path;
use crate::sim::costs::settings::Settings;
use crate::sim::model::arrivals::Load;
use crate::sim::model::calendar::PS_PER_S;
use crate::sim::model::pipeline::simulate;
use crate::sim::model::scene::{Control, Follows, Outcome, Scene, WhenFull};
use crate::sim::model::wire::Wire;

/// Lanes that a flow may have in the table.
pub(crate) const ALLOWED: [usize; 4] = [1, 2, 4, 8];
/// The load at which latencies are compared, as a share of the throughput: of each stack's own.
pub(crate) const LOAD: f64 = 0.8;
/// The largest latencies that mflow may have, as shares of the vanilla stack's: the median and the 99th percentile.
pub(crate) const MOST_P50: f64 = 1.0;
pub(crate) const MOST_P99: f64 = 0.5;
/// The largest share by which the adaptive throughput may be below the best of all fixed numbers of lanes.
pub(crate) const MOST_BELOW_BEST: f64 = 0.05;
/// Samples that a flow has to settle before anything is counted: some decisions wait, and are made one after the other.
const SETTLING_SAMPLES: f64 = 40.0;
const COUNTED_SAMPLES: f64 = 20.0;

/// One flow with this many lanes at most.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Adaptive {
    pub(crate) lanes: usize,
    /// With each fixed number of lanes up to that; the best.
    pub(crate) best_pkts_per_s: f64,
    pub(crate) best_lanes: usize,
    pub(crate) pkts_per_s: f64,
    /// At [`LOAD`]: with all lanes and whole batches, and with both by load.
    pub(crate) fixed: Latency,
    pub(crate) adaptive: Latency,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Latency {
    fn of(outcome: &Outcome) -> Self {
        Self {
            p50_us: outcome.latency_us(0.5),
            p99_us: outcome.latency_us(0.99),
        }
    }
}

/// The model's results for one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Adaptivity {
    pub(crate) case: String,
    pub(crate) vanilla: Latency,
    pub(crate) places: Vec<Adaptive>,
}

/// A limit that lanes by need have to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Throughput,
    P50,
    P99,
}

pub(crate) const LIMITS: [Limit; 3] = [Limit::Throughput, Limit::P50, Limit::P99];

impl Adaptivity {
    /// Returns the numbers of lanes with which a limit is not kept.
    pub(crate) fn missing(&self, limit: Limit) -> impl Iterator<Item = &Adaptive> {
        let keeps = move |place: &&Adaptive| match limit {
            Limit::Throughput => {
                place.pkts_per_s >= place.best_pkts_per_s * (1.0 - MOST_BELOW_BEST)
            }
            Limit::P50 => place.adaptive.p50_us <= self.vanilla.p50_us * MOST_P50,
            Limit::P99 => place.adaptive.p99_us <= self.vanilla.p99_us * MOST_P99,
        };
        self.places.iter().filter(move |place| !keeps(place))
    }
}

pub(crate) fn adaptivity(case: &Case, split: &Split, settings: &Settings) -> Adaptivity {
    let flow = Flow {
        case,
        split,
        settings,
    };
    let allowed = ALLOWED
        .iter()
        .filter(|lanes| **lanes <= settings.lanes as usize);
    let fixed: Vec<(usize, f64)> = allowed
        .clone()
        .map(|lanes| {
            (
                *lanes,
                simulate(&flow.fixed(*lanes, Load::Endless)).pkts_per_s(),
            )
        })
        .collect();
    let places = allowed.map(|&lanes| {
        let best = fixed.iter().filter(|(fixed, _)| *fixed <= lanes);
        let (best_lanes, best_pkts_per_s) = best
            .copied()
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap_or_default();
        let pkts_per_s =
            simulate(&flow.adaptive(lanes, Load::Endless, best_pkts_per_s)).pkts_per_s();
        let load = flow.load(pkts_per_s);
        Adaptive {
            lanes,
            best_pkts_per_s,
            best_lanes,
            pkts_per_s,
            fixed: Latency::of(&simulate(&flow.fixed(lanes, load.clone()))),
            adaptive: Latency::of(&simulate(&flow.adaptive(lanes, load, pkts_per_s * LOAD))),
        }
    });
    Adaptivity {
        case: case.name.clone(),
        vanilla: Latency::of(&simulate(&flow.vanilla(flow.load(case.vanilla_pkts_per_s)))),
        places: places.collect(),
    }
}

struct Flow<'a> {
    case: &'a Case,
    split: &'a Split,
    settings: &'a Settings,
}

impl Flow<'_> {
    /// Returns messages at random that are [`LOAD`] of a throughput.
    fn load(&self, pkts_per_s: f64) -> Load {
        let wire = Wire::of(&self.case.proto, self.case.msg_bytes, true);
        Load::Messages {
            packets: wire.packets,
            packet_ps: wire.packet_ps(LINK_GBPS),
            gap_ps: f64::from(wire.packets) / (pkts_per_s * LOAD) * PS_PER_S,
            random: true,
        }
    }

    fn vanilla(&self, load: Load) -> Scene {
        self.settings
            .scene(&self.case.vanilla, 0, load, WhenFull::Inline)
    }

    fn fixed(&self, lanes: usize, load: Load) -> Scene {
        let mut scene = self
            .settings
            .scene(&self.split.costs, lanes, load, WhenFull::Inline);
        scene.knobs.batch_ps = self.settings.insn_ps(self.settings.batch_insn);
        scene
    }

    fn adaptive(&self, lanes: usize, load: Load, pkts_per_s: f64) -> Scene {
        let mut scene = self.fixed(lanes, load);
        let stream = &mut scene.streams[0];
        if let Path::Lanes(lane) = self.split.costs.path {
            let whole = (self.case.vanilla.nic - self.split.costs.nic).max(lane);
            stream.whole_ps = Some(self.settings.insn_ps(whole));
        }
        stream.gro_joins = self.case.gro_joins();
        let cores = stream.lanes.iter().map(|lane| lane.core).collect();
        let control = self
            .settings
            .control(cores, Follows::Lanes(self.settings.load_threshold_pct));
        settle(&mut scene, &control, pkts_per_s);
        scene.control = Some(control);
        scene
    }
}

const LINK_GBPS: f64 = 100.0;

/// Sets a scene with about this many packets a second to settle before it is counted.
pub(crate) fn settle(scene: &mut Scene, control: &Control, pkts_per_s: f64) {
    let pkts = |samples: f64| {
        // CAST: positive, and far below 2^63.
        (samples * control.period_ps as f64 / PS_PER_S * pkts_per_s) as u64
    };
    scene.warm_up_pkts = pkts(SETTLING_SAMPLES);
    scene.count_pkts = pkts(COUNTED_SAMPLES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{rows, settings};
    use crate::sim::predictions::validate::validate;

    #[test]
    fn lanes_by_need_are_as_good_as_the_best_and_batches_by_load_wait_less() {
        let settings = Settings {
            lanes: 4,
            ..settings()
        };
        let cases = validate(&rows(), &settings).cases;
        let adaptivity = adaptivity(&cases[0], &cases[0].splits[0], &settings);
        assert_eq!(adaptivity.places.len(), 3);
        for limit in [Limit::Throughput, Limit::P50] {
            assert_eq!(adaptivity.missing(limit).count(), 0, "{adaptivity:?}");
        }
        // With one lane, and the core that dispatches to help it, there are two cores for all.
        let late: Vec<usize> = adaptivity
            .missing(Limit::P99)
            .map(|place| place.lanes)
            .collect();
        assert!(late.is_empty() || late == [1], "{adaptivity:?}");
        for place in &adaptivity.places {
            let vanilla = &adaptivity.vanilla;
            // The condition would not hold by itself.
            assert!(
                place.fixed.p50_us > vanilla.p50_us * MOST_P50,
                "{place:?} {vanilla:?}"
            );
        }
    }
}
