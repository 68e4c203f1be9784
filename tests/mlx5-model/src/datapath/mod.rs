// SPDX-License-Identifier: GPL-2.0

//! The way of packets: from a port to receive queues, and from send queues to a port.

pub mod checksum;
pub(crate) mod compress;
pub mod packet;
pub mod port;
pub(crate) mod receive;
pub(crate) mod ring;
pub mod rss;
pub(crate) mod segment;
pub(crate) mod steering;
pub(crate) mod transmit;
