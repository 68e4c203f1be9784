// SPDX-License-Identifier: GPL-2.0

//! The events of which sequences are made, and the scenarios in which they happen.

/// The setting of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// The NIC's queues, each with a flow of its own: 1 or 2.
    pub sources: u8,
    /// The inner flows of each flow: 1 or 2. If there are two, each waits in a queue of its own on the ordinary path, and has its own
    /// fence.
    pub inner_flows: u8,
    /// True if the driver leaves packets to lanes before they are built.
    pub driver_asks: bool,
    /// True if the core that dispatches has a lane, too.
    pub has_own_lane: bool,
    /// The packets that are delivered by one call of the merge.
    pub merge_budget_pkts: u32,
    /// A packet with an old tag is under way from the start. Its batch is so many batches ahead of the first one.
    pub straggler: Option<u32>,
}

impl Scenario {
    /// One flow without any of the above.
    pub const PLAIN: Self = Self {
        name: "plain",
        sources: 1,
        inner_flows: 1,
        driver_asks: false,
        has_own_lane: false,
        merge_budget_pkts: u32::MAX,
        straggler: None,
    };
}

/// The bounds of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The packets of each source: at most 12.
    pub pkts: u8,
    /// The incidents in a sequence.
    pub incidents: u8,
    /// The kinds of these.
    pub kinds: &'static [Incident],
    /// The states after which it ends, whatever is left.
    pub most_states: usize,
}

/// The treatment of a packet by the stack between the split and the merge point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives, or is queued if its path queues packets.
    Pass,
    /// It is dropped.
    Drop,
    /// It is kept back, and arrives at any time.
    Hold,
    /// A copy of it arrives, too: in the same call of the stack, or, of a fence, by itself, which is told.
    Copy,
    /// A copy of it is kept back, of which nobody tells.
    HoldCopy,
    /// It is queued on its path, which is told, and dropped there.
    DropQueued,
}

impl Fate {
    /// All, the ordinary one first.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Pass,
        Self::Drop,
        Self::Hold,
        Self::Copy,
        Self::HoldCopy,
        Self::DropQueued,
    ];
}

/// The time that passes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Longer than a batch may hold others up.
    Timeout,
    /// Longer than a window in which packets are counted, and than fences may hold others up.
    Window,
    /// Longer than a silent flow keeps its slot, and than a flow that stops waits for what is missing.
    Idle,
}

/// The first numbers of a module that is loaded again, from those in old tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTags {
    /// Old tags are as far ahead as they can be.
    FarAhead,
    /// They are a little ahead: further than the window, and than numbers go before the sequence ends.
    Ahead,
    /// They are behind.
    Behind,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue of the NIC receives the next packet of its flow.
    Receive {
        /// The queue.
        source: u8,
        /// The inner flow of the packet.
        inner_flow: u8,
    },
    /// A poll of the NIC ends.
    EndPoll {
        /// The queue that is polled.
        source: u8,
    },
    /// The first of the packets that the dispatching core carries itself goes up the stack.
    Inline {
        /// The queue that it has come through.
        source: u8,
        /// What happens to it on the way.
        fate: Fate,
    },
    /// The first of the packets on the ordinary path gets to its end.
    Ordinary {
        /// The queue that it has come through.
        source: u8,
        /// The inner flow, whose packets wait by themselves.
        inner_flow: u8,
        /// What happens to it on the way.
        fate: Fate,
    },
    /// A lane takes its next step: it takes an item from its ring, and carries it; or it parks, completes or merges, one at a time.
    Lane {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
        /// What happens to the packet, if the lane takes one.
        fate: Fate,
    },
    /// A lane's poll ends: it parks what it has collected.
    Park {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
    },
    /// A packet arrives that was queued on the path of a lane.
    Queued {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
    },
    /// A packet arrives that was kept back.
    Release {
        /// Its place among these.
        place: u8,
    },
    /// A reader merges before it waits.
    Read {
        /// The slot.
        slot: u8,
    },
    /// The timer of a slot fires.
    Fire {
        /// The slot.
        slot: u8,
    },
    /// Time passes.
    Wait(Wait),
    /// A source is to split nothing any more.
    Stop {
        /// The source.
        source: u8,
    },
    /// It may split again.
    Start {
        /// The source.
        source: u8,
    },
    /// The CPU of a lane stands still for good.
    Die {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
    },
    /// The CPU of a lane is about to go: no batch is to come to it.
    Offline {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
    },
    /// The path of all packets begins to queue them.
    QueuePath,
    /// Another source begins.
    Begin,
    /// The module goes, and comes back.
    Reload(OldTags),
}

/// The kind of an incident: of an event that need not happen. The number of incidents in a sequence is bounded; all other events go on
/// until nothing is left to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident {
    /// A packet is dropped.
    Drop,
    /// A packet, or a copy of it, is kept back.
    Hold,
    /// A packet is copied.
    Copy,
    /// The path queues packets, and may drop one there.
    Queue,
    /// Time passes.
    Wait,
    /// A source stops to split.
    Stop,
    /// The CPU of a lane goes.
    Lane,
    /// A source begins.
    Begin,
    /// The module is loaded again.
    Reload,
}

impl Incident {
    /// All kinds.
    pub const ALL: &'static [Self] = &[
        Self::Drop,
        Self::Hold,
        Self::Copy,
        Self::Queue,
        Self::Wait,
        Self::Stop,
        Self::Lane,
        Self::Begin,
        Self::Reload,
    ];
}

impl Event {
    /// Returns what kind of an incident it is, if it is one.
    pub fn incident(self) -> Option<Incident> {
        match self {
            Self::Inline { fate, .. } | Self::Ordinary { fate, .. } | Self::Lane { fate, .. } => {
                match fate {
                    Fate::Pass => None,
                    Fate::Drop => Some(Incident::Drop),
                    Fate::Hold | Fate::HoldCopy => Some(Incident::Hold),
                    Fate::Copy => Some(Incident::Copy),
                    Fate::DropQueued => Some(Incident::Queue),
                }
            }
            Self::Wait(_) => Some(Incident::Wait),
            Self::Stop { .. } => Some(Incident::Stop),
            Self::Die { .. } | Self::Offline { .. } => Some(Incident::Lane),
            Self::QueuePath => Some(Incident::Queue),
            Self::Begin => Some(Incident::Begin),
            Self::Reload(_) => Some(Incident::Reload),
            Self::Receive { .. }
            | Self::EndPoll { .. }
            | Self::Park { .. }
            | Self::Queued { .. }
            | Self::Release { .. }
            | Self::Read { .. }
            | Self::Fire { .. }
            | Self::Start { .. } => None,
        }
    }
}
