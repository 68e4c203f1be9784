// SPDX-License-Identifier: GPL-2.0

//! Faults that tests and operators can order.

use super::bus::Bus;
use super::device::Device;

/// Something that goes wrong on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link goes down or up.
    Link(bool),
    /// The next frames find no buffer.
    NoBuffers(u32),
    /// The next frame received breaks its queue.
    ReceiveError,
    /// The next frame sent breaks its queue.
    SendError,
    /// The next frames received arrive twice, each time in a buffer of its own.
    Duplicate(u32),
    /// The next frames received are overtaken by those behind them; in a striding queue, only their completions are.
    Overtake(u32),
    /// The next events about completions come twice, with their interrupts.
    DuplicateEvents(u32),
    /// The next events about completions find their queue full, and are lost.
    LoseEvents(u32),
    /// The next interrupts about completions are lost; the events are there.
    LoseInterrupts(u32),
    /// The card does nothing any more, or goes on.
    Stalled(bool),
    /// The card reports that it is not well: a syndrome, or zero for none.
    Health(u8),
    /// The card has died, and will not live again until a driver sets it up again.
    Fatal,
}

/// The faults that are in force, except those of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) stalled: bool,
    pub(crate) health: u8,
    pub(crate) dead: bool,
    pub(crate) missing_buffers: u32,
    pub(crate) receive_error: bool,
    pub(crate) send_error: bool,
    pub(crate) duplicates: u32,
    pub(crate) overtakes: u32,
}

/// The faults that are in force for events about completions.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFaults {
    pub(crate) duplicates: u32,
    pub(crate) losses: u32,
    pub(crate) lost_interrupts: u32,
}

/// Counts down; returns whether there was something left.
pub(crate) fn take(count: &mut u32) -> bool {
    let some = *count > 0;
    *count -= u32::from(some);
    some
}

impl Faults {
    /// Returns whether the card does anything at all.
    pub(crate) fn idle(&self) -> bool {
        self.stalled || self.dead
    }
}

impl Device {
    /// Makes something go wrong.
    pub fn inject(&mut self, bus: &mut dyn Bus, fault: Fault) {
        match fault {
            Fault::Link(up) => self.set_link(bus, up),
            Fault::NoBuffers(count) => self.faults.missing_buffers = count,
            Fault::ReceiveError => self.faults.receive_error = true,
            Fault::SendError => self.faults.send_error = true,
            Fault::Duplicate(count) => self.faults.duplicates = count,
            Fault::Overtake(count) => self.faults.overtakes = count,
            Fault::DuplicateEvents(count) => self.events.faults.duplicates = count,
            Fault::LoseEvents(count) => self.events.faults.losses = count,
            Fault::LoseInterrupts(count) => self.events.faults.lost_interrupts = count,
            Fault::Stalled(stalled) => {
                self.faults.stalled = stalled;
                self.go_on(bus);
            }
            Fault::Health(syndrome) => self.faults.health = syndrome,
            Fault::Fatal => self.faults.dead = true,
        }
    }
}
