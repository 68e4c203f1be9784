// SPDX-License-Identifier: GPL-2.0

//! What has become of packets ([`reason`]), and what is counted of flows (`monitors`).

pub(crate) mod monitors;
pub mod reason;
