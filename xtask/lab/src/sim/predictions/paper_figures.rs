// SPDX-License-Identifier: GPL-2.0

//! The shapes of MFLOW's Figs. 7 and 10, from measured costs; Fig. 8 is the validation's own table.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use super::validate::{Case, Split};
use crate::sim::costs::rows::{Costs, Path};
use crate::sim::costs::settings::{counted, Settings};
use crate::sim::model::arrivals::Load;
use crate::sim::model::pipeline::simulate;
use crate::sim::model::scene::{Count, Outcome, Scene, Stream, WhenFull};
use crate::sim::model::wire::Wire;

/// The link and the messages of the paper's flows, and the number of lanes that they are split over (section V).
const PAPER_LINK_GBPS: f64 = 100.0;
const PAPER_MSG_BYTES: u32 = 65_536;
const PAPER_LANES: usize = 2;
/// Fig. 10: cores for the kernel's work, and for applications.
pub(crate) const KERNEL_CORES: usize = 10;
pub(crate) const APP_CORES: usize = 5;
const FLOWS: [usize; 4] = [1, 5, 10, 20];
/// Ways to spread flows over cores, each at random as a NIC's hash does it; the mean is shown.
pub(crate) const PLACEMENTS: u64 = 8;
/// The window of a TCP flow: as many packets as the NIC's ring holds without loss.
const WINDOW_PKTS: u32 = 1_000;
/// The load of a calm flow, as a share of the load that one lane alone carries.
pub(crate) const CALM_LOAD: f64 = 0.5;

/// Disorder at the merge point for one size of batch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Disorder {
    pub(crate) batch_pkts: u32,
    /// At a rate that one lane alone could carry, in bursts as large messages make them.
    pub(crate) calm: Early,
    /// With all stages as busy as can be.
    pub(crate) saturated: Early,
}

/// The packets that came before their turn, per 1000 packets.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Early {
    pub(crate) pkts: f64,
    /// Runs: packets of one batch that came together.
    pub(crate) runs: f64,
}

/// The throughput of several flows together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Flows {
    pub(crate) flows: usize,
    pub(crate) vanilla_pkts_per_s: f64,
    /// Two lanes a flow.
    pub(crate) mflow_pkts_per_s: f64,
}

/// Returns the case that is most like the paper's: the largest messages, TCP, one flow.
pub(crate) fn like_the_paper(cases: &[Case]) -> Option<(&Case, &Split)> {
    let case = cases
        .iter()
        .filter(|case| case.is_one_path && !case.splits.is_empty())
        .max_by_key(|case| (case.msg_bytes, case.proto == "tcp"))?;
    Some((case, case.splits.first()?))
}

pub(crate) fn disorder(split: &Split, settings: &Settings) -> Vec<Disorder> {
    let wire = Wire::of("tcp", PAPER_MSG_BYTES, true);
    let slowest = settings.insn_ps(slowest_insn(&split.costs, 1));
    let calm = Load::Messages {
        packets: wire.packets,
        packet_ps: wire.packet_ps(PAPER_LINK_GBPS),
        gap_ps: f64::from(wire.packets) * slowest / CALM_LOAD,
        random: true,
    };
    (0..=10)
        .map(|power| {
            let settings = Settings {
                batch_pkts: 1 << power,
                ..settings.clone()
            };
            let early = |load: &Load| {
                let load = load.clone();
                let scene = settings.scene(&split.costs, PAPER_LANES, load, WhenFull::Lose);
                Early::of(&simulate(&scene))
            };
            Disorder {
                batch_pkts: settings.batch_pkts,
                calm: early(&calm),
                saturated: early(&Load::Endless),
            }
        })
        .collect()
}

impl Early {
    fn of(outcome: &Outcome) -> Self {
        let per_1000 = |count| {
            let delivered = outcome.counted.get(Count::Delivered).max(1);
            outcome.counted.get(count) as f64 * 1e3 / delivered as f64
        };
        Self {
            pkts: per_1000(Count::EarlyPkts),
            runs: per_1000(Count::EarlyRuns),
        }
    }
}

pub(crate) fn slowest_insn(costs: &Costs, lanes: usize) -> f64 {
    let (nic, path) = match &costs.path {
        Path::Hops(hops) => (costs.nic, hops.iter().copied().fold(0.0, f64::max)),
        Path::Lanes(insn) => {
            let (nic, insn) = costs.shared_out(*insn, lanes);
            (nic, insn / lanes as f64)
        }
    };
    nic.max(path).max(costs.app)
}

/// Predicts Fig. 10: flows that share ten cores for the kernel and five for applications.
pub(crate) fn flows(case: &Case, split: &Split, settings: &Settings) -> Vec<Flows> {
    let mean = |costs: &Costs, count: usize, lanes: usize| {
        let rates = (0..PLACEMENTS).map(|placement| {
            let scene = crowd(costs, count, lanes, placement, settings);
            simulate(&scene).pkts_per_s()
        });
        rates.sum::<f64>() / PLACEMENTS as f64
    };
    FLOWS
        .iter()
        .map(|count| Flows {
            flows: *count,
            vanilla_pkts_per_s: mean(&case.vanilla, *count, 0),
            mflow_pkts_per_s: mean(&split.costs, *count, PAPER_LANES),
        })
        .collect()
}

/// Flows on random cores; the lanes of a flow are the cores after its NIC queue's.
fn crowd(costs: &Costs, count: usize, lanes: usize, placement: u64, settings: &Settings) -> Scene {
    let wire = Wire::of("tcp", PAPER_MSG_BYTES, true);
    let place = |core, insn| settings.place(core, insn);
    let lane_insn = match costs.path {
        Path::Lanes(insn) => insn,
        Path::Hops(_) => 0.0,
    };
    // The same placement for all modes.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ placement << 32);
    let streams = (0..count).map(|flow| {
        let nic = rng.random_range(0..KERNEL_CORES);
        Stream {
            load: Load::Window {
                packets: WINDOW_PKTS,
                // The flows share the link.
                packet_ps: wire.packet_ps(PAPER_LINK_GBPS / count as f64),
            },
            nic: place(nic, costs.nic),
            hops: Vec::new(),
            lanes: (1..=lanes)
                .map(|step| place((nic + step) % KERNEL_CORES, lane_insn))
                .collect(),
            whole_ps: None,
            gro_joins: false,
            stages: None,
            app: place(KERNEL_CORES + flow % APP_CORES, costs.app),
        }
    });
    counted(Scene::of(
        KERNEL_CORES + APP_CORES,
        streams.collect(),
        settings.knobs(WhenFull::Inline),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{rows, settings};
    use crate::sim::predictions::validate::validate;

    fn case() -> Case {
        let mut cases = validate(&rows(), &settings()).cases;
        cases.remove(0)
    }

    #[test]
    fn larger_batches_make_less_disorder() {
        // A ring that takes the largest batch.
        let settings = Settings {
            lane_ring_pkts: 8_192,
            ..settings()
        };
        let disorder = disorder(&case().splits[0], &settings);
        let falls = |batches: &[Disorder], early: fn(&Disorder) -> f64| {
            assert!(
                batches.is_sorted_by(|a, b| early(a) > early(b)),
                "{batches:?}"
            );
        };
        // Up to 16 and from 64 on: the bursts are of 46 packets.
        falls(&disorder[..=4], |place| place.calm.pkts);
        falls(&disorder[6..], |place| place.calm.pkts);
        assert!(disorder[8].calm.pkts < disorder[0].calm.pkts / 2.0);
        assert!(disorder[8].saturated.runs < disorder[0].saturated.runs / 10.0);
        assert!(disorder[10].calm.pkts > 0.0);
        falls(&disorder[..=5], |place| place.saturated.runs);
        assert!(disorder[6].saturated.pkts < 1.0, "a poll's packets");
    }

    #[test]
    fn lanes_help_less_the_more_flows_there_are() {
        let case = case();
        let flows = flows(&case, &case.splits[0], &settings());
        let gain = |place: usize| flows[place].mflow_pkts_per_s / flows[place].vanilla_pkts_per_s;
        assert!(gain(0) > 2.0, "{flows:?}");
        assert!(gain(3) < gain(0) && gain(3) < gain(1), "{flows:?}");
        let vanilla: Vec<f64> = flows.iter().map(|one| one.vanilla_pkts_per_s).collect();
        assert!(vanilla.is_sorted(), "{vanilla:?}");
    }

    #[test]
    fn the_largest_tcp_messages_are_most_like_the_paper() {
        let small = case();
        let mut large = small.clone();
        large.msg_bytes = 65_536;
        let mut tcp = large.clone();
        tcp.proto = "tcp".to_owned();
        let (mut none, mut many) = (tcp.clone(), tcp.clone());
        none.splits.clear();
        many.is_one_path = false;
        let cases = [small, large, tcp, none, many];
        let (found, _) = like_the_paper(&cases).expect("a case with mflow");
        assert!(std::ptr::eq(found, &cases[2]));
    }
}
