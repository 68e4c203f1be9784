// SPDX-License-Identifier: GPL-2.0

//! Atomics, from one place.
//!
//! Every shared word of the algorithm is declared with the types below, so that a loom build (`--cfg loom`) can replace
//! them with loom's and explore the interleavings. The kernel and a plain host build use `core`'s.
//!
//! loom checks the C11 memory model, not the kernel's. The orderings that the algorithm asks for (`Relaxed`, `Acquire`,
//! `Release`, `SeqCst` fences) mean at least as much in the kernel's model, under which `tests/litmus` has the hand-overs.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
