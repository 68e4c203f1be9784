// SPDX-License-Identifier: GPL-2.0

//! Cases that need a ConnectX: frames without a sender, a card that misbehaves, or goes while packets hold its pages, and what it sums.

pub(super) mod checksums;
pub(super) mod events;
pub(super) mod joined;
pub(super) mod source;
