// SPDX-License-Identifier: GPL-2.0

//! The uses of the guest's CPUs: each has one, so that no core's work is mistaken for another's.
//!
//! ```text
//!   CPU 0            CPU 1          CPU 2 .. 5              CPU 6                CPU 7                CPU 8, 9       CPU 10 .. 13
//!   reader and       eth0: the      lanes (the first 1, 2   sender and other     eth1: the client's   more senders,  more lanes,
//!   housekeeping     NIC core       or 4 of them)           client programs      NIC                  in benchmarks  in benchmarks
//! ```

/// The CPU of the receiving application.
pub const READER: usize = 0;
/// The CPU that takes the interrupts of the server's NIC.
pub const NIC: usize = 1;
/// The CPUs that may become lanes.
pub const LANES: [usize; 4] = [2, 3, 4, 5];
/// The CPUs that may become lanes in benchmarks; the first are [`LANES`].
pub const BENCH_LANES: [usize; 8] = [2, 3, 4, 5, 10, 11, 12, 13];
/// The CPU of the sending application.
pub const SENDER: usize = 6;
/// The CPU that takes the interrupts of the client's NIC.
pub const CLIENT_NIC: usize = 7;
/// The number of CPUs that the guest must have.
pub const NEEDED: usize = 8;
/// The CPU on which the kernel's scheduler puts no thread (`isolcpus`), in guests with CPUs that nobody is to use unasked.
pub const ISOLATED: usize = 8;
/// The CPU on which, in such guests, the kernel does no work of its own (`nohz_full`).
pub const UNDISTURBED: usize = 9;
/// The number of CPUs of such a guest.
pub const NEEDED_WITH_ISOLATED: usize = 10;
/// The CPUs that several sending programs take turns on: one such program costs more than the packets it sends cost their
/// receiver.
pub const SENDERS: [usize; 3] = [SENDER, 8, 9];
/// The number of CPUs that the guest must have for benchmarks.
pub const NEEDED_TO_BENCH: usize = 14;
