// SPDX-License-Identifier: GPL-2.0

//! The headers of packets: [`flow_key`] says to which flow a packet belongs ([`recent_keys`] for requests), [`overlay`] finds the
//! packet inside a tunnel's, and [`checksums`] verifies both. [`flow_name`] has a flow's addresses and ports, and
//! [`hint`] what an XDP program asks for it. [`classic_filter`] says whether a packet socket takes datagrams of a flow.

pub mod checksums;
pub mod classic_filter;
pub mod flow_key;
pub mod flow_name;
pub mod hint;
pub mod overlay;
pub mod recent_keys;
