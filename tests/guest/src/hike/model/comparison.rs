// SPDX-License-Identifier: GPL-2.0

//! Frames one by one through the loaded programs of both engines and through the model: the same fate, the same bytes, the same
//! counters.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::ops::Range;

use anyhow::{bail, ensure, Result};
use mflow_hike::limits::TOLD_AT_ONCE;
use mflow_hike::{Cache, Direction, Engine, Flow, Hike, Hook};
use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use super::frames;
use super::packet::Leaving;
use super::programs::Model;
use crate::hike::model::test_runs::{action_of, draw_leaving, is_sent, rest, TestRuns};
use crate::hike::TEST_RUN_MAC;

/// Frames between two looks at all counters, which take as long as some hundred frames: a power of ten.
const GROUP: u64 = 10_000;

/// Frames of a flow in a row, at most.
const MOST_OF_A_FLOW: u32 = 4;

/// Flows after which the programs rest: with all frames of these, fewer than the sources that a CPU may tell at once.
// CAST: it is 50.
const TOLD: u64 = TOLD_AT_ONCE as u64 / 2 / MOST_OF_A_FLOW as u64;

/// The programs and the model, which are configured alike.
pub(crate) struct Comparison {
    pub(crate) hook: Hook,
    pub(crate) seed: u64,
    pub(crate) engines: Vec<((Engine, Cache), Hike)>,
    pub(crate) model: Model,
    /// The destinations of frames.
    pub(crate) destinations: Vec<IpAddr>,
    /// The flows that are monitored, and their directions.
    pub(crate) flows: Vec<(Flow, Direction)>,
    pub(crate) test_runs: TestRuns,
}

struct Drawn {
    number: u64,
    frame: Vec<u8>,
    leaving: Option<Leaving>,
}

impl Drawn {
    /// Draws the Ethernet address that it is for.
    fn address(&mut self, rng: &mut Xoshiro256PlusPlus) {
        let own = self.leaving.map_or(TEST_RUN_MAC, Leaving::mac);
        self.frame[..own.len()].copy_from_slice(&frames::draw_mac(rng, own));
    }
}

impl Display for Drawn {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        let (number, leaving) = (self.number, self.leaving);
        write!(to, "frame {number}, {leaving:?}:\n{}", hex(&self.frame))
    }
}

/// Names of counters, and by how much the programs have counted more than the model.
type Excess = Vec<(String, i64)>;

impl Comparison {
    /// Draws this many frames, and holds them against the model.
    pub(crate) fn run(&mut self, rng: &mut Xoshiro256PlusPlus, frames: u64) -> Result<()> {
        let excess = self.excess()?;
        ensure!(
            excess.iter().all(|(_, pkts)| *pkts == 0),
            "packets are counted before there are any: {excess:?}"
        );
        self.run_in_groups(rng, 0..frames, GROUP, excess)
    }

    /// Looks at the counters after each group. Where one has gone wrong, the same frames come again in smaller groups, down to the
    /// one that is counted wrong.
    fn run_in_groups(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
        numbers: Range<u64>,
        group: u64,
        mut excess: Excess,
    ) -> Result<()> {
        let seed = self.seed;
        // CAST: some thousand.
        for first in numbers.clone().step_by(group as usize) {
            let numbers = first..numbers.end.min(first + group);
            let mut again = rng.clone();
            for number in numbers.clone() {
                let mut drawn = self.draw(rng, number);
                self.hold_against_model(&drawn)?;
                // More of the same flow: what was learned of it must be true of them.
                for _ in 0..rng.random_range(0..MOST_OF_A_FLOW) {
                    drawn.frame = frames::another(rng, &drawn.frame);
                    drawn.address(rng);
                    self.hold_against_model(&drawn)?;
                }
            }
            let before = std::mem::replace(&mut excess, self.excess()?);
            if excess == before {
                continue;
            }
            if group == 1 {
                let (drawn, changed) = (self.draw(&mut again, first), changed(&before, &excess));
                bail!(
                    "seed {seed}, {drawn}\nthe programs count otherwise than the model:{changed}"
                );
            }
            self.run_in_groups(&mut again, numbers.clone(), group / 10, excess)?;
            bail!("seed {seed}, frames {numbers:?}: one was counted wrong, but not when it came again");
        }
        Ok(())
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus, number: u64) -> Drawn {
        let frame = frames::draw(rng, &self.destinations);
        let leaving = (self.hook == Hook::Tcx).then(|| draw_leaving(rng));
        let mut drawn = Drawn {
            number,
            frame,
            leaving,
        };
        drawn.address(rng);
        drawn
    }

    fn hold_against_model(&mut self, drawn: &Drawn) -> Result<()> {
        let (frame, leaving) = (&drawn.frame, drawn.leaving);
        if leaving.is_some() && !is_sent(frame) {
            return Ok(());
        }
        let done = self.model.run(frame, leaving);
        let expected = action_of(self.hook, &done)?;
        for (engine, hike) in &mut self.engines {
            if self.hook == Hook::Xdp && drawn.number.is_multiple_of(TOLD) {
                rest(hike)?;
            }
            let (action, bytes) = self.test_runs.run(hike, frame, leaving)?;
            let frame = done.frame_at_time_of(bytes);
            ensure!(
                action == expected && bytes == &frame[..],
                "seed {}, {drawn}\nthe model says {}:\n{}\nthe programs ({engine:?}) say {action}:\n{}",
                self.seed,
                done.reason,
                hex(&frame),
                hex(bytes)
            );
        }
        Ok(())
    }

    fn excess(&self) -> Result<Excess> {
        let mut all = Vec::new();
        for (engine, hike) in &self.engines {
            let mut compare = |name: String, counted: u64, expected: Option<&u64>| {
                let expected = expected.copied().unwrap_or(0);
                // CAST: what is less than the model says is negative.
                all.push((name, counted.wrapping_sub(expected) as i64));
            };
            for (reason, pkts) in hike.reasons()? {
                let name = format!("{engine:?}, reason {}", reason.name);
                compare(name, pkts, self.model.reasons.get(reason.name));
            }
            for ((rule, hits), (_, expected)) in hike.rules()?.into_iter().zip(&self.model.rules) {
                compare(format!("{engine:?}, {rule:?}"), hits, Some(expected));
            }
            for (flow, direction) in &self.flows {
                let mut by_colour = BTreeMap::new();
                for (block, pkts) in hike.counts(flow, *direction)?.blocks() {
                    *by_colour.entry(block % 2 == 1).or_insert(0) += pkts;
                }
                for colour in [false, true] {
                    let sids = flow.sids().iter().rev().copied().collect();
                    let shown = (flow.id(), flow.source(), sids);
                    let key = (*direction, shown, colour);
                    let name = format!("{engine:?}, {flow:?}, {direction:?}, colour {colour}");
                    let pkts = by_colour.get(&colour).copied().unwrap_or(0);
                    compare(name, pkts, self.model.counted.get(&key));
                }
            }
        }
        Ok(all)
    }
}

/// Says which counters differ from the model by more, or less, than before.
fn changed(before: &Excess, now: &Excess) -> String {
    let both = now.iter().zip(before);
    let changed = both.filter(|(now, before)| now != before);
    changed
        .map(|((name, now), (_, before))| format!("\n{name}: {:+}", now - before))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
