// SPDX-License-Identifier: GPL-2.0

//! Requests: packets that a driver has received and not built yet, and what the driver sees of the source that takes them.

use super::ffi;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
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
    pub(super) fn as_raw(&self) -> *mut ffi::mflow_request {
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

/// What drivers see of a source, `struct mflow_source`.
#[repr(transparent)]
pub(crate) struct SourceHead(UnsafeCell<ffi::mflow_source>);

// SAFETY: Its only field is used as an atomic.
unsafe impl Send for SourceHead {}
// SAFETY: Its only field is used as an atomic.
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
}

/// What drivers are shown as a source.
///
/// # Safety
///
/// It begins with a [`SourceHead`].
pub(crate) unsafe trait BeginsWithHead {}
