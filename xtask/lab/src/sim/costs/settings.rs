// SPDX-License-Identifier: GPL-2.0

//! The settings of the command line, and the scenes that are made from costs.

use mflow_algo::algo::knobs::{Knobs as Module, Limits, KNOBS};
use mflow_algo::algo::lanes::queue::ring::RING_ITEMS;
use mflow_algo::algo::limits::MAX_LANES;
use serde::Serialize;

use super::rows::{Costs, Path};
use super::stages::{Placement, StageCosts};
use crate::sim::model::arrivals::Load;
use crate::sim::model::calendar::PS_PER_US;
use crate::sim::model::scene::{
    Balance, Control, Follows, Knobs, Place, Scene, Stages, Stream, WhenFull,
};

/// The machine that is modelled.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Settings {
    /// Clock of every core, in GHz
    #[arg(long, value_name = "GHZ", default_value_t = 3.0, value_parser = positive)]
    pub(crate) clock_ghz: f64,
    /// Instructions that a core completes per clock cycle, in all stages alike
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = positive)]
    pub(crate) insn_per_cycle: f64,
    /// Delay of an interrupt from one core to another, in microseconds
    #[arg(long, value_name = "US", default_value_t = 1.0, value_parser = not_negative)]
    pub(crate) ipi_delay_us: f64,
    /// Delay until a sleeping reader runs, in microseconds
    #[arg(long, value_name = "US", default_value_t = 3.0, value_parser = not_negative)]
    pub(crate) wake_up_us: f64,
    /// Largest deviation of a packet's cost from its mean, as a share: no two cores are in step
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    pub(crate) cost_spread: f64,
    /// Packets in a batch
    #[arg(long, value_name = "N", default_value_t = Module::default().batch_pkts, value_parser = |text: &str| knob("batch_pkts", text))]
    pub(crate) batch_pkts: u32,
    /// Longest time for which a silent lane may hold a flow up, in microseconds
    #[arg(long, value_name = "US", default_value_t = Module::default().merge_timeout_us, value_parser = |text: &str| knob("merge_timeout_us", text))]
    pub(crate) merge_timeout_us: u32,
    /// Packets in a lane's ring
    #[arg(long, value_name = "N", default_value_t = RING_ITEMS as u32, value_parser = clap::value_parser!(u32).range(2..=RING_ITEMS as i64))]
    pub(crate) lane_ring_pkts: u32,
    /// Packets in the NIC's ring
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) nic_ring_pkts: u32,
    /// Packets that wait for a reader at most
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) socket_pkts: u32,
    /// Lanes of a flow at most
    #[arg(long, value_name = "N", default_value_t = MAX_LANES as u32, value_parser = clap::value_parser!(u32).range(1..=MAX_LANES as i64))]
    pub(crate) lanes: u32,
    /// Interval at which loads are sampled, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 2.0, value_parser = positive)]
    pub(crate) load_sample_ms: f64,
    /// The load that no core is to reach, in per cent: FALCON's threshold
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) load_threshold_pct: u32,
    /// Ways to spread containers over cores, each at random as a NIC's hash does it; the mean is shown
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub(crate) placements: u64,
    /// Instructions that a batch costs its lane beside its packets, where batches follow the load
    #[arg(long, value_name = "N", default_value_t = 600.0, value_parser = not_negative)]
    pub(crate) batch_insn: f64,
    /// Seed of everything random: the same gives the same
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Default for Settings {
    /// Returns the defaults of the command line.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Nothing {
            #[command(flatten)]
            settings: Settings,
        }
        let nothing: Nothing = clap::Parser::parse_from(["sim"]);
        nothing.settings
    }
}

/// The size of a queue in front of an RPS core: the kernel's default `netdev_max_backlog`.
const BACKLOG_PKTS: usize = 1000;

impl Settings {
    pub(crate) fn insn_ps(&self, insn: f64) -> f64 {
        insn / (self.clock_ghz * self.insn_per_cycle) * 1e3
    }

    pub(crate) fn place(&self, core: usize, insn: f64) -> Place {
        let packet_ps = self.insn_ps(insn);
        Place { core, packet_ps }
    }

    pub(crate) fn knobs(&self, when_full: WhenFull) -> Knobs {
        // CAST: microseconds within the ranges above.
        let ps = |us: f64| (us * PS_PER_US) as u64;
        Knobs {
            batch_pkts: self.batch_pkts,
            merge_timeout_us: self.merge_timeout_us,
            lane_ring_pkts: self.lane_ring_pkts,
            nic_ring_pkts: self.nic_ring_pkts as usize,
            backlog_pkts: BACKLOG_PKTS,
            socket_pkts: self.socket_pkts as usize,
            ipi_ps: ps(self.ipi_delay_us),
            wake_up_ps: ps(self.wake_up_us),
            cost_spread: self.cost_spread,
            when_full,
            batch_ps: 0.0,
            seed: self.seed,
        }
    }

    /// Returns the controller that samples the loads of `cores`.
    pub(crate) fn control(&self, cores: Vec<usize>, follows: Follows) -> Control {
        Control {
            // CAST: milliseconds within the range above.
            period_ps: (self.load_sample_ms * 1e3 * PS_PER_US) as u64,
            cores,
            follows,
        }
    }

    /// Returns one stream with a core for each stage; `lanes` matters to mflow's costs only.
    pub(crate) fn scene(
        &self,
        costs: &Costs,
        lanes: usize,
        load: Load,
        when_full: WhenFull,
    ) -> Scene {
        let place = |core, insn| self.place(core, insn);
        let (nic, hops, lanes) = match &costs.path {
            Path::Hops(hops) => (
                costs.nic,
                (2..)
                    .zip(hops)
                    .map(|(core, insn)| place(core, *insn))
                    .collect(),
                Vec::new(),
            ),
            Path::Lanes(insn) => {
                let (nic, insn) = costs.shared_out(*insn, lanes);
                let lanes = (0..lanes).map(|lane| place(2 + lane, insn));
                (nic, Vec::new(), lanes.collect())
            }
        };
        let cores = 2 + hops.len() + lanes.len();
        let stream = Stream {
            load,
            nic: place(0, nic),
            hops,
            lanes,
            whole_ps: None,
            gro_joins: false,
            stages: None,
            app: place(1, costs.app),
        };
        counted(Scene::of(cores, vec![stream], self.knobs(when_full)))
    }

    /// Returns flows in stages that are placed like this: the NIC on core 0, the readers on core 1, then the CPUs of the stages.
    ///
    /// As in a benchmark no more packets are on their way than the rings hold, so that the slowest core sets the pace of all.
    pub(crate) fn stages(&self, costs: &StageCosts, placement: &Placement, app: f64) -> Scene {
        let insn_ps = |insn| self.insn_ps(insn);
        let cores = Vec::from_iter(2..2 + placement.nr_cpus());
        let stream = Stream {
            load: Load::Window {
                packets: self.nic_ring_pkts,
                packet_ps: 1,
            },
            nic: self.place(0, costs.nic),
            hops: Vec::new(),
            lanes: Vec::new(),
            whole_ps: None,
            gro_joins: false,
            stages: Some(Stages {
                packet_ps: costs.stages.map(insn_ps).to_vec(),
                // What the stages cost has it.
                hop_ps: 0.0,
                whole_ps: insn_ps(costs.behind_nic()),
                cores,
                balance: Balance::Module(placement.flows()),
            }),
            app: self.place(1, app),
        };
        let nr_cores = 2 + placement.nr_cpus();
        counted(Scene::of(
            nr_cores,
            vec![stream],
            self.knobs(WhenFull::Lose),
        ))
    }

    /// Returns the stream of `costs` with all stages on one core, without lanes.
    pub(crate) fn one_core(&self, costs: &Costs, load: Load) -> Scene {
        let mut scene = self.scene(costs, 0, load, WhenFull::Inline);
        for stream in &mut scene.streams {
            stream.app.core = 0;
            stream.hops.iter_mut().for_each(|hop| hop.core = 0);
        }
        scene.cores = 1;
        scene
    }
}

/// Sets how long a scene lasts: all rings fill first, and many rounds of batches are counted.
pub(crate) fn counted(mut scene: Scene) -> Scene {
    let lanes = scene.streams.iter().map(|stream| stream.lanes.len());
    // CAST: a few lanes.
    let lanes = lanes.max().unwrap_or(0) as u64;
    let rings = lanes * u64::from(scene.knobs.lane_ring_pkts);
    let round = lanes * u64::from(scene.knobs.batch_pkts);
    scene.warm_up_pkts = 20_000 + 2 * rings;
    scene.count_pkts = (40 * round).clamp(50_000, 400_000);
    scene
}

fn number(text: &str, good: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && good(*value))
        .ok_or_else(|| format!("{range} is allowed"))
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    number(
        text,
        |value| (1e-3..=1e6).contains(&value),
        "0.001 to 1000000",
    )
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=1e6).contains(&value), "0 to 1000000")
}

/// Reads a number within the limits of the module's knob.
fn knob(name: &str, text: &str) -> Result<u32, String> {
    let spec = KNOBS.iter().find(|spec| spec.name() == name);
    let spec = spec.ok_or("the module has no such knob")?;
    let number = text.trim().parse().ok();
    number
        .filter(|number| matches!(spec.limits, Limits::Number(limits) if (limits.min..=limits.max).contains(number)))
        .ok_or_else(|| spec.allowed().to_string())
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, |value| (0.0..=0.99).contains(&value), "0 to 0.99")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::costs::fixture::settings;

    #[test]
    fn instructions_become_time() {
        let mut settings = settings();
        assert!((settings.insn_ps(3_000.0) - 1e6).abs() < 1e-6);
        settings.insn_per_cycle = 2.0;
        assert!((settings.insn_ps(3_000.0) - 5e5).abs() < 1e-6);
    }

    #[test]
    fn every_stage_has_a_core_unless_all_share_one() {
        let costs = Costs {
            nic: 1.0,
            movable: 0.0,
            path: Path::Lanes(2.0),
            app: 3.0,
        };
        let scene = settings().scene(&costs, 3, Load::Endless, WhenFull::Inline);
        assert_eq!((scene.cores, scene.streams[0].lanes[2].core), (5, 4));
        let scene = settings().one_core(&costs, Load::Endless);
        assert_eq!((scene.cores, scene.streams[0].app.core), (1, 0));
        assert!(scene.streams[0].lanes.is_empty());
    }

    #[test]
    fn bad_values_are_told_the_range() {
        assert_eq!(positive("2.5"), Ok(2.5));
        assert!(positive("0").is_err_and(|why| why.contains("0.001 to 1000000")));
        assert_eq!(knob("batch_pkts", "4096"), Ok(4096));
        assert!(knob("batch_pkts", "4097").is_err_and(|why| why.contains("1 to 4096")));
        assert!(share("1").is_err() && not_negative("-1").is_err() && positive("x").is_err());
    }
}
