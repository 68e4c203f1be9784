// SPDX-License-Identifier: GPL-2.0

//! Test packets of STAMP (RFC 8762) without authentication: what senders and reflectors write and read.
//!
//! Read in this order: [`time`] (the two formats of times), [`error`] (the estimate of a clock's error), [`packet`] (both packets), [`clock`]
//! (this host's clock).

pub mod clock;
pub mod error;
pub mod packet;
pub mod time;

pub use self::clock::Clock;
pub use self::error::ErrorEstimate;
pub use self::packet::{Answer, Question};
pub use self::time::{Format, Stamp};

/// The UDP port of reflectors: RFC 8762, 4.1.
pub const PORT: u16 = 862;
/// The hop limit of test packets: what is left of it at the reflector says how many routers a packet has passed (RFC 8762, 4.3.1).
pub const HOP_LIMIT: u8 = 255;
