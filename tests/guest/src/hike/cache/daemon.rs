// SPDX-License-Identifier: GPL-2.0

//! The daemon where it has to watch, because the kernel is not traced: the cache is used while it runs, and not when it stands still or
//! has been killed.
//!
//! The case fails if packets do not look at the lease, or if it is renewed by one who has not looked whether there is news.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::Generation;
use nix::sys::signal::Signal;

use super::ways::{by, configuration, router, Seen, Ways, ROUTER, TO_V6};
use crate::hike::manager::daemon::Place;
use crate::machine::command::wait_until;

/// Ten leases, and some time in which nothing may be taken from the cache.
const OVER: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_millis(500);
const WATCHES: [&str; 1] = ["--no-tracing"];
/// Packets that show that the cache is used.
const ENOUGH: u64 = 20;

pub(super) fn run() -> Result<()> {
    let ways = Ways::up()?;
    ways.leads_to(1)?;
    ways.leads_to(0)?;
    let place = Place::new(ROUTER);
    let configuration = configuration();
    ways.under_traffic(TO_V6.into(), |seen| {
        let checks = Checks {
            place: &place,
            seen,
        };
        let daemon = place.start_as(&WATCHES, "")?;
        daemon.apply(&configuration)?;
        checks.is_used("hiked runs")?;
        daemon.signal(Signal::SIGSTOP)?;
        checks.is_unused("hiked stands still")?;
        daemon.signal(Signal::SIGCONT)?;
        checks.is_used("hiked goes on")?;
        daemon.kill()?;
        checks.is_unused("hiked was killed")?;
        let daemon = place.start_as(&WATCHES, "")?;
        checks.is_used("there is another hiked")?;
        // The next generation is watched, too.
        daemon.apply(&configuration.replace("way = \"fw-fib\"", "way = \"mon-in,fw-fib\""))?;
        checks.is_used("hiked has applied another configuration")?;
        daemon.apply(&format!("cache = false\n{configuration}"))?;
        checks.is_unused("the cache is off")?;
        daemon.stop()
    })
}

struct Checks<'a> {
    place: &'a Place,
    seen: &'a Seen,
}

impl Checks<'_> {
    /// Returns how many packets the cache was good for.
    fn hits(&self) -> Result<u64> {
        let last = self.place.generations()?.into_iter().max();
        let last = last.context("there is no generation")?;
        let generation = Generation::open(self.place.pins.join(last.to_string()))?;
        ensure!(!generation.is_traced(), "the kernel is traced");
        Ok(generation.cache_counts()?.hits)
    }

    fn is_used(&self, when: &str) -> Result<()> {
        let before = self.hits()?;
        wait_until(&format!("the cache is used: {when}"), || {
            // Another generation begins with 0.
            let hits = self.hits()?;
            Ok(hits >= before + ENOUGH || hits < before)
        })
    }

    /// Holds that no packet is taken from the cache any more, and that all leave as the kernel's routes say.
    fn is_unused(&self, when: &str) -> Result<()> {
        thread::sleep(OVER);
        let before = self.hits()?;
        thread::sleep(QUIET);
        let to = IpAddr::V6(TO_V6);
        for way in [1, 0] {
            let lead = || router(&format!("route replace {to} {}", by(way, to)));
            self.seen
                .changed(when, Duration::ZERO, lead, |one| one.way == way)?;
        }
        let hits = self.hits()?;
        ensure!(
            hits == before,
            "{when}: {} packets were taken from the cache",
            hits - before
        );
        Ok(())
    }
}
