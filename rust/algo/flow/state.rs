// SPDX-License-Identifier: GPL-2.0

//! The six states of a flow, and what each of them knows.
//!
//! <!-- cargo xtask docs: transitions -->
//! ```text
//! Counting -> Probing   The flow is fast and has a slot: a packet goes as the probe
//! Probing  -> Split     The probe was seen: a packet goes as the fence
//!          -> Starting  The probe was seen: a packet goes as the first of several fences, as each inner flow has its own
//!          -> Counting  probe_unseen, path_queues, path_ordered, new, silent, switched_off
//! Starting -> Split     No inner flow needs a fence any more
//!          -> Stopping  path_queues, path_ordered, path_lost, cpus_busy, hint_never, slow, new, silent, switched_off
//! Split    -> Stopping  path_queues, path_ordered, path_lost, cpus_busy, hint_never, slow, silent, switched_off
//! Stopping -> Draining  All that was split has been delivered
//!          -> Counting  Nothing of the flow is missing any more
//! Draining -> Counting  Nothing of the flow is missing any more
//! ```
//! <!-- end -->
//!
//! Names in small letters are reasons to keep a flow whole, as the file `flows` prints them. `report/reason.rs` has the time for
//! which each holds the flow in `Counting`. Here `new` says that another source has begun, and `switched_off` that
//! [`Config::stopping`](super::dispatcher::Config::stopping) is set. The picture is made from the table in `transitions.rs`. The
//! code of the events is in `lifecycle.rs`.

use super::transitions::StateKind;
use crate::algo::headers::overlay::Fragment;
use crate::algo::tag::{Tag, TagKind};

/// The state of a flow. Memory of zeros is `Counting`: the tag of an enum with this representation is its first byte, and a
/// variant without fields is valid whatever the other bytes are.
#[derive(Clone, Copy, Debug, Default)]
#[repr(u8)]
pub(super) enum FlowState {
    /// On the ordinary path; its packets are counted.
    #[default]
    Counting = 0,
    /// On the ordinary path, with a slot; a probe is under way.
    Probing(Probing),
    /// The packets of inner flows that have had a fence go into batches.
    Starting(Split),
    /// Its packets go into batches.
    Split(Split),
    /// Its packets are carried inline, as one last batch, until all that was split has been delivered.
    Stopping(Stopping),
    /// On the ordinary path again; the slot waits for packets that something on that path has queued.
    Draining(Draining),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    pub(super) slot: u8,
    pub(super) probe: u32,
    /// The number of sources that there had been when the probe was sent.
    pub(super) nr_sources: u32,
    pub(super) since_ms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) slot: u8,
    /// The core that carries the open batch; none if no batch is open.
    pub(super) carrier: Option<Carrier>,
    /// The batch opened last.
    pub(super) batch: u32,
    /// Packets that still go into the open batch, as they were on the wire.
    pub(super) left_pkts: u32,
    /// Packets that may go into the open batch behind these, as long as each is a later fragment of a datagram. A datagram that is
    /// cut by the end of a batch waits in the stack's memory for fragments until another lane has carried its rest.
    pub(super) tail_pkts: u32,
    /// True if this core carries the open batch because polls bring single packets.
    pub(super) is_single: bool,
    /// The last time at which a packet was known to reach the merge point.
    pub(super) arrived_ms: u32,
    /// The slot's counts when they were last looked at.
    pub(super) seen: SlotCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// The core that dispatches.
    Inline,
    Lane {
        lane: u8,
        /// Places still reserved for requests: the number of packets that the lane may still build.
        reserved_requests: u16,
        /// Places of its ring still reserved for the batch; no fewer than `left_pkts`, as GRO may have joined packets.
        reserved_items: u32,
    },
}

/// The counts of a slot, each modulo 2^32: only the difference between two looks matters.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotCounts {
    pub(super) arrived_pkts: u32,
    pub(super) late_pkts: u32,
    pub(super) given_up_batches: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    pub(super) slot: u8,
    /// True if `batch` is that inline batch, and open. If not, the next packet opens it.
    pub(super) is_open: bool,
    pub(super) batch: u32,
    pub(super) since_ms: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    pub(super) slot: u8,
    pub(super) batch: u32,
    pub(super) since_ms: u32,
}

impl FlowState {
    /// Returns the state without its data.
    pub(super) fn kind(&self) -> StateKind {
        match self {
            Self::Counting => StateKind::Counting,
            Self::Probing(_) => StateKind::Probing,
            Self::Starting(_) => StateKind::Starting,
            Self::Split(_) => StateKind::Split,
            Self::Stopping(_) => StateKind::Stopping,
            Self::Draining(_) => StateKind::Draining,
        }
    }

    /// Renews the data of a flow that begins to be split. The state stays.
    pub(super) fn renew_starting(&mut self, renewed: Split) {
        if let Self::Starting(split) = self {
            *split = renewed;
        }
    }

    /// Renews the data of a flow that stops. The state stays.
    pub(super) fn renew_stopping(&mut self, renewed: Stopping) {
        if let Self::Stopping(stopping) = self {
            *stopping = renewed;
        }
    }
}

impl Split {
    /// Returns the tag of the open batch's packets.
    #[inline]
    pub(super) fn tag(&self) -> Tag {
        Tag::new(TagKind::Split, usize::from(self.slot), self.batch)
    }

    /// Takes room for a packet in the open batch. Returns the batch's lane, or `None` if no lane's batch has room.
    #[inline]
    pub(super) fn take_lane_room(&mut self, wire_pkts: u32) -> Option<u8> {
        if self.left_pkts == 0 {
            return None;
        }
        let Some(Carrier::Lane {
            lane,
            reserved_items,
            ..
        }) = &mut self.carrier
        else {
            return None;
        };
        self.left_pkts = self.left_pkts.saturating_sub(wire_pkts);
        *reserved_items = reserved_items.saturating_sub(1);
        Some(*lane)
    }

    /// Takes room for at most `most` packets that their lane builds. Each was one packet on the wire. Returns the lane, and the
    /// number of packets for which there is room; or `None` if the batch has no room for one.
    #[inline]
    pub(super) fn take_request_room(&mut self, most: u32) -> Option<(u8, u32)> {
        let Some(Carrier::Lane { lane, .. }) = self.carrier else {
            return None;
        };
        let pkts = most.min(self.request_room());
        self.take_request_room_of(pkts);
        (pkts != 0).then_some((lane, pkts))
    }

    /// Returns the number of packets that the lane of the open batch can still build.
    #[inline]
    pub(super) fn request_room(&self) -> u32 {
        match self.carrier {
            Some(Carrier::Lane {
                reserved_requests, ..
            }) => self.left_pkts.min(u32::from(reserved_requests)),
            _ => 0,
        }
    }

    /// Takes room for `pkts` packets that the lane of the open batch builds. There is room for them.
    #[inline]
    pub(super) fn take_request_room_of(&mut self, pkts: u32) {
        if let Some(Carrier::Lane {
            reserved_requests,
            reserved_items,
            ..
        }) = &mut self.carrier
        {
            // CAST: no more than the room, which is a u16.
            *reserved_requests -= pkts as u16;
            *reserved_items = reserved_items.saturating_sub(pkts);
        }
        self.left_pkts -= pkts;
    }

    /// Lets the next packet into a batch that is full but for its tail, if the packet is a later fragment. Any other packet ends the
    /// batch.
    #[inline]
    pub(super) fn extend(&mut self, fragment: impl FnOnce() -> Fragment) {
        if self.left_pkts != 0 || self.tail_pkts == 0 {
            return;
        }
        if fragment() == Fragment::Later {
            self.tail_pkts -= 1;
            self.left_pkts = 1;
        } else {
            self.tail_pkts = 0;
        }
    }

    /// Gives back the room of `pkts` packets that [`take_request_room`](Self::take_request_room) has taken.
    #[inline]
    pub(super) fn give_back_request_room(&mut self, pkts: u32) {
        if let Some(Carrier::Lane {
            reserved_requests,
            reserved_items,
            ..
        }) = &mut self.carrier
        {
            // CAST: no more than was taken, a u16.
            *reserved_requests += pkts as u16;
            *reserved_items += pkts;
        }
        self.left_pkts += pkts;
    }
}

impl SlotCounts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            arrived_pkts: self.arrived_pkts.wrapping_sub(before.arrived_pkts),
            late_pkts: self.late_pkts.wrapping_sub(before.late_pkts),
            given_up_batches: self.given_up_batches.wrapping_sub(before.given_up_batches),
        }
    }
}
