// SPDX-License-Identifier: GPL-2.0

//! A lane's notes of the batches that it carries, one of each slot: what holds for all packets of a batch, and what the batch has
//! shown. (Batches are opened by the dispatcher: `open_batch` in `algo/flow/dispatcher.rs`.)

use crate::algo::join::DatagramForm;
use crate::algo::limits::MAX_SLOTS;

/// The first request of a batch has nothing before it that it could join.
const TELLING_REQUESTS: u8 = 2;

/// The notes of each slot's batch. Zeros are batches of which no packet has come.
pub struct CarriedBatches {
    batches: [CarriedBatch; MAX_SLOTS],
}

#[derive(Clone, Copy, Default)]
struct CarriedBatch {
    // False before the first packet; `form` means nothing then.
    has_begun: bool,
    form: DatagramForm,
    requests: u8,
    joined: bool,
}

impl Default for CarriedBatches {
    fn default() -> Self {
        Self {
            batches: [CarriedBatch::default(); MAX_SLOTS],
        }
    }
}

impl CarriedBatches {
    #[inline]
    fn batch(&mut self, slot: usize) -> &mut CarriedBatch {
        // PANIC: the remainder is below the length.
        &mut self.batches[slot % MAX_SLOTS]
    }

    /// Returns the form in which GRO lets datagrams of the slot's batch go on: the answer of `wanted` at the first packet. A datagram that
    /// goes by itself would overtake a list that GRO holds of its flow.
    #[inline]
    pub fn datagram_form(
        &mut self,
        slot: usize,
        wanted: impl FnOnce() -> DatagramForm,
    ) -> DatagramForm {
        let batch = self.batch(slot);
        if !batch.has_begun {
            (batch.has_begun, batch.form) = (true, wanted());
        }
        batch.form
    }

    /// Notes whether a request of the slot has joined a packet that GRO holds.
    #[inline]
    pub fn note_request(&mut self, slot: usize, joined: bool) {
        let batch = self.batch(slot);
        batch.requests = batch.requests.saturating_add(1);
        batch.joined |= joined;
    }

    /// Ends the slot's batch. Returns whether any of its requests has joined a packet; nothing if there were too few to tell.
    #[inline]
    pub fn end(&mut self, slot: usize) -> Option<bool> {
        let CarriedBatch {
            requests, joined, ..
        } = core::mem::take(self.batch(slot));
        (requests >= TELLING_REQUESTS).then_some(joined)
    }
}
