// SPDX-License-Identifier: GPL-2.0

//! The heads of a source and of an opted-in device, which the hooks and drivers read before they call: each object begins with
//! its head.

use super::ffi;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// The head of a source, `struct mflow_source`.
#[repr(transparent)]
pub(crate) struct SourceHead(UnsafeCell<ffi::mflow_source>);

// SAFETY: Its fields are used as atomics.
unsafe impl Send for SourceHead {}
// SAFETY: Its fields are used as atomics.
unsafe impl Sync for SourceHead {}

impl SourceHead {
    /// Says whether a lane may build the next packet. The driver need not ask if not.
    #[inline]
    pub(crate) fn set_takes_requests(&self, takes_requests: bool) {
        // SAFETY: The field is valid, and only this function and a driver's read of one word use it.
        let field = unsafe { AtomicBool::from_ptr(&raw mut (*self.0.get()).takes_requests) };
        // ORDERING: Relaxed: read in the same context.
        field.store(takes_requests, Ordering::Relaxed);
    }

    /// Says whether the packets of the next poll pass unseen.
    #[inline]
    pub(crate) fn set_rests(&self, rests: bool) {
        // SAFETY: The field is valid, and only this function and a hook's read of one word use it.
        let field = unsafe { AtomicBool::from_ptr(&raw mut (*self.0.get()).rests) };
        // ORDERING: Relaxed: read in the same context.
        field.store(rests, Ordering::Relaxed);
    }
}

/// An object that the hooks and drivers are shown as a source.
///
/// # Safety
///
/// It begins with a [`SourceHead`].
pub(crate) unsafe trait BeginsWithHead {}

/// The head of an opted-in device, `struct mflow_port`: packets that come from it are taken before GRO if its driver calls GRO,
/// else, or if they are to be split behind GRO, where RPS would choose a CPU.
#[repr(transparent)]
pub(crate) struct PortHead(UnsafeCell<ffi::mflow_port>);

// SAFETY: Its fields are used as atomics.
unsafe impl Send for PortHead {}
// SAFETY: Its fields are used as atomics.
unsafe impl Sync for PortHead {}

impl PortHead {
    fn uses_gro(&self) -> &AtomicBool {
        // SAFETY: The field is valid, and only used here and by a hook's read of one word.
        unsafe { AtomicBool::from_ptr(&raw mut (*self.0.get()).uses_gro) }
    }

    /// Returns whether the device's driver calls GRO, as far as that has shown.
    #[inline]
    pub(crate) fn is_gro_used(&self) -> bool {
        // ORDERING: Relaxed: a packet that sees an old value is taken as of a driver that does not.
        self.uses_gro().load(Ordering::Relaxed)
    }

    /// Returns the flag that is set while packets are taken behind GRO.
    pub(crate) fn splits_behind_gro(&self) -> &AtomicBool {
        // SAFETY: The field is valid, and only used through what this returns and by a hook's read of one word.
        unsafe { AtomicBool::from_ptr(&raw mut (*self.0.get()).splits_behind_gro) }
    }

    /// Notes that the device's driver calls GRO.
    pub(crate) fn note_gro(&self) {
        // ORDERING: Relaxed, both: the packet that shows it has not come to where it is asked for yet.
        if !self.is_gro_used() {
            self.uses_gro().store(true, Ordering::Relaxed);
        }
    }
}

/// An object that the hooks are shown as an opted-in device.
///
/// # Safety
///
/// It begins with a [`PortHead`].
pub(crate) unsafe trait BeginsWithPortHead {}
