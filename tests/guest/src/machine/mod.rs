// SPDX-License-Identifier: GPL-2.0

//! The machine of a test: its CPUs, memory, interrupts and clock, and the programs and threads that run on it.

pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod cpu;
pub(crate) mod cpu_absence;
pub(crate) mod init;
pub(crate) mod interrupts;
pub(crate) mod memory;
pub(crate) mod page_pool;
pub(crate) mod proc_net;
pub(crate) mod sockopt;
pub(crate) mod softnet;
pub(crate) mod terminal;
pub(crate) mod threads;
pub(crate) mod time_service;
