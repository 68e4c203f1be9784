// SPDX-License-Identifier: GPL-2.0

//! The test cases: one idea per file, each a table or a few functions.
//!
//! A case prepares the rig itself, and returns what it measured or the first thing that was not as it must be. Cases do
//! not depend on each other and run in one boot as long as the kernel survives; the host watches its log.

mod connectx;
mod forwarding;
mod lanes;
mod operation;
mod traffic;

use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::{ListedCase, Message};

use crate::kmemleak;
use crate::mflow::{self, Knobs, Mode};
use crate::runner::{self, Selection};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::scale::{Scale, FULL};
use crate::verdict;

/// The counters of each stage's packets. With as many CPUs as stages, each stage of a flow has a CPU of its own.
pub(crate) const STAGES: [&str; 3] = ["stage_nic_pkts", "stage_tunnel_pkts", "stage_veth_pkts"];

/// The runs that a case is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// All runs, also the short one on the checking kernel, where everything is many times slower.
    Always,
    /// Runs on the plain kernel.
    Plain,
    /// Runs on the checking kernel.
    Checking,
    /// Runs on the plain kernel with a ConnectX.
    ConnectX,
}

impl Run {
    /// Returns the run of a case of the plain kernel that is in the short one, too, if so.
    fn always_if(short: bool) -> Self {
        if short {
            Self::Always
        } else {
            Self::Plain
        }
    }
}

/// The body of a case; returns the outcome that it measured, if it is about traffic.
type Body = Box<dyn Fn(&Rig) -> Result<Option<Outcome>>>;

pub(crate) struct Case {
    /// `group/variant`.
    pub(crate) name: String,
    /// The statement that holds if the case passes.
    pub(crate) proves: String,
    pub(crate) when: Run,
    /// True if the case says anything about the vanilla stack.
    pub(crate) vanilla: bool,
    /// True if the case says anything about the modes of FALCON.
    pub(crate) any_mode: bool,
    /// True if the kernel patches its own code on the packet path while packets are on it.
    pub(crate) patches_code: bool,
    pub(crate) run: Body,
}

impl Case {
    /// Returns a case that is about traffic, so that the vanilla stack can be its control.
    pub(crate) fn of_traffic(
        name: impl Into<String>,
        proves: impl Into<String>,
        when: Run,
        run: impl Fn(&Rig) -> Result<Outcome> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            proves: proves.into(),
            when,
            vanilla: true,
            any_mode: true,
            patches_code: false,
            run: Box::new(move |rig| run(rig).map(Some)),
        }
    }

    /// Returns a case that needs the module, and may be about traffic.
    pub(crate) fn of_module<O: Into<Option<Outcome>>>(
        name: impl Into<String>,
        proves: impl Into<String>,
        when: Run,
        run: impl Fn(&Rig) -> Result<O> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            proves: proves.into(),
            when,
            vanilla: false,
            any_mode: false,
            patches_code: false,
            run: Box::new(move |rig| run(rig).map(Into::into)),
        }
    }

    /// Marks a case whose statement is about splitting.
    pub(crate) fn about_splitting(self) -> Self {
        Self {
            any_mode: false,
            ..self
        }
    }

    /// Marks a case that switches a static key of the packet path under load.
    ///
    /// QEMU can go on running the old code when several threads emulate CPUs; the host gives such a case one thread.
    pub(crate) fn patching_code(self) -> Self {
        Self {
            patches_code: true,
            ..self
        }
    }
}

/// Returns all cases, in the order they run: first whether the rig can see what it looks for.
fn all() -> Vec<Case> {
    [
        operation::control::datagrams(),
        operation::knobs::cases(),
        operation::command::cases(),
        operation::top::cases(),
        operation::trace::cases(),
        operation::netlink::cases(),
        operation::no_debugfs::cases(),
        traffic::shapes::datagrams(),
        traffic::datagrams::gaps::tail::cases(),
        traffic::datagrams::gaps::drops::cases(),
        traffic::datagrams::gaps::filtered::cases(),
        traffic::datagrams::gaps::old_tags::cases(),
        traffic::capture::datagrams(),
        operation::devices::datagrams(),
        forwarding::upper_devices::datagrams(),
        forwarding::routed::datagrams(),
        forwarding::paths::cases(),
        operation::reasons::cases(),
        lanes::hints::cases(),
        operation::hooks::cases(),
        operation::forged::cases(),
        forwarding::forwarded::cases(),
        traffic::gro::cases(),
        traffic::disguised::cases(),
        traffic::aggregates::cases(),
        traffic::watched::cases(),
        traffic::joined_frames::cases(),
        traffic::join_trial::cases(),
        traffic::joining::cases(),
        traffic::datagrams::refragmented::cases(),
        traffic::datagrams::sockets::multicast::cases(),
        traffic::datagrams::sockets::broadcast::cases(),
        traffic::datagrams::sockets::readers::cases(),
        traffic::datagrams::sockets::receive_buffer::cases(),
        traffic::datagrams::sockets::timestamps::cases(),
        traffic::datagrams::sockets::sockmap::cases(),
        traffic::datagrams::sockets::by_cpu::cases(),
        traffic::datagrams::sockets::takeover::cases(),
        traffic::datagrams::virtual_nic::cases(),
        lanes::scaling::datagrams(),
        lanes::sources::cases(),
        lanes::build::datagrams(),
        lanes::freeing::cases(),
        lanes::mode::datagrams(),
        lanes::redirected::datagrams(),
        lanes::stage_load::datagrams(),
        traffic::tunnels::cases(),
        lanes::interrupts::cases(),
        operation::reload::datagrams(),
        operation::held::datagrams(),
        operation::unread::cases(),
        traffic::deadline::datagrams(),
        lanes::load::datagrams(),
        lanes::auto::datagrams(),
        traffic::datagrams::changes::hotplug::cases(),
        traffic::datagrams::changes::routes::cases(),
        traffic::datagrams::changes::teardown::cases(),
        traffic::shapes::streams(),
        traffic::streams::readers::cases(),
        traffic::streams::request::cases(),
        traffic::streams::churn::cases(),
        traffic::streams::fast_open::cases(),
        traffic::streams::handshake::cases(),
        traffic::streams::closing::cases(),
        operation::control::streams(),
        traffic::capture::streams(),
        traffic::streams::jumbo::cases(),
        operation::devices::streams(),
        forwarding::upper_devices::streams(),
        forwarding::routed::streams(),
        traffic::streams::nat::cases(),
        traffic::streams::rehash::cases(),
        lanes::scaling::streams(),
        lanes::build::streams(),
        lanes::mode::streams(),
        lanes::stage_load::streams(),
        operation::reload::streams(),
        traffic::deadline::streams(),
        lanes::load::streams(),
        lanes::auto::streams(),
        traffic::streams::programs::cases(),
        connectx::source::cases(),
        connectx::events::cases(),
        connectx::joined::cases(),
        connectx::checksums::cases(),
        operation::leaks::cases(),
        operation::lockdown::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Options of `cases`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Send ten times the datagrams.
    #[arg(long, conflicts_with = "short")]
    full: bool,
    /// Run what a checking kernel gets through in minutes: fewer cases, fewer datagrams, and a look for leaks.
    #[arg(long)]
    short: bool,
    /// Run all cases, but send as little as with `--short`.
    #[arg(long, conflicts_with_all = ["full", "short"])]
    brief: bool,
    /// Run what needs a ConnectX, too.
    #[arg(long)]
    connectx: bool,
    /// Run what is about any traffic in this mode of the module.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
    #[command(flatten)]
    selection: Selection,
    /// Send the same traffic through the vanilla stack, as a control of the rig itself.
    #[arg(long)]
    vanilla: bool,
}

impl Options {
    fn selected(&self) -> Vec<Case> {
        let runs = |when| match when {
            Run::Always => true,
            Run::Plain => !self.short,
            Run::Checking => self.short,
            Run::ConnectX => self.connectx,
        };
        mflow::set_mode(self.mode);
        let mut cases = all();
        cases.retain(|case| {
            runs(case.when)
                && self.selection.takes(&case.name)
                && (case.vanilla || !self.vanilla)
                && (case.any_mode || self.mode == Mode::Mflow)
        });
        cases
    }

    fn scale(&self) -> Scale {
        match (self.full, self.short || self.brief) {
            (true, _) => Scale {
                main: FULL,
                other: 50_000,
                tcp_main_bytes: 1 << 30,
                tcp_bytes: 240 << 20,
                brief: false,
            },
            (_, true) => Scale {
                main: 3_000,
                other: 1_500,
                tcp_main_bytes: 3 << 20,
                tcp_bytes: 2 << 20,
                brief: true,
            },
            _ => Scale {
                main: 40_000,
                other: 5_000,
                tcp_main_bytes: 24 << 20,
                tcp_bytes: 24 << 20,
                brief: false,
            },
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cases = options.selected();
    if options.selection.list {
        return runner::list(cases.into_iter().map(|case| ListedCase {
            name: case.name,
            patches_code: case.patches_code,
            proves: case.proves,
            steps: Vec::new(),
        }));
    }
    ensure!(
        !cases.is_empty(),
        "no case is selected; `mflow-guest cases --list` shows all"
    );
    ensure!(
        options.vanilla || mflow::available(),
        "this kernel has no module mflow; use --vanilla to run the traffic without it"
    );
    if options.short {
        mflow::split_slow_flows();
    }
    kmemleak::begin()?;
    let rig = Rig::new(!options.vanilla, options.scale())?;
    verdict::say(&Message::Rate(rig.frames_per_s()));
    let run = |case: &Case| {
        mflow::choose_build(&case.name);
        let Knobs { mode, build, .. } = Knobs::default();
        (case.run)(&rig).with_context(|| format!("with mode {mode} and build {build}"))
    };
    let code = runner::run_each(&cases, |case| case.name.clone(), run);
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
