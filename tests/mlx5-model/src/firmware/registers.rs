// SPDX-License-Identifier: GPL-2.0

//! The card's registers and doorbells, and the commands that a doorbell starts.

use super::commands::{Command, EntryRead, LOG_ENTRIES, LOG_ENTRY_BYTES};
use super::field::{be16, be32};
use super::layout::{command_name, control_segment, doorbell, health_buffer, initial_seg};
use crate::datapath::receive::QueueState;
use crate::host::bus::Bus;
use crate::host::device::{Device, Done};
use crate::host::events::Event;

/// Bytes of the card's only region of registers.
pub const REGION_BYTES: u64 = 1 << 20;

/// The offset of the first doorbell page; other registers are below it.
pub const FIRST_DOORBELL: u64 = 0x1_0000;

/// Registers: words of the initialization segment.
mod register {
    use super::{health_buffer, initial_seg as segment};

    pub(super) const FIRMWARE: u64 = segment::FW_REV_MAJOR.word();
    pub(super) const INTERFACE: u64 = segment::CMD_INTERFACE_REV.word();
    pub(super) const QUEUE_HIGH: u64 = segment::CMDQ_PHY_ADDR_63_32.word();
    pub(super) const QUEUE_LOW: u64 = segment::CMDQ_PHY_ADDR_31_12.word();
    pub(super) const DOORBELL: u64 = segment::COMMAND_DOORBELL_VECTOR.word();
    pub(super) const HEALTH_FIRMWARE: u64 = health_buffer::FW_VERSION
        .after(segment::HEALTH_BUFFER)
        .word();
    pub(super) const HEALTH_SYNDROME: u64 =
        health_buffer::SYND.after(segment::HEALTH_BUFFER).word();
    pub(super) const HEALTH_COUNTER: u64 = segment::HEALTH_COUNTER.word();
}

const PAGE: u64 = 4096;
/// The state of a card that takes no commands.
const NIC_DISABLED: u32 = 1;
/// The health syndrome of a card that has died: unrecoverable hardware error.
const UNRECOVERABLE: u8 = 8;
/// The version of the command interface that the driver speaks.
const COMMAND_INTERFACE: u32 = 5;
/// The version of the model's firmware: 22.35.1000.
const FIRMWARE: [u32; 3] = [22, 35, 1000];

impl Device {
    /// Reads registers for the driver.
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
            register::FIRMWARE => {
                initial_seg::FW_REV_MAJOR.in_word(FIRMWARE[0])
                    | initial_seg::FW_REV_MINOR.in_word(FIRMWARE[1])
            }
            register::INTERFACE => {
                initial_seg::CMD_INTERFACE_REV.in_word(COMMAND_INTERFACE)
                    | initial_seg::FW_REV_SUBMINOR.in_word(FIRMWARE[2])
            }
            // CAST: the upper half.
            register::QUEUE_HIGH => (self.command_queue >> 32) as u32,
            register::QUEUE_LOW => {
                let state = if self.faults.dead { NIC_DISABLED } else { 0 };
                // CAST: the lower half.
                self.command_queue as u32
                    | initial_seg::NIC_INTERFACE.in_word(state)
                    | initial_seg::LOG_CMDQ_SIZE.in_word(LOG_ENTRIES)
                    | initial_seg::LOG_CMDQ_STRIDE.in_word(LOG_ENTRY_BYTES)
            }
            register::HEALTH_FIRMWARE => FIRMWARE[0] << 24 | FIRMWARE[1] << 16 | FIRMWARE[2],
            register::HEALTH_SYNDROME => {
                let dead = self.faults.dead.then_some(UNRECOVERABLE);
                health_buffer::SYND.in_word(dead.unwrap_or(self.faults.health).into())
            }
            register::HEALTH_COUNTER => {
                // A dead card still has firmware, which waits for a driver to begin again.
                if !self.faults.stalled {
                    self.health_counter = self.health_counter.wrapping_add(1);
                }
                self.health_counter
            }
            _ => 0,
        }
    }

    /// Writes registers for the driver. Frames are sent later, by [`Device::transmit`].
    pub fn write(&mut self, bus: &mut dyn Bus, offset: u64, data: &[u8]) {
        if offset >= FIRST_DOORBELL {
            self.ring(bus, offset % PAGE, data);
            return;
        }
        let value = be32(data, 0);
        match offset {
            register::QUEUE_HIGH => {
                self.command_queue = self.command_queue & 0xffff_ffff | u64::from(value) << 32
            }
            register::QUEUE_LOW => {
                let low = value & initial_seg::CMDQ_PHY_ADDR_31_12.in_word(u32::MAX);
                self.command_queue = self.command_queue & !0xffff_ffff | u64::from(low);
                // A driver begins again with a card that has no objects any more.
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
            doorbell::COMPLETION => self.events.completion_doorbell(bus, data),
            doorbell::EVENT_ARM => self.events.event_doorbell(bus, data, true),
            doorbell::EVENT => self.events.event_doorbell(bus, data, false),
            doorbell::SEND.. => {
                let number = control_segment::QUEUE.get32(data);
                if let Ok(queue) = self.send_queues.get_mut(number) {
                    queue.rung = queue.state != QueueState::Reset;
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
            let before = self.events.queue_of(Event::COMMAND);
            let command = match Command::read(bus, self.command_queue, index) {
                EntryRead::Command(command) => command,
                EntryRead::Refused => {
                    self.events.tell(bus, Event::Command(index));
                    continue;
                }
                EntryRead::Gone => continue,
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
            if before.is_some() && before == self.events.queue_of(Event::COMMAND) {
                self.events.tell(bus, Event::Command(index));
            }
        }
    }
}
