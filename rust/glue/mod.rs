// SPDX-License-Identifier: GPL-2.0

//! The kernel side: the only code of the module that calls into the kernel, and the only `unsafe` but for the queues.
//!
//! [`ffi`] is what C gives and takes, [`stack::skb`] a packet. [`stack::hooks`] is where the stack calls; [`source`] and [`lane`]
//! are the two ends of a ring; [`merge`] delivers, [`pool`] holds the slots. [`control`] starts all that, [`stop`]
//! ends it; [`device`] is one of its devices, and [`port`] what the packet path sees of that. [`runtime`] holds the
//! knobs as the packet path reads them, [`files`] shows knobs and counters, [`totals`] adds those up.

pub mod control;
pub mod device;
pub mod ffi;
pub mod files;
pub mod lane;
pub mod merge;
pub mod pool;
pub mod port;
pub mod runtime;
pub mod source;
pub mod stack;
pub mod stop;
pub mod text;
pub mod totals;
