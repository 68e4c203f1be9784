// SPDX-License-Identifier: GPL-2.0

//! Where the stages of one pipelined flow are, and when one may move to another CPU.
//!
//! A stage's queue keeps order, two queues do not. So a flow changes its queue at a stage only when none of its packets is
//! left in the old one, as RFS does it; but with stages behind it, that is not enough. What has left the stage goes on through
//! a queue between the old CPU and the next stage's, what comes through the new CPU through another: there, too, it could be
//! overtaken. So nothing of the flow may be left from this stage to the end. (The paper claims that its hash keeps order, and
//! its code changes CPUs whenever a load changes.)
//!
//! | | |
//! |---|---|
//! | writers | the core that feeds a stage has packets [enter](StagePath::try_enter), the core that carries it has them [leave](StagePath::leave) |
//! | one feeder | a stage is fed by one core at a time: the one that carries the stage before, which moves only when nothing is left |
//! | cost | an atomic addition when a packet enters a stage, one when it leaves; to move, one load for each stage behind |

use crate::algo::sync::{AtomicU32, Ordering};

/// Stages of a flow at most: NIC to tunnel, tunnel to bridge, veth to container, and one to spare.
pub const MAX_STAGES: usize = 4;

struct Stage {
    // Packets that have entered and not left.
    inside: AtomicU32,
    // The queue that they went to, plus one; 0: none yet. Written by the feeder.
    queue: AtomicU32,
}

/// The stages of one flow. Memory of zeros is a flow that has not begun.
pub struct StagePath {
    stages: [Stage; MAX_STAGES],
}

impl StagePath {
    /// Returns the path of a flow that has not begun.
    pub fn new() -> Self {
        Self {
            stages: core::array::from_fn(|_| Stage {
                inside: AtomicU32::new(0),
                queue: AtomicU32::new(0),
            }),
        }
    }

    /// Returns whether the flow may take another queue at `stage`: nothing of it is left from there on. Only for the core that
    /// feeds the stage.
    pub fn may_move(&self, stage: usize) -> bool {
        // From the front to the end: a packet enters the next stage before it leaves this one, so it cannot slip through.
        self.stages
            .iter()
            .skip(stage)
            // ORDERING: Acquire pairs with the Release in `leave`: where a packet is not seen any more, what it has entered is.
            .all(|stage| stage.inside.load(Ordering::Acquire) == 0)
    }

    /// Returns the queue that the flow takes at `stage` now; none before its first packet.
    pub fn queue(&self, stage: usize) -> Option<u32> {
        // ORDERING: Relaxed: written by the feeder, whose successor has seen `may_move`, or by nobody yet.
        let queue = self.stages.get(stage)?.queue.load(Ordering::Relaxed);
        queue.checked_sub(1)
    }

    /// A packet of the flow enters `stage`, before it leaves the one it comes from. Returns whether it may be put into the queue
    /// `wanted`. If not, the flow has packets elsewhere: the feeder either [stays](Self::enter_behind) with them, or holds this
    /// packet and those that follow, and asks again. A busy queue never runs empty by itself, so a flow that only ever stays
    /// could not leave a core that has too much; what it holds would have waited in the old queue as long.
    #[must_use]
    pub fn try_enter(&self, stage: usize, wanted: u32) -> bool {
        let may = self.queue(stage).is_none_or(|queue| queue == wanted) || self.may_move(stage);
        if may {
            self.put(stage, wanted);
        }
        may
    }

    /// A packet of the flow enters `stage` behind those before it. Returns their queue; `wanted` if there has been none.
    pub fn enter_behind(&self, stage: usize, wanted: u32) -> u32 {
        let queue = self.queue(stage).unwrap_or(wanted);
        self.put(stage, queue);
        queue
    }

    fn put(&self, stage: usize, queue: u32) {
        if let Some(stage) = self.stages.get(stage) {
            // ORDERING: Relaxed, both: the queue's own hand-over publishes them to whoever carries the packet.
            stage.queue.store(queue.wrapping_add(1), Ordering::Relaxed);
            stage.inside.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A packet has left `stage`: it has entered the next one, has reached the end, or was dropped.
    pub fn leave(&self, stage: usize) {
        if let Some(stage) = self.stages.get(stage) {
            // ORDERING: Release pairs with the Acquire in `may_move`.
            stage.inside.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Default for StagePath {
    fn default() -> Self {
        Self::new()
    }
}
