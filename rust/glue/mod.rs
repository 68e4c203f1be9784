// SPDX-License-Identifier: GPL-2.0

//! The kernel side: the only code of the module that calls into the kernel, and the only `unsafe` but for the queues.
//! Each module imports only from those before it, here and in the folders (`cargo xtask test tidy` checks that).

// The base of all else: the module's own C half, locks, and the knobs as the packet path reads them.
pub mod ffi;
pub mod locks;
pub mod runtime;

// The boundary to the stack.
pub mod stack;

pub mod packet;

pub mod control;

// The callers of all that: the operator, and the stack's hooks.
pub mod operator;

pub mod handlers;

#[cfg(all(CONFIG_MFLOW_JOIN_TRIAL, not(mflow_stock)))]
pub mod trial;
