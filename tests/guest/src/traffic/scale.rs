// SPDX-License-Identifier: GPL-2.0

//! The amount of traffic.

/// The most datagrams that GRO joins into one packet: the kernel's `UDP_GRO_CNT_MAX`.
pub(crate) const MOST_JOINED_PKTS: u64 = 64;

/// Datagrams in the main case of a full run.
pub(crate) const FULL: u64 = 1_000_000;

/// The number of datagrams, or of bytes, that a case sends after its mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Datagrams in the main case.
    pub(crate) main: u64,
    /// Datagrams in every other case.
    pub(crate) other: u64,
    /// Bytes of a stream over TCP in the main case of TCP.
    pub(crate) tcp_main_bytes: u64,
    /// Bytes of a stream over TCP in every other case.
    pub(crate) tcp_bytes: u64,
    /// True if there is not time enough to do everything several times.
    pub(crate) brief: bool,
}

impl Scale {
    /// Returns whether there is time for a case that waits for long.
    pub(crate) fn is_full(&self) -> bool {
        self.main >= FULL
    }

    /// Returns how often a case does what it otherwise does `usual` times.
    pub(crate) fn rounds(&self, usual: usize) -> usize {
        if self.brief {
            usual.div_ceil(2)
        } else {
            usual
        }
    }
}
