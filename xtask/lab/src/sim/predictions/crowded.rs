// SPDX-License-Identifier: GPL-2.0

//! Many containers on few cores: the shapes of FALCON's Figs. 14 to 16, with mflow beside them.
//!
//! FALCON is there twice: as the paper has it, where each packet asks for loads, and as the module does it (`falcon-dev`), which
//! moves all stages at once. The costs of its stages are measured.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use super::adaptive::settle;
use super::validate::{Case, Split};
use crate::sim::costs::rows::Costs;
use crate::sim::costs::settings::Settings;
use crate::sim::costs::stages::{stage_key, NR_STAGES};
use crate::sim::model::arrivals::Load;
use crate::sim::model::calendar::PS_PER_S;
use crate::sim::model::paper_balance::{rps_place, PaperBalance};
use crate::sim::model::pipeline::simulate;
use crate::sim::model::scene::{Balance, Count, Follows, Scene, Stages, Stream, WhenFull};
use crate::sim::model::wire::Wire;

/// Cores that receive: NIC queues, stages and lanes. As in the paper, readers have others.
pub(crate) const CORES: usize = 6;
/// Fig. 14: containers, with a flow each.
const CONTAINERS: [usize; 4] = [6, 10, 20, 40];
/// The load that a flow offers, as a share of the load that a core carries with the vanilla stack: six flows keep six cores about
/// so busy.
pub(crate) const FLOW_LOAD: f64 = 0.7;
/// Fig. 15: thresholds; beyond 100 % it is always on.
const THRESHOLDS: [u32; 5] = [60, 70, 80, 90, ALWAYS_ON];
pub(crate) const ALWAYS_ON: u32 = 101;
/// Fig. 15: containers on a machine that is nearly full, and on one that has too much.
const SWEPT: [usize; 2] = [8, 20];
/// Fig. 16: flows, of which one is suddenly more intense than the others, by so much.
pub(crate) const HOT_FLOWS: usize = 8;
pub(crate) const HOT_LOAD: f64 = 1.2;
pub(crate) const CALM_LOAD: f64 = 0.4;

/// The costs of stages on several cores, in instructions per packet, all derived from FALCON's row and the vanilla one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PipelineCosts {
    pub(crate) nic: f64,
    pub(crate) stages: Vec<f64>,
    /// The additional work of all cores, compared with no stages, for each hand-over.
    pub(crate) hop: f64,
}

impl PipelineCosts {
    fn of(case: &Case) -> Option<Self> {
        let measured = case.falcon.as_ref()?;
        let more = measured.nic + measured.behind_nic() - case.vanilla.nic;
        let hop = (more / NR_STAGES as f64).max(0.0);
        let stages: Vec<f64> = measured.stages.iter().map(|insn| insn - hop).collect();
        stages.iter().all(|insn| *insn > 0.0).then_some(Self {
            nic: measured.nic,
            stages,
            hop,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Vanilla,
    Rps,
    /// FALCON as the paper has it: the threshold, and whether there is a second choice.
    Paper(u32, bool),
    /// The module's `falcon-dev` with this threshold.
    Module(u32),
    Mflow,
}

/// Throughput of all containers together, and how busy the cores were.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Crowd {
    pub(crate) pkts_per_s: f64,
    pub(crate) busy: f64,
    /// Packets that were read after a later one of their flow, per 1000.
    pub(crate) reordered: f64,
}

/// Fig. 14.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Containers {
    pub(crate) containers: usize,
    pub(crate) vanilla: Crowd,
    pub(crate) rps: Crowd,
    pub(crate) falcon: Crowd,
    pub(crate) falcon_dev: Crowd,
    pub(crate) mflow: Crowd,
}

/// Fig. 15: one threshold, for each number of containers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Threshold {
    pub(crate) pct: u32,
    /// FALCON's.
    pub(crate) pkts_per_s: Vec<f64>,
    /// The module's.
    pub(crate) dev_pkts_per_s: Vec<f64>,
}

/// Fig. 16: with one flow more intense than the others.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HotSpots {
    pub(crate) fixed: Crowd,
    pub(crate) dynamic: Crowd,
    /// The module's stages, without and with regard to loads.
    pub(crate) dev_fixed: Crowd,
    pub(crate) dev_dynamic: Crowd,
    pub(crate) mflow: Crowd,
}

/// All that is crowded, for one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Crowded {
    pub(crate) case: String,
    pub(crate) costs: PipelineCosts,
    pub(crate) fig14: Vec<Containers>,
    pub(crate) swept: Vec<usize>,
    pub(crate) fig15: Vec<Threshold>,
    pub(crate) fig16: HotSpots,
}

/// Returns the case that is most like the paper's: one UDP flow of the smallest messages.
pub(crate) fn like_the_paper(cases: &[Case]) -> Option<(&Case, &Split)> {
    let case = cases
        .iter()
        .filter(|case| {
            let is_measured = case.rps.is_some() && PipelineCosts::of(case).is_some();
            case.is_one_path && is_measured && !case.splits.is_empty()
        })
        .min_by_key(|case| (case.proto != "udp", case.msg_bytes))?;
    Some((case, case.splits.first()?))
}

pub(crate) fn crowded(case: &Case, split: &Split, settings: &Settings) -> Option<Crowded> {
    let threshold = settings.load_threshold_pct;
    let host = Host::new(case, split, settings)?;
    let even = |count: usize| vec![FLOW_LOAD; count];
    let (paper, module) = (Mode::Paper(threshold, true), Mode::Module(threshold));
    let fig14 = CONTAINERS.iter().map(|&containers| {
        let mean = |mode| host.mean(mode, &even(containers));
        Containers {
            containers,
            vanilla: mean(Mode::Vanilla),
            rps: mean(Mode::Rps),
            falcon: mean(paper),
            falcon_dev: mean(module),
            mflow: mean(Mode::Mflow),
        }
    });
    let swept = |mode| {
        let rates = SWEPT
            .iter()
            .map(|count| host.mean(mode, &even(*count)).pkts_per_s);
        rates.collect()
    };
    let fig15 = THRESHOLDS.iter().map(|&pct| Threshold {
        pct,
        pkts_per_s: swept(Mode::Paper(pct, true)),
        dev_pkts_per_s: swept(Mode::Module(pct)),
    });
    let hot = |mode| host.mean(mode, &hot_loads());
    Some(Crowded {
        case: case.name.clone(),
        fig14: fig14.collect(),
        swept: SWEPT.to_vec(),
        fig15: fig15.collect(),
        fig16: HotSpots {
            fixed: hot(Mode::Paper(threshold, false)),
            dynamic: hot(paper),
            dev_fixed: hot(Mode::Module(ALWAYS_ON)),
            dev_dynamic: hot(module),
            mflow: hot(Mode::Mflow),
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
    costs: PipelineCosts,
    settings: &'a Settings,
}

impl<'a> Host<'a> {
    fn new(case: &'a Case, split: &'a Split, settings: &'a Settings) -> Option<Self> {
        Some(Self {
            case,
            split,
            rps: case.rps.as_ref()?,
            costs: PipelineCosts::of(case)?,
            settings,
        })
    }

    /// Returns the mean over all placements; `loads` are the flows'.
    fn mean(&self, mode: Mode, loads: &[f64]) -> Crowd {
        let placements = self.settings.placements as f64;
        let outcomes = (0..self.settings.placements)
            .map(|placement| simulate(&self.scene(mode, loads, placement)));
        let mut mean = Crowd::default();
        for outcome in outcomes {
            let cores = outcome.busy.iter().take(CORES);
            let delivered = outcome.counted.get(Count::Delivered).max(1) as f64;
            let reordered = outcome.counted.get(Count::Reordered) as f64;
            mean.pkts_per_s += outcome.pkts_per_s() / placements;
            mean.busy += cores.sum::<f64>() / CORES as f64 / placements;
            mean.reordered += reordered / delivered * 1e3 / placements;
        }
        mean
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
        let follows = match mode {
            Mode::Mflow => Follows::Lanes(settings.load_threshold_pct),
            Mode::Module(pct) => Follows::Stages(pct),
            _ => Follows::Nothing,
        };
        let control = settings.control((0..CORES).collect(), follows);
        let offered = loads.iter().sum::<f64>().min(CORES as f64) * core_pkts_per_s;
        settle(&mut scene, &control, offered);
        scene.control = Some(control);
        scene
    }

    fn stream(&self, mode: Mode, pkts_per_s: f64, nic: usize, app: usize, hash: u32) -> Stream {
        let place = |core, insn| self.settings.place(core, insn);
        let (vanilla, split, costs) = (&self.case.vanilla, &self.split.costs, &self.costs);
        let insn_ps = |insn| self.settings.insn_ps(insn);
        let whole = insn_ps((vanilla.nic - split.nic).max(0.0));
        let balance = match mode {
            // CAST: half of the hash, which is as good as any flow's number.
            Mode::Module(_) => Some(Balance::Module(vec![stage_key((hash >> 16) as u16)])),
            Mode::Paper(threshold_pct, has_second_choice) => Some(Balance::Paper(PaperBalance {
                flow_hash: hash,
                threshold_pct,
                has_second_choice,
            })),
            _ => None,
        };
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
                    Mode::Paper(..) | Mode::Module(_) => costs.nic,
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
            gro_joins: self.case.gro_joins(),
            stages: balance.map(|balance| Stages {
                cores: (0..CORES).collect(),
                packet_ps: costs.stages.iter().map(|insn| insn_ps(*insn)).collect(),
                hop_ps: insn_ps(costs.hop),
                whole_ps: insn_ps((vanilla.nic - costs.nic).max(0.0)),
                balance,
            }),
            app: place(app, split.app),
        }
    }
}

/// Flows are slower than their link.
const LINK_GBPS: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::{rows, settings};
    use crate::sim::predictions::validate::validate;

    const THRESHOLD: u32 = 85;
    const PAPER: Mode = Mode::Paper(THRESHOLD, true);
    const MODULE: Mode = Mode::Module(THRESHOLD);

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
            let costs = &host.costs;
            let rest: f64 = costs.stages.iter().sum();
            // 8000 with vanilla; with FALCON 3000, and 6500 on three cores.
            let sums = (costs.nic, rest.round(), costs.hop.round());
            assert_eq!(sums, (3_000.0, 5_000.0, 500.0));
        });
    }

    #[test]
    fn stages_gain_while_cores_have_time_and_mflow_always() {
        with_host(|host| {
            let gain = |mode, count| {
                let loads = vec![FLOW_LOAD; count];
                let rps = host.mean(Mode::Rps, &loads).pkts_per_s;
                host.mean(mode, &loads).pkts_per_s / rps
            };
            // Two per cent are where the counting begins and ends.
            let falcon = [6, 20].map(|count| gain(PAPER, count));
            assert!(
                falcon[0] > 1.05 && (0.98..1.05).contains(&falcon[1]),
                "{falcon:?}"
            );
            // Where there is no time, the module's flows take the ordinary path.
            let module = gain(MODULE, 20);
            let loads = vec![FLOW_LOAD; 20];
            let vanilla = host.mean(Mode::Vanilla, &loads).pkts_per_s;
            let ordinary = vanilla / host.mean(Mode::Rps, &loads).pkts_per_s;
            assert!(
                (module / ordinary - 1.0).abs() < 0.02,
                "{module} {ordinary}"
            );
            let mflow = [6, 20].map(|count| gain(Mode::Mflow, count));
            assert!(mflow.iter().all(|gain| *gain > 1.1), "{mflow:?}");
        });
    }

    #[test]
    fn order_holds_while_the_modules_stages_move_and_not_while_the_papers_do() {
        with_host(|host| {
            let reordered = |mode| {
                let counts = [hot_loads(), vec![0.5; 8], vec![1.2; 8]].map(|loads| {
                    let outcome = simulate(&host.scene(mode, &loads, 1));
                    let all = outcome.all;
                    assert!(all.get(Count::Delivered) > 10_000);
                    let ended = all.get(Count::Delivered) + all.lost() + outcome.inside;
                    assert_eq!(outcome.arrived, ended);
                    all.get(Count::Reordered)
                });
                counts.iter().sum::<u64>()
            };
            assert_eq!(reordered(MODULE), 0);
            assert!(reordered(PAPER) > 0);
        });
    }

    #[test]
    fn two_choices_leave_a_hot_core() {
        with_host(|host| {
            let rate = |mode| host.mean(mode, &hot_loads()).pkts_per_s;
            let fixed = rate(Mode::Paper(THRESHOLD, false));
            // Without the second choice the first would be the same.
            for mode in [PAPER, Mode::Mflow] {
                let rate = rate(mode);
                assert!(rate > fixed * 1.1, "{mode:?} {fixed} {rate}");
            }
        });
    }
}
