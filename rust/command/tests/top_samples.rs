// SPDX-License-Identifier: GPL-2.0

//! The samples of `mflow top` are those of a world that the test knows: counters go over their ends and are reset, flows come and go,
//! CPUs go offline and come back, and the module is unloaded and loaded again.

use std::fmt::Write as _;
use std::time::Duration;

use mflow_command::cpus::Counts;
use mflow_command::module::text::{FlowList, Stats};
use mflow_command::status::{Reading, Status};
use mflow_command::top::draw;
use mflow_command::top::sample::{Moment, Sample};
use mflow_command::top::view::{Order, View, Wish};
use mflow_command::top::Seen;
use proptest::prelude::*;
use ratatui::backend::TestBackend;
use ratatui::Terminal;

const CPUS: usize = 4;
const NOTE: &str = "nothing is loaded";

/// A thing that happens to the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Reset,
    Unload,
    Load,
    Reload,
}

/// All that happens between two looks.
#[derive(Clone, Debug)]
struct Step {
    ms: u64,
    /// Ticks of each CPU: in softirqs, in programs, and idle.
    ticks: [[u64; 3]; CPUS],
    online: [bool; CPUS],
    event: Event,
    /// The packets that are handed to each CPU afterwards.
    carried: [u64; CPUS],
    /// The packets per second of each flow that there is afterwards, if they are known.
    flows: Vec<(u16, Option<u32>)>,
}

fn step() -> impl Strategy<Value = Step> {
    let event = prop_oneof![
        8 => Just(Event::Nothing),
        1 => Just(Event::Reset),
        1 => Just(Event::Unload),
        2 => Just(Event::Load),
        1 => Just(Event::Reload),
    ];
    (
        100..6_000_u64,
        any::<[[u8; 3]; CPUS]>(),
        prop::array::uniform4(prop::bool::weighted(0.9)),
        event,
        prop::array::uniform4(0..10_000_000_u64),
        prop::collection::vec((1..9_u16, any::<Option<u32>>()), 0..6),
    )
        .prop_map(|(ms, ticks, online, event, carried, flows)| Step {
            ms,
            ticks: ticks.map(|cpu| cpu.map(u64::from)),
            online,
            event,
            carried,
            flows,
        })
}

/// A host.
#[derive(Clone, Debug)]
struct World {
    at: Duration,
    ticks: [[u64; 3]; CPUS],
    online: [bool; CPUS],
    /// The number of the load; nothing while the module is not loaded.
    load: Option<u64>,
    loads: u64,
    /// The packets that each lane's CPU has counted, and those that were handed over.
    lanes: [u64; CPUS],
    handed: u64,
    work: Work,
    flows: Vec<(u16, Option<u32>)>,
}

/// The CPUs that a packet goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// One carries it.
    Lane,
    /// One builds it, and the next one carries it.
    TwoCpus,
    /// One, and the next one, are stages.
    Stages,
}

impl Work {
    /// Returns what each CPU counts when these packets are handed to each.
    fn counted(self, handed: [u64; CPUS]) -> [u64; CPUS] {
        let mut counted = handed;
        if self != Self::Lane {
            for (cpu, pkts) in handed.iter().enumerate() {
                counted[(cpu + 1) % CPUS] += pkts;
            }
        }
        counted
    }
}

impl World {
    fn take(&mut self, step: &Step) {
        self.at += Duration::from_millis(step.ms);
        for (cpu, added) in self.ticks.iter_mut().zip(step.ticks) {
            cpu.iter_mut()
                .zip(added)
                .for_each(|(sum, ticks)| *sum += ticks);
        }
        self.online = step.online;
        match step.event {
            Event::Nothing => {}
            Event::Reset => self.forget(),
            Event::Unload => self.load = None,
            Event::Load | Event::Reload => {
                if self.load.is_none() || step.event == Event::Reload {
                    self.loads += 1;
                    self.load = Some(self.loads);
                    self.forget();
                }
            }
        }
        for (sum, pkts) in self.lanes.iter_mut().zip(self.work.counted(step.carried)) {
            *sum = sum.wrapping_add(pkts);
        }
        self.handed = self.handed.wrapping_add(step.carried.iter().sum());
        self.flows.clone_from(&step.flows);
    }

    fn forget(&mut self) {
        self.lanes = [0; CPUS];
        self.handed = 0;
    }

    fn moment(&self) -> Moment {
        let (mut stat, mut softnet) = ("cpu  0 0 0 0 0 0 0 0 0 0\n".to_owned(), String::new());
        for (cpu, [softirq, program, idle]) in self.ticks.iter().enumerate() {
            if self.online[cpu] {
                // Writing to a text does not fail.
                let _ = writeln!(stat, "cpu{cpu} {program} 0 0 {idle} 0 0 {softirq} 0 0 0");
                let _ = writeln!(softnet, "0 0 0 0 0 0 0 0 0 0 0 0 {cpu:08x} 0 0");
            }
        }
        Moment {
            at: self.at,
            cpus: Counts::parse(&stat, &softnet),
            module: self.reading(),
        }
    }

    fn reading(&self) -> Reading {
        let is_loaded = self.load.is_some();
        let (lane_pkts, stage_pkts) = match self.work {
            Work::Lane | Work::TwoCpus => (self.handed, 0),
            Work::Stages => (0, self.handed),
        };
        let mut stats = format!(
            "lane_pkts {lane_pkts}\nstage_nic_pkts {stage_pkts}\nlate_pkts 7\ninline_pkts 8\n"
        );
        for (cpu, pkts) in self.lanes.iter().enumerate() {
            let _ = writeln!(stats, "lane_cpu{cpu}_pkts {pkts}");
            let _ = writeln!(stats, "lane_cpu{cpu}_ring_bytes {cpu}");
        }
        Reading {
            load: self.load,
            status: Status {
                loaded: is_loaded,
                kernel: "6.12.48".to_owned(),
                note: (!is_loaded).then(|| NOTE.to_owned()),
                version: None,
                enabled: is_loaded.then_some(true),
                mode: Some(match self.work {
                    Work::Lane | Work::TwoCpus => "mflow".to_owned(),
                    Work::Stages => "falcon-func".to_owned(),
                }),
                devices: None,
                cpus: None,
                lanes: is_loaded.then(|| format!("0-{}", CPUS - 1)),
                flows: None,
                packets: None,
            },
            flows: is_loaded.then(|| self.list()),
            stats: is_loaded.then(|| Stats::parse(&stats).expect("stats")),
        }
    }

    fn list(&self) -> FlowList {
        let mut text = String::new();
        for (port, pps) in &self.flows {
            let pps = pps.map_or("-".to_owned(), |pps| pps.to_string());
            let _ = writeln!(text, "device eth0 queue 0 proto udp from 192.0.2.1:{port} to 192.0.2.2:4789 cpu 1 pps {pps} state split slot 0 lanes 2-5 batch_pkts 256 gain 2.50");
        }
        FlowList::parse(&text).expect("flows")
    }
}

fn about(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected.abs() * 1e-9 + 1e-9
}

/// Compares a sample with what has happened.
fn check(before: &World, step: &Step, now: &World, sample: &Sample) -> Result<(), TestCaseError> {
    // CAST: small numbers.
    let seconds = step.ms as f64 / 1000.0;
    prop_assert!(about(sample.seconds, seconds));

    let both = |cpu: &usize| before.online[*cpu] && now.online[*cpu];
    let online: Vec<usize> = (0..CPUS).filter(both).collect();
    let cpus: Vec<usize> = sample.cores.iter().map(|core| core.cpu as usize).collect();
    prop_assert_eq!(&cpus, &online);
    for core in &sample.cores {
        let ticks = step.ticks[core.cpu as usize].map(|ticks| ticks as f64);
        let all = ticks.iter().sum::<f64>().max(1.0);
        prop_assert!(about(core.softirq_pct, ticks[0] * 100.0 / all));
        prop_assert!(about(core.all_pct, (ticks[0] + ticks[1]) * 100.0 / all));
    }

    prop_assert_eq!(sample.status.loaded, now.load.is_some());
    prop_assert_eq!(&sample.flows, &now.load.map(|_| now.list()));
    let lanes = now.load.map_or(0, |_| CPUS);
    prop_assert_eq!(sample.lanes.len(), lanes);
    let is_same = now.load.is_some() && now.load == before.load;
    let rate = |pps: Option<f64>, before: u64, pkts: u64| {
        let expected = pkts as f64 / seconds;
        match pps {
            None => !is_same || step.event == Event::Reset,
            // A counter that is reset may count beyond its old value before the next look, and near its end it seems to go over it.
            Some(pps) if step.event == Event::Reset => {
                is_same && (pps < expected || about(pps, expected) || before > u64::MAX / 2)
            }
            Some(pps) => is_same && about(pps, expected),
        }
    };
    let counted = now.work.counted(step.carried);
    for (cpu, lane) in sample.lanes.iter().enumerate() {
        prop_assert_eq!(lane.cpu as usize, cpu);
        prop_assert_eq!(lane.waiting_bytes, Some(cpu as u64));
        prop_assert_eq!(lane.all_pct.is_some(), online.contains(&cpu));
        prop_assert!(rate(lane.pps, before.lanes[cpu], counted[cpu]));
    }
    // However many CPUs count a packet, it is one.
    let (there, elsewhere) = match now.work {
        Work::Lane | Work::TwoCpus => (sample.lane_pps, sample.stage_pps),
        Work::Stages => (sample.stage_pps, sample.lane_pps),
    };
    prop_assert!(rate(there, before.handed, step.carried.iter().sum()));
    prop_assert_eq!(elsewhere, None);
    prop_assert_eq!(sample.late_pps, is_same.then_some(0.0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Each sample has the rates of what has happened, or says that it does not know them; and any screen has room for it.
    #[test]
    fn samples_are_those_of_the_world(
        steps in prop::collection::vec(step(), 1..30),
        loaded in any::<bool>(),
        work in prop::sample::select(vec![Work::Lane, Work::TwoCpus, Work::Stages]),
        lanes in prop::array::uniform4(prop_oneof![Just(0), (u64::MAX - 10_000_000)..=u64::MAX]),
        size in (1..140_u16, 1..50_u16),
        order in 0..Order::ALL.len(),
        turned in any::<bool>(),
        first in 0..8_usize,
    ) {
        let mut world = World {
            at: Duration::ZERO,
            ticks: [[0; 3]; CPUS],
            online: [true; CPUS],
            load: loaded.then_some(0),
            loads: 0,
            lanes,
            handed: lanes[0],
            work,
            flows: Vec::new(),
        };
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a screen");
        let mut view = View::default();
        view.follow(Wish::Sort(Order::ALL[order].1), 0);
        if turned {
            view.follow(Wish::Turn, 0);
        }
        let mut seen = Seen::begin(world.moment(), Duration::from_secs(1));
        prop_assert_eq!(seen.sample.spread_pps(), None);
        let (mut carried, mut all_known) = (0, true);
        for step in &steps {
            let before = world.clone();
            world.take(step);
            seen.add(world.moment());
            check(&before, step, &world, &seen.sample)?;
            carried += step.carried.iter().sum::<u64>();
            all_known &= seen.sample.spread_pps().is_some() && step.event != Event::Reset;

            let moved = View { first, ..view };
            terminal.draw(|frame| {
                draw::draw(&seen, &moved, frame.area(), frame.buffer_mut());
            }).expect("drawn");
            let text = draw::text(&seen.sample, &view, 200);
            prop_assert_eq!(text.contains(NOTE), world.load.is_none());
            for (port, _) in world.flows.iter().filter(|_| world.load.is_some()) {
                let from = format!("192.0.2.1:{port}");
                prop_assert!(text.contains(&from));
            }
        }
        if all_known && world.at <= Duration::from_secs(60) {
            let mean = carried as f64 / world.at.as_secs_f64();
            let found = seen.history.parts(1)[0].expect("a rate") as f64;
            prop_assert!((found - mean).abs() <= 1.0, "{found} and {mean}");
        }
        prop_assert!(seen.history.parts(60).iter().flatten().all(|pps| *pps <= 1_000_000_000));
    }
}
