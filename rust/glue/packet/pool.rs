// SPDX-License-Identifier: GPL-2.0

//! The data that all sources share: the slots of all flows, the count of bytes that wait in rings, and the load controller's
//! orders. They are part of the module, so they are there as long as its code is.

use crate::algo::lanes::ring_bytes::RingBytes;
use crate::algo::load::flow_orders::Orders;
use crate::algo::merge::slot_pool::SlotPool;
use crate::glue::stack::skb::SkBuff;
use core::mem::MaybeUninit;

pub(crate) type Slots = SlotPool<SkBuff>;

static SLOTS: MaybeUninit<Slots> = MaybeUninit::zeroed();
static RING_BYTES: MaybeUninit<RingBytes> = MaybeUninit::zeroed();
static ORDERS: MaybeUninit<Orders> = MaybeUninit::zeroed();

/// Returns the slots. Functions that C calls fetch them here; all others are given them.
#[inline]
pub(crate) fn slots() -> &'static Slots {
    // SAFETY: Zeros are a pool in which all slots are free, by the heads of `slot_pool`, `slot`, `queue::chain` and
    // `counters`.
    unsafe { SLOTS.assume_init_ref() }
}

/// Returns the count of what waits in the rings of all lanes.
#[inline]
pub(crate) fn ring_bytes() -> &'static RingBytes {
    // SAFETY: Zeros are counts of none, by the head of `ring_bytes`.
    unsafe { RING_BYTES.assume_init_ref() }
}

/// Returns the load controller's orders.
#[inline]
pub(crate) fn orders() -> &'static Orders {
    // SAFETY: Zeros are a table without orders, by the head of `load::flow_orders`.
    unsafe { ORDERS.assume_init_ref() }
}
