// SPDX-License-Identifier: GPL-2.0

//! The surroundings of the algorithm: the paths of packets, clocks and timers. All of it is plain memory, as a part of the
//! explored state.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::algo::merge::slot::{LaneId, INLINE, ORDINARY_PATH};
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::books::Books;
use crate::packet::{Nodes, TestPacket};
use crate::{CARRIERS, INNER_FLOWS, SOURCES};

/// The time for which an incomplete batch may hold others up.
pub(crate) const TIMEOUT_US: u32 = 200;

/// The longest time for which the ordinary path is supposed to keep a packet.
pub(crate) const ORDINARY_US: u64 = 50_000;

/// A time for which flows without packets keep their slots no longer, and flows that stop wait no longer for what is missing.
pub(crate) const IDLE_US: u64 = 1_200_000;

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
    /// Begins again, with a module that has just been loaded.
    pub(crate) fn restart(&mut self) {
        (self.stopping, self.polls, self.rests) = (false, false, false);
    }
}

/// All surroundings.
pub(crate) struct Around {
    pub(crate) nodes: Nodes,
    pub(crate) now_us: u64,
    /// The time at which each slot's timer fires, or 0.
    pub(crate) timers: [u64; NR_SLOTS],
    pub(crate) sources: [SourceState; SOURCES],
    /// The packet that the ordinary path carries now, by one more than its node; or 0.
    pub(crate) carried: u8,
    /// Packets that are kept back somewhere, and may arrive at any time.
    pub(crate) held: Queue,
    /// The flows that have a slot, as sources note it.
    pub(crate) active: i8,
    /// True if the path of the packets queues them.
    pub(crate) path_queues: bool,
    /// The incidents that have happened.
    pub(crate) incidents: u8,
    pub(crate) books: Books,
}

/// The surroundings, as events use them. Another event may happen wherever the algorithm uses a shared word, so each borrow ends before
/// the algorithm is called.
#[derive(Clone, Copy)]
pub(crate) struct Live(NonNull<Around>);

impl Live {
    /// Returns those at an address.
    ///
    /// # Safety
    ///
    /// They are there as long as the value that is returned. While an event happens, they are used by such values only, as said above.
    pub(crate) unsafe fn at(around: NonNull<Around>) -> Self {
        Self(around)
    }
}

impl Deref for Live {
    type Target = Around;

    fn deref(&self) -> &Around {
        // SAFETY: By the contract of `at` they are there. No other borrow lives: each one ends before anything else can happen.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Live {
    fn deref_mut(&mut self) -> &mut Around {
        // SAFETY: As above.
        unsafe { self.0.as_mut() }
    }
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
    }

    /// Lets time pass. What waits on the ordinary path, or is queued behind a lane, for longer than it should may be overtaken.
    pub(crate) fn wait(&mut self, us: u64) {
        self.now_us += us;
        if us >= ORDINARY_US {
            self.excuse_ordinary();
        }
        if us >= IDLE_US {
            let lanes = self.sources.iter().flat_map(|source| &source.lanes);
            for index in lanes.flat_map(|lane| lane.queue.nodes()) {
                self.nodes.excuse(*index);
            }
        }
    }

    /// Notes that packets may overtake all that are on the ordinary path, as nothing waits for these any more.
    pub(crate) fn excuse_ordinary(&self) {
        let queues = self.sources.iter().flat_map(|source| &source.ordinary);
        let waiting = queues.flat_map(|queue| queue.nodes()).copied();
        for index in waiting.chain(self.carried.checked_sub(1)) {
            self.nodes.excuse(index);
        }
    }

    /// Returns whether a core has still to merge a slot.
    pub(crate) fn owes(&self, slot: usize) -> bool {
        let mut lanes = self.sources.iter().flat_map(|source| &source.lanes);
        lanes.any(|lane| lane.owes >> slot & 1 == 1)
    }
}
