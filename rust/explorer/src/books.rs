// SPDX-License-Identifier: GPL-2.0

//! The books on packets: what is still to be delivered, what has been, and what broke a property.

use std::fmt;

use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::tag::{Tag, TagKind};
use crate::hooks;
use crate::packet::{Nodes, TestPacket, MOST_PKTS};
use crate::{INNER_FLOWS, SOURCES};

/// A property that a sequence of events has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A packet was dropped by the algorithm, or is nowhere at the end.
    Lost,
    /// A packet was delivered, or given out, once more than it was sent.
    Twice,
    /// A packet was overtaken, though its batch was not given up; or it was late, and not counted as such.
    Order,
    /// Packets wait though their turn has come, or wait without a timer, or for longer than the bound.
    Stuck,
    /// An event uses shared words too often.
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
    /// The slot and the batch of one that was merged, as a word; 0 for others.
    batch: u32,
}

impl Latest {
    /// Returns whether a later packet was delivered before this one.
    fn is_overtaken(self, latest: Self) -> bool {
        self.behind < latest.behind
    }

    /// Returns whether that was a packet of another batch.
    fn is_overtaken_by_batch(self, latest: Self) -> bool {
        self.is_overtaken(latest) && self.batch != latest.batch
    }
}

/// The way in which a packet reaches its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Past the merge point.
    NotSplit,
    /// From its slot, when it is its batch's turn.
    InTurn,
    /// From its slot, when that turn has passed, or when there was none.
    Late,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSplit => ", not split",
            Self::InTurn => "",
            Self::Late => ", late",
        })
    }
}

/// The books. Zeros are those of a state in which nothing has been sent, before they [begin](Books::begin).
pub(crate) struct Books {
    /// The number of times that each packet is still to be delivered.
    due: [[u8; MOST_PKTS]; SOURCES],
    /// Of each inner flow the last packet that was delivered; and that of packets that the surroundings have not kept back.
    latest: [[Latest; INNER_FLOWS]; SOURCES],
    latest_in_order: [[Latest; INNER_FLOWS]; SOURCES],
    /// The packets that each slot has delivered in this event though it was no longer their turn.
    late_pkts: [u8; NR_SLOTS],
    /// Bit `n` of each slot's word: it has given up the batch whose number ends in these bits. No sequence has so many that two have the
    /// same bits.
    given_up: [u64; NR_SLOTS],
    broken: Option<Broken>,
}

/// Returns the bit that stands for a batch.
fn bit(batch: u32) -> u64 {
    1 << (batch % u64::BITS)
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

    /// Notes that a packet reaches its socket.
    pub(crate) fn deliver(&mut self, mut packet: TestPacket, how: How) {
        let tag = packet.tag();
        let (slot, batch) = (tag.slot() % NR_SLOTS, tag.batch_bits());
        let node = packet.node_mut();
        let (source, number) = (usize::from(node.source), usize::from(node.number));
        hooks::note(|| format!("packet {number} of queue {source} is delivered{how}"));
        match self.due[source][number].checked_sub(1) {
            Some(due) => self.due[source][number] = due,
            None => self.broken = Some(Broken::Twice),
        }
        let inner_flow = usize::from(node.inner_flow);
        let this = Latest {
            behind: node.number + 1,
            batch: match how {
                How::NotSplit => 0,
                How::InTurn | How::Late => Tag::new(TagKind::Split, slot, batch).word(),
            },
        };
        let latest = &mut self.latest[source][inner_flow];
        let in_order = &mut self.latest_in_order[source][inner_flow];
        let may_be_late = match how {
            How::Late => {
                self.late_pkts[slot] += 1;
                self.given_up[slot] & bit(batch) != 0
            }
            // Within a batch, packets may overtake others if the surroundings have kept them back.
            How::InTurn => !this.is_overtaken(*in_order) && !this.is_overtaken_by_batch(*latest),
            How::NotSplit => !this.is_overtaken(*in_order),
        };
        if !may_be_late && !node.is_excused {
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

    /// Notes that a slot has given up a batch, whose packets may be late.
    pub(crate) fn give_up(&mut self, slot: usize, batch: u32) {
        self.given_up[slot] |= bit(batch);
    }

    /// Forgets which batches were given up: all numbers begin again.
    pub(crate) fn forget_given_up(&mut self) {
        self.given_up = [0; NR_SLOTS];
    }

    /// Compares the packets that slots have delivered late in this event with those that each has counted.
    pub(crate) fn end_event(&mut self, counted_pkts: [u64; NR_SLOTS]) {
        let late_pkts = std::mem::take(&mut self.late_pkts);
        if late_pkts.map(u64::from) != counted_pkts {
            self.broken = Some(Broken::Order);
        }
    }

    /// Returns whether all packets have been delivered, or dropped by the surroundings.
    pub(crate) fn are_closed(&self, nodes: Nodes) -> bool {
        nodes.used() == 0 && self.due == [[0; MOST_PKTS]; SOURCES]
    }
}
