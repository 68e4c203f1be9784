// SPDX-License-Identifier: GPL-2.0

//! The books on packets: what is still to be delivered, what has been, and what broke a property.

use crate::packet::{Nodes, TestPacket, MOST_PKTS};
use crate::{INNER_FLOWS, SOURCES};

/// A property that a sequence of events has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A packet was dropped by the algorithm, or is nowhere at the end.
    Lost,
    /// A packet was delivered, or given out, once more than it was sent.
    Twice,
    /// A packet was overtaken, and was not counted as late; or one was late without a cause.
    Order,
    /// Packets wait though their turn has come, or wait without a timer, or for longer than the bound.
    Stuck,
    /// An event has too many steps.
    Endless,
    /// More is parked than may be.
    Memory,
    /// A slot, a timer or a count of bytes is not given back at the end.
    Leak,
    /// The algorithm has panicked, as for an assertion.
    Panic,
}

/// The last packet that was delivered of those whose order matters.
#[derive(Clone, Copy)]
struct Latest {
    /// One more than its number, so that zeros stand for none.
    behind: u8,
    batch: u8,
}

impl Latest {
    /// Returns whether a later packet was delivered before this one.
    fn is_overtaken(self, latest: Self) -> bool {
        self.behind < latest.behind
    }
}

/// The books. Zeros are those of a state in which nothing has been sent, before they [begin](Books::begin).
pub(crate) struct Books {
    /// How often each packet is still to be delivered.
    due: [[u8; MOST_PKTS]; SOURCES],
    /// Of each inner flow the last packet that was delivered; and that of packets that the surroundings have not kept back.
    latest: [[Latest; INNER_FLOWS]; SOURCES],
    latest_in_order: [[Latest; INNER_FLOWS]; SOURCES],
    /// Of the packets delivered by a call of the merge, those that have to be late.
    overtaken: u8,
    broken: Option<Broken>,
}

impl Books {
    /// Begins the books: nothing is broken yet.
    pub(crate) fn begin(&mut self) {
        self.broken = None;
    }

    /// Notes that one more of a packet is to be delivered.
    pub(crate) fn expect(&mut self, source: u8, number: u8) {
        self.due[usize::from(source)][usize::from(number)] += 1;
    }

    /// Takes the note of a property that is broken, if one is.
    pub(crate) fn take_broken(&mut self) -> Option<Broken> {
        self.broken.take()
    }

    /// Notes that the surroundings drop a packet, as a step of the path may.
    pub(crate) fn drop(&mut self, mut packet: TestPacket) {
        let node = packet.node_mut();
        self.due[usize::from(node.source)][usize::from(node.number)] -= 1;
        packet.finish();
    }

    /// Notes that a packet reaches its socket, merged or past the merge point.
    pub(crate) fn deliver(&mut self, mut packet: TestPacket, is_merged: bool) {
        let node = packet.node_mut();
        let (source, number) = (usize::from(node.source), usize::from(node.number));
        match self.due[source][number].checked_sub(1) {
            Some(due) => self.due[source][number] = due,
            None => self.broken = Some(Broken::Twice),
        }
        let inner_flow = usize::from(node.inner_flow);
        let this = Latest {
            behind: node.number + 1,
            batch: node.batch,
        };
        let latest = &mut self.latest[source][inner_flow];
        let in_order = &mut self.latest_in_order[source][inner_flow];
        if is_merged && this.is_overtaken(*latest) && this.batch != latest.batch {
            // Batches are delivered in their turn, so this one's has passed.
            self.overtaken += 1;
        } else if this.is_overtaken(*in_order) && !node.is_excused {
            self.broken = Some(Broken::Order);
        }
        if !this.is_overtaken(*latest) {
            *latest = this;
        }
        if !this.is_overtaken(*in_order) && !node.is_excused {
            *in_order = this;
        }
        packet.finish();
    }

    /// Compares what a call of the merge has delivered with the packets that it has counted as late.
    pub(crate) fn end_merge(&mut self, late_pkts: u64) {
        if u64::from(std::mem::take(&mut self.overtaken)) > late_pkts {
            self.broken = Some(Broken::Order);
        }
    }

    /// Returns whether all packets have been delivered, or dropped by the surroundings.
    pub(crate) fn are_closed(&self, nodes: Nodes) -> bool {
        nodes.used() == 0 && self.due == [[0; MOST_PKTS]; SOURCES]
    }
}
