// SPDX-License-Identifier: GPL-2.0

//! The driver's own cases, on the ConnectX model: they test the model, with the driver as it comes.
//!
//! Each case loads the driver and unloads it; the host sees to it that the kernel's log stays clean, and makes the cards
//! misbehave where a case asks for it.

mod cycle;
mod faults;
mod features;
pub(crate) mod link;

use std::process::ExitCode;

use anyhow::{ensure, Result};
use mflow_protocol::guest::ListedCase;

use crate::runner::{self, Selection};

/// Options of `driver`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
}

struct Case {
    name: &'static str,
    /// The statement that holds if the case passes.
    proves: &'static str,
    run: fn() -> Result<()>,
}

fn all() -> Vec<Case> {
    [cycle::cases(), features::cases(), faults::cases()]
        .into_iter()
        .flatten()
        .collect()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut cases = all();
    cases.retain(|case| options.selection.takes(case.name));
    if options.selection.list {
        return runner::list(cases.into_iter().map(|case| ListedCase {
            name: case.name.to_owned(),
            patches_code: false,
            proves: case.proves.to_owned(),
            steps: Vec::new(),
        }));
    }
    ensure!(
        !cases.is_empty(),
        "no case is selected; `mflow-guest driver --list` shows all"
    );
    Ok(runner::run_each(
        &cases,
        |case| case.name.to_owned(),
        |case| {
            let result = (case.run)();
            // Whatever went wrong, the next case begins without the driver.
            result.and(link::unload()).map(|()| None)
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_listed() {
        runner::require_good_names(all().iter().map(|case| case.name));
    }
}
