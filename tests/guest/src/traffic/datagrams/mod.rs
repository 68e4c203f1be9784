// SPDX-License-Identifier: GPL-2.0

//! Numbered datagrams over UDP: a client that sends them ([`sender`]), an application that reads them ([`receiver`]),
//! the record of what arrived ([`ledger`]), and one run of both ends ([`run`]). Some may begin as a tunnel's header does ([`disguise`]).

pub(crate) mod aggregate;
pub(crate) mod disguise;
pub(crate) mod ledger;
pub(crate) mod receiver;
pub(crate) mod run;
pub(crate) mod sender;
