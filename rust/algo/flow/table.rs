// SPDX-License-Identifier: GPL-2.0

//! The flows that one source has seen lately: how fast each is, and where it stands.
//!
//! The table is small and set-associative: fast flows keep their places, and slow ones displace each other. The window that is
//! being counted shows how fast a flow is. So a flood of new flows takes the places of silent flows first, then those of the
//! slowest.

use super::state::FlowState;
use crate::algo::headers::flow_key::FlowKey;
use crate::algo::headers::hint::Hint;
use crate::algo::limits::{FLOW_PLACES, RATE_WINDOW_MS};
use crate::algo::report::reason::Reason;
use core::cmp::Reverse;
use core::mem::size_of;

const WAYS: usize = 4;
const SETS: usize = FLOW_PLACES / WAYS;

const _: () = assert!(SETS.is_power_of_two() && FLOW_PLACES <= u8::MAX as usize + 1);

/// A window that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) pkts: u32,
    pub(super) ms: u32,
}

/// One flow. Times are in milliseconds and wrap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// The key, or 0 for an empty place.
    key: u64,
    /// Start of the window in which `pkts` are counted.
    window_start_ms: u32,
    pub(super) pkts: u32,
    /// The number of packets in a row that suited neither as a probe nor as a fence.
    pub(super) unsuited_pkts: u16,
    /// The time before which the flow is not split, if `held` is set.
    hold_until_ms: u32,
    held: bool,
    /// The number of times in a row that its path did not suit.
    pub(super) path_faults: u8,
    /// The reason why it is not split, or was not the last time.
    pub(super) reason: Reason,
    /// The hint of a packet of this window or the one before.
    pub(super) hint: Hint,
    /// The flow's own place in the table.
    pub(super) place: u8,
    /// True if it is the flow that was reported in this place last.
    pub(super) is_reported: bool,
    pub(super) state: FlowState,
}

// A source's table has 256 of them, and each packet reads one.
const _: () = assert!(size_of::<Flow>() == 72);

fn reached(now: u32, then: u32) -> bool {
    // CAST: the sign of the difference says which comes first.
    now.wrapping_sub(then) as i32 >= 0
}

impl Flow {
    /// Counts what was `arrived` packets on the wire. Returns the window that has just ended, if one has.
    #[inline]
    pub(super) fn count(&mut self, now_ms: u32, arrived: u32) -> Option<Window> {
        let ended = if self.has_window_ended(now_ms) {
            let window = Window {
                pkts: self.pkts,
                ms: now_ms.wrapping_sub(self.window_start_ms),
            };
            self.window_start_ms = now_ms;
            self.pkts = 0;
            Some(window)
        } else {
            None
        };
        self.pkts = self.pkts.saturating_add(arrived);
        ended
    }

    /// Begins another window with what was `arrived` packets on the wire.
    pub(super) fn count_again(&mut self, now_ms: u32, arrived: u32) {
        (self.window_start_ms, self.pkts) = (now_ms, arrived);
    }

    pub(super) fn window_start_ms(&self) -> u32 {
        self.window_start_ms
    }

    /// Returns whether the next packet that is counted ends the window.
    #[inline]
    pub(super) fn has_window_ended(&self, now_ms: u32) -> bool {
        now_ms.wrapping_sub(self.window_start_ms) >= RATE_WINDOW_MS
    }

    /// Returns whether the flow is to be split after a window with this many packets.
    #[inline]
    pub(super) fn is_fast(&self, pkts: u32, min_window_pkts: u32) -> bool {
        pkts >= min_window_pkts || self.hint == Hint::Split
    }

    /// Returns whether no packet has come for `ms` at least.
    pub(super) fn is_idle(&self, now_ms: u32, ms: u32) -> bool {
        now_ms.wrapping_sub(self.window_start_ms) >= ms.saturating_add(RATE_WINDOW_MS)
    }

    /// Keeps the flow on the ordinary path for `ms`.
    pub(super) fn hold(&mut self, now_ms: u32, ms: u32) {
        self.held = true;
        self.hold_until_ms = now_ms.wrapping_add(ms);
    }

    /// Returns the time until which the flow is kept on the ordinary path, if it is.
    pub(super) fn held_until_ms(&self) -> Option<u32> {
        self.held.then_some(self.hold_until_ms)
    }

    /// Returns whether the flow has to stay on the ordinary path for now.
    pub(super) fn is_held(&mut self, now_ms: u32) -> bool {
        if self.held && reached(now_ms, self.hold_until_ms) {
            self.held = false;
        }
        self.held
    }
}

/// The flows of one source. Memory of zeros is an empty table.
#[derive(Debug)]
pub struct FlowTable {
    sets: [[Flow; WAYS]; SETS],
}

impl FlowTable {
    /// Returns an empty table.
    pub fn new() -> Self {
        Self {
            sets: [[Flow::default(); WAYS]; SETS],
        }
    }

    /// Returns the flow's place, if it has one.
    #[inline]
    pub(super) fn get(&mut self, key: FlowKey) -> Option<&mut Flow> {
        let key = key.get();
        // CAST: only the low bits are used. PANIC: the remainder is below the length.
        self.sets[key as usize % SETS]
            .iter_mut()
            .find(|flow| flow.key == key)
    }

    /// Returns the flow's place, and gives it one if it has none. Returns `None` if all places that it could have are those of
    /// flows with a slot.
    #[inline]
    pub fn find(&mut self, key: FlowKey, now_ms: u32) -> Option<&mut Flow> {
        let key = key.get();
        // CAST: only the low bits are used. PANIC: the remainder is below the length.
        let set = &mut self.sets[key as usize % SETS];
        // Two passes, as a borrow from a loop cannot be returned early.
        let way = match set.iter().position(|flow| flow.key == key) {
            Some(way) => way,
            None => Self::make_room(set, key, now_ms)?,
        };
        set.get_mut(way)
    }

    #[cold]
    fn make_room(set: &mut [Flow; WAYS], key: u64, now_ms: u32) -> Option<usize> {
        let (way, place) = set
            .iter_mut()
            .enumerate()
            .filter(|(_, flow)| matches!(flow.state, FlowState::Counting))
            .max_by_key(|(_, flow)| {
                let age_ms = now_ms.wrapping_sub(flow.window_start_ms);
                let silent_ms = if age_ms >= RATE_WINDOW_MS { age_ms } else { 0 };
                (flow.key == 0, silent_ms, Reverse(flow.pkts))
            })?;
        *place = Flow {
            key,
            window_start_ms: now_ms,
            // CAST: below FLOW_PLACES; of the key, only the low bits are used.
            place: (key as usize % SETS * WAYS + way) as u8,
            ..Flow::default()
        };
        Some(way)
    }

    pub(super) fn with_slot(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.sets
            .iter_mut()
            .flatten()
            .filter(|flow| !matches!(flow.state, FlowState::Counting))
    }
}

impl Default for FlowTable {
    fn default() -> Self {
        Self::new()
    }
}
