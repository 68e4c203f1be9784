// SPDX-License-Identifier: GPL-2.0

//! The surroundings of the algorithm: the paths of packets, clocks and timers. All of it is plain memory, as a part of the
//! explored state.

use crate::algo::merge::slot::{LaneId, INLINE, ORDINARY_PATH};
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::books::Books;
use crate::packet::{Nodes, TestPacket};
use crate::{CARRIERS, INNER_FLOWS, SOURCES};

/// The time for which an incomplete batch may hold others up.
pub(crate) const TIMEOUT_US: u32 = 200;

/// The longest time for which the ordinary path is supposed to keep a packet.
pub(crate) const ORDINARY_US: u64 = 50_000;

/// Packets that wait in order, by their nodes. Zeros are none.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    len: u8,
    nodes: [u8; 15],
}

impl Queue {
    /// Returns how many wait.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Returns whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the nodes of those that wait.
    pub(crate) fn nodes(&self) -> &[u8] {
        &self.nodes[..self.len()]
    }

    /// Adds a packet behind the others.
    pub(crate) fn push(&mut self, nodes: Nodes, packet: TestPacket) {
        self.nodes[self.len()] = nodes.put(packet);
        self.len += 1;
    }

    /// Takes the first packet out.
    pub(crate) fn pop(&mut self, nodes: Nodes) -> Option<TestPacket> {
        (!self.is_empty()).then(|| self.remove(nodes, 0))
    }

    /// Takes a packet out.
    pub(crate) fn remove(&mut self, nodes: Nodes, place: usize) -> TestPacket {
        let index = self.nodes[place];
        let len = self.len();
        self.nodes.copy_within(place + 1..len, place);
        // What is left behind would tell states apart.
        self.nodes[len - 1] = 0;
        self.len -= 1;
        nodes.take(index)
    }
}

/// A lane between its ring and the merge point.
#[derive(Clone, Copy)]
pub(crate) struct LaneState {
    /// Items that it has taken from its ring.
    pub(crate) progress: u32,
    /// The tag of the batch whose end it has taken, as a word; 0 if there is none.
    pub(crate) ending: u32,
    /// Bit `n`: it has to merge slot `n` before anything else.
    pub(crate) owes: u8,
    /// Packets that it has collected.
    pub(crate) collected: u8,
    /// True if its CPU stands still for good.
    pub(crate) is_dead: bool,
    /// Packets that its path has queued.
    pub(crate) queue: Queue,
}

/// A source between the NIC and the paths of its packets.
#[derive(Clone, Copy)]
pub(crate) struct SourceState {
    pub(crate) sent: u8,
    /// The number of batches so far, where a packet on the ordinary path is one of its own.
    batches: u8,
    /// The last batch of split packets, and its tag.
    split_batch: u8,
    split_tag: u32,
    /// True if it is to split nothing any more.
    pub(crate) stopping: bool,
    /// True if a poll has begun.
    pub(crate) polls: bool,
    /// True if the packets of the next poll pass unseen.
    pub(crate) rests: bool,
    /// Packets that GRO of the dispatching core holds.
    pub(crate) inline: Queue,
    /// Packets on the ordinary path, in the queue of each inner flow.
    pub(crate) ordinary: [Queue; INNER_FLOWS],
    pub(crate) lanes: [LaneState; CARRIERS],
}

impl LaneState {
    /// Returns whether it is between two items: it has nothing to end or to merge before it takes the next one.
    pub(crate) fn is_between_items(&self) -> bool {
        self.owes == 0 && self.ending == 0
    }
}

impl SourceState {
    /// Returns the batch of a packet that the dispatcher has just seen. `tag` is that of a split packet as a word, or 0.
    pub(crate) fn batch_of(&mut self, tag: u32) -> u8 {
        if tag != 0 && tag == self.split_tag {
            return self.split_batch;
        }
        self.batches += 1;
        if tag != 0 {
            (self.split_tag, self.split_batch) = (tag, self.batches);
        }
        self.batches
    }

    /// Begins again, with a module that has just been loaded.
    pub(crate) fn restart(&mut self) {
        (self.stopping, self.polls, self.rests) = (false, false, false);
        self.split_tag = 0;
    }

    /// Returns the batch of a packet that has joined the open one.
    pub(crate) fn open_batch(&self) -> u8 {
        self.split_batch
    }
}

/// All surroundings.
pub(crate) struct Around {
    pub(crate) nodes: Nodes,
    pub(crate) now_us: u64,
    /// The time at which each slot's timer fires, or 0.
    pub(crate) timers: [u64; NR_SLOTS],
    pub(crate) sources: [SourceState; SOURCES],
    /// Packets that are kept back somewhere, and may arrive at any time.
    pub(crate) held: Queue,
    /// The flows that have a slot, as sources note it.
    pub(crate) active: i8,
    /// True if the path of the packets queues them.
    pub(crate) path_queues: bool,
    /// True if packets may be late without a deadline: some were kept back, or waited for long.
    pub(crate) may_be_late: bool,
    /// The incidents that have happened.
    pub(crate) incidents: u8,
    pub(crate) books: Books,
}

impl Around {
    /// Returns the number by which a lane is known to the dispatcher and to the merge point.
    pub(crate) fn id_of(source: usize, lane: usize) -> LaneId {
        // CAST: small numbers.
        (source * CARRIERS + lane) as LaneId + 1
    }

    /// Returns the progress of a lane.
    pub(crate) fn progress(&self, id: LaneId) -> u32 {
        assert!(id != INLINE && id != ORDINARY_PATH, "these are no lanes");
        let place = id as usize - 1;
        self.sources[place / CARRIERS].lanes[place % CARRIERS].progress
    }

    /// Keeps a packet back.
    pub(crate) fn hold(&mut self, packet: TestPacket) {
        self.held.push(self.nodes, packet);
        let last = self.held.nodes()[self.held.len() - 1];
        self.nodes.excuse(last);
        self.may_be_late = true;
    }

    /// Lets time pass. What waits on the ordinary path for longer than it should may be overtaken.
    pub(crate) fn wait(&mut self, us: u64) {
        self.now_us += us;
        if us >= ORDINARY_US {
            self.excuse_ordinary();
        }
    }

    /// Notes that packets may overtake all that wait on the ordinary path, as nothing waits for these any more.
    pub(crate) fn excuse_ordinary(&self) {
        let queues = self.sources.iter().flat_map(|source| &source.ordinary);
        for index in queues.flat_map(|queue| queue.nodes()) {
            self.nodes.excuse(*index);
        }
    }

    /// Returns whether a core has still to merge a slot.
    pub(crate) fn owes(&self, slot: usize) -> bool {
        let mut lanes = self.sources.iter().flat_map(|source| &source.lanes);
        lanes.any(|lane| lane.owes >> slot & 1 == 1)
    }
}
