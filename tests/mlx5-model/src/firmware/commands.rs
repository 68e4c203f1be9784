// SPDX-License-Identifier: GPL-2.0

//! The command interface: entries in a page of the machine's memory, long ones continued in a chain of mailboxes.

use super::field::{be64, put};
use super::layout::{cmd_if_box, cmd_queue_entry as queue_entry};
use crate::host::bus::{Bus, BusError};

/// Entries and bytes of an entry, as logarithms: what the card announces.
pub(crate) const LOG_ENTRIES: u32 = 5;
pub(crate) const LOG_ENTRY_BYTES: u32 = queue_entry::BYTES.ilog2();
const INLINE_DATA: usize = 16;
/// Bytes of data in a mailbox.
const MAILBOX_DATA: usize = 512;
/// The offset in a mailbox of the next mailbox's address.
const MAILBOX_NEXT: u64 = cmd_if_box::NEXT_POINTER_63_32.byte() as u64;
/// No command is longer: the largest is a memory key with the translations of a ring of receive buffers.
const MOST_BYTES: usize = 1 << 21;
/// The only transport.
const TRANSPORT: u64 = 7;

/// Delivery status: all is well.
const DELIVERED: u64 = 0;
/// Delivery status: memory is not there.
const BAD_POINTER: u64 = 5;
/// Delivery status: a length is out of range.
const BAD_LENGTH: u64 = 7;

/// The status of a command: the first byte of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// Done.
    Ok = 0x00,
    /// There is no such command.
    BadOperation = 0x02,
    /// A value is out of range.
    BadParameter = 0x03,
    /// No object has this number.
    BadResource = 0x05,
    /// There are too many of these objects.
    ExceedsLimit = 0x08,
    /// The object cannot go from its state to that one.
    BadResourceState = 0x09,
    /// The command is too short.
    BadInputLength = 0x50,
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    address: u64,
    output_at: u64,
    pub(crate) input: Vec<u8>,
    pub(crate) output_bytes: usize,
}

/// The content of an entry.
pub(crate) enum EntryRead {
    Command(Command),
    /// A command that cannot be delivered; the entry has the reason now.
    Refused,
    /// The machine has no such memory.
    Gone,
}

impl Command {
    /// Reads entry `index`; one that cannot be delivered is answered.
    pub(crate) fn read(bus: &mut dyn Bus, queue: u64, index: u32) -> EntryRead {
        let address = queue.wrapping_add(u64::from(index) << LOG_ENTRY_BYTES);
        match Self::try_read(bus, address) {
            Ok(Ok(command)) => EntryRead::Command(command),
            Ok(Err(delivery)) => {
                hand_back(bus, address, delivery);
                EntryRead::Refused
            }
            Err(_) => EntryRead::Gone,
        }
    }

    fn try_read(bus: &mut dyn Bus, address: u64) -> Result<Result<Self, u64>, BusError> {
        let mut entry = [0; queue_entry::BYTES];
        bus.dma_read(address, &mut entry)?;
        let input_bytes = queue_entry::INPUT_LENGTH.get32(&entry) as usize;
        let output_bytes = queue_entry::OUTPUT_LENGTH.get32(&entry) as usize;
        if queue_entry::TYPE.get(&entry) != TRANSPORT || input_bytes.max(output_bytes) > MOST_BYTES
        {
            return Ok(Err(BAD_LENGTH));
        }
        let mut input = queue_entry::COMMAND_INPUT_INLINE_DATA.of(&entry)[..INLINE_DATA].to_vec();
        let mut mailbox = be64(&entry, queue_entry::INPUT_MAILBOX_POINTER_63_32.byte());
        while input.len() < input_bytes {
            let mut data = [0; MAILBOX_DATA];
            let mut next = [0; 8];
            let whole = bus.dma_read(mailbox, &mut data);
            if whole
                .and(bus.dma_read(mailbox.wrapping_add(MAILBOX_NEXT), &mut next))
                .is_err()
            {
                return Ok(Err(BAD_POINTER));
            }
            input.extend_from_slice(&data);
            mailbox = u64::from_be_bytes(next);
        }
        input.truncate(input_bytes);
        Ok(Ok(Self {
            address,
            output_at: be64(&entry, queue_entry::OUTPUT_MAILBOX_POINTER_63_32.byte()),
            input,
            output_bytes,
        }))
    }

    /// Writes the output, and hands the entry back to the driver.
    pub(crate) fn answer(&self, bus: &mut dyn Bus, output: &[u8]) {
        let delivery = if self.try_answer(bus, output).is_ok() {
            DELIVERED
        } else {
            BAD_POINTER
        };
        hand_back(bus, self.address, delivery);
    }

    fn try_answer(&self, bus: &mut dyn Bus, output: &[u8]) -> Result<(), BusError> {
        let mut first = [0; INLINE_DATA];
        let inline = output.len().min(INLINE_DATA);
        first[..inline].copy_from_slice(&output[..inline]);
        let at = queue_entry::COMMAND_OUTPUT_INLINE_DATA.byte() as u64;
        bus.dma_write(self.address.wrapping_add(at), &first)?;
        let mut mailbox = self.output_at;
        let mut next = [0; 8];
        for part in output[inline..].chunks(MAILBOX_DATA) {
            bus.dma_write(mailbox, part)?;
            bus.dma_read(mailbox.wrapping_add(MAILBOX_NEXT), &mut next)?;
            mailbox = u64::from_be_bytes(next);
        }
        Ok(())
    }
}

/// Makes an entry the driver's again, and says whether its command could be delivered.
fn hand_back(bus: &mut dyn Bus, address: u64, delivery: u64) {
    let mut entry = [0; queue_entry::BYTES];
    queue_entry::STATUS.set(&mut entry, delivery);
    let at = queue_entry::OWNERSHIP.byte();
    let _gone = bus.dma_write(address.wrapping_add(at as u64), &entry[at..=at]);
}

/// Returns an output that says how a command ended.
pub(crate) fn ending(status: Status, bytes: usize) -> Vec<u8> {
    let mut output = vec![0; bytes.max(16)];
    put(&mut output, 0, &[status as u8]);
    output
}
