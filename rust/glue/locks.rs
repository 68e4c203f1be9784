// SPDX-License-Identifier: GPL-2.0

//! Locks, softirqs and grace periods.
//!
//! Lock order: netlink's of families, rtnl, the hooks' mutex, the configuration's, CPU hotplug. The packet path takes none of them.

use super::ffi;
use core::marker::PhantomData;
use core::ops::Deref;

/// Keeps what is held by a thread or on a CPU from being sent to another.
pub(super) type NotSend = PhantomData<*mut ()>;

/// Proof that this thread holds rtnl, the lock of network devices.
pub(crate) struct Rtnl(NotSend);

impl Rtnl {
    pub(crate) fn lock() -> RtnlGuard {
        // SAFETY: Process context; rtnl is the first in the lock order.
        unsafe { ffi::mflow_rtnl_lock() };
        RtnlGuard(Rtnl(PhantomData))
    }

    /// # Safety: this thread holds rtnl for as long as the value lives.
    pub(crate) unsafe fn assume_held() -> Self {
        Self(PhantomData)
    }
}

pub(crate) struct RtnlGuard(Rtnl);

impl Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.0
    }
}

impl Drop for RtnlGuard {
    fn drop(&mut self) {
        // SAFETY: Only `Rtnl::lock` makes a guard.
        unsafe { ffi::mflow_rtnl_unlock() };
    }
}

/// No softirq runs on this CPU as long as it lives: what delivering and waking lanes want.
pub(crate) struct SoftirqsOff(NotSend);

impl SoftirqsOff {
    /// Disables softirqs. Process context; nests.
    pub(crate) fn new() -> Self {
        // SAFETY: Process context; `drop` enables them again.
        unsafe { ffi::mflow_bh_disable() };
        Self(PhantomData)
    }
}

impl Drop for SoftirqsOff {
    fn drop(&mut self) {
        // SAFETY: Disabled in `new`.
        unsafe { ffi::mflow_bh_enable() };
    }
}

/// Waits until all softirqs and RCU readers that are running now have ended. Process context.
pub(crate) fn synchronize() {
    // SAFETY: Process context.
    unsafe { ffi::mflow_synchronize() };
}

/// Sleeps for so long, or twice that.
pub(crate) fn sleep_us(us: u32) {
    // SAFETY: Process context.
    unsafe { ffi::mflow_sleep_us(us) };
}

pub(crate) fn sleep_ms(ms: u32) {
    // SAFETY: Process context.
    unsafe { ffi::mflow_sleep_ms(ms) };
}
