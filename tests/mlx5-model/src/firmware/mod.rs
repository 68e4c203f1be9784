// SPDX-License-Identifier: GPL-2.0

//! The card's firmware: registers, commands and the objects that they make, in the layouts of the driver's headers.

pub(crate) mod capabilities;
pub(crate) mod commands;
pub(crate) mod execute;
pub mod field;
pub mod layout;
pub(crate) mod memory_keys;
pub(crate) mod objects;
pub mod registers;
