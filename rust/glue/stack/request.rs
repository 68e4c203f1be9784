// SPDX-License-Identifier: GPL-2.0

//! Requests: packets that a driver has received and not built yet.

use super::ffi;
use core::cell::UnsafeCell;
use kernel::init::Zeroable;

/// The place of a request, `struct mflow_request`. What a driver has put into it is that driver's to build or to drop.
#[repr(transparent)]
pub struct Request(UnsafeCell<ffi::mflow_request>);

// SAFETY: Numbers and pointers, of which zeros are none.
unsafe impl Zeroable for Request {}
// SAFETY: A driver's request belongs to no thread.
unsafe impl Send for Request {}
// SAFETY: A ring's ends use a request one at a time, which is what the contracts below ask for.
unsafe impl Sync for Request {}

impl Default for Request {
    fn default() -> Self {
        // SAFETY: Zeros are an empty place.
        unsafe { core::mem::zeroed() }
    }
}

impl Request {
    #[inline]
    pub(crate) fn as_raw(&self) -> *mut ffi::mflow_request {
        self.0.get()
    }

    /// Notes how much memory the packet will hold.
    ///
    /// # Safety: the place is the caller's to fill.
    #[inline]
    pub(crate) unsafe fn set_memory_bytes(&self, bytes: u32) {
        // SAFETY: By the contract nobody else uses the place.
        unsafe { (*self.as_raw()).memory_bytes = bytes };
    }

    /// Returns how much memory the packet holds.
    ///
    /// # Safety: the request was filled, and is the caller's.
    #[inline]
    pub(crate) unsafe fn memory_bytes(&self) -> u32 {
        // SAFETY: By the contract nobody else uses the place.
        unsafe { (*self.as_raw()).memory_bytes }
    }
}
