// SPDX-License-Identifier: GPL-2.0

//! The files that an operator reads and writes.

pub mod flows;

pub mod files;
pub mod netlink;
