// SPDX-License-Identifier: GPL-2.0

//! Sockets of datagrams: which of them gets a datagram, what it says of it, and how it is read.

pub(crate) mod broadcast;
pub(crate) mod by_cpu;
pub(crate) mod multicast;
pub(crate) mod readers;
pub(crate) mod receive_buffer;
pub(crate) mod sockmap;
pub(crate) mod takeover;
pub(crate) mod timestamps;
