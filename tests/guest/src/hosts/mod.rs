// SPDX-License-Identifier: GPL-2.0

//! Hosts as their operators set them up: rules, routes, programs and devices that newcomers have before they load the module. Each
//! case has an elephant that is split, beside what else such a host does in the same outer flow, and is compared with `enabled` 0.
//!
//! The receiver has the distribution's default socket buffers, so elephants are paced: see [`elephant`].

mod containers;
mod devices;
mod ecmp;
mod elephant;
mod firewalls;
mod hashes;
mod header;
mod host;
mod networks;
mod new_flows;
mod policy;
mod programs;
mod router;
mod services;
mod table;
mod tproxy;
mod watchers;
mod wireguard;
mod xdp;

use std::process::ExitCode;

use anyhow::{ensure, Result};
use mflow_protocol::guest::{ListedCase, Message};

use self::elephant::Fate;
use self::host::{CleanUp, Host};
use crate::kmemleak;
use crate::runner::{self, Selection};
use crate::{mflow, verdict};

/// Options of `hosts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Send sixteen times the datagrams.
    #[arg(long)]
    full: bool,
    /// Print the table of hosts in rust/README.md, and run nothing.
    #[arg(long)]
    table: bool,
    /// Print the short table of README.md instead.
    #[arg(long, requires = "table")]
    short: bool,
    #[command(flatten)]
    selection: Selection,
}

/// Takes away what cases leave behind.
const CLEAN_UPS: &[CleanUp] = &[
    policy::clear,
    firewalls::clear,
    services::clear,
    devices::clear,
    networks::clear,
];

/// The body of a case, which acts on a host; the first thing that is not as it must be is its error.
type Body = Box<dyn Fn(&Host) -> Result<()>>;

struct Case {
    name: String,
    /// The properties of the host: what comes behind "a host with".
    host: &'static str,
    /// The state of the flow once `enabled` is 1.
    fate: Fate,
    /// The difference to `enabled` 0, if there is one.
    differs: Option<&'static str>,
    /// The statement that holds if the case passes.
    proves: &'static str,
    /// True if splitting begins under load.
    patches_code: bool,
    run: Body,
}

impl Case {
    fn new(
        name: impl Into<String>,
        host: &'static str,
        proves: &'static str,
        run: impl Fn(&Host) -> Result<()> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            host,
            fate: Fate::Split,
            differs: None,
            proves,
            patches_code: false,
            run: Box::new(run),
        }
    }

    /// Says what becomes of the flow, if it is not split.
    fn with_fate(self, fate: Fate) -> Self {
        Self { fate, ..self }
    }

    /// Says what is another there than with `enabled` 0.
    fn but(self, differs: &'static str) -> Self {
        Self {
            differs: Some(differs),
            ..self
        }
    }

    /// Marks a case in which splitting begins under load: the kernel patches its own code then.
    fn patching_code(self) -> Self {
        Self {
            patches_code: true,
            ..self
        }
    }
}

fn all() -> Vec<Case> {
    [
        services::cases(),
        tproxy::cases(),
        programs::cases(),
        firewalls::cases(),
        header::cases(),
        ecmp::cases(),
        policy::cases(),
        devices::cases(),
        containers::cases(),
        networks::cases(),
        watchers::cases(),
        xdp::cases(),
        hashes::cases(),
        wireguard::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut cases = all();
    if options.table {
        let text = if options.short {
            table::short(&cases)?
        } else {
            table::table(&cases)
        };
        print!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    cases.retain(|case| options.selection.takes(&case.name));
    if options.selection.list {
        return runner::list(cases.into_iter().map(|case| ListedCase {
            name: case.name,
            patches_code: case.patches_code,
            proves: case.proves.to_owned(),
            steps: Vec::new(),
        }));
    }
    ensure!(
        !cases.is_empty(),
        "no case is selected; `mflow-guest hosts --list` shows all"
    );
    kmemleak::begin()?;
    let host = Host::new(options.full, CLEAN_UPS)?;
    verdict::say(&Message::Rate(host.rig.frames_per_s()));
    let code = runner::run_each(
        &cases,
        |case| case.name.clone(),
        |case| {
            let ran = (case.run)(&host);
            // Also after a failure.
            host.clear()?;
            ran.map(|()| None)
        },
    );
    mflow::unload()?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_listed() {
        let cases = all();
        runner::require_good_names(cases.iter().map(|case| case.name.as_str()));
    }
}
