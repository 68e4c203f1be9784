// SPDX-License-Identifier: GPL-2.0

//! Many containers on few cores: the shapes of FALCON's Figs. 14 to 16, with mflow beside them.
//!
//! What a stage of FALCON's pipeline costs is made of what is measured: the NIC's core, what all cores have to do more than without
//! stages (which is what hand-overs between cores cost), and the rest, shared out over the stages.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use super::adaptive::settle;
use super::arrivals::Load;
use super::calendar::PS_PER_S;
use super::costs::Costs;
use super::pipeline::simulate;
use super::pipelined::rps_place;
use super::scene::{Balance, Outcome, Scene, Stages, Stream, WhenFull};
use super::settings::Settings;
use super::validate::{Case, Split};
use super::wire::Wire;

/// Cores that receive: NIC queues, stages and lanes. As in the paper, readers have others.
pub(super) const CORES: usize = 6;
/// Fig. 14: containers, with a flow each.
const CONTAINERS: [usize; 4] = [6, 10, 20, 40];
/// What a flow offers, as a share of what a core carries with the vanilla stack: six flows keep six cores about so busy.
pub(super) const FLOW_LOAD: f64 = 0.7;
/// Fig. 15: thresholds; beyond 100 % it is always on.
const THRESHOLDS: [u32; 5] = [60, 70, 80, 90, ALWAYS_ON];
pub(super) const ALWAYS_ON: u32 = 101;
/// Fig. 15: containers on a machine that is nearly full, and on one that has too much.
const SWEPT: [usize; 2] = [8, 20];
/// Fig. 16: flows, of which one is suddenly more intense than the others, by so much.
pub(super) const HOT_FLOWS: usize = 8;
pub(super) const HOT_LOAD: f64 = 1.2;
pub(super) const CALM_LOAD: f64 = 0.4;
/// How the rest of the path is shared out: VXLAN, bridge, veth and container. Assumed.
pub(super) const STAGE_SHARES: [f64; 3] = [0.4, 0.2, 0.4];

/// What stages cost, in instructions per packet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StageCosts {
    pub(super) nic: f64,
    pub(super) stages: Vec<f64>,
    pub(super) hop: f64,
    /// Whether they are FALCON's own. If not, they are made of RPS's, whose NIC core does the VXLAN stage as well.
    pub(super) is_falcons: bool,
}

impl StageCosts {
    /// Makes them of FALCON's row, else of RPS's, beside the vanilla one; nothing if a hand-over costs nothing that shows.
    fn of(case: &Case) -> Option<Self> {
        let made_of = |costs: &Costs, hand_overs: usize, is_falcons| {
            let rest = case.vanilla.nic - costs.nic;
            // CAST: a few.
            let hop = (costs.behind_nic() - rest) / hand_overs as f64;
            (rest > 0.0 && hop > 0.0).then(|| Self {
                nic: costs.nic,
                stages: STAGE_SHARES.iter().map(|share| share * rest).collect(),
                hop,
                is_falcons,
            })
        };
        let falcon = case.falcon.as_ref();
        falcon
            .and_then(|falcon| made_of(falcon, STAGE_SHARES.len(), true))
            .or_else(|| made_of(case.rps.as_ref()?, 1, false))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Vanilla,
    Rps,
    Falcon(Balance),
    Mflow,
}

/// Throughput of all containers together, and how busy the cores were.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Crowd {
    pub(super) pkts_per_s: f64,
    pub(super) busy: f64,
}

/// Fig. 14.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Containers {
    pub(super) containers: usize,
    pub(super) vanilla: Crowd,
    pub(super) rps: Crowd,
    pub(super) falcon: Crowd,
    pub(super) mflow: Crowd,
}

/// Fig. 15: one threshold, for each number of containers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Threshold {
    pub(super) pct: u32,
    pub(super) pkts_per_s: Vec<f64>,
}

/// Fig. 16: with one flow more intense than the others.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HotSpots {
    pub(super) static_pkts_per_s: f64,
    pub(super) dynamic_pkts_per_s: f64,
    pub(super) mflow_pkts_per_s: f64,
}

/// All that is crowded, for one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Crowded {
    pub(super) case: String,
    pub(super) costs: StageCosts,
    pub(super) fig14: Vec<Containers>,
    pub(super) swept: Vec<usize>,
    pub(super) fig15: Vec<Threshold>,
    pub(super) fig16: HotSpots,
}

/// Returns the case that is most like the paper's: one UDP flow of the smallest messages.
pub(super) fn like_the_paper(cases: &[Case]) -> Option<(&Case, &Split)> {
    let case = cases
        .iter()
        .filter(|case| case.is_one_path && case.rps.is_some() && !case.splits.is_empty())
        .min_by_key(|case| (case.proto != "udp", case.msg_bytes))?;
    Some((case, case.splits.first()?))
}

pub(super) fn crowded(case: &Case, split: &Split, settings: &Settings) -> Option<Crowded> {
    let threshold = settings.load_threshold_pct;
    let host = Host::new(case, split, settings)?;
    let even = |count: usize| vec![FLOW_LOAD; count];
    let dynamic = Mode::Falcon(Balance::Dynamic(threshold));
    let fig14 = CONTAINERS.iter().map(|&containers| Containers {
        containers,
        vanilla: host.mean(Mode::Vanilla, &even(containers)),
        rps: host.mean(Mode::Rps, &even(containers)),
        falcon: host.mean(dynamic, &even(containers)),
        mflow: host.mean(Mode::Mflow, &even(containers)),
    });
    let fig15 = THRESHOLDS.iter().map(|&pct| Threshold {
        pct,
        pkts_per_s: SWEPT
            .iter()
            .map(|count| {
                host.mean(Mode::Falcon(Balance::Dynamic(pct)), &even(*count))
                    .pkts_per_s
            })
            .collect(),
    });
    let hot = |mode| host.mean(mode, &hot_loads()).pkts_per_s;
    Some(Crowded {
        case: case.name.clone(),
        fig14: fig14.collect(),
        swept: SWEPT.to_vec(),
        fig15: fig15.collect(),
        fig16: HotSpots {
            static_pkts_per_s: hot(Mode::Falcon(Balance::Static(threshold))),
            dynamic_pkts_per_s: hot(dynamic),
            mflow_pkts_per_s: hot(Mode::Mflow),
        },
        costs: host.costs,
    })
}

/// Returns what flows offer of which one is more intense than the others.
fn hot_loads() -> Vec<f64> {
    let mut loads = vec![CALM_LOAD; HOT_FLOWS];
    loads[0] = HOT_LOAD;
    loads
}

struct Host<'a> {
    case: &'a Case,
    split: &'a Split,
    rps: &'a Costs,
    costs: StageCosts,
    settings: &'a Settings,
}

impl<'a> Host<'a> {
    fn new(case: &'a Case, split: &'a Split, settings: &'a Settings) -> Option<Self> {
        Some(Self {
            case,
            split,
            rps: case.rps.as_ref()?,
            costs: StageCosts::of(case)?,
            settings,
        })
    }

    /// Returns the mean over all placements; `loads` are the flows'.
    fn mean(&self, mode: Mode, loads: &[f64]) -> Crowd {
        let outcomes = (0..self.settings.placements)
            .map(|placement| simulate(&self.scene(mode, loads, placement)));
        let (rate, busy) = outcomes.fold((0.0, 0.0), |(rate, busy), outcome: Outcome| {
            let cores = outcome.busy.iter().take(CORES);
            (
                rate + outcome.pkts_per_s(),
                busy + cores.sum::<f64>() / CORES as f64,
            )
        });
        Crowd {
            pkts_per_s: rate / self.settings.placements as f64,
            busy: busy / self.settings.placements as f64,
        }
    }

    fn scene(&self, mode: Mode, loads: &[f64], placement: u64) -> Scene {
        let settings = self.settings;
        let core_pkts_per_s = PS_PER_S / settings.insn_ps(self.case.vanilla.nic);
        // The same placement for all modes.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(settings.seed ^ placement << 32);
        let streams = loads.iter().enumerate().map(|(flow, load)| {
            let nic = rng.random_range(0..CORES);
            self.stream(
                mode,
                load * core_pkts_per_s,
                nic,
                CORES + flow,
                rng.random(),
            )
        });
        let streams = streams.collect();
        let mut scene = Scene::of(
            CORES + loads.len(),
            streams,
            settings.knobs(WhenFull::Inline),
        );
        scene.knobs.batch_ps = settings.insn_ps(settings.batch_insn);
        let control = settings.control((0..CORES).collect(), mode == Mode::Mflow);
        let offered: f64 = loads.iter().sum();
        settle(
            &mut scene,
            &control,
            offered.min(CORES as f64) * core_pkts_per_s,
        );
        scene.control = Some(control);
        scene
    }

    fn stream(&self, mode: Mode, pkts_per_s: f64, nic: usize, app: usize, hash: u32) -> Stream {
        let place = |core, insn| self.settings.place(core, insn);
        let (vanilla, split, costs) = (&self.case.vanilla, &self.split.costs, &self.costs);
        let whole = self.settings.insn_ps((vanilla.nic - split.nic).max(0.0));
        let wire = Wire::of(&self.case.proto, self.case.msg_bytes, true);
        Stream {
            load: Load::Messages {
                packets: wire.packets,
                packet_ps: wire.packet_ps(LINK_GBPS),
                gap_ps: f64::from(wire.packets) / pkts_per_s * PS_PER_S,
                random: true,
            },
            nic: place(
                nic,
                match mode {
                    Mode::Vanilla => vanilla.nic,
                    Mode::Rps => self.rps.nic,
                    Mode::Falcon(_) => costs.nic,
                    Mode::Mflow => split.nic,
                },
            ),
            hops: match mode {
                Mode::Rps => vec![place(rps_place(hash, CORES), self.rps.behind_nic())],
                _ => Vec::new(),
            },
            lanes: match mode {
                Mode::Mflow => (0..CORES)
                    .map(|core| place(core, split.behind_nic()))
                    .collect(),
                _ => Vec::new(),
            },
            whole_ps: (mode == Mode::Mflow).then_some(whole),
            stages: match mode {
                Mode::Falcon(balance) => Some(Stages {
                    packet_ps: costs
                        .stages
                        .iter()
                        .map(|insn| self.settings.insn_ps(*insn))
                        .collect(),
                    hop_ps: self.settings.insn_ps(costs.hop),
                    flow_hash: hash,
                    balance,
                }),
                _ => None,
            },
            app: place(app, split.app),
        }
    }
}

/// Flows are slower than their link.
const LINK_GBPS: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::super::fixture::{rows, settings};
    use super::super::scene::Count;
    use super::super::validate::validate;
    use super::*;

    const THRESHOLD: u32 = 85;
    const FALCON: Mode = Mode::Falcon(Balance::Dynamic(THRESHOLD));

    fn with_host<R>(test: impl FnOnce(&Host<'_>) -> R) -> R {
        let cases = validate(&rows(), &settings()).cases;
        let (case, split) = like_the_paper(&cases).expect("a case with RPS and mflow");
        let settings = Settings {
            placements: 3,
            ..settings()
        };
        test(&Host::new(case, split, &settings).expect("costs"))
    }

    #[test]
    fn stages_cost_what_was_measured_in_all() {
        with_host(|host| {
            let sums = |costs: &StageCosts| {
                let rest: f64 = costs.stages.iter().sum();
                (costs.nic, rest.round(), costs.hop.round())
            };
            // 8000 with vanilla; with FALCON 3000, and 6500 on three cores; with RPS 6000 and 2500.
            assert!(host.costs.is_falcons);
            assert_eq!(sums(&host.costs), (3_000.0, 5_000.0, 500.0));
            let without = Case {
                falcon: None,
                ..host.case.clone()
            };
            let costs = StageCosts::of(&without).expect("of RPS's");
            assert!(!costs.is_falcons);
            assert_eq!(sums(&costs), (6_000.0, 2_000.0, 500.0));
        });
    }

    #[test]
    fn falcon_gains_while_cores_have_time_and_mflow_always() {
        with_host(|host| {
            let gain = |mode, count| {
                let loads = vec![FLOW_LOAD; count];
                let rps = host.mean(Mode::Rps, &loads).pkts_per_s;
                host.mean(mode, &loads).pkts_per_s / rps
            };
            // Two per cent are where the counting begins and ends.
            let falcon = [6, 20].map(|count| gain(FALCON, count));
            assert!(
                falcon[0] > 1.05 && (0.98..1.05).contains(&falcon[1]),
                "{falcon:?}"
            );
            let mflow = [6, 20].map(|count| gain(Mode::Mflow, count));
            assert!(mflow.iter().all(|gain| *gain > 1.1), "{mflow:?}");
        });
    }

    #[test]
    fn order_holds_while_stages_move() {
        with_host(|host| {
            for load in [0.5, 1.2] {
                let outcome = simulate(&host.scene(FALCON, &[load; 8], 1));
                assert!(outcome.all.get(Count::Delivered) > 10_000);
                assert_eq!(outcome.all.get(Count::Reordered), 0);
                let ended = outcome.all.get(Count::Delivered) + outcome.all.lost() + outcome.inside;
                assert_eq!(outcome.arrived, ended);
            }
        });
    }

    #[test]
    fn two_choices_leave_a_hot_core() {
        with_host(|host| {
            let rate = |mode| host.mean(mode, &hot_loads()).pkts_per_s;
            let fixed = rate(Mode::Falcon(Balance::Static(THRESHOLD)));
            let (dynamic, mflow) = (rate(FALCON), rate(Mode::Mflow));
            // Without the second choice both would be the same.
            assert!(
                dynamic > fixed * 1.1 && mflow > fixed * 1.1,
                "{fixed} {dynamic} {mflow}"
            );
        });
    }
}
