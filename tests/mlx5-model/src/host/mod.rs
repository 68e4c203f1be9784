// SPDX-License-Identifier: GPL-2.0

//! The card's side of the host: its bus, events, what goes wrong on purpose, and a journal of what the driver did.

pub mod bus;
pub mod device;
pub(crate) mod events;
pub mod faults;
pub mod journal;
pub(crate) mod report;
pub mod testing;
