// SPDX-License-Identifier: GPL-2.0

//! The card as a driver sees it.

mod commands;
mod driver;
mod faults;
mod offloads;
mod properties;
mod queues;
mod replay;
