// SPDX-License-Identifier: GPL-2.0

//! A socket, as far as it concerns us: a number.

use super::ffi;

/// A socket that a look-up has found; valid in that softirq.
#[derive(Clone, Copy)]
pub(crate) struct Socket(pub(super) *mut ffi::sock);

impl Socket {
    /// Returns the number by which sockets are told apart, and which [`hold_socket`](super::deliver::hold_socket) takes.
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.0.expose_provenance()
    }
}
