// SPDX-License-Identifier: GPL-2.0

//! Frames as a client on another machine would send them, for senders outside the guest, and the wire they go over.

#![forbid(unsafe_code)]

mod envelope;
mod maker;
mod stream;
pub mod wire;

pub use mflow_protocol::bench::Frames;

pub use self::envelope::{Envelope, OuterChecksum, Path};
pub use self::maker::Maker;
pub use self::stream::Stream;
