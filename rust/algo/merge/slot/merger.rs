// SPDX-License-Identifier: GPL-2.0

//! Merging: what the core that has a slot's token does with what is parked.

use super::{
    GivenUp, Merged, Sink, Slot, FENCE_TIMEOUT_US, INLINE, ORDINARY_PATH, START_TIMEOUT_US,
    WINDOW_BATCHES,
};
use crate::algo::counters::Counter;
use crate::algo::lanes::queue::chain::Chain;
use crate::algo::lanes::queue::Packet;
use crate::algo::sync::{fence, Ordering};
use crate::algo::tag::is_before;

/// The token of a slot, taken: only its holder gives turns and delivers.
#[must_use = "nothing is merged any more before it is given back"]
struct MergeToken<'a, P: Packet> {
    slot: &'a Slot<P>,
    // The number of times that cores had added to the token when we last looked.
    seen: u32,
}

impl<P: Packet> Slot<P> {
    /// Delivers what can be delivered, at most about `budget_pkts` packets, unless another core is doing so. After
    /// [`Merged::More`] it has to be called again soon, from the lane's next poll or by the deadline's timer.
    pub fn merge<S: Sink<P>>(&self, sink: &mut S, budget_pkts: u32) -> Merged {
        let Some(mut token) = MergeToken::take(self) else {
            return Merged::Done;
        };
        let mut budget = budget_pkts;
        loop {
            token.merge(sink, &mut budget);
            if budget == 0 {
                token.give_back();
                return Merged::More;
            }
            match token.give_back_unless_added_to() {
                Ok(()) => return Merged::Done,
                Err(again) => token = again,
            }
        }
    }

    /// Delivers everything that is parked, in order, complete or not. Nothing else may use the slot any more.
    pub fn deliver_all<S: Sink<P>>(&self, sink: &mut S) {
        // No other core uses the slot, so the token is ours without being taken.
        let token = MergeToken {
            slot: self,
            seen: 0,
        };
        let mut budget = u32::MAX;
        token.deliver_rest(sink, &mut budget);
        token.deliver(sink, self.late.take_all(), Counter::LatePkts, &mut budget);
        let next = self.next();
        for ahead in 0..WINDOW_BATCHES {
            let place = self.place(next.wrapping_add(ahead));
            let chain = place.take_all();
            token.deliver(sink, chain, Counter::MergedPkts, &mut budget);
        }
    }
}

impl<'a, P: Packet> MergeToken<'a, P> {
    /// Takes the token. Returns `None` if another core has it, which then merges for us.
    fn take(slot: &'a Slot<P>) -> Option<Self> {
        // ORDERING: Release publishes what we have parked or completed to the holder, whose exchange in
        // `give_back_unless_added_to` fails. Acquire pairs with the last holder's Release of 0.
        let taken = slot.token.fetch_add(1, Ordering::AcqRel) == 0;
        taken.then_some(Self { slot, seen: 1 })
    }

    /// Gives the token back, even if there is more to do.
    fn give_back(self) {
        // ORDERING: Release: the next holder sees our writes. (A plain store would do; loom wants a swap.)
        self.slot.token.swap(0, Ordering::AcqRel);
    }

    /// Gives the token back, or returns it if cores have added to it since we last looked.
    fn give_back_unless_added_to(self) -> Result<(), Self> {
        let Self { slot, seen } = self;
        // ORDERING: Release of 0 pairs with the Acquire of the core that adds next. Acquire on failure pairs with the
        // Release of those that have added: we see what they have parked or completed.
        slot.token
            .compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(|seen| Self { slot, seen })
    }

    /// Merges; `budget` is 0 on return if there may be more to do.
    fn merge<S: Sink<P>>(&self, sink: &mut S, budget: &mut u32) {
        let slot = self.slot;
        self.deliver_rest(sink, budget);
        while *budget > 0 {
            self.deliver(sink, slot.late.take_all(), Counter::LatePkts, budget);
            if *budget == 0 {
                return;
            }

            // ORDERING: Relaxed: only the token's holder writes it.
            let batch = slot.next.load(Ordering::Relaxed);
            let place = slot.place(batch);
            // This comes before the chains are taken: if the batch is complete, they are all there.
            let Some(complete) = place.is_complete(batch) else {
                // This batch is not open yet, and no later one is. The turn stays here.
                self.note_unblocked();
                return;
            };
            let parked = place.take_all();
            self.deliver(sink, parked, Counter::MergedPkts, budget);
            // What is left of this batch comes before its turn ends.
            if *budget == 0 || (!complete && !self.may_skip(batch, sink)) {
                return;
            }
            self.advance(batch, sink, budget);
        }
    }

    /// Returns whether `batch`, which is not complete, has to be given up; arms the deadline if not.
    fn may_skip<S: Sink<P>>(&self, batch: u32, sink: &mut S) -> bool {
        let slot = self.slot;
        // ORDERING: The Acquire in `parked` pairs with the Release in `park`. Relaxed, all others in here: written under
        // the token, or published by it.
        let parked = slot.parked();
        if parked.pkts() == 0 || !is_before(batch, slot.furthest.load(Ordering::Relaxed)) {
            // No packet is held up. (The parked packets are those of `batch` itself, which are being put into its place.)
            self.note_unblocked();
            return false;
        }
        if slot.overflowed.swap(false, Ordering::Relaxed) && slot.exceeds_share(slot.parked()) {
            slot.counters.add_owned(Counter::OverflowBatches, 1);
            self.note_given_up(batch, true, sink);
            return true;
        }

        let now = sink.now_us();
        let place = slot.place(batch);
        let (progress, timeout_us) = match place.lane() {
            INLINE => (0, sink.timeout_us()),
            ORDINARY_PATH => (0, self.fence_timeout_us(sink)),
            // Its missing packets were queued behind the lane, which works for other batches now. So the lane's progress says
            // nothing.
            _ if place.is_carried(batch) => (0, sink.timeout_us()),
            lane => (sink.lane_progress(lane), sink.timeout_us()),
        };
        let since = slot.blocked_since_us.load(Ordering::Relaxed);
        if since == 0
            || slot.blocked_on.load(Ordering::Relaxed) != batch
            || slot.blocked_progress.load(Ordering::Relaxed) != progress
        {
            // A lane that works gets there: its ring is finite. Only a silent one is given up.
            if self.held_up_since(batch).is_none() {
                slot.held_up_since_us.store(now, Ordering::Relaxed);
            }
            slot.blocked_on.store(batch, Ordering::Relaxed);
            slot.blocked_progress.store(progress, Ordering::Relaxed);
            slot.blocked_since_us
                .store(now.wrapping_add(1), Ordering::Relaxed);
        } else if now.wrapping_add(1).wrapping_sub(since) >= u64::from(timeout_us) {
            slot.counters.add_owned(Counter::DeadlineBatches, 1);
            if place.lane() == ORDINARY_PATH {
                slot.fences_waited_us
                    .fetch_add(timeout_us, Ordering::Relaxed);
            }
            self.note_given_up(batch, false, sink);
            return true;
        }

        if !slot.armed.swap(true, Ordering::Relaxed) {
            let since = slot.blocked_since_us.load(Ordering::Relaxed);
            let waited = now.wrapping_add(1).wrapping_sub(since);
            let left = u64::from(timeout_us).saturating_sub(waited).max(1);
            // CAST: at most the timeout, which has 32 bits.
            sink.arm_deadline(left as u32);
        }
        false
    }

    /// Returns the time since which packets of later batches wait for `batch`, if any do.
    fn held_up_since(&self, batch: u32) -> Option<u64> {
        let slot = self.slot;
        // ORDERING: Relaxed, all: written under the token.
        let is_blocked = slot.blocked_since_us.load(Ordering::Relaxed) != 0
            && slot.blocked_on.load(Ordering::Relaxed) == batch;
        is_blocked.then(|| slot.held_up_since_us.load(Ordering::Relaxed))
    }

    #[cold]
    fn note_given_up<S: Sink<P>>(&self, batch: u32, has_overflowed: bool, sink: &mut S) {
        let now = sink.now_us();
        let since = self.held_up_since(batch);
        sink.note_given_up(GivenUp {
            batch,
            waited_us: since.map_or(0, |since| now.wrapping_sub(since)),
            parked_pkts: self.slot.parked_pkts(),
            has_overflowed,
        });
    }

    /// Returns the time for which a fence may hold others up. Fences of one start that do not arrive share [`START_TIMEOUT_US`],
    /// but each gets the sink's timeout at least.
    fn fence_timeout_us<S: Sink<P>>(&self, sink: &mut S) -> u32 {
        // ORDERING: Relaxed pairs with the addition in `may_skip`, under the token, and the store in `begin_start`.
        let waited_us = self.slot.fences_waited_us.load(Ordering::Relaxed);
        let left_us = START_TIMEOUT_US.saturating_sub(waited_us);
        sink.timeout_us().max(left_us.min(FENCE_TIMEOUT_US))
    }

    /// Notes that no packet is held up.
    fn note_unblocked(&self) {
        let slot = self.slot;
        // `overflowed` stays: a core may have set it since we looked, and it counts only where too much is parked.
        // ORDERING: Relaxed: written under the token.
        slot.blocked_since_us.store(0, Ordering::Relaxed);
    }

    /// Gives the turn to the batch after `batch`, which has been opened.
    fn advance<S: Sink<P>>(&self, batch: u32, sink: &mut S, budget: &mut u32) {
        let slot = self.slot;
        let place = slot.place(batch);
        if sink.is_traced() {
            sink.note_merged(batch, self.held_up_since(batch));
        }
        place.close();
        // ORDERING: Release pairs with the Acquire in `next`: what was delivered before is visible as delivered.
        slot.next.store(batch.wrapping_add(1), Ordering::Release);
        // ORDERING: pairs with the fences in `park` and `is_turn_of`; see "Lost wake-ups".
        fence(Ordering::SeqCst);
        let stranded = place.take_all();
        self.deliver(sink, stranded, Counter::LatePkts, budget);
    }

    fn deliver_rest<S: Sink<P>>(&self, sink: &mut S, budget: &mut u32) {
        let slot = self.slot;
        if !slot.rest.is_empty() {
            // ORDERING: Relaxed: written under the token.
            let counter = match slot.rest_is_late.load(Ordering::Relaxed) {
                true => Counter::LatePkts,
                false => Counter::MergedPkts,
            };
            self.deliver(sink, slot.rest.take_all(), counter, budget);
        }
    }

    /// Delivers as many packets as the budget allows, and keeps the rest, which is delivered first of all next time. There is no
    /// rest while the budget lasts.
    fn deliver<S: Sink<P>>(
        &self,
        sink: &mut S,
        mut chain: Chain<P>,
        counter: Counter,
        budget: &mut u32,
    ) {
        if chain.is_empty() {
            return;
        }
        let slot = self.slot;
        // All that is parked bounds this chain, which is counted until it is delivered: if all fits the budget, the chain does. If
        // not, the chain may still fit, and then nothing is split off. (`split_off` counts the chain's members, each of which may
        // have been several packets on the wire: the budget is about right.)
        if slot.parked_pkts() > *budget {
            let rest = chain.split_off(*budget);
            let is_late = counter == Counter::LatePkts;
            // ORDERING: Relaxed: written under the token.
            slot.rest_is_late.store(is_late, Ordering::Relaxed);
            slot.rest.park(rest);
            if chain.is_empty() {
                return;
            }
        }
        let delivered = sink.deliver(chain);
        // ORDERING: Release pairs with the Acquire in `parked`: all have been delivered when zero is seen.
        slot.parked.fetch_sub(delivered.bits(), Ordering::Release);
        let pkts = delivered.pkts();
        slot.counters.add_owned(counter, u64::from(pkts));
        if counter == Counter::LatePkts {
            // ORDERING: Relaxed: written under the token.
            sink.note_late(slot.next.load(Ordering::Relaxed), pkts);
        }
        *budget = budget.saturating_sub(pkts);
    }
}
