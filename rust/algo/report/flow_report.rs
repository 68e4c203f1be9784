// SPDX-License-Identifier: GPL-2.0

//! The reports on flows for the file `flows`. The dispatcher reports a flow where it decides; a reader finds the report on the
//! source's board.
//!
//! The flow table belongs to its source's context alone, and changes with each packet. So the facts that people ask for are
//! written a second time, beside the table, where a window ends or a flow's state changes: about ten times a second for each fast
//! flow, and not at all for the others. A board has a place for each place of the table, so no report needs room.
//!
//! | | |
//! |---|---|
//! | writer | the source's context, one at a time |
//! | readers | any number, in process context |
//! | order | each place is of one moment (`seqlock.rs`); two places may be of different ones |
//! | a source that is idle | its last reports stay, with their time: the reader sees how old they are |
//!
//! A report with which a flow begins to be split, or no longer is, goes into a log, too ([`FlowBoard::take_change`]): a reader who looks
//! now and then would miss some.

use super::change_log::ChangeLog;
use super::reason::Reason;
use super::seqlock::SeqLock;
use crate::algo::headers::flow_name::{FlowName, NAME_WORDS};
use crate::algo::headers::hint::Hint;
use crate::algo::limits::FLOW_PLACES;
use core::fmt;

/// A flow whose last window ended this long ago has no packets any more.
const SILENT_MS: u32 = 1_000;

/// The state of a flow as readers see it: the states in the picture of `flow/state.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// On the ordinary path.
    Whole,
    /// The same, with a slot: a probe is under way.
    Probing,
    /// Its packets go into batches.
    Split,
    /// Its packets are carried by the core that dispatches, until all that was split has been delivered.
    Stopping,
    /// On the ordinary path again; its slot is not free yet.
    Draining,
}

impl Standing {
    const ALL: [Self; 5] = [
        Self::Whole,
        Self::Probing,
        Self::Split,
        Self::Stopping,
        Self::Draining,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Probing => "probing",
            Self::Split => "split",
            Self::Stopping => "stopping",
            Self::Draining => "draining",
        }
    }
}

/// The packet rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Packets on the wire per second in the last window; nothing if none has ended since the flow was new.
    pub pps: Option<u32>,
    /// The time at which that window ended, or at which the flow was found to be fast.
    pub at_ms: u32,
}

/// The work of the cores for a split flow in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// The packets of all batches that were opened, on all cores.
    pub all_pkts: u32,
    /// The packets of the core with the most of them.
    pub busiest_pkts: u32,
    /// Packets that came after their batch's turn.
    pub late_pkts: u32,
    /// Batches that were given up.
    pub given_up_batches: u32,
}

impl Work {
    /// Returns the gain in hundredths: the packets of all cores, divided by those of the busiest core. Returns `None` if no batch
    /// was opened.
    pub fn gain_pct(&self) -> Option<u64> {
        (u64::from(self.all_pkts) * 100).checked_div(u64::from(self.busiest_pkts))
    }
}

/// The news of a flow. A field that is `None` leaves the older value as it was.
#[derive(Clone, Copy, Debug)]
pub struct FlowNews {
    /// The flow's name, if another flow had its place before.
    pub name: Option<FlowName>,
    /// The rate in a window that has just ended.
    pub rate: Option<Rate>,
    /// The work of the cores in a period that has just ended.
    pub work: Option<Work>,
    /// The flow's present state.
    pub now: FlowNow,
}

/// The present state of a flow and of its batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowNow {
    /// Its state.
    pub standing: Standing,
    /// The reason why it is not split; of no meaning if it is.
    pub reason: Reason,
    /// The hint of an XDP program for the flow.
    pub hint: Hint,
    /// Its slot; of no meaning if it is whole.
    pub slot: u8,
    /// The time until which it is not to be split.
    pub held_until_ms: Option<u32>,
    /// The CPU that dispatched its last packet.
    pub cpu: u32,
    /// The lanes that get its batches now (bit mask); none unless it is split.
    pub lanes: u16,
    /// The number of packets in a batch.
    pub batch_pkts: u16,
}

/// All that is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// The flow's name.
    pub name: FlowName,
    /// The rate in the last window that was reported.
    pub rate: Rate,
    /// The work of the cores in the last period, if the flow is split.
    pub work: Work,
    /// The flow's last reported state.
    pub now: FlowNow,
}

/// Words of a report: its name, one for the rate, two for the work, and two for where the flow stands.
const WORDS: usize = NAME_WORDS + 5;

/// The mark of an unknown rate: no rate is as high.
const NO_PPS: u32 = u32::MAX;

/// Set in the first word of [`FlowNow`] where there has been a flow.
const IS_USED: u64 = 1 << 63;
const IS_HELD: u64 = 1 << 62;
/// The place of the hint, two bits wide, in that word.
const HINT_SHIFT: u32 = 56;
const HINT_MASK: u8 = 3;

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> [u32; 2] {
    // CAST: the two halves.
    [word as u32, (word >> 32) as u32]
}

impl FlowNow {
    fn words(&self) -> [u64; 2] {
        let held = if self.held_until_ms.is_some() {
            IS_HELD
        } else {
            0
        };
        let first = u64::from(self.cpu)
            | u64::from(self.slot) << 32
            | u64::from(self.reason as u8) << 40
            | u64::from(self.standing as u8) << 48
            | u64::from(self.hint as u8) << HINT_SHIFT
            | held
            | IS_USED;
        let second = u64::from(self.held_until_ms.unwrap_or(0))
            | u64::from(self.lanes) << 32
            | u64::from(self.batch_pkts) << 48;
        [first, second]
    }

    fn of_words([first, second]: [u64; 2]) -> Option<Self> {
        // CAST: fields of the words.
        let byte = |at: u32| (first >> at) as u8;
        let [cpu, _] = halves(first);
        let [held_until_ms, _] = halves(second);
        (first & IS_USED != 0).then_some(Self {
            standing: *Standing::ALL.get(usize::from(byte(48)))?,
            reason: Reason::of_number(byte(40)),
            hint: Hint::of_number(byte(HINT_SHIFT) & HINT_MASK),
            slot: byte(32),
            held_until_ms: (first & IS_HELD != 0).then_some(held_until_ms),
            cpu,
            lanes: (second >> 32) as u16,
            batch_pkts: (second >> 48) as u16,
        })
    }
}

/// The reports of one source's flows. Memory of zeros is an empty board.
pub struct FlowBoard {
    places: [SeqLock<WORDS>; FLOW_PLACES],
    changes: ChangeLog<WORDS>,
}

/// The fate of a report's copy in the log of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It is not needed: the flow is split as before, or whole as before.
    Not,
    /// It waits in the log.
    Kept,
    /// The log is full.
    Lost,
}

/// A flow that began to be split with this report, or no longer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowChange {
    /// The report. Its state and its reason are those of that moment.
    pub report: FlowReport,
    /// The number of changes of this source's flows that found no room in the log just before.
    pub lost: u32,
}

impl FlowChange {
    /// Returns whether the flow began to be split.
    pub fn is_begin(&self) -> bool {
        self.report.now.standing == Standing::Split
    }
}

/// Returns whether these words are of a flow that is split.
fn is_split(words: &[u64; WORDS]) -> bool {
    let [.., now, more_now] = *words;
    let now = FlowNow::of_words([now, more_now]);
    now.is_some_and(|now| now.standing == Standing::Split)
}

/// The result of reading one place of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No flow has been reported there.
    Nothing,
    /// It was changing whenever it was looked at.
    Changing,
    /// A flow.
    Flow(FlowReport),
}

impl FlowBoard {
    /// Returns an empty board.
    pub fn new() -> Self {
        Self {
            places: core::array::from_fn(|_| SeqLock::new()),
            changes: ChangeLog::new(),
        }
    }

    /// Reports on the flow in `place` of the table. In the source's context.
    pub fn report(&self, place: u8, news: &FlowNews) -> Noted {
        let Some(published) = self.places.get(usize::from(place)) else {
            return Noted::Not;
        };
        let mut change = None;
        published.update(|words| {
            let was_split = is_split(words);
            let [name @ .., rate, work, more_work, now, more_now] = words;
            if let Some(new) = &news.name {
                *name = new.words();
                *rate = pair(NO_PPS, 0);
                (*work, *more_work) = (0, 0);
            }
            if let Some(new) = &news.rate {
                *rate = pair(new.pps.unwrap_or(NO_PPS), new.at_ms);
            }
            if let Some(new) = &news.work {
                *work = pair(new.all_pkts, new.busiest_pkts);
                *more_work = pair(new.late_pkts, new.given_up_batches);
            }
            [*now, *more_now] = news.now.words();
            change = (is_split(words) != was_split).then_some(*words);
        });
        match change {
            None => Noted::Not,
            Some(words) if self.changes.push(&words) => Noted::Kept,
            Some(_) => Noted::Lost,
        }
    }

    /// Returns the report on the flow in `place` of the table, if there is one. In the source's context.
    pub fn at(&self, place: u8) -> Option<FlowReport> {
        let published = self.places.get(usize::from(place))?;
        FlowReport::of_words(published.read()?)
    }

    /// Takes the oldest change out of the log. One reader at a time.
    pub fn take_change(&self) -> Option<FlowChange> {
        let logged = self.changes.take()?;
        Some(FlowChange {
            report: FlowReport::of_words(logged.words)?,
            lost: logged.lost,
        })
    }

    /// Returns the result of reading each place.
    pub fn read(&self) -> impl Iterator<Item = Found> + '_ {
        self.places.iter().map(|place| match place.read() {
            None => Found::Changing,
            Some(words) => FlowReport::of_words(words).map_or(Found::Nothing, Found::Flow),
        })
    }
}

impl Default for FlowBoard {
    fn default() -> Self {
        Self::new()
    }
}

impl FlowReport {
    fn of_words(words: [u64; WORDS]) -> Option<Self> {
        let [name @ .., rate, work, more_work, now, more_now] = words;
        let [pps, at_ms] = halves(rate);
        let [all_pkts, busiest_pkts] = halves(work);
        let [late_pkts, given_up_batches] = halves(more_work);
        Some(Self {
            now: FlowNow::of_words([now, more_now])?,
            name: FlowName::of_words(name),
            rate: Rate {
                pps: (pps != NO_PPS).then_some(pps),
                at_ms,
            },
            work: Work {
                all_pkts,
                busiest_pkts,
                late_pkts,
                given_up_batches,
            },
        })
    }

    /// Returns whether it has a slot.
    pub fn has_slot(&self) -> bool {
        self.now.standing != Standing::Whole
    }

    /// Returns whether `flows` lists it: whole flows only while they are fast.
    pub fn is_listed(&self, now_ms: u32) -> bool {
        self.has_slot() || !self.is_silent(now_ms)
    }

    /// Returns whether it has had no packets for long.
    pub fn is_silent(&self, now_ms: u32) -> bool {
        let age_ms = now_ms.wrapping_sub(self.rate.at_ms);
        // What was reported after the reader has looked at the clock is in its future: the age has wrapped.
        (SILENT_MS..u32::MAX - SILENT_MS).contains(&age_ms)
    }
}

/// A flow's line in `flows`.
pub struct FlowLine<'a, L> {
    /// The report on the flow.
    pub report: &'a FlowReport,
    /// The device that it comes through.
    pub device: &'a str,
    /// The CPUs of the lanes that it has.
    pub lane_cpus: L,
    /// The number of its packets that wait at the merge point.
    pub parked_pkts: u32,
    /// The reader's time.
    pub now_ms: u32,
}

/// Writes a value, or that there is none.
struct OrDash<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrDash<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// Writes hundredths.
struct Hundredths(u64);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl<L: fmt::Display> fmt::Display for FlowLine<'_, L> {
    /// Writes keys and values, with a space between any two; a dash for what is unknown; and words for people behind `#`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FlowReport {
            name,
            rate,
            work,
            now,
        } = self.report;
        let pps = match self.report.is_silent(self.now_ms) {
            true => Some(0),
            false => rate.pps,
        };
        write!(
            f,
            "device {} {name} cpu {} pps {} state {}",
            self.device,
            now.cpu,
            OrDash(pps),
            now.standing.name(),
        )?;
        if let Some(hint) = now.hint.name() {
            write!(f, " hint {hint}")?;
        }
        if self.report.has_slot() {
            write!(f, " slot {}", now.slot)?;
        }
        if now.standing == Standing::Split {
            return write!(
                f,
                " lanes {} batch_pkts {} gain {} parked_pkts {} late_pkts {} given_up_batches {}",
                self.lane_cpus,
                now.batch_pkts,
                OrDash(work.gain_pct().map(Hundredths)),
                self.parked_pkts,
                work.late_pkts,
                work.given_up_batches,
            );
        }
        write!(f, " reason {}", now.reason.name())?;
        if let Some(until_ms) = now.held_until_ms {
            // CAST: the sign of the difference says which comes first.
            let left_ms = (until_ms.wrapping_sub(self.now_ms) as i32).max(0);
            write!(f, " again_in_ms {left_ms}")?;
        }
        write!(f, " # {}", now.reason.words())
    }
}
