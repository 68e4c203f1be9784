// SPDX-License-Identifier: GPL-2.0

//! A source, which is a queue of a NIC, apart from its packets: [`search_backoff`] says when to search for new queues,
//! [`queue_builder`] which core may build a queue's packets ([`redirection`]: without our hooks), and [`poll_sampling`] which polls
//! are looked at.

pub mod poll_sampling;
pub mod queue_builder;
pub mod redirection;
pub mod search_backoff;
