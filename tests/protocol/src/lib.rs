// SPDX-License-Identifier: GPL-2.0

//! The messages between the host's commands, the test guest and the counting plug-in.

pub mod bench;
pub mod cpus;
pub mod datagram;
pub mod guest;
pub mod mark;
pub mod network;
