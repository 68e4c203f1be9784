// SPDX-License-Identifier: GPL-2.0

//! The test layers; every layer can run alone.

pub(crate) mod budget;
mod cargo;
mod chaos;
mod docs;
mod guests;
mod hike;
mod hosts;
mod litmus;
mod mlx5;
mod module;
mod scripts;
mod stock;
mod tidy;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::slice;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use self::guests::draw;
use self::guests::places::Places;
use crate::kernel::distribution::OTHERS;
use crate::kernel::{self, Flavor, Way};
use crate::paths;
use crate::setup::{self, qemu, Need};
use crate::step::Failed;
use crate::tools;
use crate::vm::{guest_program, model_program};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Layers to run [default: all]
    #[arg(value_name = "LAYER", value_parser = clap::builder::PossibleValuesParser::new(LAYERS.iter().map(|layer| layer.name)))]
    layers: Vec<String>,
    /// Run everything; without it, a fair part that fits into continuous integration
    #[arg(long)]
    full: bool,
    /// Run only the cases in guests that have this in their names
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Run the layers this many times, or until a case fails
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Seed of the draw among cases in guests that differ only in parameters [default: the commit]
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,
    /// Core that builds packets in the cases in guests that do not choose it [default: drawn for each]
    ///
    /// `nic` is not offered: it would leave out what the choice is about.
    #[arg(long, value_name = "CORE", value_parser = ["auto", "lane"])]
    build: Option<String>,
    /// The mode in which cases in guests run that are about any traffic: one of FALCON's [default: mflow]
    #[arg(long, value_name = "MODE", value_parser = ["falcon-dev", "falcon-func"], conflicts_with = "build")]
    mode: Option<String>,
    /// Way the module comes into the stack in the layers vm, vm-debug, hosts and chaos [default: as each guest has it]
    ///
    /// With `stock` it needs no hooks of ours: on the distribution's kernel, and on our checking one, whose hooks stay off. Cases that
    /// need them are not run then.
    #[arg(long, value_enum, conflicts_with_all = ["build", "mode"])]
    way: Option<Way>,
    /// The only kernel of the layers stock and hosts: one that a release of Debian ships, or that its backports have. The layer
    /// stock installs the package there, and runs all cases that it runs on the distribution's own kernel
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(OTHERS.iter().map(|kernel| kernel.name)))]
    kernel: Option<String>,
    /// List the layers and what each proves
    #[arg(long)]
    list: bool,
    #[command(flatten, next_help_heading = "The layer chaos")]
    chaos: chaos::Options,
}

/// The options of a run, and the state that its layers share.
#[derive(Default)]
pub(crate) struct Ctx {
    /// The layers that are run.
    layers: Vec<&'static Layer>,
    pub(crate) full: bool,
    /// The text that a case in a guest must have in its name to be run.
    pub(crate) case: Option<String>,
    /// The seed of the draw among these cases.
    pub(crate) seed: String,
    /// The core that builds packets where a case does not choose it; drawn if none is given.
    pub(crate) build: Option<String>,
    /// The module's mode in cases that are about any traffic, if not the usual one; others are not run then.
    pub(crate) mode: Option<String>,
    /// The way the module comes into the stack, if not as each guest has it.
    pub(crate) way: Option<Way>,
    /// The only kernel of the layers `stock` and `hosts`. Without it, `stock` runs on the distribution's own kernel and briefly
    /// on others, and `hosts` on a drawn one.
    pub(crate) kernel: Option<String>,
    pub(crate) chaos: chaos::Options,
    /// The time from which no further case in a guest begins, if there is one.
    pub(crate) until: Option<Instant>,
    guest_cases: OnceLock<draw::Cases>,
    places: Places,
}

impl Ctx {
    fn guest_cases(&self) -> Result<draw::Cases> {
        tools::once(&self.guest_cases, || draw::cases(self))
    }

    /// Returns whether cases are drawn, and each layer runs as its row in the table of seconds expects.
    fn is_default(&self) -> bool {
        !self.full
            && self.case.is_none()
            && self.mode.is_none()
            && self.way.is_none()
            && self.kernel.is_none()
            && self.chaos.is_default()
    }
}

/// The results of a layer.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<Failure>,
    /// The cases that could not run, and why.
    pub(crate) skipped: Vec<(String, String)>,
    /// The number of guests that were booted.
    pub(crate) boots: usize,
    /// The time for which places for guests were taken.
    held: Duration,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) name: String,
    /// The description of the failure, with the end of the log where there is one.
    pub(crate) detail: String,
    pub(crate) log: Option<PathBuf>,
}

/// The kernels or guests that a layer runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Host,
    Kernel(&'static [Flavor]),
    Guests(&'static [Flavor]),
}

struct Layer {
    name: &'static str,
    proves: &'static str,
    run: fn(&Ctx) -> Result<Outcome>,
    needs: Needs,
}

struct Seconds {
    layer: &'static Layer,
    cases: usize,
    took: Duration,
    /// The factor by which the machine was slower during the run than the machine of the table.
    slower: f64,
}

/// The work before the first layer that needs a kernel.
const SET_UP: Layer = Layer {
    name: "set-up",
    proves: "kernels and the guest program can be built",
    run: set_up,
    needs: Needs::Host,
};

/// Makes layers of lines `NAME: RUN, NEEDS, PROVES;`.
macro_rules! layers {
    ($($name:literal: $run:path, $needs:expr, $proves:literal;)*) => {
        &[$(Layer { name: $name, proves: $proves, run: $run, needs: $needs }),*]
    };
}

/// The layers, in the order in which they begin: those that fail fast come first.
const LAYERS: &[Layer] = layers! {
    "tidy": tidy::run, Needs::Host, "formatting, lints, licences, patches, documents that mirror code";
    "unit": cargo::unit, Needs::Host, "the algorithms against trivial models, and in every order of events; the host tools";
    "loom": cargo::loom, Needs::Host, "the shared queues under every interleaving of a few operations";
    "litmus": litmus::run, Needs::Host, "every hand-over between CPUs under the kernel's own memory model";
    "miri": cargo::miri, Needs::Host, "no undefined behaviour in the algorithms' unsafe parts";
    "module": module::run, Needs::Kernel(&[Flavor::Vm]), "the module builds out of the kernel tree";
    "hike": hike::run, Needs::Guests(&[Flavor::Vm]),
        "chains of BPF programs at XDP: against a model of each, and with the kernel's segment routing as the peer";
    "vm": vm::run, Needs::Guests(&[Flavor::Vm]), "order and integrity on a real kernel with real devices, in a guest";
    "vm-debug": vm::run_debug, Needs::Guests(&[Flavor::Debug]),
        "no memory, lock, RCU or sleep error: a short list of cases on the checking kernel";
    "mlx5": mlx5::run, Needs::Guests(&[Flavor::Vm]),
        "the driver of ConnectX cards, on a model of one: its own life, and order and integrity with it";
    "stock": stock::run, Needs::Guests(&[]),
        "the same on the distribution's own kernel, without our patches: a short list of cases";
    "hosts": hosts::run, Needs::Guests(&[]),
        "hosts as operators set them up, beside enabled 0: on a kernel that Debian ships, without our patches, or on one with them";
    "chaos": chaos::run, Needs::Guests(&[Flavor::Vm, Flavor::Debug]),
        "whatever happens to a host under load, and in whatever order, nothing is left behind; on the plain and the checking kernel, both ways";
};

impl Layer {
    /// Returns its row in the table of seconds.
    fn row(&self) -> &'static str {
        match self.name {
            "unit" | "loom" | "litmus" | "miri" => "host",
            name => name,
        }
    }

    /// Returns the seconds that the table has for it when nothing is built.
    fn row_s(&self) -> u64 {
        budget::find(self.row()).map_or(0, |row| row.cold_s)
    }

    fn in_guests(&self) -> bool {
        matches!(self.needs, Needs::Guests(_))
    }

    /// Tells whether it may run at the same time as the layer before it in the list.
    fn joins(&self, before: &Self) -> bool {
        self.row() == before.row() || (self.in_guests() && before.in_guests())
    }

    /// Runs it; returns how long that took, too, without the time for which it waited for places.
    fn run(&self, ctx: &Ctx) -> (Outcome, Duration) {
        let start = Instant::now();
        println!("layer {}: {}", self.name, self.proves);
        let outcome = (self.run)(ctx).unwrap_or_else(|error| Outcome {
            failed: vec![Failure::of(self.name, &error)],
            ..Outcome::default()
        });
        let took = if self.in_guests() {
            outcome.held
        } else {
            start.elapsed()
        };
        println!(
            "layer {}: {}, {:.1} s, {:.1} s a case",
            self.name,
            summary(&outcome),
            took.as_secs_f64(),
            a_case(took, outcome.cases())
        );
        (outcome, took)
    }
}

impl Outcome {
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn skip(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.skipped.push((name.into(), reason.into()));
    }

    /// Counts one case by its result.
    pub(crate) fn record<T>(&mut self, name: &str, result: Result<T>) {
        match result {
            Ok(_) => self.pass(),
            Err(error) => self.failed.push(Failure::of(name, &error)),
        }
    }

    fn cases(&self) -> usize {
        self.passed + self.failed.len()
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
        self.boots += other.boots;
        self.held += other.held;
    }
}

impl Failure {
    pub(crate) fn of(name: &str, error: &anyhow::Error) -> Self {
        Self {
            name: name.to_owned(),
            detail: format!("{error:#}"),
            // The text of such an error names its log already.
            log: error
                .downcast_ref::<Failed>()
                .map(|failed| failed.log.clone()),
        }
    }

    fn print(&self) {
        println!("\nFAILED  {}", self.name);
        for line in self.detail.lines() {
            println!("  {line}");
        }
        if let Some(log) = &self.log {
            let log = log.display().to_string();
            if !self.detail.contains(&log) {
                println!("  log:  {log}");
            }
        }
    }
}

/// Runs `test`; the last line is `N passed, N failed, N skipped`.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    if options.list {
        for layer in LAYERS {
            println!("{:<10} {}", layer.name, layer.proves);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    setup::ensure(&[Need::Kernel, Need::Vm, Need::Checks])?;
    let wanted = |layer: &&Layer| {
        let named = options.layers.iter().any(|name| name == layer.name);
        (named || options.layers.is_empty()) && (layer.in_guests() || options.case.is_none())
    };
    let mut ctx = Ctx {
        layers: LAYERS.iter().filter(wanted).collect(),
        full: options.full,
        case: options.case,
        seed: options.seed.unwrap_or_else(commit),
        build: options.build,
        mode: options.mode,
        way: options.way,
        kernel: options.kernel,
        chaos: options.chaos,
        until: None,
        guest_cases: OnceLock::new(),
        places: Places::default(),
    };
    if ctx.is_default() && options.repeat == 1 {
        ctx.until = Some(start + budget::LAST_START);
    }
    let mut total = Outcome::default();
    let mut table = Vec::new();
    for _ in 0..options.repeat {
        run_layers(&ctx, &mut total, &mut table);
        if !total.failed.is_empty() {
            break;
        }
    }
    if let (Some(case), true) = (&ctx.case, total.cases() + total.skipped.len() == 0) {
        bail!(
            "no case of these layers has `{case}` in its name; try: cargo xtask test --case main"
        );
    }
    for (name, reason) in &total.skipped {
        println!("\nskipped {name}: {reason}");
    }
    print_table(&table, &ctx, &mut total);
    total.failed.iter().for_each(Failure::print);
    println!("\n{}", summary(&total));
    Ok(ExitCode::from(u8::from(!total.failed.is_empty())))
}

/// Runs the layers, and what is built for them before the first that needs it.
fn run_layers(ctx: &Ctx, total: &mut Outcome, table: &mut Vec<Seconds>) {
    let mut layers = ctx.layers.clone();
    // The set-up comes as late as possible: what fails fast comes first.
    if let Some(first) = layers.iter().position(|layer| layer.needs != Needs::Host) {
        layers.insert(first, &SET_UP);
    }
    for together in layers.chunk_by(|before, one| one.joins(before)) {
        // Those on the host do not mind each other, as Miri uses one core; those in guests wait for places.
        let (ended, slower) =
            budget::slowness_during(|| tools::together(together, |layer| layer.run(ctx)));
        for (layer, (outcome, took)) in together.iter().zip(ended) {
            table.push(Seconds {
                layer,
                cases: outcome.cases(),
                took,
                slower,
            });
            let failed = !outcome.failed.is_empty();
            total.add(outcome);
            if failed && layer.name == SET_UP.name {
                println!("all other layers need the set-up, and are not run");
                return;
            }
        }
    }
}

/// Builds, in one go and once, what the layers share.
fn set_up(ctx: &Ctx) -> Result<Outcome> {
    let mut flavors = Vec::new();
    for layer in &ctx.layers {
        let needs = match layer.needs {
            Needs::Host => &[],
            Needs::Kernel(flavors) | Needs::Guests(flavors) => flavors,
        };
        // A layer on both kernels may be asked for one of them.
        let takes = |flavor: &Flavor| needs.len() == 1 || ctx.chaos.takes(*flavor);
        flavors.extend(needs.iter().copied().filter(takes));
    }
    let has_guests = ctx.layers.iter().any(|layer| layer.in_guests());
    thread::scope(|scope| {
        // Each of these has times in which it keeps one core busy only.
        let kernels = scope.spawn(|| kernel::ensure_all(&flavors));
        let guests = has_guests.then(|| {
            scope.spawn(|| {
                guest_program()?;
                // Without one, the cases with a ConnectX are skipped, and say so.
                qemu::obtain(&qemu::VFIO_USER)?;
                ctx.guest_cases().map(drop)
            })
        });
        let guests = guests.map_or(Ok(()), tools::join);
        tools::join(kernels).and(guests)
    })?;
    let has_cards = |layer: &&'static Layer| layer.name == "mlx5";
    if ctx.layers.iter().any(has_cards) && qemu::suits(&qemu::VFIO_USER) {
        model_program()?;
    }
    Ok(Outcome::default())
}

/// Prints how long each layer took and may take, and fails what took too long.
fn print_table(table: &[Seconds], ctx: &Ctx, total: &mut Outcome) {
    println!("\nlayer      cases  seconds  a case    row  allowed");
    for one in table {
        println!(
            "{:<10} {:>5} {:>8.0} {:>7.1} {:>6} {:>8.0}",
            one.layer.name,
            one.cases,
            one.took.as_secs_f64(),
            a_case(one.took, one.cases),
            one.layer.row_s(),
            budget::allowed(one.layer.row_s(), one.slower).as_secs_f64()
        );
    }
    // The loop says little about the speed at which a machine compiles, and the set-up compiles only what is missing.
    let judged = table.iter().filter(|one| one.layer.name != SET_UP.name);
    // Guests take the cores from each other, so that a layer's seconds depend on its neighbours, but their sum does not.
    let (in_guests, on_host): (Vec<&Seconds>, Vec<&Seconds>) =
        judged.partition(|one| one.layer.in_guests());
    let works = on_host
        .iter()
        .map(|one| (format!("layer {}", one.layer.name), slice::from_ref(one)))
        .chain([("the layers in guests".to_owned(), in_guests.as_slice())]);
    for (work, parts) in works.filter(|(_, parts)| ctx.is_default() && !parts.is_empty()) {
        let row_s = parts.iter().map(|one| one.layer.row_s()).sum();
        let took = parts.iter().map(|one| one.took).sum();
        let slower = parts.iter().map(|one| one.slower).fold(1.0, f64::max);
        if let Err(error) = budget::check(&work, row_s, took, slower) {
            let name = format!("{work}: seconds");
            total.failed.push(Failure::of(&name, &error));
        }
    }
}

fn a_case(took: Duration, cases: usize) -> f64 {
    // CAST: some hundred cases.
    took.as_secs_f64() / cases.max(1) as f64
}

fn commit() -> String {
    let mut git = tools::command("git");
    git.args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(paths::project());
    // An unpacked archive has none: there, each run is the same.
    tools::output(&mut git).map_or_else(|_| "0".to_owned(), |text| text.trim().to_owned())
}

fn summary(outcome: &Outcome) -> String {
    format!(
        "{} passed, {} failed, {} skipped",
        outcome.passed,
        outcome.failed.len(),
        outcome.skipped.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_add_up() {
        let mut total = Outcome::default();
        let mut one = Outcome::default();
        one.record::<()>("a", Ok(()));
        one.record::<()>("b", Err(anyhow::anyhow!("no")));
        one.skip("c", "not here");
        total.add(one);
        total.pass();
        assert_eq!(summary(&total), "2 passed, 1 failed, 1 skipped");
        assert_eq!(total.failed[0].detail, "no");
    }

    #[test]
    fn every_layer_but_the_set_up_fails_if_it_takes_too_long() {
        let ctx = Ctx::default();
        let (cases, took, slower) = (1, Duration::from_secs(100_000), 1.0);
        let table: Vec<Seconds> = LAYERS
            .iter()
            .chain([&SET_UP])
            .map(|layer| Seconds {
                layer,
                cases,
                took,
                slower,
            })
            .collect();
        let mut total = Outcome::default();
        print_table(&table, &ctx, &mut total);
        let failed = total.failed.iter().map(|failure| failure.name.as_str());
        let late = LAYERS
            .iter()
            .filter(|layer| !layer.in_guests())
            .map(|layer| format!("layer {}: seconds", layer.name))
            .chain(["the layers in guests: seconds".to_owned()]);
        assert!(failed.eq(late));
    }

    #[test]
    fn of_layers_in_guests_the_sum_counts() {
        let takes = |layer: &'static Layer, slower| Seconds {
            layer,
            cases: 1,
            took: budget::allowed(layer.row_s(), slower),
            slower: 1.0,
        };
        let guests = || LAYERS.iter().filter(|layer| layer.in_guests());
        let table: Vec<Seconds> = guests()
            .enumerate()
            .map(|(place, layer)| takes(layer, if place == 0 { 2.0 } else { 0.5 }))
            .collect();
        let mut total = Outcome::default();
        print_table(&table, &Ctx::default(), &mut total);
        assert!(total.failed.is_empty(), "{:?}", total.failed);
    }
}
