// SPDX-License-Identifier: GPL-2.0

//! Runs: packets of a flow that join its open batch one after the other, and that the batch's lane builds.
//!
//! Nearly all packets of a fast flow come in runs. A packet's header finds its run, and a run has all that one more packet needs. The
//! flow itself is looked up, and gets what the run has taken, when the run ends: when the poll does, and before anything else is done
//! with the flow. Until then the source's counters lack what the run has taken.
//!
//! A run begins with the second packet of its flow in a row, so flows that take turns in one place only cost a comparison.

use crate::algo::headers::flow_key::{FlowKey, Ipv4Flow};
use crate::algo::limits::RATE_WINDOW_MS;
use crate::algo::tag::Tag;

/// Runs that are open at once, each in the place that its flow's ports give it.
pub const RUN_PLACES: usize = 16;

/// The packets of one run. They are of IPv4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) flow: Ipv4Flow,
    pub(super) key: FlowKey,
    pub(super) tag: Tag,
    pub(super) lane: u8,
    /// Start of the window in which the flow's packets are counted.
    pub(super) window_start_ms: u32,
    /// Packets that the lane can still build of the open batch, at the start of the run and now.
    pub(super) room_pkts: u32,
    pub(super) left_pkts: u32,
}

impl Run {
    /// A run that takes no packet. Memory of zeros is one.
    const NONE: Self = Self {
        flow: Ipv4Flow::NONE,
        key: FlowKey::NONE,
        tag: Tag::NONE,
        lane: 0,
        window_start_ms: 0,
        room_pkts: 0,
        left_pkts: 0,
    };

    /// Returns the packets that the run has taken.
    #[inline]
    pub(super) fn taken_pkts(&self) -> u32 {
        self.room_pkts - self.left_pkts
    }

    /// Returns whether a packet of `flow` that comes now belongs to the run. The first
    /// packet behind the window does not: it has to be built, and ends the window.
    #[inline]
    pub(super) fn takes(&self, flow: Ipv4Flow, now_ms: u32) -> bool {
        self.flow == flow
            && self.left_pkts != 0
            && now_ms.wrapping_sub(self.window_start_ms) < RATE_WINDOW_MS
    }
}

/// The place of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunPlace(usize);

/// The runs of a source. Memory of zeros has none.
#[derive(Debug)]
pub(super) struct Runs {
    places: [Run; RUN_PLACES],
    // Bit `n`: the run in place `n` is open. A run that is not open has no room, and its flow is the last one of the place.
    open: u16,
}

impl Runs {
    /// Returns a set without runs.
    pub(super) const fn new() -> Self {
        Self {
            places: [Run::NONE; RUN_PLACES],
            open: 0,
        }
    }

    /// Returns whether no run is open.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.open == 0
    }

    /// Returns the run to which a packet of `flow` that comes now belongs, if it belongs to any.
    #[inline(always)]
    pub(super) fn of(&self, flow: Ipv4Flow, now_ms: u32) -> Option<RunPlace> {
        let place = place_of(flow);
        // PANIC: a place is below the length.
        self.places[place]
            .takes(flow, now_ms)
            .then_some(RunPlace(place))
    }

    /// Returns the run in a place.
    #[inline(always)]
    pub(super) fn at(&mut self, place: RunPlace) -> &mut Run {
        // PANIC: the remainder is below the length.
        &mut self.places[place.0 % RUN_PLACES]
    }

    /// Returns the packets that open runs have taken.
    pub(super) fn taken_pkts(&self) -> u32 {
        let mut pkts = 0;
        if !self.are_none() {
            for run in &self.places {
                pkts += run.taken_pkts();
            }
        }
        pkts
    }

    /// Returns whether the packet before in the place of `flow` was one of it, too, and remembers the flow. The run that had the place
    /// has ended ([`end_in_place_of`](Self::end_in_place_of)).
    pub(super) fn is_in_a_row(&mut self, flow: Ipv4Flow) -> bool {
        let last = &mut self.at(RunPlace(place_of(flow))).flow;
        core::mem::replace(last, flow) == flow
    }

    /// Begins a run. The run that had the place has ended, as before.
    pub(super) fn begin(&mut self, run: Run) {
        let place = place_of(run.flow);
        // PANIC: a place is below the length.
        self.places[place] = run;
        self.open |= 1 << place;
    }

    /// Ends the run of a key, and returns it. There is one at most.
    #[inline]
    pub(super) fn end_of(&mut self, key: FlowKey) -> Option<Run> {
        self.end_first(|_, run| run.key == key)
    }

    /// Ends the run that has the place of `flow`, and returns it.
    pub(super) fn end_in_place_of(&mut self, flow: Ipv4Flow) -> Option<Run> {
        let wanted = place_of(flow);
        self.end_first(|place, _| place == wanted)
    }

    /// Ends one of all runs, and returns it.
    #[inline]
    pub(super) fn end_any(&mut self) -> Option<Run> {
        self.end_first(|_, _| true)
    }

    #[inline]
    fn end_first(&mut self, ends: impl Fn(usize, &Run) -> bool) -> Option<Run> {
        let mut left = self.open;
        while left != 0 {
            let place = left.trailing_zeros() as usize;
            left &= left - 1;
            // PANIC: the remainder is below the length.
            let run = &mut self.places[place % RUN_PLACES];
            if ends(place, run) {
                self.open &= !(1 << place);
                let ended = *run;
                (run.room_pkts, run.left_pkts) = (0, 0);
                return Some(ended);
            }
        }
        None
    }
}

/// Returns the place of a flow's run.
#[inline]
fn place_of(flow: Ipv4Flow) -> usize {
    flow.place(RUN_PLACES)
}
