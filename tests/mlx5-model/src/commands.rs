// SPDX-License-Identifier: GPL-2.0

//! The command interface: entries in a page of the machine's memory, long ones continued in a chain of mailboxes.

use crate::bus::{Bus, BusError};
use crate::field::{be32, be64, put};
use crate::status::Status;

/// Bytes of an entry, and their logarithm as the card announces it.
const ENTRY_BYTES: u64 = 64;
/// Entries and bytes of an entry, as logarithms: what the card announces in the address register.
pub(crate) const ANNOUNCED: u8 = 5 << 4 | 6;
/// Bytes of data in a mailbox.
const MAILBOX_DATA: usize = 512;
/// Where a mailbox names the next one.
const MAILBOX_NEXT: u64 = 560;
/// No command is longer: the largest is a memory key with the translations of a ring of receive buffers.
const MOST_BYTES: usize = 1 << 21;
/// The only transport.
const TRANSPORT: u8 = 7;

/// Delivery status: a length is out of range.
const BAD_LENGTH: u8 = 7 << 1;
/// Delivery status: memory is not there.
const BAD_POINTER: u8 = 5 << 1;

/// A command that was read.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    address: u64,
    output_at: u64,
    pub(crate) input: Vec<u8>,
    pub(crate) output_bytes: usize,
}

/// What is in an entry.
pub(crate) enum Read {
    Command(Command),
    /// Something that cannot be delivered, which the entry says now.
    Refused,
    /// The machine has no such memory.
    Gone,
}

impl Command {
    /// Reads entry `index`; one that cannot be delivered is answered.
    pub(crate) fn read(bus: &mut dyn Bus, queue: u64, index: u32) -> Read {
        let address = queue.wrapping_add(u64::from(index) * ENTRY_BYTES);
        match Self::try_read(bus, address) {
            Ok(Ok(command)) => Read::Command(command),
            Ok(Err(delivery)) => {
                let _gone = bus.dma_write(address.wrapping_add(63), &[delivery]);
                Read::Refused
            }
            Err(_) => Read::Gone,
        }
    }

    fn try_read(bus: &mut dyn Bus, address: u64) -> Result<Result<Self, u8>, BusError> {
        let mut entry = [0; 64];
        bus.dma_read(address, &mut entry)?;
        let (input_bytes, output_bytes) = (be32(&entry, 4) as usize, be32(&entry, 56) as usize);
        if entry[0] != TRANSPORT || input_bytes.max(output_bytes) > MOST_BYTES {
            return Ok(Err(BAD_LENGTH));
        }
        let mut input = entry[16..32].to_vec();
        let mut mailbox = be64(&entry, 8);
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
            output_at: be64(&entry, 48),
            input,
            output_bytes,
        }))
    }

    /// Writes the output, and hands the entry back to the driver.
    pub(crate) fn answer(&self, bus: &mut dyn Bus, output: &[u8]) {
        let delivery = if self.try_answer(bus, output).is_ok() {
            0
        } else {
            BAD_POINTER
        };
        let _gone = bus.dma_write(self.address.wrapping_add(63), &[delivery]);
    }

    fn try_answer(&self, bus: &mut dyn Bus, output: &[u8]) -> Result<(), BusError> {
        let mut first = [0; 16];
        let inline = output.len().min(16);
        first[..inline].copy_from_slice(&output[..inline]);
        bus.dma_write(self.address.wrapping_add(32), &first)?;
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

/// Returns an output that says how a command ended.
pub(crate) fn ending(status: Status, bytes: usize) -> Vec<u8> {
    let mut output = vec![0; bytes.max(16)];
    put(&mut output, 0, &[status as u8]);
    output
}
