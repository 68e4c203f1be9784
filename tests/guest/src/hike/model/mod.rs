// SPDX-License-Identifier: GPL-2.0

//! A model of each program in plain Rust, and frames that are compared with it: drawn ones ([`differential`]), one by one
//! ([`comparison`]).

pub(crate) mod comparison;
pub(crate) mod differential;
pub(crate) mod enc;
pub(crate) mod frames;
pub(crate) mod fuzz_network;
pub(crate) mod packet;
pub(crate) mod programs;
pub(crate) mod rules;
pub(crate) mod sid;
pub(crate) mod stamp;
pub(crate) mod tcx;
pub(crate) mod test_runs;
pub(crate) mod told;
