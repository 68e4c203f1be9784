// SPDX-License-Identifier: GPL-2.0

//! A ConnectX (mlx5) network card in software, good enough for Linux's own driver: see `README.md`.
//!
//! Read in this order: [`bus`] (all it needs from the world), [`layout`] (fields by name), [`device`] (the way of a frame) and
//! [`registers`], then `commands` and `execute` (the command interface), `events` (how the driver is told), `receive` and
//! `transmit` (queues), `steering` and [`rss`] (which queue), `server` (how QEMU is attached).

#![forbid(unsafe_code)]

pub mod bus;
mod capabilities;
pub mod checksum;
mod commands;
mod compress;
pub mod device;
mod events;
mod execute;
pub mod faults;
pub mod field;
pub mod ifc;
pub mod journal;
pub mod layout;
mod memory_keys;
mod objects;
pub mod packet;
pub mod port;
mod receive;
pub mod registers;
mod report;
mod ring;
pub mod rss;
mod segment;
#[cfg(feature = "server")]
pub mod server;
mod steering;
pub mod testing;
mod transmit;
