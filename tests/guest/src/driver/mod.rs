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

use anyhow::Result;

use crate::runner::{self, Selection};

/// Options of `driver`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
}

type Case = runner::Case<fn() -> Result<()>>;

fn all() -> Vec<Case> {
    [cycle::cases(), features::cases(), faults::cases()]
        .into_iter()
        .flatten()
        .collect()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    runner::run_selected("driver", &options.selection, all(), |run| {
        let result = run();
        // Whatever went wrong, the next case begins without the driver.
        result.and(link::unload())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_listed() {
        runner::require_good_names(all().iter().map(|case| case.name));
    }
}
