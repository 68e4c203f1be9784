// SPDX-License-Identifier: GPL-2.0

//! HIKE's manager: what `hiked` does, and what it and `hike` say to each other.
//!
//! Read in this order: [`configuration`] (what is to be, and what cannot be), [`devices`] (what this host has), `fill` (the one into
//! tables), `kernel_routes` (and into the kernel's routes), [`store`] and `note` (where tables stay, and what they say of themselves), [`manager`] (transactions), `actual` (what is in
//! the kernel), [`sessions`] (test packets), [`results`] and [`metrics`] (what was counted), [`v1`] and [`proto`] (messages), [`service`] (what is asked),
//! [`socket`] (where), [`link_events`] and [`routing_events`] (what the kernel tells),
//! [`options`] (command lines).

#![deny(unsafe_code)]

use std::fmt::Display;
use std::io::{stderr, Write as _};

mod actual;
pub mod configuration;
pub mod devices;
mod fill;
mod kernel_routes;
pub mod link_events;
pub mod manager;
pub mod metrics;
mod note;
pub mod options;
pub mod proto;
pub mod results;
pub mod routing_events;
pub mod service;
pub mod sessions;
pub mod socket;
pub mod store;

/// The messages of `proto/mflow/hike/v1/`.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    missing_docs,
    reason = "made of files that have the documentation"
)]
pub mod v1 {
    tonic::include_proto!("mflow.hike.v1");
}

pub use self::configuration::Configuration;
pub use self::devices::Devices;
pub use self::manager::Manager;
pub use self::store::Store;

/// Tells a line to the one who has started the daemon, which goes on if nobody reads it.
pub fn say(line: impl Display) {
    let _unread = writeln!(stderr(), "hiked: {line}");
}
