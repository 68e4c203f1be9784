// SPDX-License-Identifier: GPL-2.0

//! A ConnectX (mlx5) network card in software, good enough for Linux's own driver: see `README.md`.
//!
//! Read in this order: [`bus`] (all it needs from the world), [`layout`] (fields by name), [`device`] (the way of a frame) and
//! [`registers`], then `commands` and `execute` (the command interface), `events` (how the driver is told), `receive` and
//! `transmit` (queues), `steering` and [`rss`] (which queue), `server` (how QEMU is attached).

#![forbid(unsafe_code)]

pub mod datapath;
pub mod firmware;
pub mod host;
pub mod ifc;
#[cfg(feature = "server")]
pub mod server;
