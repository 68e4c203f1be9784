// SPDX-License-Identifier: GPL-2.0

//! The kernel side: the only code of the module that calls into the kernel, and the only `unsafe` but for the queues.
//! Each module imports only from those before it (`cargo xtask test tidy` checks that).

// What everything rests on: the module's own C half, locks, and the knobs as the packet path reads them.
pub mod ffi;
pub mod locks;
pub mod runtime;

// The boundary to the stack.
pub mod stack;

// The packet path, from its end: slots, merging, lanes, sources, what a device's hooks lead to.
pub mod pool;
pub mod progress;

pub mod merge;

pub mod runs;

pub mod building;

pub mod lane;

pub mod source;

pub mod hand_on;
pub mod port;

// Devices, and everything that is configured: how it is counted, stopped and started.
pub mod device;
pub mod stages;

pub mod placing;
pub mod sampling;

pub mod configuration;

pub mod stop;
pub mod totals;

pub mod balancing;
pub mod watch;

pub mod redirecting;

pub mod control;

// What calls all that: the stack's hooks, and the operator.
pub mod flows;

pub mod files;
pub mod handlers;
