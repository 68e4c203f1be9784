// SPDX-License-Identifier: GPL-2.0

//! Drawn runs of frames through the kernel's own GRO, and through a lane that joins frames: the packets of both are the same frames when
//! `skb_segment()` has taken them apart, and the lane has joined those that GRO has. Each packet counts for the memory of which it is made, and
//! when all are gone, pools have their pages back.

mod checksum;
mod difference;
mod drawn;
mod frame;
mod run;
mod trial;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::thread;
use std::time::Instant;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::guest::SEED;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng as _;

use self::difference::{difference, fault, Difference};
use self::drawn::DrawnRun;
use self::run::Draw;
use self::trial::{Batch, Form, Outcome, Setting, Trial, FORWARDS, LISTS};
use crate::cases::{Case, Run};
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs};
use crate::network::{netns, topology};
use crate::traffic::rig::Rig;

/// Runs by default, in the full run, and on the checking kernel.
const RUNS: u64 = 1_000_000;
const FULL_RUNS: u64 = 10_000_000;
const BRIEF_RUNS: u64 = 10_000;
/// Of so many batches, all packets of one are taken apart, and not only those that differ.
const APART: u64 = 8;

const NAMESPACE: &str = "trial";
/// Ends of tunnels, whose sockets tell GRO where there are tunnels.
const TUNNELS: &str = "
link set lo up
link add trial-vxlan type vxlan external dstport 4789
link add trial-geneve type geneve external
link set trial-vxlan up
link set trial-geneve up
";

/// Lanes choose the form of datagrams, or the devices do, as on any kernel.
const SETTINGS: [Setting; 5] = [
    setting(Form::Single, 0),
    setting(Form::List, 0),
    setting(Form::Aggregate, 0),
    setting(Form::Single, LISTS),
    setting(Form::Single, FORWARDS),
];

const fn setting(form: Form, features: u32) -> Setting {
    Setting { form, features }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "join/gro",
        "what lanes make of drawn frames are the frames that the kernel's GRO makes of them, when both are taken apart, and lanes join those that GRO does",
        Run::Always,
        |rig| compare(rig).map(|()| None),
    )
    .about_splitting()]
}

fn compare(rig: &Rig) -> Result<()> {
    mflow::unload()?;
    mflow::load(&Knobs::default())?;
    if !mflow::is_patched()? {
        return Ok(());
    }
    netns::add(NAMESPACE)?;
    let done = topology::ip_in(NAMESPACE, TUNNELS.trim()).and_then(|()| all_runs(rig));
    netns::delete(NAMESPACE)?;
    done
}

/// The number of runs, and of what came of them.
#[derive(Clone, Debug, Default)]
struct Counts {
    runs: u64,
    frames: u64,
    /// Packets of GRO.
    packets: u64,
    joined: u64,
    /// The runs with each difference, by their setting.
    differences: BTreeMap<(usize, Difference), u64>,
    /// A small run that has shown each difference.
    findings: BTreeMap<(usize, Difference), String>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.frames += other.frames;
        self.packets += other.packets;
        self.joined += other.joined;
        for (difference, runs) in other.differences {
            *self.differences.entry(difference).or_default() += runs;
        }
        self.findings.extend(other.findings);
    }
}

fn all_runs(rig: &Rig) -> Result<()> {
    let runs = match rig.scale.brief {
        _ if rig.scale.is_full() => FULL_RUNS,
        true => BRIEF_RUNS,
        false => RUNS,
    };
    let workers = &cpu::LANES[..2];
    let seed = std::env::var(SEED).unwrap_or_default();
    // CAST: a few.
    let share = runs / workers.len() as u64;
    let begin = Instant::now();
    let counts = thread::scope(|scope| {
        let workers: Vec<_> = workers
            .iter()
            .map(|cpu| {
                let mut hasher = DefaultHasher::new();
                (&seed, cpu).hash(&mut hasher);
                scope.spawn(move || {
                    cpu::pin(*cpu)?;
                    netns::enter(NAMESPACE)?;
                    some_runs(hasher.finish(), share)
                })
            })
            .collect();
        threads::results(workers.into_iter().map(|worker| worker.join()))
    })?;
    let mut all = Counts::default();
    for counts in counts {
        all.add(counts);
    }
    let Counts {
        runs,
        frames,
        packets,
        joined,
        differences,
        findings,
    } = all;
    let summary = format!(
        "{runs} runs of {frames} frames in {:.1} s: GRO has made {packets} packets, the lane has joined {joined} frames; runs that differ, by setting: {differences:?}",
        begin.elapsed().as_secs_f32()
    );
    println!("{summary}");
    if !findings.is_empty() {
        bail!(
            "{summary}\n{}",
            findings.into_values().collect::<Vec<_>>().join("\n")
        );
    }
    ensure!(
        joined > frames / 8 && packets < frames * 3 / 4,
        "{summary}: this shows too little"
    );
    Ok(())
}

fn some_runs(seed: u64, runs: u64) -> Result<Counts> {
    let mut trial = Trial::open()?;
    let mut draw = Draw {
        random: Xoshiro256PlusPlus::seed_from_u64(seed),
    };
    let (mut counts, mut nr) = (Counts::default(), 0);
    let mut run = DrawnRun::default();
    while counts.runs < runs {
        // CAST: a remainder.
        let place = (nr % SETTINGS.len() as u64) as usize;
        let setting = SETTINGS[place];
        let before = draw.random.clone();
        let is_apart = (nr / SETTINGS.len() as u64).is_multiple_of(APART);
        let mut batch = Batch::new(setting, is_apart, true);
        while batch.has_room() {
            draw.run(&mut run);
            // CAST: few.
            counts.frames += run.frames.len() as u64;
            batch.add(&run);
        }
        let outcomes = trial.carry_out(&batch)?;
        let mut again = Draw { random: before };
        for outcome in outcomes {
            again.run(&mut run);
            counts.runs += 1;
            counts.packets += u64::from(outcome.packets);
            counts.joined += u64::from(outcome.joined);
            let first_fault = fault(&outcome);
            if outcome.both.is_none() && first_fault.is_none() {
                continue;
            }
            let (apart, mut shown) = carry_out(&mut trial, setting, &run)?;
            if apart.is_none() {
                // The packets are the same only when they are taken apart, or what was wrong beside them is right now.
                shown = outcome;
            }
            let difference = apart.or(first_fault).unwrap_or(Difference::Description);
            let key = (place, difference);
            *counts.differences.entry(key).or_default() += 1;
            if counts.findings.contains_key(&key) {
                continue;
            }
            let small = smallest(&mut trial, setting, &run, difference)?;
            if small.frames.len() < run.frames.len() {
                shown = carry_out(&mut trial, setting, &small)?.1;
            }
            let text = format!("{setting:?}: {difference:?}\n{}", report(&shown, &small));
            counts.findings.insert(key, text);
        }
        nr += 1;
    }
    Ok(counts)
}

/// Carries out one run, and returns the difference, and the result with all packets, taken apart.
fn carry_out(
    trial: &mut Trial,
    setting: Setting,
    run: &DrawnRun,
) -> Result<(Option<Difference>, Outcome)> {
    let mut batch = Batch::new(setting, true, false);
    batch.add(run);
    let outcome = trial.carry_out(&batch)?.pop();
    let outcome = outcome.context("a run has no result")?;
    let [gro, lane] = outcome.both.as_ref().context("a run has no packets")?;
    let difference = difference(gro, lane).or_else(|| fault(&outcome));
    Ok((difference, outcome))
}

/// Returns the run without all frames that the same difference does not need.
fn smallest(
    trial: &mut Trial,
    setting: Setting,
    run: &DrawnRun,
    difference: Difference,
) -> Result<DrawnRun> {
    let mut small = run.clone();
    let mut at = small.frames.len();
    while at > 0 && small.frames.len() > 1 {
        at -= 1;
        let mut fewer = small.clone();
        fewer.frames.remove(at);
        if carry_out(trial, setting, &fewer)?.0 == Some(difference) {
            small = fewer;
        }
    }
    Ok(small)
}

/// Returns a run and its result, as text.
fn report(outcome: &Outcome, run: &DrawnRun) -> String {
    let mut lines = vec![format!(
        "most bytes {:?}, {:?}, {} page(s) held",
        run.most_bytes, outcome.memory, outcome.held_pages
    )];
    for drawn in &run.frames {
        let mut bytes = Vec::new();
        drawn.frame.write(&mut bytes);
        lines.push(format!("sent {:?} {}", drawn.handling, hex(&bytes)));
        lines.push(format!("     {:?}", drawn.frame));
    }
    let both = outcome.both.iter().flatten();
    for (who, packets) in ["GRO", "lane"].into_iter().zip(both) {
        for packet in packets {
            let (frames, description) = (packet.frames.len(), hex(&packet.description));
            lines.push(format!(
                "{who}: {frames} frame(s), {description}, memory is wrong by {}",
                packet.memory_error
            ));
            lines.extend(
                packet
                    .frames
                    .iter()
                    .map(|frame| format!("     {}", hex(frame))),
            );
        }
    }
    lines.join("\n")
}

/// Returns the first bytes in hexadecimal, and the length.
fn hex(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(200).map(|byte| format!("{byte:02x}"));
    format!("{} ({})", shown.collect::<String>(), bytes.len())
}
