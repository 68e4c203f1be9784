// SPDX-License-Identifier: GPL-2.0

//! Errors of the kernel: negative numbers in C, a type of their own here.

use core::ffi::c_int;
use core::fmt;

/// An error of the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(c_int);

/// The result of a call that may fail with an error of the kernel.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// Returns the negative number that C functions return.
    pub fn to_errno(self) -> c_int {
        self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", -self.0)
    }
}

/// Returns the result of a C function: an error if the number is negative.
///
/// # Errors
///
/// That error.
pub fn to_result(code: c_int) -> Result {
    if code < 0 {
        Err(Error(code))
    } else {
        Ok(())
    }
}

/// The errors that the module uses, by the numbers of `uapi/asm-generic/errno-base.h`.
pub mod codes {
    use super::Error;

    /// Operation not permitted.
    pub const EPERM: Error = Error(-1);
    /// No such file or directory.
    pub const ENOENT: Error = Error(-2);
    /// Argument list too long.
    pub const E2BIG: Error = Error(-7);
    /// Out of memory.
    pub const ENOMEM: Error = Error(-12);
    /// No such device.
    pub const ENODEV: Error = Error(-19);
    /// Invalid argument.
    pub const EINVAL: Error = Error(-22);
    /// No space left.
    pub const ENOSPC: Error = Error(-28);
    /// Out of range.
    pub const ERANGE: Error = Error(-34);
}
