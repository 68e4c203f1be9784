// SPDX-License-Identifier: GPL-2.0

//! The boundary to the stack: where packets come from, and where they go.

pub mod hooks;
pub mod skb;
