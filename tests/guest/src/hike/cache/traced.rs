// SPDX-License-Identifier: GPL-2.0

//! The cache where the kernel itself tells of changes: a daemon has set that up, and is not needed any more.
//!
//! The case fails if the programs do not stay, if they are not there or not for all changes, or if packets trust them while the kernel does
//! not run them.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Engine, Generation};

use super::ways::{by, configuration, is_used, router, Seen, Ways, ENOUGH, ROUTER, TO_V6};
use crate::hike::instance;
use crate::hike::manager::daemon::Place;
use crate::machine::command::wait_until;
use crate::network::topology;

/// The time for which the cache may not be used: shorter than an entry is good.
const QUIET: Duration = Duration::from_millis(500);
const KNOB: &str = "kernel/ftrace_enabled";

pub(super) fn run() -> Result<()> {
    let ways = Ways::up()?;
    ways.leads_to(1)?;
    ways.leads_to(0)?;
    let place = Place::new(ROUTER);
    ways.under_traffic(TO_V6.into(), |seen| {
        let daemon = place.start()?;
        daemon.apply(&configuration())?;
        let last = place.generations()?.into_iter().max();
        let last = last.context("there is no generation")?;
        let generation = Generation::open(place.pins.join(last.to_string()))?;
        ensure!(generation.is_traced(), "the kernel is not traced");
        let hits = || -> Result<u64> { Ok(generation.cache_counts()?.hits) };
        is_used("hiked runs", &hits)?;
        daemon.kill()?;
        takes_changes("hiked was killed", seen, &hits)?;
        let _daemon = place.start()?;
        takes_changes("there is another hiked", seen, &hits)?;
        not_run(&hits)?;
        takes_changes("the kernel runs programs again", seen, &hits)
    })
}

/// Changes the kernel's route while the cache is used.
fn takes_changes(when: &str, seen: &Seen, hits: &dyn Fn() -> Result<u64>) -> Result<()> {
    let to = IpAddr::V6(TO_V6);
    for way in [1, 0] {
        let lead = || router(&format!("route replace {to} {}", by(way, to)));
        seen.changes(when, Duration::ZERO, hits, lead, |one| one.way == way)?;
    }
    Ok(())
}

/// Lets the kernel run nothing behind its functions: a daemon finds that out, and a new instance is told by netlink.
fn not_run(hits: &dyn Fn() -> Result<u64>) -> Result<()> {
    let _runs_again = RunsAgain;
    topology::sysctl(KNOB, "0")?;
    wait_until("the cache is not used while programs do not run", || {
        let before = hits()?;
        thread::sleep(QUIET);
        // CAST: ten, which were on their way.
        Ok(hits()? < before + ENOUGH as u64 / 2)
    })?;
    let hike = instance(Engine::Compiled)?;
    let why = hike.why_untraced().unwrap_or_default();
    ensure!(
        !hike.is_traced() && why.contains("kernel.ftrace_enabled"),
        "a new instance trusts programs that do not run: {why}"
    );
    Ok(())
}

/// Lets the kernel run them again at the end of the scope.
struct RunsAgain;

impl Drop for RunsAgain {
    fn drop(&mut self) {
        // If it cannot, the case fails later.
        let _runs = topology::sysctl(KNOB, "1");
    }
}
