// SPDX-License-Identifier: GPL-2.0

//! Classes, chains and rules, and their changes under packets.

pub(crate) mod access_list;
pub(crate) mod buffers;
pub(crate) mod classes;
pub(crate) mod full;
pub(crate) mod refusals;
