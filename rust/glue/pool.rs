// SPDX-License-Identifier: GPL-2.0

//! The slots of all flows. They are part of the module, so they are there as long as its code is.

use super::stack::skb::SkBuff;
use crate::algo::slot_pool::SlotPool;
use core::mem::MaybeUninit;

pub(crate) type Slots = SlotPool<SkBuff>;

static SLOTS: MaybeUninit<Slots> = MaybeUninit::zeroed();

/// Returns the slots. Functions that C calls fetch them here; all others are given them.
#[inline]
pub(crate) fn slots() -> &'static Slots {
    // SAFETY: Zeros are a pool in which all slots are free, by the heads of `slot_pool`, `slot`, `queue::chain` and
    // `counters`.
    unsafe { SLOTS.assume_init_ref() }
}
