// SPDX-License-Identifier: GPL-2.0

//! The test layers, one file each; every layer can run alone.

mod cargo;
mod docs;
mod fuzz;
mod loom;
mod miri;
mod mlx5;
mod module;
mod tidy;
mod unit;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{bail, Result};

use crate::setup::{self, Need};
use crate::step::Failed;

/// Options of `test`.
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
    /// Run the layers so many times, or until a case fails
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// List the layers and what each proves
    #[arg(long)]
    list: bool,
}

/// What a layer is told.
#[derive(Debug)]
pub(crate) struct Ctx {
    /// Whether everything is to be run.
    pub(crate) full: bool,
    /// What a case in a guest must have in its name to be run.
    pub(crate) case: Option<String>,
}

/// What came out of a layer.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The number of cases that passed.
    pub(crate) passed: usize,
    /// The cases that failed.
    pub(crate) failed: Vec<Failure>,
    /// The cases that could not run, and why.
    pub(crate) skipped: Vec<(String, String)>,
}

/// A case that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The name of the case.
    pub(crate) name: String,
    /// What went wrong, with the end of the log where there is one.
    pub(crate) detail: String,
    /// The whole log.
    pub(crate) log: Option<PathBuf>,
}

struct Layer {
    name: &'static str,
    proves: &'static str,
    run: fn(&Ctx) -> Result<Outcome>,
    /// Whether its cases run in guests.
    guests: bool,
}

/// In the order they run: what fails fast comes first.
const LAYERS: &[Layer] = &[
    Layer {
        name: "tidy",
        proves: "formatting, lints, licences, patches, documents that mirror code",
        run: tidy::run,
        guests: false,
    },
    Layer {
        name: "unit",
        proves: "the algorithms against trivial models, the host tools",
        run: unit::run,
        guests: false,
    },
    Layer {
        name: "loom",
        proves: "the shared queues under every interleaving of a few operations",
        run: loom::run,
        guests: false,
    },
    Layer {
        name: "miri",
        proves: "no undefined behaviour in the algorithms' unsafe parts",
        run: miri::run,
        guests: false,
    },
    Layer {
        name: "module",
        proves: "the module builds out of the kernel tree",
        run: module::run,
        guests: false,
    },
    Layer {
        name: "vm",
        proves: "order and integrity on a real kernel with real devices, in a guest",
        run: vm::run,
        guests: true,
    },
    Layer {
        name: "mlx5",
        proves: "the driver of ConnectX cards, on a model of one: its own life, and order and integrity with it",
        run: mlx5::run,
        guests: true,
    },
    Layer {
        name: "vm-debug",
        proves: "no memory, lock, RCU or sleep error: a short list of cases on the checking kernel",
        run: vm::run_debug,
        guests: true,
    },
];

impl Outcome {
    /// Counts one case that passed.
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    /// Counts one case that could not run.
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

    fn is_empty(&self) -> bool {
        self.passed == 0 && self.failed.is_empty() && self.skipped.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

impl Failure {
    /// Returns an error as a failed case.
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
    setup::ensure(&[Need::Kernel, Need::Vm, Need::Checks])?;
    let ctx = Ctx {
        full: options.full,
        case: options.case,
    };
    let wanted = |layer: &Layer| {
        let named = options.layers.iter().any(|name| name == layer.name);
        (named || options.layers.is_empty()) && (layer.guests || ctx.case.is_none())
    };
    let layers: Vec<&Layer> = LAYERS.iter().filter(|layer| wanted(layer)).collect();
    let mut total = Outcome::default();
    for _ in 0..options.repeat {
        run_layers(&layers, &ctx, &mut total);
        if !total.failed.is_empty() {
            break;
        }
    }
    if let (Some(case), true) = (&ctx.case, total.is_empty()) {
        bail!(
            "no case of these layers has `{case}` in its name; try: cargo xtask test --case main"
        );
    }
    for (name, reason) in &total.skipped {
        println!("\nskipped {name}: {reason}");
    }
    total.failed.iter().for_each(Failure::print);
    println!("\n{}", summary(&total));
    Ok(if total.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_layers(layers: &[&Layer], ctx: &Ctx, total: &mut Outcome) {
    for layer in layers {
        let start = Instant::now();
        println!("layer {}: {}", layer.name, layer.proves);
        let outcome = (layer.run)(ctx).unwrap_or_else(|error| {
            let mut outcome = Outcome::default();
            outcome.failed.push(Failure::of(layer.name, &error));
            outcome
        });
        println!(
            "layer {}: {}, {:.1} s",
            layer.name,
            summary(&outcome),
            start.elapsed().as_secs_f64()
        );
        total.add(outcome);
    }
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
}
