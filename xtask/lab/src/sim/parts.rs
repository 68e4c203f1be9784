// SPDX-License-Identifier: GPL-2.0

//! What the pipeline is built of.

use std::collections::VecDeque;

use super::dispatch::{Dispatcher, To};
use super::load::Arrivals;
use super::merge::{Merger, Packet};
use super::model::Place;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet reaches an idle NIC queue.
    Arrival(usize),
    /// An interrupt or a wake-up for a queue reaches its core.
    Ready(usize),
    /// A core has ended a poll.
    Done(usize),
    /// A stream's batch may have waited too long.
    Deadline(usize),
    /// A core's stall is over.
    Resume(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Nic,
    Hop(usize),
    Lane(usize),
    App,
}

/// Packets that wait for one stage of one stream.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) stream: usize,
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) packets: VecDeque<Packet>,
    /// On its core's list, on its way there, or being polled.
    pub(super) scheduled: bool,
    /// When packets were last taken.
    pub(super) taken_ps: u64,
}

#[derive(Debug, Default)]
pub(super) struct Core {
    pub(super) ready: VecDeque<usize>,
    pub(super) work: Option<Work>,
    pub(super) busy_ps: u64,
}

/// A poll: what it carries, and for the NIC's where each packet goes.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) queue: usize,
    pub(super) packets: Vec<Packet>,
    pub(super) to: Vec<To>,
    pub(super) took_ps: u64,
}

pub(super) struct State {
    pub(super) arrivals: Arrivals,
    /// Arrival times of the packets in the NIC's ring.
    pub(super) ring: VecDeque<u64>,
    pub(super) pulled: u64,
    pub(super) dispatcher: Dispatcher,
    pub(super) merger: Merger,
    pub(super) deadline_planned: bool,
    /// The number that the reader expects at least.
    pub(super) expected: u64,
    /// The first of its queues: NIC, hops or lanes, then the reader's.
    pub(super) first: usize,
    pub(super) stages: usize,
}
