// SPDX-License-Identifier: GPL-2.0

//! The events of which sequences are made, and the scenarios in which they happen.

use std::fmt;

use crate::LANES;

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
    /// The states after which the search is cut short.
    pub most_states: usize,
    /// The memory, in bytes, that the search does not exceed: it is cut short before.
    pub most_bytes: usize,
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
        /// Its fate on the way.
        fate: Fate,
    },
    /// The first of the packets on the ordinary path gets to its end.
    Ordinary {
        /// The queue that it has come through.
        source: u8,
        /// The inner flow, whose packets wait by themselves.
        inner_flow: u8,
        /// Its fate on the way.
        fate: Fate,
    },
    /// A lane takes its next step: it takes an item from its ring, and carries it; or it parks, completes or merges, one at a time.
    Lane {
        /// The queue whose lane it is.
        source: u8,
        /// The lane.
        lane: u8,
        /// The fate of the packet, if the lane takes one.
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
    /// An event happens in the middle of another.
    Amid,
    /// A core stands still in the middle of an event, and the others go on.
    Standstill,
}

/// The number of kinds of incidents that the surroundings are the cause of.
const NR_AROUND: usize = 9;

impl Incident {
    /// Those that the surroundings are the cause of.
    pub const AROUND: &'static [Self] = Self::ALL.split_at(NR_AROUND).0;
    /// Those in which cores meet.
    pub const CORES: &'static [Self] = Self::ALL.split_at(NR_AROUND).1;
    /// All kinds, those in which cores meet last.
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
        Self::Amid,
        Self::Standstill,
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

    /// Returns the core on which it happens, or `None` if that may be any.
    pub(crate) fn core(self) -> Option<Core> {
        match self {
            // The lane of the core that dispatches.
            Self::Lane { source, lane, .. } | Self::Park { source, lane }
                if usize::from(lane) == LANES =>
            {
                Some(Core::Nic(source))
            }
            // Lanes of two sources share the CPUs.
            Self::Lane { lane, .. } | Self::Park { lane, .. } => Some(Core::Lane(lane)),
            Self::Receive { source, .. }
            | Self::EndPoll { source }
            | Self::Inline { source, .. } => Some(Core::Nic(source)),
            Self::Ordinary {
                source, inner_flow, ..
            } => Some(Core::OrdinaryPath(source, inner_flow)),
            Self::Queued { source, lane } => Some(Core::QueueOfLane(source, lane)),
            Self::Fire { slot } => Some(Core::Timer(slot)),
            _ => None,
        }
    }

    /// Returns whether it can happen while another one does.
    pub(crate) fn is_beside(self, other: Self) -> bool {
        self.core().is_none() || self.core() != other.core()
    }
}

/// The core on which an event happens. Events of one core happen one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Core {
    /// Polls this queue of the NIC.
    Nic(u8),
    /// Polls the lanes with this number.
    Lane(u8),
    /// Carries packets of this source and inner flow on the ordinary path.
    OrdinaryPath(u8, u8),
    /// Carries what the path has queued behind this lane of this source.
    QueueOfLane(u8, u8),
    /// Runs the timer of this slot.
    Timer(u8),
}

/// A step of a sequence: an event, perhaps with another one in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The event.
    pub event: Event,
    /// The interruption in its middle.
    pub amid: Option<Amid>,
}

/// An interruption of an event: other cores act in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amid {
    /// The uses of shared words that the event has done before.
    pub uses: u16,
    /// The events of other cores.
    pub what: Other,
}

/// The events of other cores while one is in the middle of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// One event.
    One(Event),
    /// The first so many events of what happens without this core. Time passes, too.
    First(u8),
}

impl Step {
    /// Returns the step that is this event alone.
    pub(crate) fn of(event: Event) -> Self {
        Self { event, amid: None }
    }

    /// Returns what kind of an incident it is, if it is one.
    pub(crate) fn incident(self) -> Option<Incident> {
        match self.amid {
            None => self.event.incident(),
            Some(Amid {
                what: Other::One(_),
                ..
            }) => Some(Incident::Amid),
            Some(Amid {
                what: Other::First(_),
                ..
            }) => Some(Incident::Standstill),
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pass => "",
            Self::Drop => ", which is dropped",
            Self::Hold => ", which is kept back",
            Self::Copy => ", with a copy",
            Self::HoldCopy => ", of which a copy is kept back",
            Self::DropQueued => ", which is queued and dropped there",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receive { source, inner_flow } => {
                write!(f, "queue {source} receives a packet of inner flow {inner_flow}")
            }
            Self::EndPoll { source } => write!(f, "a poll of queue {source} ends"),
            Self::Inline { source, fate } => {
                write!(f, "the core of queue {source} carries a packet itself{fate}")
            }
            Self::Ordinary {
                source,
                inner_flow,
                fate,
            } => write!(
                f,
                "the ordinary path of queue {source}, inner flow {inner_flow}, carries a packet{fate}"
            ),
            Self::Lane { source, lane, fate } => {
                write!(f, "lane {lane} of queue {source} takes a step{fate}")
            }
            Self::Park { source, lane } => write!(f, "a poll of lane {lane} of queue {source} ends"),
            Self::Queued { source, lane } => write!(
                f,
                "a packet arrives that was queued behind lane {lane} of queue {source}"
            ),
            Self::Release { place } => write!(f, "packet {place} of those kept back arrives"),
            Self::Read { slot } => write!(f, "a reader merges slot {slot}"),
            Self::Fire { slot } => write!(f, "the timer of slot {slot} fires"),
            Self::Wait(Wait::Timeout) => write!(f, "time passes: a batch's timeout"),
            Self::Wait(Wait::Window) => write!(f, "time passes: a window"),
            Self::Wait(Wait::Idle) => write!(f, "time passes: until flows are silent"),
            Self::Stop { source } => write!(f, "queue {source} is to split nothing any more"),
            Self::Start { source } => write!(f, "queue {source} may split again"),
            Self::Die { source, lane } => {
                write!(f, "the CPU of lane {lane} of queue {source} stands still for good")
            }
            Self::Offline { source, lane } => {
                write!(f, "the CPU of lane {lane} of queue {source} is about to go")
            }
            Self::QueuePath => write!(f, "the path begins to queue packets"),
            Self::Begin => write!(f, "another source begins"),
            Self::Reload(OldTags::FarAhead) => {
                write!(f, "the module is loaded again; old tags are as far ahead as can be")
            }
            Self::Reload(OldTags::Ahead) => {
                write!(f, "the module is loaded again; old tags are a little ahead")
            }
            Self::Reload(OldTags::Behind) => {
                write!(f, "the module is loaded again; old tags are behind")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.event)?;
        match self.amid {
            None => Ok(()),
            Some(Amid { uses, .. }) => {
                write!(f, "; it stands still after {uses} uses of shared words")
            }
        }
    }
}
