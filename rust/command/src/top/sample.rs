// SPDX-License-Identifier: GPL-2.0

//! The difference of two moments: all that `mflow top` shows of an interval. A function of what was read alone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use mflow_algo::algo::knobs::cpulist::CpuSet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cpus::{Counts, Cpu};
use crate::module::text::{FlowList, OfCpus, Stats};
use crate::status::{Reading, Status};

/// The begin of the names of the modes that have stages in place of lanes.
const FALCON: &str = "falcon-";

/// All counts of a moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The time since the program began to look.
    pub at: Duration,
    /// The work of CPUs.
    pub cpus: Counts,
    /// The module's answers.
    pub module: Reading,
}

impl Moment {
    /// Reads the counts of the host below `root`; `begin` is when the program began to look.
    pub fn read(root: &Path, begin: Instant) -> Result<Self> {
        let module = Reading::take(root);
        Ok(Self {
            cpus: Counts::read(root)?,
            at: begin.elapsed(),
            module,
        })
    }
}

/// All that is seen in an interval. Null stands for what can't be known: a rate, if `modprobe` has loaded the module within the interval,
/// or if a counter has less than before, as it was reset. A counter that was reset may have counted beyond its old value since: its rate is too low then.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sample {
    /// The length of the interval.
    pub seconds: f64,
    /// The state of the module at the end.
    pub status: Status,
    /// The packets that lanes were given, per second; null in the modes of FALCON, where no flow is split.
    pub lane_pps: Option<f64>,
    /// The packets that another CPU carried on from the NIC, per second; null unless the mode is one of FALCON's.
    pub stage_pps: Option<f64>,
    /// The packets that were delivered after their turn, per second.
    pub late_pps: Option<f64>,
    /// The packets of split flows that the NIC's cores carried themselves, per second. Those of whole flows are not counted.
    pub inline_pps: Option<f64>,
    /// The gain of the split flows, each with the weight of its packets per second.
    pub gain: Option<f64>,
    /// The CPUs that were online at both ends.
    pub cores: Vec<Core>,
    /// The lanes at the end.
    pub lanes: Vec<Lane>,
    /// The fast flows at the end.
    pub flows: Option<FlowList>,
}

/// A CPU's processor time in an interval. Shares are parts of 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Core {
    /// Its number.
    pub cpu: u32,
    /// Interrupts and softirqs: all that packets cost before a program reads them.
    pub softirq_pct: f64,
    /// These, and programs.
    pub all_pct: f64,
}

/// A CPU that is a lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lane {
    /// Its number.
    pub cpu: u32,
    /// The packets that it carried per second: those that it built, if the layout is `lane+stage` and another CPU carries them on, and
    /// those of each of its stages in the modes of FALCON.
    pub pps: Option<f64>,
    /// The memory of the packets that wait for it now. With the layout `lane+stage`, what waits for the CPU that builds is told of the one
    /// that carries, and the other has 0.
    pub waiting_bytes: Option<u64>,
    /// The share of interrupts and softirqs; null if it is offline.
    pub softirq_pct: Option<f64>,
    /// The share of these, and of programs; null if it is offline.
    pub all_pct: Option<f64>,
}

impl Sample {
    /// Returns the packets per second that other CPUs than the NIC's got.
    pub fn spread_pps(&self) -> Option<f64> {
        self.lane_pps.or(self.stage_pps)
    }

    /// Returns what is seen between two moments; without the first one, what is known of the second one alone.
    pub fn between(before: Option<&Moment>, now: &Moment) -> Self {
        let seconds = before.map_or(0.0, |before| now.at.saturating_sub(before.at).as_secs_f64());
        let cores: Vec<Core> = match before {
            Some(before) => now.cpus.since(&before.cpus).iter().map(Core::of).collect(),
            None => Vec::new(),
        };
        let Reading {
            load,
            status,
            flows,
            stats,
        } = &now.module;
        let stats = stats.as_ref().filter(|_| status.loaded);
        let before = before.filter(|before| load.is_some() && before.module.load == *load);
        let counted = stats
            .zip(before.and_then(|before| before.module.stats.as_ref()))
            .map(|(now, before)| Counted {
                now,
                before,
                seconds,
            });
        let carried = counted.map(Counted::by_lanes).unwrap_or_default();
        let mode = status.mode.as_deref();
        let has_stages = mode.is_some_and(|mode| mode.starts_with(FALCON));
        let per_s = |name: &str, is_there: bool| counted.filter(|_| is_there)?.per_s(name);
        let flows = flows.clone().filter(|_| status.loaded);
        Self {
            seconds,
            // Each packet is in these once; those of CPUs count it at each CPU that it goes over.
            lane_pps: per_s("lane_pkts", !has_stages),
            stage_pps: per_s("stage_nic_pkts", has_stages),
            late_pps: per_s("late_pkts", true),
            inline_pps: per_s("inline_pkts", true),
            gain: flows.as_ref().and_then(gain),
            lanes: lanes(status, stats, &carried, &cores),
            cores,
            status: status.clone(),
            flows,
        }
    }
}

/// The counters at both ends of an interval, of the same module.
#[derive(Clone, Copy)]
struct Counted<'a> {
    now: &'a Stats,
    before: &'a Stats,
    seconds: f64,
}

impl Counted<'_> {
    /// Returns what a counter has counted per second; nothing if it was reset.
    fn rate(self, now: u64, before: u64) -> Option<f64> {
        let added = now.wrapping_sub(before);
        // What was counted goes over the counter's end; what was reset seems to go far back.
        let is_counted = added <= u64::MAX / 2 && self.seconds > 0.0;
        // CAST: far below where f64 loses whole numbers.
        is_counted.then(|| added as f64 / self.seconds)
    }

    fn per_s(self, name: &str) -> Option<f64> {
        self.rate(self.now.get(name)?, self.before.get(name)?)
    }

    /// Returns the packets per second of each CPU that is or was a lane.
    fn by_lanes(self) -> Vec<(u32, Option<f64>)> {
        let before = self.before.by_cpu(OfCpus::LANE_PKTS);
        let now = self.now.by_cpu(OfCpus::LANE_PKTS).into_iter();
        // A CPU without a line has carried nothing yet.
        let rate = |(cpu, now)| {
            let before = before.get(&cpu).copied().unwrap_or(0);
            (cpu, self.rate(now, before))
        };
        now.map(rate).collect()
    }
}

impl Core {
    fn of(cpu: &Cpu) -> Self {
        Self {
            cpu: cpu.number,
            softirq_pct: cpu.softirq_pct,
            all_pct: (cpu.softirq_pct + cpu.program_pct).min(100.0),
        }
    }
}

fn lanes(
    status: &Status,
    stats: Option<&Stats>,
    carried: &[(u32, Option<f64>)],
    cores: &[Core],
) -> Vec<Lane> {
    let list = status.lanes.as_ref().filter(|_| status.loaded);
    let list = list.and_then(|list| CpuSet::parse(list.as_bytes()).ok());
    let waiting = stats.map(|stats| stats.by_cpu(OfCpus::LANE_RING_BYTES));
    let lane = |cpu: u32| {
        let core = cores.iter().find(|core| core.cpu == cpu);
        let carried = carried.iter().find(|(of, _)| *of == cpu);
        Lane {
            cpu,
            pps: carried.and_then(|(_, pps)| *pps),
            waiting_bytes: waiting.as_ref().and_then(|all| all.get(&cpu).copied()),
            softirq_pct: core.map(|core| core.softirq_pct),
            all_pct: core.map(|core| core.all_pct),
        }
    };
    list.unwrap_or(CpuSet::EMPTY).iter().map(lane).collect()
}

/// Returns the mean gain of split flows by their packets; nothing if none is split, or none has packets.
fn gain(list: &FlowList) -> Option<f64> {
    let split = list.flows.iter().filter(|flow| flow.is_split());
    let (mut sum, mut weight) = (0.0, 0.0);
    for (gain, pps) in split.filter_map(|flow| flow.gain.zip(flow.pps)) {
        sum += gain * f64::from(pps);
        weight += f64::from(pps);
    }
    (weight > 0.0).then(|| sum / weight)
}

#[cfg(test)]
mod tests {
    use mflow_algo::algo::knobs::{Knob, Knobs};

    use super::*;

    fn status(mode: &str, lanes: &str) -> Status {
        Status {
            loaded: true,
            kernel: "6.12.48".to_owned(),
            note: None,
            version: None,
            enabled: Some(true),
            mode: Some(mode.to_owned()),
            devices: None,
            cpus: None,
            lanes: Some(lanes.to_owned()),
            flows: None,
            packets: None,
        }
    }

    fn moment(seconds: u64, status: Status, stats: &str) -> Moment {
        Moment {
            at: Duration::from_secs(seconds),
            cpus: Counts::default(),
            module: Reading {
                load: Some(1),
                status,
                flows: None,
                stats: Some(Stats::parse(stats).expect("stats")),
            },
        }
    }

    fn sample(mode: &str, lanes: &str, before: &str, now: &str) -> Sample {
        let before = moment(0, status(mode, lanes), before);
        Sample::between(Some(&before), &moment(2, status(mode, lanes), now))
    }

    /// With the layout `lane+stage` CPU 2 builds what CPU 3 carries.
    #[test]
    fn a_packet_that_two_cpus_count_is_one() {
        let sample = sample(
            "mflow",
            "2-3",
            "lane_pkts 0\nstage_nic_pkts 0\nlane_cpu2_pkts 0\nlane_cpu3_pkts 0\n",
            "lane_pkts 200\nstage_nic_pkts 0\nlane_cpu2_pkts 200\nlane_cpu3_pkts 190\n",
        );
        assert_eq!((sample.lane_pps, sample.stage_pps), (Some(100.0), None));
        let of_lanes: Vec<_> = sample.lanes.iter().map(|lane| lane.pps).collect();
        assert_eq!(of_lanes, [Some(100.0), Some(95.0)]);
    }

    #[test]
    fn in_modes_of_falcon_stages_get_packets() {
        for mode in ["falcon-dev", "falcon-func"] {
            let mut knobs = Knobs::DEFAULT;
            assert!(knobs.set(Knob::Mode, mode.as_bytes()).is_ok(), "{mode}");
            let sample = sample(
                mode,
                "2-4",
                "lane_pkts 0\nstage_nic_pkts 0\nlane_cpu2_pkts 0\n",
                "lane_pkts 0\nstage_nic_pkts 300\nlane_cpu2_pkts 900\n",
            );
            assert_eq!((sample.lane_pps, sample.stage_pps), (None, Some(150.0)));
            assert_eq!(sample.spread_pps(), Some(150.0));
        }
    }

    /// CPU 5 was a lane before, and CPU 7 is one that has counted nothing.
    #[test]
    fn lanes_are_those_of_now() {
        let sample = sample(
            "mflow",
            "3,7",
            "lane_pkts 0\nlane_cpu5_pkts 10\nlane_cpu5_ring_bytes 1\n",
            "lane_pkts 40\nlane_cpu3_pkts 40\nlane_cpu3_ring_bytes 2\nlane_cpu5_pkts 90\nlane_cpu5_ring_bytes 3\n",
        );
        let lanes: Vec<_> = sample
            .lanes
            .iter()
            .map(|lane| (lane.cpu, lane.pps, lane.waiting_bytes))
            .collect();
        assert_eq!(lanes, [(3, Some(20.0), Some(2)), (7, None, None)]);
    }

    #[test]
    fn a_fast_flow_has_more_weight_in_the_gain() {
        let flow = |port: u16, pps: &str, state: &str| {
            format!("device eth0 queue 0 proto udp from 192.0.2.1:{port} to 192.0.2.2:4789 cpu 0 pps {pps} state {state}\n")
        };
        let text = flow(1, "300", "split slot 0 lanes 1 batch_pkts 256 gain 2.00")
            + &flow(2, "100", "split slot 1 lanes 1 batch_pkts 256 gain 4.00")
            + &flow(3, "-", "split slot 2 lanes 1 batch_pkts 256 gain 9.00")
            + &flow(4, "900", "whole reason path_queues # it queues");
        let list = FlowList::parse(&text).expect("flows");
        assert_eq!(gain(&list), Some(2.5));
        assert_eq!(gain(&FlowList::default()), None);
    }
}
