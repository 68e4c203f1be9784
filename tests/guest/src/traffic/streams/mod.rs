// SPDX-License-Identifier: GPL-2.0

//! Byte streams over TCP: a pattern in which every byte tells where it belongs ([`pattern`]), an application that writes
//! it ([`writers`]), applications that read it in every way there is ([`read_style`]), and one run of both ([`run`]).

pub(crate) mod connection;
pub(crate) mod pattern;
pub(crate) mod read_style;
pub(crate) mod readers;
pub(crate) mod run;
pub(crate) mod syscalls;
mod tls;
pub(crate) mod verifier;
pub(crate) mod writers;
