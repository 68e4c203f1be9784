// SPDX-License-Identifier: GPL-2.0

//! What can be made to go wrong.

use crate::bus::Bus;
use crate::device::Device;

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
    /// The card does nothing any more, or goes on.
    Stalled(bool),
    /// The card reports that it has failed: a syndrome, or zero for none.
    Health(u8),
}

/// What is wrong at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) stalled: bool,
    pub(crate) health: u8,
    missing_buffers: u32,
    receive_error: bool,
    send_error: bool,
}

impl Faults {
    pub(crate) fn take_missing_buffer(&mut self) -> bool {
        let missing = self.missing_buffers > 0;
        self.missing_buffers -= u32::from(missing);
        missing
    }

    pub(crate) fn take_receive_error(&mut self) -> bool {
        std::mem::take(&mut self.receive_error)
    }

    pub(crate) fn take_send_error(&mut self) -> bool {
        std::mem::take(&mut self.send_error)
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
            Fault::Stalled(stalled) => self.faults.stalled = stalled,
            Fault::Health(syndrome) => self.faults.health = syndrome,
        }
    }
}
