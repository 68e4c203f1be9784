// SPDX-License-Identifier: GPL-2.0

//! The packets that a lane has carried to the merge point in this poll, before they are parked.
//!
//! A lane works on one batch at a time, so its packets arrive here in order and need no queue that others can see:
//! adding one is a store into a list of the lane's own. One atomic operation per run parks them all.

use crate::algo::lanes::queue::chain::Chain;
use crate::algo::lanes::queue::Packet;
use crate::algo::parked_amount::Amount;
use crate::algo::tag::Tag;

/// Packets of one micro-flow for one socket, in order.
pub struct Run<P: Packet> {
    /// The packets.
    pub chain: Chain<P>,
    /// The amount of the packets.
    pub amount: Amount,
    /// The tag of all of them.
    pub tag: Tag,
    /// The socket of all of them, as a number that is only compared.
    pub socket: usize,
}

/// Collects runs. Belongs to one lane, used in its poll only.
pub struct Collector<P: Packet> {
    run: Run<P>,
}

impl<P: Packet> Run<P> {
    const fn new() -> Self {
        Self {
            chain: Chain::new(),
            amount: Amount::of(0, 0),
            tag: Tag::NONE,
            socket: 0,
        }
    }
}

impl<P: Packet> Collector<P> {
    /// Returns one without packets.
    pub const fn new() -> Self {
        Self { run: Run::new() }
    }

    /// Adds a packet. If it does not belong to the run before it, returns that run, to be parked now.
    #[inline]
    pub fn add(&mut self, tag: Tag, socket: usize, packet: P, amount: Amount) -> Option<Run<P>> {
        let before = if self.run.tag.word() == tag.word() && self.run.socket == socket {
            None
        } else {
            let before = self.take();
            self.run.tag = tag;
            self.run.socket = socket;
            before
        };
        self.run.chain.push(packet);
        self.run.amount += amount;
        before
    }

    /// Takes what has been collected, to be parked now.
    #[inline]
    pub fn take(&mut self) -> Option<Run<P>> {
        if self.run.chain.is_empty() {
            return None;
        }
        Some(core::mem::replace(&mut self.run, Run::new()))
    }
}

impl<P: Packet> Default for Collector<P> {
    fn default() -> Self {
        Self::new()
    }
}
