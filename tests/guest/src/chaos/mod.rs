// SPDX-License-Identifier: GPL-2.0

//! Random sequences of what can happen to a host, under UDP and TCP load with order and integrity checked at the receiver.
//!
//! A seed and a number say which steps a sequence has ([`sequence`]), on whatever machine; [`kinds`] has what they are drawn
//! from, [`step`] what each may do to the traffic; [`apply`] does it to the [`host`] that the [`load`]s flow through. After each sequence
//! [`checks`] wants everything back.

mod apply;
mod checks;
mod held;
mod host;
mod load;
mod sequence;
mod step;
mod step_kinds;
mod switch;

use std::cell::{Cell, RefCell};
use std::fs;
use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::{ListedCase, Message};

use self::checks::Rest;
use self::host::Host;
use self::sequence::Sequence;
use crate::kmemleak;
use crate::machine::command::Program;
use crate::machine::cpu;
use crate::machine::memory::{no_growth, Memory};
use crate::mflow::Knobs;
use crate::network::bpf::{Xdp, XdpMode};
use crate::network::topology::Family;
use crate::network::{netns, nft, tcpdump, topology};
use crate::runner::{self, Selection};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::scale::Scale;
use crate::traffic::tcp_counters::Counters;
use crate::traffic::Plan;
use crate::{mflow, verdict};

const CALIBRATION: u64 = 1_000;
/// The number of datagrams that show that splitting works as before, in small batches, so that every lane has many.
const AFTERWARDS: u64 = 1_500;
const AFTERWARDS_BATCH_PKTS: u32 = 16;
/// Fewer sequences say little about memory: modules that are loaded once stay.
const TELLING_SAMPLES: usize = 5;
/// The namespace in which the kernel has all of its packet filter's hooks in use.
const FILTERED: &str = "filtered";
/// One rule at each hook.
const HOOKS: &str = "
table inet mflow_hooks {
    chain before { type filter hook prerouting priority 0; }
    chain in { type filter hook input priority 0; }
    chain through { type filter hook forward priority 0; }
    chain out { type filter hook output priority 0; }
    chain behind { type filter hook postrouting priority 0; }
}
";

/// Options of `chaos`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The seed that the steps follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of steps that all sequences have together.
    #[arg(long, default_value_t = 150)]
    steps: u64,
    /// Begin with this sequence of the seed.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    first: u64,
    /// Keep only the steps at these places, from 0 on.
    #[arg(long, value_name = "PLACES", value_delimiter = ',')]
    only: Option<Vec<usize>>,
    /// Leave out the steps that need our hooks in the kernel.
    #[arg(long)]
    stock: bool,
    /// Keep the steps that need a kernel of a distribution.
    #[arg(long)]
    distribution: bool,
    #[command(flatten)]
    selection: Selection,
}

impl Options {
    fn selected(&self) -> Vec<Sequence> {
        let all = Sequence::all(self.seed, self.first, self.steps);
        let mut sequences: Vec<Sequence> = all.collect();
        if let Some(places) = &self.only {
            for sequence in &mut sequences {
                sequence.keep(places);
            }
        }
        for sequence in &mut sequences {
            sequence.keep_if(|step| {
                (!self.stock || !step.needs_hooks())
                    && (self.distribution || !step.needs_distribution())
            });
        }
        sequences.retain(|sequence| self.selection.takes(&sequence.name()));
        sequences
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let sequences = options.selected();
    if options.selection.list {
        return runner::list(sequences.iter().map(|sequence| ListedCase {
            name: sequence.name(),
            patches_code: sequence.patches_code,
            proves: format!(
                "{}: whatever is done meanwhile, and afterwards everything is as before",
                sequence.setting
            ),
            steps: sequence.listed_steps(),
        }));
    }
    ensure!(
        !sequences.is_empty(),
        "no sequence is selected; `mflow-guest chaos --list` shows all"
    );
    ensure!(mflow::available(), "this kernel has no module mflow");
    kmemleak::begin()?;
    let scale = Scale {
        main: AFTERWARDS,
        other: AFTERWARDS,
        tcp_main_bytes: 0,
        tcp_bytes: 0,
        brief: false,
    };
    let rig = Rig::calibrated(true, scale, CALIBRATION)?;
    verdict::say(&Message::Rate(rig.frames_per_s()));
    let _in_use = FirstUses::make()?;
    host::take_down()?;
    let rest = Rest::settled()?;
    let samples = RefCell::new(Vec::new());
    let new_network = Cell::new(None);
    let code = runner::run_each(&sequences, Sequence::name, |sequence| {
        let outcome = run_one(&rig, &rest, sequence, new_network.take())?;
        new_network.set(Some(sequence.setting.outer));
        samples.borrow_mut().push(Memory::read()?);
        Ok(Some(outcome))
    });
    host::take_down()?;
    if samples.borrow().len() >= TELLING_SAMPLES {
        no_growth(&samples.borrow()).context("over all sequences")?;
    }
    if kmemleak::is_on()? {
        kmemleak::look()?;
    }
    Ok(code)
}

/// Runs a sequence, and what follows on a network that is new and stays.
fn run_one(rig: &Rig, rest: &Rest, sequence: &Sequence, new: Option<Family>) -> Result<Outcome> {
    let setting = &sequence.setting;
    let mut host = Host::begin(rig, setting, new)?;
    let counters = Counters::read()?;
    for (&step, place) in sequence.steps.iter().zip(&sequence.places) {
        let place_and_step = format!("step {place}, {step}");
        note(&format!("{} {place_and_step}", sequence.name()));
        verdict::say(&Message::Step(place_and_step));
        host.take(step)
            .with_context(|| format!("at step {place}, {step}"))?;
    }
    note(&format!("{} is over", sequence.name()));
    verdict::say(&Message::Step("the end".to_owned()));
    host.undo().context("when all was undone")?;
    let (outcome, effect) = host.end().context("when the loads ended")?;
    let others = sequence.steps.iter().any(|step| step.connects());
    // In one outer flow with the datagrams there may be reports of IPv6 groups, which no socket takes.
    let alone = !setting.stream && !setting.one_outer && !others;
    let all = alone && !effect.loses;
    checks::require_accounted(effect, all)?;
    checks::require_quiet_tcp(effect, &counters)?;
    host::take_down()?;
    checks::require_unloads()?;
    rest.require_again()?;
    let plan = Plan {
        inner: setting.inner,
        outer: setting.outer,
        ..rig.datagrams()
    };
    let knobs = Knobs::of(setting.lanes, AFTERWARDS_BATCH_PKTS).eager();
    rig.strict(&plan, &knobs, |_| Ok(()))
        .context("afterwards, on a new network")?;
    mflow::unload()?;
    Ok(outcome)
}

/// Writes a line into the kernel's log, where it stands before what it brings about.
fn note(what: &str) {
    // Without it, only the log says less.
    let _best_effort = fs::write("/dev/kmsg", format!("chaos: {what}\n"));
}

/// The features that make the kernel patch its own code when they are first used in the whole system: they are in use all the
/// time.
struct FirstUses {
    _time_stamps: Program,
    _generic_xdp: Xdp,
}

impl FirstUses {
    fn make() -> Result<Self> {
        topology::rps("lo", cpu::LANE_MASK)?;
        netns::add(FILTERED)?;
        nft::add(FILTERED, HOOKS)?;
        crate::traffic::hog::prepare()?;
        Ok(Self {
            _time_stamps: tcpdump::start(None, "lo", cpu::READER)?,
            _generic_xdp: Xdp::attach("lo", XdpMode::Generic)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_listed() {
        let names: Vec<String> = Sequence::all(3, 0, 100).map(|s| s.name()).collect();
        runner::require_good_names(names.iter().map(String::as_str));
    }
}
