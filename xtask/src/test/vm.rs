// SPDX-License-Identifier: GPL-2.0

//! The test cases in a guest: real kernel, real devices, real traffic (what they prove: `tests/README.md`).
//!
//! The cases run in one boot, or in two where the emulator demands it. If the kernel complains, the case it happened in has
//! failed, and the cases that are left run in a fresh guest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::guest::{CaseResult, Message, Order, BUILD, CHANNELS, SEED};

use super::guests::draw::{self, GuestKind};
use super::{budget, Ctx, Failure, Outcome};
use crate::kernel::distribution::Distribution;
use crate::kernel::{Flavor, Way};
use crate::module;
use crate::tools;
use crate::vm::docker::{self, Docker};
use crate::vm::{self, Event, Excerpt, Machine, Nic, Terminal, Threads, Trouble, Vm};

/// After this many deaths of its guests a layer ends.
const MOST_DEATHS: usize = 8;

/// The number of cases of one kind of guest that may fail while a CPU of the guest, or the reader of a socket, is away, and be run
/// once more.
const MOST_AGAIN: usize = 3;

/// The time for which the kernel of a guest that boots may log nothing. The checking kernel takes minutes on a busy host, and half a
/// minute from one line to the next.
const SILENT_BOOT: Duration = Duration::from_secs(180);

/// The time limit for a guest's first word.
const FIRST_WORD: Duration = Duration::from_secs(600);

/// The time limit for a case, or for a step of one that has steps.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// The same for `--full`: the longest case alone, 50,000 datagrams of 64 KB, may take a quarter of an hour on a busy host.
pub(super) const PATIENCE_FULL: Duration = Duration::from_secs(1_800);

/// Bytes of TCP streams that a full run compares at least.
const FULL_STREAM_BYTES: u64 = 10_000_000_000;

/// Runs the layer on the plain kernel.
pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let stream_bytes = if ctx.full { FULL_STREAM_BYTES } else { 0 };
    let mut guests = vec![GuestCases {
        stream_bytes,
        ..GuestCases::of(ctx, &draw::GUESTS[0])?
    }];
    let others = draw::GUESTS
        .iter()
        .filter(|guest| guest.nic == Nic::VirtioSmall || !guest.debugfs);
    for guest in others {
        guests.push(GuestCases::of(ctx, guest)?);
    }
    run_each(ctx, &guests)
}

/// Runs the cases of several guests, at the same time where there are places.
pub(super) fn run_each(ctx: &Ctx, guests: &[GuestCases]) -> Result<Outcome> {
    let mut all = Outcome::default();
    for outcome in tools::together(guests, |guest| guest.run(ctx)) {
        all.add(outcome?);
    }
    Ok(all)
}

/// Runs the short list on the checking kernel.
pub(crate) fn run_debug(ctx: &Ctx) -> Result<Outcome> {
    let checking = draw::GUESTS.iter();
    let checking = checking.filter(|guest| guest.flavor == Flavor::Debug);
    let guests: Vec<_> = checking
        .map(|guest| GuestCases::of(ctx, guest))
        .collect::<Result<_>>()?;
    run_each(ctx, &guests)
}

/// The part of the guest program that has the cases of the layers `vm`, `vm-debug` and `mlx5`.
pub(super) const CASES: &str = "cases";

pub(super) struct GuestCases {
    pub(super) guest: GuestKind,
    /// The kernel that it boots, if it is none of ours.
    pub(super) kernel: Option<Distribution>,
    /// Docker, if the guest has it: it then has more memory, too.
    pub(super) docker: Option<Docker>,
    /// The part of the guest program that has the cases.
    pub(super) program: &'static str,
    pub(super) options: Vec<String>,
    /// Those of its cases that are to be run.
    pub(super) takes: BTreeSet<String>,
    pub(super) patience: Duration,
    /// The number of bytes of TCP streams that all cases together have to compare.
    pub(super) stream_bytes: u64,
    /// The seed of all that is drawn in the guest.
    pub(super) seed: String,
    /// The core that builds packets where a case does not choose it; drawn if none is given.
    pub(super) build: Option<String>,
    /// The time from which no further case begins, if there is one.
    pub(super) until: Option<Instant>,
}

enum BootEnd {
    Done,
    /// No further case may begin.
    OutOfTime,
    /// The guest died or was stopped, in this case if in any.
    Died {
        case: Option<String>,
        trouble: Trouble,
    },
}

/// The cases that are to be run, and the results so far.
#[derive(Default)]
struct CaseResults {
    cases: BTreeSet<String>,
    left_out: Vec<String>,
    /// Cases for a guest with as many threads as CPUs, which really run at the same time.
    parallel: BTreeSet<String>,
    /// Cases for a guest with one thread, because of what they do to the kernel's code.
    one_thread: BTreeSet<String>,
    of_case: BTreeMap<String, Result<(), Failure>>,
    /// Bytes of TCP streams that were compared, over all cases.
    stream_bytes: u64,
    boots: usize,
    deaths: usize,
    /// The time of a guest that has stood still, if one has: before its first case, or as a CPU lost a timer.
    stood_still: Option<Duration>,
    /// Cases that failed while a CPU was away, and were run once more.
    again: usize,
    /// The time of their first runs, which the layer is not charged with.
    first_runs: Duration,
    /// True if cases are left that may not begin any more.
    out_of_time: bool,
}

impl GuestCases {
    pub(super) fn of(ctx: &Ctx, guest: &GuestKind) -> Result<Self> {
        let kind = GuestKind {
            way: ctx.way.unwrap_or(guest.way),
            ..*guest
        };
        let takes = ctx.guest_cases()?.remove(guest.name).unwrap_or_default();
        let options = draw::options(ctx, guest);
        Ok(Self::new(ctx, kind, CASES, options, takes))
    }

    /// Returns these cases of a part of the guest program, on a kernel of ours.
    pub(super) fn new(
        ctx: &Ctx,
        guest: GuestKind,
        program: &'static str,
        options: Vec<String>,
        takes: BTreeSet<String>,
    ) -> Self {
        Self {
            guest,
            kernel: None,
            docker: None,
            program,
            options,
            takes,
            patience: if ctx.full { PATIENCE_FULL } else { PATIENCE },
            stream_bytes: 0,
            seed: ctx.seed.clone(),
            build: ctx.build.clone(),
            until: ctx.until,
        }
    }

    /// Returns which core builds packets where a case does not choose it; none: it is drawn. Without our hooks lanes only do where that
    /// is asked for, as a program then comes to the NIC and goes, and drivers move their queues for that.
    fn builder(&self) -> Option<String> {
        let is_stock = self.kernel.is_some() || self.guest.way == Way::Stock;
        self.build
            .clone()
            .or_else(|| is_stock.then(|| "auto".to_owned()))
    }

    pub(super) fn run(&self, ctx: &Ctx) -> Result<Outcome> {
        let mut results = self.list(ctx.case.as_deref())?;
        if results.cases.is_empty() {
            return Ok(Outcome::default());
        }
        let mut hardware = self.guest.hardware();
        if self.docker.is_some() {
            hardware.memory_mib = docker::MEMORY_MIB;
        }
        let flavor = self.guest.flavor;
        let mut machine = match &self.kernel {
            None if self.guest.way == Way::Stock => {
                let (image, modules) = module::stock_for(flavor)?;
                Machine {
                    finds_leaks: flavor == Flavor::Debug,
                    ..vm::machine_of(&hardware, image, modules)?
                }
            }
            None => vm::machine(flavor, &hardware)?,
            Some(kernel) => {
                vm::machine_of(&hardware, kernel.image.clone(), kernel.modules.clone())?
            }
        };
        machine.docker.clone_from(&self.docker);
        let place = ctx.places.take();
        // What has come out so far counts, whatever happens next.
        let broken = self.run_all(&mut machine, &mut results).err();
        if results.stream_bytes > 0 {
            self.say(format!(
                "{:.2} GB of TCP streams were compared byte by byte",
                results.stream_bytes as f64 / 1e9
            ));
        }
        let mut outcome = Outcome {
            boots: results.boots,
            // An emulated CPU that loses a timer, or is away, says nothing about the layer.
            held: place
                .held()
                .saturating_sub(results.stood_still.unwrap_or_default() + results.first_runs),
            ..Outcome::default()
        };
        drop(place);
        let mut fail = |what: &str, detail| outcome.failed.push(self.failure(what, detail, None));
        if results.again > MOST_AGAIN {
            let detail = format!(
                "{} failed while a CPU of the guest or a reader was away, and {MOST_AGAIN} may: the host is too busy, or something keeps CPUs",
                results.again
            );
            fail("cases that were run once more", detail);
        }
        if ctx.case.is_none() && results.stream_bytes < self.stream_bytes {
            let detail = format!(
                "{} were compared, and it shall be {} at least",
                results.stream_bytes, self.stream_bytes
            );
            fail("bytes of TCP streams", detail);
        }
        let mut not_run = 0;
        for case in results.cases {
            match results.of_case.remove(&case) {
                Some(Ok(())) => outcome.pass(),
                Some(Err(failure)) => outcome.failed.push(failure),
                None if results.out_of_time => {
                    let name = format!("{}: {case}", self.guest.name);
                    outcome.skip(name, budget::OUT_OF_TIME);
                }
                None if broken.is_some() => not_run += 1,
                None => {
                    let detail = format!("not run: the guest had died {MOST_DEATHS} times");
                    outcome.failed.push(self.failure(&case, detail, None));
                }
            }
        }
        if let Some(error) = broken {
            let detail = format!("{error:#}\n{not_run} cases were not run");
            outcome
                .failed
                .push(self.failure("all that was left", detail, None));
        }
        Ok(outcome)
    }

    /// Boots guests until every case has its result, or too many have died.
    fn run_all(&self, machine: &mut Machine, results: &mut CaseResults) -> Result<()> {
        let finds_leaks = machine.finds_leaks;
        for threads in [Threads::Many, Threads::One] {
            machine.threads = threads;
            // Most cases run in the guest with many threads, which would take more than twice as long.
            machine.finds_leaks = finds_leaks && threads == Threads::One;
            while !results.todo(threads).is_empty() && results.deaths < MOST_DEATHS {
                let begin = Instant::now();
                if budget::is_over(self.until) {
                    results.out_of_time = true;
                    return Ok(());
                }
                let end = self.boot(machine, results)?;
                if matches!(end, BootEnd::OutOfTime) {
                    continue;
                }
                let done = matches!(end, BootEnd::Done);
                self.digest(end, begin.elapsed(), results)?;
                let left = results.todo(threads);
                ensure!(
                    !done || left.is_empty(),
                    "the guest said nothing about {left:?}"
                );
            }
        }
        Ok(())
    }

    fn list(&self, wanted: Option<&str>) -> Result<CaseResults> {
        let mut results = CaseResults::default();
        for case in draw::listed(self.program, &self.options)? {
            let name = case.name;
            if !self.takes.contains(&name) || !wanted.is_none_or(|text| name.contains(text)) {
                results.left_out.push(name);
                continue;
            }
            results.cases.insert(name.clone());
            let todo = if case.patches_code {
                &mut results.one_thread
            } else {
                &mut results.parallel
            };
            todo.insert(name);
        }
        Ok(results)
    }

    /// Makes of a boot's end, after this time, what it means for the cases.
    fn digest(&self, end: BootEnd, took: Duration, results: &mut CaseResults) -> Result<()> {
        let BootEnd::Died { case, trouble } = end else {
            return Ok(());
        };
        results.deaths += 1;
        let stale = trouble.is_stale_code();
        if stale {
            self.say("again   QEMU ran code that the kernel had replaced");
        }
        if trouble.is_emulators() {
            // QEMU has a race of its own in a guest's first seconds; the next boot runs the same cases.
            self.say(format!("again   {}", trouble.what));
            return Ok(());
        }
        match case {
            Some(case) if stale && results.parallel.remove(&case) => {
                results.of_case.remove(&case);
                results.one_thread.insert(case);
            }
            // No case had begun; the next boot may get further.
            None if stale => {}
            // Nor was the module loaded. An emulated CPU can lose a timer for good; it does not do so twice.
            None if trouble.is_standstill() && results.stood_still.is_none() => {
                results.stood_still = Some(took);
                self.say(format!(
                    "again   the guest stood still before its first case: {}",
                    trouble.what
                ));
            }
            // The same in a case. One that keeps a CPU's timers from running does so twice.
            Some(case) if trouble.is_lost_timer() && results.stood_still.is_none() => {
                results.stood_still = Some(took);
                self.say(format!("again   {case}: an emulated CPU lost a timer"));
            }
            Some(case) => {
                self.say(format!("FAILED  {case}: {}", trouble.what));
                let failure = self.failure(&case, trouble.to_string(), Some(&trouble.log));
                results.finish(case, Err(failure));
            }
            None => bail!("the guest died outside of any case\n{trouble}"),
        }
        Ok(())
    }

    /// Runs what is to be done on this machine in one boot.
    fn boot(&self, machine: &Machine, results: &mut CaseResults) -> Result<BootEnd> {
        results.boots += 1;
        // Two runs at once must not share logs.
        let name = format!("{}-{}-{}", self.guest.name, process::id(), results.boots);
        let todo = results.todo(machine.threads);
        let skip: Vec<&str> = results
            .cases
            .difference(todo)
            .chain(&results.left_out)
            .map(String::as_str)
            .collect();
        let mut argv = vec!["mflow-guest".to_owned(), self.program.to_owned()];
        argv.extend_from_slice(&self.options);
        if !skip.is_empty() {
            argv.extend(["--skip".to_owned(), skip.join(",")]);
        }
        let channels = self.guest.channels.into_iter();
        let order = Order {
            argv,
            interactive: false,
            env: channels
                .map(|count| (CHANNELS.to_owned(), count.to_string()))
                .chain([(SEED.to_owned(), self.seed.clone())])
                .chain(self.builder().map(|build| (BUILD.to_owned(), build)))
                .collect(),
        };
        let mut vm = Vm::boot(machine, &order, &name, Terminal::Log)?;
        let mut current: Option<String> = None;
        let mut culprit: Option<String> = None;
        let mut step: Option<String> = None;
        let mut failed = false;
        let (mut patience, mut silent_boot) = (FIRST_WORD, Some(SILENT_BOOT));
        loop {
            match vm.wait_or_log(Some(patience), silent_boot)? {
                Event::Said(message) => {
                    (patience, silent_boot) = (self.patience, None);
                    match message {
                        Message::Start(_) if budget::is_over(self.until) => {
                            return Ok(BootEnd::OutOfTime);
                        }
                        Message::Start(case) => (current, step) = (Some(case), None),
                        Message::Step(text) => step = Some(text),
                        Message::Result(result) => {
                            self.say(line(&result));
                            let measured = result.measured.as_ref();
                            results.stream_bytes += measured.map_or(0, |all| all.stream_bytes);
                            let result_of_case = match result.error {
                                None => Ok(()),
                                Some(error) => {
                                    Err(self.failure(&result.case, error, Some(vm.kernel_log())))
                                }
                            };
                            failed |= result_of_case.is_err();
                            results.finish(result.case, result_of_case);
                        }
                        Message::Again(again) => {
                            results.again += 1;
                            results.first_runs += Duration::from_secs_f64(again.seconds);
                            self.say(format!(
                                "again   {}: {}, and then: {}",
                                again.case, again.why, again.error
                            ));
                        }
                        Message::Rate(rate) => {
                            self.say(format!("offered rate (vanilla's without loss, less 40 %): {rate:.0} frames/s"));
                        }
                        Message::Card(order) => {
                            let cards = vm.cards().context("there are no cards to misbehave")?;
                            cards.order(&order)?;
                        }
                        Message::Replay {
                            card,
                            times,
                            capture,
                        } => {
                            let cards = vm.cards().context("there are no cards to receive it")?;
                            cards.replay(card, times, &capture)?;
                        }
                        other => bail!("no test case says {other:?}"),
                    }
                }
                // What was said before has been read by now, so this is the case it happened in.
                Event::Complained => culprit = culprit.or_else(|| current.clone()),
                Event::Exit(code @ (0 | 1)) if current.is_some() => {
                    let good = self.ask_cards(&mut vm, results)?;
                    if code == 1 && !failed {
                        self.complain_afterwards(&vm, results);
                    } else if code == 0 && good && results.todo(machine.threads).is_empty() {
                        vm.forget_logs();
                    }
                    return Ok(BootEnd::Done);
                }
                Event::Exit(code) => {
                    let (what, log) = (
                        format!("the guest program ended with {code}"),
                        vm.terminal_log(),
                    );
                    ensure!(current.is_some(), "{what}; see {}", log.display());
                    let (excerpt, log) = (Excerpt::default(), log.to_owned());
                    let case = culprit.or(current);
                    return Ok(BootEnd::Died {
                        case,
                        trouble: Trouble { what, excerpt, log },
                    });
                }
                Event::Trouble(mut trouble) => {
                    let case = culprit.or(current);
                    if let Some(step) = step {
                        trouble.what += &format!(", at {step}");
                    }
                    return Ok(BootEnd::Died { case, trouble });
                }
            }
        }
    }

    /// Records a failure after the last case, all of which passed: the module could not be unloaded, for example.
    fn complain_afterwards(&self, vm: &Vm, results: &mut CaseResults) {
        let case = "what comes after the cases".to_owned();
        let detail = "the guest program failed when all cases had passed".to_owned();
        self.say(format!(
            "FAILED  {case}: {detail}; see {}",
            vm.terminal_log().display()
        ));
        let failure = self.failure(&case, detail, Some(vm.terminal_log()));
        results.cases.insert(case.clone());
        results.of_case.insert(case, Err(failure));
    }

    /// Asks the cards of a guest that has ended, if it had any, what they have counted; returns whether nothing is wrong.
    fn ask_cards(&self, vm: &mut Vm, results: &mut CaseResults) -> Result<bool> {
        let Some(cards) = vm.cards() else {
            return Ok(true);
        };
        let mut complaints = Vec::new();
        for summary in cards.summaries()? {
            // A driver that was unloaded leaves nothing behind.
            let left = self.program == "driver" && summary.figure("objects")? > 0;
            if summary.figure("unknown")? + summary.figure("lost")? > 0 || left {
                complaints.push(summary.0);
            }
        }
        let case = "what the cards say".to_owned();
        let result = if complaints.is_empty() {
            Ok(())
        } else {
            self.say(format!("FAILED  {case}: {complaints:?}"));
            let detail = format!(
                "commands they do not know, events they could not send, or objects left behind: {complaints:?}"
            );
            Err(self.failure(&case, detail, Some(cards.log())))
        };
        let good = result.is_ok();
        results.cases.insert(case.clone());
        // One bad boot is enough.
        if !matches!(results.of_case.get(&case), Some(Err(_))) {
            results.of_case.insert(case, result);
        }
        Ok(good)
    }

    /// Prints a line under the guest's name: several guests run at the same time.
    fn say(&self, line: impl Display) {
        println!("  {:<20} {line}", self.guest.name);
    }

    fn failure(&self, case: &str, detail: String, log: Option<&Path>) -> Failure {
        Failure {
            name: format!("{}: {case}", self.guest.name),
            detail,
            log: log.map(Path::to_path_buf),
        }
    }
}

impl CaseResults {
    fn todo(&self, threads: Threads) -> &BTreeSet<String> {
        match threads {
            Threads::One => &self.one_thread,
            Threads::Many | Threads::Usual => &self.parallel,
        }
    }

    fn finish(&mut self, case: String, result: Result<(), Failure>) {
        self.parallel.remove(&case);
        self.one_thread.remove(&case);
        self.of_case.insert(case, result);
    }
}

fn line(result: &CaseResult) -> String {
    let word = result.error.as_ref().map_or("ok", |_| "FAILED");
    let mut line = format!("{word:<6}  {:<32} {:>6.1} s", result.case, result.seconds);
    if let Some(measured) = &result.measured {
        line += &format!(
            "  {:>8} sent at {:>6}/s, {} lost, {} reordered, longest stall {} ms",
            measured.sent,
            measured.offered_per_s,
            measured.lost,
            measured.reordered,
            measured.longest_stall_us / 1000
        );
    }
    if let Some(error) = &result.error {
        line += "  ";
        line += error.lines().next().unwrap_or_default();
    }
    line
}
