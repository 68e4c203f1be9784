// SPDX-License-Identifier: GPL-2.0

//! Cases with byte streams alone: connections, the ways to write and read them, and programs that use them.

pub(crate) mod churn;
pub(crate) mod closing;
pub(crate) mod fast_open;
pub(crate) mod handshake;
pub(crate) mod jumbo;
pub(crate) mod nat;
pub(crate) mod programs;
pub(crate) mod readers;
pub(crate) mod rehash;
pub(crate) mod request;
