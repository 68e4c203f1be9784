// SPDX-License-Identifier: GPL-2.0

//! Random sequences of what can happen to a host under load, in a guest: `tests/guest/src/chaos/` has the steps.
//!
//! A seed determines all of them. A sequence that fails is printed with the command that repeats it, and tried with fewer steps
//! until only those are left that it takes to fail.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use mflow_protocol::guest::{
    ChaosKernel, ChaosPart, ListedCase, ListedStep, CHAOS_PARTS, CHAOS_SEQUENCE as STEPS_A_SEQUENCE,
};

use super::guests::draw::{self, GuestKind};
use super::vm::{GuestCases, PATIENCE};
use super::{budget, stock, Ctx, Failure, Outcome};
use crate::kernel::{Flavor, Way};
use crate::tools;
use crate::vm::Nic;

/// The factor by which `--full` takes more steps, and `--long` for each seed: a boot takes as long as many steps.
const FULL: u64 = 10;
const LONG: u64 = 4;
/// The number of runs of a failing sequence with all of its steps, until it fails again, and the number of runs in all: the
/// others are with either half of the steps, and without each of them.
const TRIALS_WITH_ALL: usize = 3;
const MOST_TRIALS: usize = 15;
/// The time from which no further trial begins in the default run, whose other layers wait.
const TRIALS: Duration = Duration::from_secs(600);

/// Options of the layer `chaos`.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Seed that the sequences follow from [default: some that have each kind of step together]
    #[arg(long, value_name = "NUMBER")]
    chaos_seed: Option<u64>,
    /// Run only this sequence of the seed
    #[arg(long, value_name = "NUMBER")]
    sequence: Option<u64>,
    /// Keep only the steps of the sequence that are at these places, from 0 on: 0,3,5
    #[arg(
        long,
        value_name = "PLACES",
        value_delimiter = ',',
        requires = "sequence"
    )]
    only: Option<Vec<usize>>,
    /// Run the sequence on the checking kernel
    #[arg(long, requires = "sequence")]
    checking: bool,
    /// Take fresh seeds, one after the other, on the plain and the checking kernel in turn, until one fails
    #[arg(long, conflicts_with = "sequence")]
    long: bool,
    /// Take the plain kernel only, which takes ten times as many steps in the same time
    #[arg(long, requires = "long")]
    plain: bool,
    /// Stop that after this many hours
    #[arg(long = "for", value_name = "HOURS", requires = "long")]
    hours: Option<f64>,
}

impl Options {
    /// Returns whether the layer runs as its row in the table of seconds expects.
    pub(super) fn is_default(&self) -> bool {
        self.sequence.is_none() && !self.long
    }

    /// Tells whether these sequences run on this kernel.
    pub(super) fn takes(&self, flavor: Flavor) -> bool {
        match flavor {
            Flavor::Debug => !self.plain && (self.sequence.is_none() || self.checking),
            _ => !self.checking,
        }
    }
}

/// Returns the kernel of a part of the run, and the way the module comes into its stack.
fn place_of(kernel: ChaosKernel) -> (Flavor, Way) {
    match kernel {
        ChaosKernel::Plain => (Flavor::Vm, Way::Patched),
        ChaosKernel::Checking => (Flavor::Debug, Way::Patched),
        ChaosKernel::CheckingUnhooked => (Flavor::Debug, Way::Stock),
        ChaosKernel::Distribution => (Flavor::Vm, Way::Stock),
    }
}

/// Some sequences of a seed, on one kernel.
#[derive(Clone, Debug)]
struct Run {
    flavor: Flavor,
    way: Way,
    seed: u64,
    /// The first sequence.
    first: u64,
    steps: u64,
    /// The steps to keep, if not all.
    only: Option<Vec<usize>>,
}

pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let options = &ctx.chaos;
    if options.long {
        return long(ctx);
    }
    if let Some(number) = options.sequence {
        let one = Run {
            flavor: if options.checking {
                Flavor::Debug
            } else {
                Flavor::Vm
            },
            way: ctx.way.unwrap_or_default(),
            seed: options.chaos_seed.unwrap_or_else(|| seed_of(number)),
            first: number,
            steps: STEPS_A_SEQUENCE,
            only: options.only.clone(),
        };
        return one.run(ctx);
    }
    // At the same time: the checking kernel's steps take most of it, and leave a core idle.
    let mut all = Outcome::default();
    let mut runs: Vec<Run> = parts(ctx)
        .map(|place| {
            let seed = options.chaos_seed.unwrap_or(CHAOS_PARTS[place].seed);
            Run::of(ctx, place, seed)
        })
        .collect();
    if tools::find("apt-cache").is_none() {
        runs.retain(|run| {
            let stays = !run.is_distribution();
            if !stays {
                all.skip(run.guest().name, stock::NO_DEBIAN);
            }
            stays
        });
    }
    for outcome in tools::together(&runs, |run| run.run(ctx)) {
        all.add(outcome?);
    }
    Ok(all)
}

/// Returns the places of the parts that are asked for.
fn parts(ctx: &Ctx) -> impl Iterator<Item = usize> + '_ {
    (0..CHAOS_PARTS.len()).filter(|&place| {
        let (flavor, way) = place_of(CHAOS_PARTS[place].kernel);
        ctx.chaos.takes(flavor) && ctx.way.is_none_or(|wanted| wanted == way)
    })
}

/// Returns the seed of a sequence of the default run.
fn seed_of(sequence: u64) -> u64 {
    let mut end = 0;
    let part = CHAOS_PARTS.iter().find(|part| {
        end += part.steps;
        sequence * STEPS_A_SEQUENCE < end
    });
    part.unwrap_or(&CHAOS_PARTS[0]).seed
}

/// Runs fresh seeds until one fails or the time is over.
fn long(ctx: &Ctx) -> Result<Outcome> {
    let begin = Instant::now();
    let time = ctx
        .chaos
        .hours
        .map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let mut outcome = Outcome::default();
    let places: Vec<usize> = parts(ctx).collect();
    for place in places.into_iter().cycle() {
        if !outcome.failed.is_empty() || time.is_some_and(|time| begin.elapsed() >= time) {
            break;
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let run = Run::of(ctx, place, since.as_secs());
        let start = Instant::now();
        let one = run.run(ctx)?;
        let sequences = run.listed()?;
        let steps = sequences.iter().flat_map(|sequence| &sequence.steps);
        let kinds: BTreeSet<_> = steps
            .clone()
            .filter_map(|step| step.text.split(':').next())
            .collect();
        println!(
            "seed {} in {}: {} steps of {} kinds in {} sequences, {} boots, {:.0} s, {} failed",
            run.seed,
            run.guest().name,
            steps.count(),
            kinds.len(),
            sequences.len(),
            one.boots,
            start.elapsed().as_secs_f64(),
            one.failed.len()
        );
        outcome.add(one);
    }
    Ok(outcome)
}

impl Run {
    /// Returns the sequences that a seed has for the part at this place.
    fn of(ctx: &Ctx, place: usize, seed: u64) -> Self {
        let times = match (ctx.full, ctx.chaos.long) {
            (true, _) => FULL,
            (false, true) => LONG,
            (false, false) => 1,
        };
        let ChaosPart { kernel, steps, .. } = CHAOS_PARTS[place];
        let (flavor, way) = place_of(kernel);
        let before: u64 = CHAOS_PARTS[..place].iter().map(|part| part.steps).sum();
        Self {
            flavor,
            way,
            seed,
            first: times * before / STEPS_A_SEQUENCE,
            steps: times * steps,
            only: None,
        }
    }

    fn guest(&self) -> GuestKind {
        let name = match (self.flavor, self.way) {
            (Flavor::Debug, Way::Patched) => "chaos-debug",
            (Flavor::Debug, Way::Stock) => "chaos-debug-stock",
            (_, Way::Patched) => "chaos",
            (_, Way::Stock) => "chaos-stock",
        };
        GuestKind {
            way: self.way,
            ..draw::guest(name, self.flavor, Nic::Virtio, None)
        }
    }

    /// Tells whether the kernel is one that a distribution ships.
    fn is_distribution(&self) -> bool {
        (self.flavor, self.way) == (Flavor::Vm, Way::Stock)
    }

    /// Returns the options with which the guest program lists and runs these.
    fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--seed={}", self.seed),
            format!("--first={}", self.first),
            format!("--steps={}", self.steps),
        ];
        options.extend((self.way == Way::Stock).then(|| "--stock".to_owned()));
        options.extend(self.is_distribution().then(|| "--distribution".to_owned()));
        options.extend(
            self.only
                .iter()
                .map(|places| format!("--only={}", list(places))),
        );
        options
    }

    /// Returns the command that runs one of its sequences alone.
    fn command(&self, number: u64, only: Option<&[usize]>) -> String {
        let mut command = format!(
            "cargo xtask test chaos --chaos-seed {} --sequence {number}",
            self.seed
        );
        if let Some(places) = only {
            command += &format!(" --only {}", list(places));
        }
        if self.flavor == Flavor::Debug {
            command += " --checking";
        }
        if self.way == Way::Stock {
            command += " --way stock";
        }
        command
    }

    fn listed(&self) -> Result<Vec<ListedCase>> {
        draw::listed("chaos", &self.options())
    }

    /// Runs the sequences, and looks into the first one that fails.
    fn run(&self, ctx: &Ctx) -> Result<Outcome> {
        let mut outcome = self.try_all(ctx)?;
        let sequences = self.listed()?;
        let guest = self.guest();
        let mut shrunk = false;
        for failure in &mut outcome.failed {
            let place = sequences
                .iter()
                .position(|sequence| failure.name == format!("{}: {}", guest.name, sequence.name));
            let Some(place) = place else { continue };
            let number = self.first + place as u64;
            let ListedCase { proves, steps, .. } = &sequences[place];
            failure.detail += &format!(
                "\nwith {proves}; its steps:\n{}again:  {}",
                numbered(steps),
                self.command(number, self.only.as_deref())
            );
            if !shrunk {
                shrunk = true;
                self.shrink(ctx, number, failure)?;
            }
        }
        Ok(outcome)
    }

    fn try_all(&self, ctx: &Ctx) -> Result<Outcome> {
        let sequences = self.listed()?.into_iter();
        let takes = sequences.map(|sequence| sequence.name).collect();
        let guest = GuestCases {
            patience: PATIENCE,
            ..GuestCases::new(ctx, self.guest(), "chaos", self.options(), takes)
        };
        guest.run(ctx)
    }

    /// Adds to the failure of a sequence the fewest of its steps that were found to fail, too.
    fn shrink(&self, ctx: &Ctx, number: u64, failure: &mut Failure) -> Result<()> {
        let steps: Vec<usize> = match &self.only {
            Some(places) => places.clone(),
            // CAST: a few.
            None => (0..self.steps.min(STEPS_A_SEQUENCE) as usize).collect(),
        };
        println!("  shrink  {}: {MOST_TRIALS} boots at most", failure.name);
        let until = ctx.until.map(|until| until.min(Instant::now() + TRIALS));
        let trial = |places: &[usize]| {
            let run = Self {
                first: number,
                steps: STEPS_A_SEQUENCE,
                only: Some(places.to_vec()),
                ..self.clone()
            };
            if budget::is_over(until) {
                return Ok(false);
            }
            println!("  trial   {} with the steps {}", failure.name, list(places));
            Ok(!run.try_all(ctx)?.failed.is_empty())
        };
        match shrink(steps, MOST_TRIALS, trial).context("while a sequence was shrunk")? {
            Some(fewest) => {
                failure.detail += &format!(
                    "\nfails with the steps {} alone:  {}",
                    list(&fewest),
                    self.command(number, Some(&fewest))
                );
            }
            None if budget::is_over(until) => {
                failure.detail += "\nit was not run again until it fails, as time was up";
            }
            None => failure.detail += "\nit did not fail when it was run again, alone",
        }
        Ok(())
    }
}

/// Returns the fewest of some steps that fail in a limited number of trials; nothing if all of them do not.
fn shrink(
    mut steps: Vec<usize>,
    most_trials: usize,
    mut fails: impl FnMut(&[usize]) -> Result<bool>,
) -> Result<Option<Vec<usize>>> {
    let mut left = most_trials;
    let mut fails = |steps: &[usize]| -> Result<bool> {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        fails(steps)
    };
    let mut failed = false;
    for _ in 0..TRIALS_WITH_ALL {
        failed = failed || fails(&steps)?;
    }
    if !failed {
        return Ok(None);
    }
    // First halves, as long as one of them is enough.
    while steps.len() > 1 {
        let (first, second) = steps.split_at(steps.len() / 2);
        let enough = if fails(second)? {
            second.to_vec()
        } else if fails(first)? {
            first.to_vec()
        } else {
            break;
        };
        steps = enough;
    }
    // Then each step, the last ones first: an earlier one is more often what it takes.
    for place in (0..steps.len()).rev() {
        if steps.len() > 1 {
            let mut fewer = steps.clone();
            fewer.remove(place);
            if fails(&fewer)? {
                steps = fewer;
            }
        }
    }
    Ok(Some(steps))
}

fn list(places: &[usize]) -> String {
    let places: Vec<String> = places.iter().map(ToString::to_string).collect();
    places.join(",")
}

/// Returns a line for each step, with its place in the whole sequence.
fn numbered(steps: &[ListedStep]) -> String {
    let lines = steps.iter();
    lines
        .map(|ListedStep { place, text }| format!("  {place:>2}  {text}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_the_seed_of_its_part() {
        let mut number = 0;
        for part in CHAOS_PARTS {
            for _ in 0..part.steps / STEPS_A_SEQUENCE {
                assert_eq!(seed_of(number), part.seed);
                number += 1;
            }
        }
        assert_eq!(seed_of(number), CHAOS_PARTS[0].seed);
    }

    #[test]
    fn what_it_takes_to_fail_is_found() {
        let needed = |needed: &'static [usize]| {
            move |steps: &[usize]| Ok(needed.iter().all(|step| steps.contains(step)))
        };
        let all: Vec<usize> = (0..10).collect();
        let shrunk = |needed_steps, most| {
            shrink(all.clone(), most, needed(needed_steps)).expect("no trial breaks")
        };
        assert_eq!(shrunk(&[7], 100), Some(vec![7]));
        assert_eq!(shrunk(&[6, 8], 100), Some(vec![6, 8]));
        assert_eq!(shrunk(&[0, 9], 100), Some(vec![0, 9]));
        // With few trials it is not the shortest, but it fails.
        let some = shrunk(&[0, 9], 6).expect("it fails");
        assert!(
            some.contains(&0) && some.contains(&9) && some.len() < 10,
            "{some:?}"
        );
        assert_eq!(shrunk(&[11], 100), None);
        // What is rare fails in the end.
        let mut times = 0;
        let rare = |_: &[usize]| {
            times += 1;
            Ok(times == TRIALS_WITH_ALL)
        };
        assert_eq!(
            shrink(vec![4], 100, rare).expect("no trial breaks"),
            Some(vec![4])
        );
    }

    #[test]
    fn the_command_names_all_that_the_sequence_depends_on() {
        let run = Run {
            flavor: Flavor::Debug,
            way: Way::Stock,
            seed: 7,
            first: 15,
            steps: 50,
            only: None,
        };
        assert_eq!(
            run.command(16, Some(&[0, 3])),
            "cargo xtask test chaos --chaos-seed 7 --sequence 16 --only 0,3 --checking --way stock"
        );
        let steps = [(2, "a"), (15, "b")].map(|(place, text)| ListedStep {
            place,
            text: text.to_owned(),
        });
        assert_eq!(numbered(&steps), "   2  a\n  15  b\n");
    }
}
