// SPDX-License-Identifier: GPL-2.0

//! The slots of all flows, while the module is loaded.

use super::merge::KernelSink;
use super::stack::skb::SkBuff;
use super::{ffi, runtime};
use crate::algo::slot_pool::SlotPool;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use kernel::init::{self, Zeroable};
use kernel::prelude::*;

// SAFETY: By the heads of `slot_pool`, `slot`, `queue::chain` and `counters`.
unsafe impl Zeroable for SlotPool<SkBuff> {}

static POOL: AtomicPtr<SlotPool<SkBuff>> = AtomicPtr::new(ptr::null_mut());

/// Owns the slots.
pub(crate) struct Pool {
    slots: KVBox<SlotPool<SkBuff>>,
}

impl Pool {
    /// Allocates the slots and makes them known to [`slots`].
    pub(crate) fn new() -> Result<Self> {
        let slots: KVBox<SlotPool<SkBuff>> = KVBox::init(init::zeroed(), GFP_KERNEL)?;
        runtime::seed_flow_keys();
        // ORDERING: Release pairs with the Acquire in `slots`.
        POOL.store(ptr::from_ref(&*slots).cast_mut(), Ordering::Release);
        Ok(Self { slots })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Hooks and lanes are gone by now, but a timer may still be armed.
        // SAFETY: Process context; nobody starts one any more.
        unsafe { ffi::mflow_deadlines_cancel() };
        // SAFETY: Process context; delivering wants softirqs disabled.
        unsafe { ffi::mflow_bh_disable() };
        for (index, slot) in self.slots.iter().enumerate() {
            slot.deliver_all(&mut KernelSink::new(index));
        }
        // SAFETY: Disabled above.
        unsafe { ffi::mflow_bh_enable() };
        // ORDERING: Release: as above.
        POOL.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Returns the slots. They are there from before the first hook, lane or timer runs until after the last has.
#[inline]
pub(crate) fn slots() -> Option<&'static SlotPool<SkBuff>> {
    // SAFETY: The pointer is null or to a pool that outlives all hooks, lanes and timers: the order of fields in
    // `Mflow` says when each ends, and each waits for those of its callers that are still running.
    // ORDERING: Acquire pairs with the Release in `Pool::new`.
    unsafe { POOL.load(Ordering::Acquire).as_ref() }
}
