// SPDX-License-Identifier: GPL-2.0

//! Cases with byte streams alone: connections, the ways to write and read them, and programs that use them.

pub(super) mod churn;
pub(super) mod closing;
pub(super) mod fast_open;
pub(super) mod handshake;
pub(super) mod jumbo;
pub(super) mod nat;
pub(super) mod programs;
pub(super) mod readers;
pub(super) mod rehash;
pub(super) mod request;
