// SPDX-License-Identifier: GPL-2.0

//! A run, and a frame of it with its driver's treatment.

use super::frame::Frame;

/// A run.
#[derive(Clone, Debug, Default)]
pub(super) struct DrawnRun {
    pub(super) frames: Vec<Drawn>,
    /// The length below which GRO keeps packets, and that of IPv4: `gro_max_size` and `gro_ipv4_max_size`.
    pub(super) most_bytes: [u32; 2],
}

/// A frame, and what its driver does with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) frame: Frame,
    pub(super) handling: Handling,
}

/// The treatment of a frame by its driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handling {
    pub(super) flags: u8,
    pub(super) sums: u8,
    pub(super) flow: u32,
}

impl Handling {
    /// The NIC's core builds the packet.
    pub(super) const BUILT: u8 = 1;
    /// The driver copies the frame.
    pub(super) const COPIED: u8 = 2;
    /// It copies the headers.
    pub(super) const PULLED: u8 = 4;
    /// The frame is in a page of a pool.
    pub(super) const POOLED: u8 = 8;
    /// The NIC has summed the frame, instead of having verified so many checksums.
    pub(super) const SUMMED: u8 = 0xff;

    pub(super) fn has_verified(self) -> bool {
        self.sums != 0 && self.sums != Self::SUMMED
    }
}
