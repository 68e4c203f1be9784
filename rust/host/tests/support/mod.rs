// SPDX-License-Identifier: GPL-2.0

//! Parts that unit and loom tests share: a packet that watches over its ownership, and a small host of several cores.

pub(crate) mod cell;
pub(crate) mod host;
pub(crate) mod packet;
pub(crate) mod socket;
