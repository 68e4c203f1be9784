// SPDX-License-Identifier: GPL-2.0

//! QEMU plug-in that counts the guest's instructions, exactly, by CPU and by place, between two marks.
//!
//! ```text
//!   guest:    ... mark begin ─────────── window ─────────── mark end ...
//!   plug-in:      copy all counters                         write what was added since: one line per place
//! ```
//!
//! A place is the address of a translated block of kernel code; everything that runs in user space is one place. Counting
//! costs one addition per block, done by the code QEMU generates, into memory of the CPU that runs it: nothing is
//! shared, and the guest sees none of it. The plug-in knows no symbols; the reader of its file does.
//!
//! A mark is an instruction that does nothing and that no compiler emits: `nop dword ptr [rax + rax + MARK]`, see
//! `mflow_protocol::mark`.
//!
//! `-plugin file=libmflow_insn_plugin.so,out=FILE`; needs QEMU 9.1 or newer (the API that writes by CPU).

mod counters;
mod window;

// A test program is not loaded by QEMU, which has the functions they call.
#[cfg(not(test))]
mod api;
#[cfg(not(test))]
mod plugin;
