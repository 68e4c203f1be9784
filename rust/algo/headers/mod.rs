// SPDX-License-Identifier: GPL-2.0

//! The headers of packets: [`flow_key`] says to which flow a packet belongs ([`recent_keys`] for requests), [`overlay`] finds the
//! packet inside a tunnel's, and [`checksums`] verifies both.

pub mod checksums;
pub mod flow_key;
pub mod overlay;
pub mod recent_keys;
