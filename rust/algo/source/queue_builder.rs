// SPDX-License-Identifier: GPL-2.0

//! The core that builds the packets of a queue, as the queue's driver reports it.

/// The word in the file `builders` for a device whose packets something looks at, so that its datagrams are not joined.
pub const WATCHED: &str = "watched";

/// `MFLOW_BUILDER_*` in `include/net/mflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueBuilder {
    /// The NIC's core: the driver has not asked, because it cannot, or because no packet has come yet.
    Unasked = 0,
    /// Lanes may.
    Lane = 1,
    /// The NIC's core: XDP comes before the packet is built.
    Xdp = 2,
    /// The NIC's core: packets belong to a socket of AF_XDP.
    AfXdp = 3,
    /// The NIC's core: receive buffers are not of a kind that can be handed over.
    Buffers = 4,
}

impl QueueBuilder {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Unasked,
        Self::Lane,
        Self::Xdp,
        Self::AfXdp,
        Self::Buffers,
    ];

    /// Returns the one whose number is `number`; [`Unasked`](Self::Unasked) if there is none.
    pub fn of_number(number: u8) -> Self {
        let place = Self::ALL.get(usize::from(number));
        place.copied().unwrap_or(Self::Unasked)
    }

    /// Returns how the file `builders` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unasked => "unasked",
            Self::Lane => "lane",
            Self::Xdp => "xdp",
            Self::AfXdp => "af_xdp",
            Self::Buffers => "buffers",
        }
    }
}
