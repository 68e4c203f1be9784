// SPDX-License-Identifier: GPL-2.0

//! A socket, as far as it concerns us: a number.

use super::ffi;

/// A socket that a look-up has found, valid in that softirq, or that is being read.
#[derive(Clone, Copy)]
pub(crate) struct Socket(pub(super) *mut ffi::sock);

impl Socket {
    /// Returns the number by which sockets are told apart, and which [`hold_socket`](super::deliver::hold_socket) takes.
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.0.expose_provenance()
    }

    /// Returns whether what it has got last came on a CPU of stages.
    pub(crate) fn is_staged(self) -> bool {
        // SAFETY: The socket is valid: it has been found, or is being read.
        unsafe { ffi::mflow_sock_is_staged(self.0) }
    }
}
