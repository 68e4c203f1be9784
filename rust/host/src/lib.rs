// SPDX-License-Identifier: GPL-2.0

//! Host build of the mflow algorithm.
//!
//! The packet-path algorithm lives in `rust/algo` and has two crate roots: the kernel module (`rust/mflow_main.rs`) and
//! this crate, which puts the very same source under `cargo test`, proptest, loom, Miri and criterion, and which a
//! simulation can drive. Nothing of it is defined here, so nothing can differ from what runs in the kernel.

#![cfg_attr(not(any(test, loom)), no_std)]

#[path = "../../algo/mod.rs"]
pub mod algo;
