// SPDX-License-Identifier: GPL-2.0

//! The programs with which the kernel itself moves the epoch, `c-shims/hike/epoch.bpf.c`: no process has to run for that.
//!
//! All of them are there, or none: an instance that is told of some changes alone would trust entries that are old.

use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::Program;
use aya::Btf;

use super::loader;
use crate::tables::epoch::{Epoch, FOR_EVER};

/// Functions of the kernel behind which the epoch moves, and tracepoints at which neighbours are looked at. The programs have their
/// names.
const FUNCTIONS: [&str; 7] = [
    "rtnetlink_rcv_msg",
    "rt_cache_flush",
    "fib6_add",
    "fib6_del",
    "fib6_clean_all",
    "fib6_clean_all_skip_notify",
    "nh_netdev_event",
];
const TRACEPOINTS: [&str; 4] = [
    "neigh_update_done",
    "neigh_timer_handler",
    "neigh_event_send_done",
    "neigh_cleanup_and_release",
];

/// The programs of an instance, attached until the end of the scope, or until they [stay](Self::stay).
pub(crate) struct Tracing(Vec<(&'static str, FdLink)>);

fn pin(folder: &Path, place: &str) -> PathBuf {
    folder.join(format!("traced_{place}"))
}

fn places() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.into_iter().chain(TRACEPOINTS)
}

/// Returns whether the programs of the instance in a folder stay there, all of them.
pub(crate) fn stays(folder: &Path) -> bool {
    places().all(|place| pin(folder, place).exists())
}

/// Lets the programs of an instance serve another one, too, which has its epoch.
pub(crate) fn share(from: &Path, to: &Path) -> Result<()> {
    for place in places() {
        let pin_from = pin(from, place);
        let link = PinnedLink::from_pin(&pin_from);
        let link = link.with_context(|| format!("cannot open {}", pin_from.display()))?;
        let pin_to = pin(to, place);
        let pinned = FdLink::from(link).pin(&pin_to);
        pinned.with_context(|| format!("cannot pin {}", pin_to.display()))?;
    }
    Ok(())
}

impl Tracing {
    /// Attaches the programs of the instance in a folder. Fails with what this kernel has not: what is attached by then goes.
    pub(crate) fn attach(folder: &Path, epoch: &Epoch) -> Result<Self> {
        let btf = Btf::from_sys_fs().context("the kernel says nothing of its own types")?;
        let mut object = loader::epoch(folder, &btf)?;
        let mut links = Vec::new();
        for place in places() {
            let program = loader::program(&mut object, &format!("hike_{place}"))?;
            let link = attach(program, place, &btf);
            links.push((
                place,
                link.with_context(|| format!("cannot attach to {place}"))?,
            ));
        }
        // What has changed before that was not seen.
        epoch.moves();
        epoch.watch_until(FOR_EVER);
        Ok(Self(links))
    }

    /// Leaves the programs where they are when the process ends.
    pub(crate) fn stay(self, folder: &Path) -> Result<()> {
        for (place, link) in self.0 {
            let pin = pin(folder, place);
            link.pin(&pin)
                .with_context(|| format!("cannot pin {}", pin.display()))?;
        }
        Ok(())
    }
}

fn attach(program: &mut Program, place: &str, btf: &Btf) -> Result<FdLink> {
    match program {
        Program::FExit(program) => {
            program.load(place, btf)?;
            let link = program.attach()?;
            Ok(program.take_link(link)?.into())
        }
        Program::BtfTracePoint(program) => {
            program.load(place, btf)?;
            let link = program.attach()?;
            Ok(program.take_link(link)?.into())
        }
        _ => bail!("it is for no such place"),
    }
}
