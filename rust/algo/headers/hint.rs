// SPDX-License-Identifier: GPL-2.0

//! The hint of an XDP program for a packet's flow, in the metadata that the program leaves in front of the packet
//! (`bpf_xdp_adjust_meta()`).
//!
//! Any XDP program can leave any bytes there, so bytes that are not exactly these are no hint:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | `mflw` |
//! | 4 | the version of this layout: 1 |
//! | 5 | the bytes that it has: 8 |
//! | 6 | 1: split the flow however slow it is; 2: never split it |
//! | 7 | 0 |
//!
//! They are the first bytes of the metadata, where the program that ran last has put them; the bytes behind them belong to
//! others. GRO joins packets with the same metadata only, so all packets of a flow need the same hint.

/// The treatment that is asked for a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Hint {
    /// Nothing: it is split while it is fast. The hint of zeros.
    #[default]
    None = 0,
    /// To split it however slow it is, as far as all else allows it.
    Split = 1,
    /// Not to split it.
    Never = 2,
}

/// Bytes of a hint.
pub const HINT_BYTES: usize = 8;

/// The bytes in front of the hint itself: the magic, the version, and the number of bytes.
const HEAD: [u8; 6] = [b'm', b'f', b'l', b'w', 1, HINT_BYTES as u8];

impl Hint {
    /// Returns the hint in the first bytes of a packet's metadata.
    pub fn of_metadata(metadata: [u8; HINT_BYTES]) -> Self {
        let [head @ .., hint, zero] = metadata;
        match (head == HEAD, hint, zero) {
            (true, 1, 0) => Self::Split,
            (true, 2, 0) => Self::Never,
            _ => Self::None,
        }
    }

    /// Returns the hint of this number.
    pub(crate) fn of_number(number: u8) -> Self {
        match number {
            1 => Self::Split,
            2 => Self::Never,
            _ => Self::None,
        }
    }

    /// Returns the name under which `flows` prints it, if it asks for anything.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Split => Some("split"),
            Self::Never => Some("never"),
        }
    }
}
