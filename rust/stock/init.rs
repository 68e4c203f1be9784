// SPDX-License-Identifier: GPL-2.0

//! Values that begin as zeros.

use core::marker::PhantomData;

/// A type of which zeros are a value.
///
/// # Safety
///
/// They are.
pub unsafe trait Zeroable {}

/// The initial state of a value that is made in place: zeros.
pub struct Zeroed<T>(PhantomData<T>);

/// Makes a value begin as zeros.
pub fn zeroed<T: Zeroable>() -> Zeroed<T> {
    Zeroed(PhantomData)
}
