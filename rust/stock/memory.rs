// SPDX-License-Identifier: GPL-2.0

//! Values in the kernel's memory.

use crate::bindings;
use crate::error::codes::ENOMEM;
use crate::error::Result;
use crate::init::Zeroed;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

/// The flags of an allocation: whether it may wait for memory, and how long. There is one kind.
#[derive(Clone, Copy)]
pub struct Flags(());

/// In process context, as long as it takes.
pub const GFP_KERNEL: Flags = Flags(());

/// Alignment that `kvzalloc()` gives to sizes of which it is a divisor: of such sizes there are slabs of powers of two only, and 96
/// and 192.
const MOST_ALIGN: usize = 128;

/// A value in memory of its own: with `BY_PAGES` in this many pages, else in what has as many bytes, contiguous or not.
pub struct KVBox<T, const BY_PAGES: bool = false> {
    // INVARIANT: valid, and ours alone.
    value: NonNull<T>,
}

/// The same: what the kernel's crate tells apart is where the memory comes from.
pub type KBox<T> = KVBox<T>;

/// A value in pages of its own.
pub type VBox<T> = KVBox<T, true>;

// SAFETY: It owns its value.
unsafe impl<T: Send, const BY_PAGES: bool> Send for KVBox<T, BY_PAGES> {}
// SAFETY: A shared box gives shared references only.
unsafe impl<T: Sync, const BY_PAGES: bool> Sync for KVBox<T, BY_PAGES> {}

impl<T, const BY_PAGES: bool> KVBox<T, BY_PAGES> {
    /// Returns memory of zeros.
    fn allocate() -> Result<NonNull<T>> {
        const { assert!(align_of::<T>() <= MOST_ALIGN && size_of::<T>() > 0) };
        // SAFETY: Process context, which `GFP_KERNEL` says.
        let memory = unsafe { bindings::mflow_alloc(size_of::<T>(), BY_PAGES) };
        NonNull::new(memory.cast()).ok_or(ENOMEM)
    }

    /// Moves a value into memory. Process context.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub fn new(value: T, _flags: Flags) -> Result<Self> {
        let memory = Self::allocate()?;
        // SAFETY: It is as large as the value, aligned, and nobody else's.
        unsafe { memory.write(value) };
        // INVARIANT: just written.
        Ok(Self { value: memory })
    }

    /// Makes a value in place. Process context.
    ///
    /// # Errors
    ///
    /// ENOMEM.
    pub fn init(_zeros: Zeroed<T>, _flags: Flags) -> Result<Self> {
        // INVARIANT: the memory is of zeros, which are a value, as `Zeroed` says.
        Ok(Self {
            value: Self::allocate()?,
        })
    }
}

impl<T, const BY_PAGES: bool> Deref for KVBox<T, BY_PAGES> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: By the invariant.
        unsafe { self.value.as_ref() }
    }
}

impl<T, const BY_PAGES: bool> DerefMut for KVBox<T, BY_PAGES> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: By the invariant.
        unsafe { self.value.as_mut() }
    }
}

impl<T, const BY_PAGES: bool> Drop for KVBox<T, BY_PAGES> {
    fn drop(&mut self) {
        // SAFETY: By the invariant the value is ours, and the memory is from `allocate`.
        unsafe {
            ptr::drop_in_place(self.value.as_ptr());
            bindings::mflow_free(self.value.as_ptr().cast());
        }
    }
}
