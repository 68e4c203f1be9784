// SPDX-License-Identifier: GPL-2.0

//! Every interleaving of the threads that share a queue or a slot, up to loom's bound on preemptions.
//!
//! Run with `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release --test loom`. The sizes of ring, window
//! and pool shrink in such a build, so that their borders are within reach. loom checks against the C11 memory model; it
//! does not explore every execution which that model allows.

#![cfg(loom)]

#[path = "../support/mod.rs"]
mod support;

mod change_log;
mod path;
mod queue;
mod seqlock;
mod slot;
mod slot_pool;
