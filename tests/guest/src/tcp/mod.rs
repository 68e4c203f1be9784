// SPDX-License-Identifier: GPL-2.0

//! Byte streams over TCP: a pattern in which every byte tells where it belongs ([`pattern`]), an application that writes
//! it ([`writer`]), applications that read it in every way there is ([`reader`]), and one run of both ([`stream`]).

pub(crate) mod book;
pub(crate) mod counters;
pub(crate) mod pair;
pub(crate) mod pattern;
pub(crate) mod raw;
pub(crate) mod reader;
mod readers;
pub(crate) mod stream;
mod tls;
pub(crate) mod writer;
