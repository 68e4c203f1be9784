// SPDX-License-Identifier: GPL-2.0

//! Large objects that start as zeros: too large to be built on the kernel's stack.

use super::ffi;
use core::ops::Deref;
use core::ptr::NonNull;
use kernel::prelude::*;

/// A type of which memory of zeros is a valid value.
///
/// # Safety
///
/// That is so for every field.
pub(crate) unsafe trait Zeroable {}

/// An owned object at a fixed address, made of zeros.
pub(crate) struct Zeroed<T> {
    // INVARIANT: a valid `T` in memory from `mflow_zalloc()`, owned by us.
    object: NonNull<T>,
}

// SAFETY: It owns the object, like a box.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: As above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: Zeroable> Zeroed<T> {
    /// Allocates one. Process context.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: May be called in process context with any size.
        let memory = unsafe { ffi::mflow_zalloc(core::mem::size_of::<T>()) };
        // INVARIANT: zeros are a valid `T`; allocations of this size are aligned to more than any field asks for.
        let object = NonNull::new(memory.cast()).ok_or(ENOMEM)?;
        Ok(Self { object })
    }
}

impl<T> Zeroed<T> {
    /// Returns the object's address, valid as long as this owner lives.
    pub(crate) fn as_ptr(&self) -> NonNull<T> {
        self.object
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant.
        unsafe { self.object.as_ref() }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: By the invariant it is valid and ours; nobody uses it after us.
        unsafe {
            core::ptr::drop_in_place(self.object.as_ptr());
            ffi::mflow_free(self.object.as_ptr().cast());
        }
    }
}
