// SPDX-License-Identifier: GPL-2.0

//! A run of `mflow trace`, and the events that it has told of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

use anyhow::{ensure, Context as _, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use super::ALL;
use crate::cases::operation::command::DONE;
use crate::machine::command;
use crate::machine::init::TRACEFS;
use crate::mflow::Stats;

/// The files that a trace prints into.
const PRINTED: &str = "/run/trace.json";
const SAID: &str = "/run/trace.err";

/// Returns what the last trace has said on standard error.
pub(super) fn said() -> Result<String> {
    Ok(fs::read_to_string(SAID)?)
}

/// A trace under way. It is killed if it is there at the end.
pub(super) struct Trace {
    pub(super) child: Child,
    pub(super) instance: PathBuf,
}

/// The events that a trace has told of, and the numbers that its last line says.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) events: Vec<Value>,
    pub(super) lost: u64,
}

impl Trace {
    /// Starts `mflow trace` with these words behind it, and waits until it listens.
    pub(super) fn start(words: &str) -> Result<Self> {
        let child = Command::new("mflow")
            .args(["--json", "trace"])
            .args(words.split_whitespace())
            .stdout(File::create(PRINTED)?)
            .stderr(File::create(SAID)?)
            .spawn()
            .context("cannot run mflow")?;
        let instance = Path::new(TRACEFS).join(format!("instances/mflow-{}", child.id()));
        let mut trace = Self { child, instance };
        // It enables them in this order.
        let listened = ALL.split(',').rfind(|name| words.contains(name));
        let last = listened.unwrap_or("late");
        let enabled = trace.instance.join(format!("events/mflow/{last}/enable"));
        command::wait_until("mflow trace listens", || {
            let ended = trace.child.try_wait()?;
            ensure!(
                ended.is_none(),
                "mflow trace has ended: {}",
                fs::read_to_string(SAID)?
            );
            Ok(fs::read_to_string(&enabled).is_ok_and(|text| text.starts_with('1')))
        })?;
        Ok(trace)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        // CAST: the number of a process.
        Ok(kill(Pid::from_raw(self.child.id() as i32), signal)?)
    }

    /// Waits until it ends by itself, and checks that its instance has gone.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        command::wait_until("mflow trace ends", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        ensure!(
            !self.instance.exists(),
            "{} is left behind",
            self.instance.display()
        );
        status.context("it has ended")
    }

    /// Ends it with a signal, and returns what it has told of.
    pub(super) fn end(mut self, signal: Signal) -> Result<Traced> {
        self.signal(signal)?;
        let status = self.wait()?;
        let said = fs::read_to_string(SAID)?;
        ensure!(
            status.code() == Some(DONE) && said.is_empty(),
            "mflow trace has ended with {status} and said: {said}"
        );
        Traced::read()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _already_ended = self.child.wait();
    }
}

impl Traced {
    fn read() -> Result<Self> {
        let text = fs::read_to_string(PRINTED)?;
        let lines = text.lines().map(serde_json::from_str);
        let mut events: Vec<Value> = lines.collect::<Result<_, _>>().context("JSON")?;
        let end = events.pop().context("nothing was printed")?;
        ensure!(end["event"] == "end", "the last line is {end}");
        let number = |key: &str| {
            end[key]
                .as_u64()
                .with_context(|| format!("no {key}: {end}"))
        };
        let (told, lost) = (number("events")?, number("lost")?);
        let is_told = |event: &&Value| event["event"] != "lost";
        // CAST: it fits into memory.
        let found = events.iter().filter(is_told).count() as u64;
        ensure!(
            found == told,
            "{found} events were printed, and the last line says {told}"
        );
        Ok(Self { events, lost })
    }

    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |one| one["event"] == name)
    }

    /// Returns the sum of a number that all events of this name have.
    pub(super) fn sum(&self, name: &str, key: &str) -> u64 {
        self.of(name).filter_map(|one| one[key].as_u64()).sum()
    }

    /// Fails unless there are as many events as the counters say; returns the batches.
    pub(super) fn require_counted(&self, before: &Stats, after: &Stats) -> Result<u64> {
        ensure!(self.lost == 0, "{} events were lost", self.lost);
        let added = |name: &str| -> Result<u64> { Ok(after.get(name)? - before.get(name)?) };
        // CAST: they fit into memory.
        let told = |name: &str| self.of(name).count() as u64;
        let given_up = added("deadline_batches")? + added("overflow_batches")?;
        for (what, told, counted) in [
            ("starts", told("flow_start"), added("flows_split")?),
            ("stops", told("flow_stop"), added("flows_stopped")?),
            ("batches", told("batch"), added("batches")?),
            ("batches given up", told("given_up"), given_up),
            (
                "late packets",
                self.sum("late", "pkts"),
                added("late_pkts")?,
            ),
        ] {
            ensure!(
                told == counted,
                "mflow trace tells of {told} {what}, and the counters of {counted}"
            );
        }
        self.require_merged()?;
        added("batches")
    }

    /// Fails unless each batch is merged after it was opened, and the batches of each slot in the order of their numbers.
    fn require_merged(&self) -> Result<()> {
        let mut open: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut next: BTreeMap<u64, u64> = BTreeMap::new();
        for event in &self.events {
            let number = |key: &str| event[key].as_u64().with_context(|| format!("{event}"));
            if event["event"] == "batch" {
                open.insert((number("slot")?, number("batch")?));
            } else if event["event"] == "merge" {
                let (slot, batch) = (number("slot")?, number("batch")?);
                open.remove(&(slot, batch));
                // Numbers of 32 bits come round.
                let following = (batch + 1) & u64::from(u32::MAX);
                let due = next.insert(slot, following).unwrap_or(batch);
                ensure!(
                    due == batch,
                    "batch {batch} of slot {slot} has its turn, and it is that of {due}"
                );
            }
        }
        ensure!(
            open.is_empty(),
            "no turn of these slots and batches is told: {open:?}"
        );
        Ok(())
    }
}
