// SPDX-License-Identifier: GPL-2.0

//! One instance: its programs (`loader`), where packets come to it ([`hook`]) and leave (`ports`, `kept_link`, `drops`), what it knows of its
//! host (`host_tables`), its tables and changes that are taken whole ([`hike`]), what stays when its process ends ([`generation`],
//! [`links`], `readback`), and those who tell its cache of changes (`tracing`, [`watch`]). `realtime` says on which kernels nothing of
//! that runs, and `probe` what others cannot do.

mod drops;
pub mod generation;
pub mod hike;
pub mod hook;
pub(crate) mod host_tables;
mod kept_link;
pub mod links;
pub(crate) mod loader;
mod ports;
mod probe;
pub(crate) mod readback;
mod realtime;
pub(crate) mod tracing;
pub mod watch;
