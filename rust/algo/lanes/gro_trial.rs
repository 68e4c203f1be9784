// SPDX-License-Identifier: GPL-2.0

//! Trials that show whether GRO is worth its cost: a lane makes them for each flow.
//!
//! GRO makes TCP cheap, and datagrams that go on in lists ([`carried_batches`](super::carried_batches)). Any other datagram in an
//! overlay passes through GRO twice, with a socket look-up each time, and is joined with none: a fifth of a lane's work is for
//! nothing. So a lane whose GRO has joined nothing goes without it for a while, and then tries again. Batches of one packet show
//! nothing, as there is nothing to join. After a trial of such batches only, the next larger batch is followed by another trial.
//! A trial of a time without lists shows nothing about datagrams once there are lists, so a flow is tried again then.

use crate::algo::limits::MAX_SLOTS;

/// Packets of a trial.
const TRIAL_PKTS: u16 = 64;
/// Packets that go past GRO after a trial in vain: 32 batches of the usual size for one that is tried, and few enough for
/// a flow that has changed its nature.
const PAST_PKTS: u16 = 8_192;

/// The lane's knowledge of GRO for each slot's flow. Zeros are a state in which it knows nothing.
pub struct GroTrial {
    flows: [FlowTrial; MAX_SLOTS],
}

#[derive(Clone, Copy, Default)]
struct FlowTrial {
    // Packets of this trial, or those that have gone past GRO since the last.
    pkts: u16,
    // How many of them had come when the batch began.
    earlier_pkts: u16,
    // Whether a batch of this trial had two packets at least; of the last trial, while packets go past GRO.
    had_two: bool,
    joined: bool,
    past: bool,
    // Datagrams go on in lists.
    has_lists: bool,
}

impl Default for GroTrial {
    fn default() -> Self {
        Self {
            flows: [FlowTrial::default(); MAX_SLOTS],
        }
    }
}

impl GroTrial {
    /// Notes whether the slot's datagrams go on in lists from the batch on that begins now. If they do again, the batch after it is tried.
    #[inline]
    pub fn note_lists(&mut self, slot: usize, has_lists: bool) {
        let flow = self.flow(slot);
        if flow.past && has_lists && !flow.has_lists {
            flow.pkts = PAST_PKTS;
        }
        flow.has_lists = has_lists;
    }

    #[inline]
    fn flow(&mut self, slot: usize) -> &mut FlowTrial {
        // PANIC: the remainder is below the length.
        &mut self.flows[slot % MAX_SLOTS]
    }

    /// Returns whether the slot's next packet goes past GRO.
    ///
    /// The answer is the same until [`end_batch`](Self::end_batch), so that a batch's packets cannot overtake each other.
    #[inline]
    pub fn goes_past(&mut self, slot: usize) -> bool {
        let flow = self.flow(slot);
        if flow.past {
            flow.pkts = flow.pkts.saturating_add(1);
        }
        flow.past
    }

    /// Notes what GRO did with a packet of the slot.
    #[inline]
    pub fn note(&mut self, slot: usize, joined: bool) {
        let flow = self.flow(slot);
        flow.pkts = flow.pkts.saturating_add(1);
        flow.joined |= joined;
    }

    /// Ends a batch of the slot. If a trial ends, too, and has shown anything, returns whether GRO has joined packets in it.
    #[inline]
    pub fn end_batch(&mut self, slot: usize) -> Option<bool> {
        let flow = self.flow(slot);
        let has_two = flow.pkts.saturating_sub(flow.earlier_pkts) >= 2;
        flow.earlier_pkts = flow.pkts;
        if flow.past {
            if flow.pkts >= PAST_PKTS || (has_two && !flow.had_two) {
                *flow = FlowTrial {
                    has_lists: flow.has_lists,
                    ..FlowTrial::default()
                };
            }
            return None;
        }
        flow.had_two |= has_two;
        if flow.pkts < TRIAL_PKTS {
            return None;
        }
        let FlowTrial {
            joined,
            had_two,
            has_lists,
            ..
        } = *flow;
        *flow = FlowTrial {
            past: !joined,
            had_two: had_two && !joined,
            has_lists,
            ..FlowTrial::default()
        };
        (joined || had_two).then_some(joined)
    }
}
