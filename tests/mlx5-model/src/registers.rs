// SPDX-License-Identifier: GPL-2.0

//! The card's registers and doorbells, and the commands that a doorbell starts.

use crate::bus::Bus;
use crate::commands::{Command, Read, ANNOUNCED};
use crate::device::{Device, Done};
use crate::events::{completion_doorbell_of, event};
use crate::field::{be16, be32};
use crate::layout::command_name;
use crate::receive::State;

/// Bytes of the card's only region of registers.
pub const REGION_BYTES: u64 = 1 << 20;

/// Registers; everything above the last is doorbell pages.
mod register {
    pub(super) const FIRMWARE: u64 = 0x0;
    pub(super) const INTERFACE: u64 = 0x4;
    pub(super) const QUEUE_HIGH: u64 = 0x10;
    pub(super) const QUEUE_LOW: u64 = 0x14;
    pub(super) const DOORBELL: u64 = 0x18;
    pub(super) const HEALTH_FIRMWARE: u64 = 0x230;
    pub(super) const HEALTH_SYNDROME: u64 = 0x23c;
    pub(super) const HEALTH_COUNTER: u64 = 0x1010;
    pub(super) const FIRST_PAGE: u64 = 0x1_0000;
}

/// Doorbells within a page.
mod doorbell {
    pub(super) const COMPLETION: u64 = 0x20;
    pub(super) const EVENT_ARM: u64 = 0x40;
    pub(super) const EVENT: u64 = 0x48;
    pub(super) const SEND: u64 = 0x800;
}

const PAGE: u64 = 4096;
/// The state of a card that takes no commands.
const NIC_DISABLED: u32 = 1;
/// What a card that has died says of itself: unrecoverable hardware error.
const UNRECOVERABLE: u8 = 8;
/// The version of the command interface that the driver speaks.
const COMMAND_INTERFACE: u32 = 5;
/// What the model calls its firmware: 22.35.1000.
const FIRMWARE: [u32; 3] = [22, 35, 1000];

impl Device {
    /// The driver reads registers.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) {
        // One read is one register, or a byte of it; a longer one is several.
        let mut word = None;
        for (index, byte) in into.iter_mut().enumerate() {
            let at = offset.wrapping_add(index as u64);
            let value = match word {
                Some((start, value)) if start == at & !3 => value,
                _ => self.register(at & !3),
            };
            word = Some((at & !3, value));
            // CAST: two bits.
            *byte = value.to_be_bytes()[(at & 3) as usize];
        }
    }

    fn register(&mut self, offset: u64) -> u32 {
        match offset {
            register::FIRMWARE => FIRMWARE[1] << 16 | FIRMWARE[0],
            register::INTERFACE => COMMAND_INTERFACE << 16 | FIRMWARE[2],
            // CAST: the upper half.
            register::QUEUE_HIGH => (self.command_queue >> 32) as u32,
            // CAST: the lower half, without its last bits.
            register::QUEUE_LOW => {
                let state = if self.faults.dead { NIC_DISABLED } else { 0 };
                // CAST: the same.
                self.command_queue as u32 & 0xffff_f000 | state << 8 | u32::from(ANNOUNCED)
            }
            register::HEALTH_FIRMWARE => FIRMWARE[0] << 24 | FIRMWARE[1] << 16 | FIRMWARE[2],
            register::HEALTH_SYNDROME if self.faults.dead => u32::from(UNRECOVERABLE) << 16,
            register::HEALTH_SYNDROME => u32::from(self.faults.health) << 16,
            register::HEALTH_COUNTER => {
                // What has died is the card, not the firmware that waits for a driver to begin again.
                if !self.faults.stalled {
                    self.health_counter = self.health_counter.wrapping_add(1);
                }
                self.health_counter
            }
            _ => 0,
        }
    }

    /// The driver writes registers. Frames are sent later, by [`Device::transmit`].
    pub fn write(&mut self, bus: &mut dyn Bus, offset: u64, data: &[u8]) {
        if offset >= register::FIRST_PAGE {
            self.ring(bus, offset % PAGE, data);
            return;
        }
        let value = be32(data, 0);
        match offset {
            register::QUEUE_HIGH => {
                self.command_queue = self.command_queue & 0xffff_ffff | u64::from(value) << 32
            }
            register::QUEUE_LOW => {
                self.command_queue =
                    self.command_queue & !0xffff_ffff | u64::from(value & 0xffff_f000);
                // A driver begins again: of what was before the card died, nothing is left.
                if std::mem::take(&mut self.faults.dead) {
                    self.forget_objects();
                }
            }
            register::DOORBELL => self.run_commands(bus, value),
            _ => {}
        }
    }

    fn ring(&mut self, bus: &mut dyn Bus, offset: u64, data: &[u8]) {
        match offset {
            doorbell::COMPLETION => {
                let (value, number) = completion_doorbell_of(data);
                self.events.completion_doorbell(bus, value, number);
            }
            doorbell::EVENT_ARM => self.events.event_doorbell(bus, be32(data, 0), true),
            doorbell::EVENT => self.events.event_doorbell(bus, be32(data, 0), false),
            doorbell::SEND.. => {
                if let Ok(queue) = self.send_queues.get_mut(be32(data, 4) >> 8) {
                    queue.rung = queue.state != State::Reset;
                }
            }
            _ => {}
        }
    }

    /// Goes on after a stall, with the commands that have come meanwhile.
    pub(crate) fn go_on(&mut self, bus: &mut dyn Bus) {
        let entries = std::mem::take(&mut self.late_commands);
        self.run_commands(bus, entries);
    }

    fn run_commands(&mut self, bus: &mut dyn Bus, entries: u32) {
        if self.faults.idle() {
            self.late_commands |= entries;
            return;
        }
        for index in (0..32).filter(|index| entries >> index & 1 == 1) {
            // The event queue that takes the answer has to exist before and after: the command that creates or
            // destroys it is polled for.
            let before = self.events.queue_of(event::COMMAND);
            let command = match Command::read(bus, self.command_queue, index) {
                Read::Command(command) => command,
                Read::Refused => {
                    self.tell_command(bus, index);
                    continue;
                }
                Read::Gone => continue,
            };
            let output = self.execute(&command.input, command.output_bytes);
            command.answer(bus, &output);
            if let Some(journal) = &mut self.journal {
                let name = command_name(be16(&command.input, 0));
                journal.push(Done {
                    name,
                    input: command.input,
                    output,
                });
            }
            if before.is_some() && before == self.events.queue_of(event::COMMAND) {
                self.tell_command(bus, index);
            }
        }
    }

    fn tell_command(&mut self, bus: &mut dyn Bus, index: u32) {
        self.events
            .tell(bus, event::COMMAND, 0, &(1_u32 << index).to_be_bytes());
    }
}
