// SPDX-License-Identifier: GPL-2.0

//! Cases that need a ConnectX: frames without a sender, and a card that misbehaves.

pub(super) mod events;
pub(super) mod source;
