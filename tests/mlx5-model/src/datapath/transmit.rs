// SPDX-License-Identifier: GPL-2.0

//! Send queues: frames, cut and finished on their way out, and changes of memory keys.

use super::packet::{insert_tag, Tag, LINK_BYTES};
use super::receive::{syndrome, QueueState};
use super::ring::Ring;
use super::segment::{self, Offloads};
use crate::firmware::commands::Status;
use crate::firmware::layout::{
    completion, control_segment as control, create_sq_in, data_segment as data, doorbell_record,
    err_cqe, ethernet_segment as ethernet, sqc, wq, wqe_inline_seg,
};
use crate::firmware::memory_keys::{Denied, MemoryKeys};
use crate::host::bus::{read_word, Bus};
use crate::host::events::{CompletionEntry, Events};

mod op {
    pub(super) const NOP: u64 = 0x00;
    pub(super) const SEND: u64 = 0x0a;
    pub(super) const LSO: u64 = 0x0e;
    pub(super) const UMR: u64 = 0x25;
}

/// Opcodes of completions: an entry was carried out, or has failed.
const REQUEST: u64 = 0;
const REQUEST_ERROR: u64 = 13;
/// An operation the card does not know.
const BAD_OPERATION: u8 = 0x02;

/// An entry takes whole blocks of the queue.
const BLOCK: usize = 64;
/// The longest entry.
const MOST_BLOCKS: usize = 16;
/// No frame is longer before it is cut.
const MOST_BYTES: usize = 0x4_0000;
/// A control segment's mode of completion: there shall be one.
const ASKS_FOR_COMPLETION: u64 = 2;
/// The unit in which an entry says how long it is; segments begin at multiples of it.
const UNIT: usize = 16;
/// The offset of a frame's inline headers, and of the data segments if there are none.
const HEADERS_AT: usize = control::BYTES + ethernet::INLINE_HDR_START.byte();
const DATA_AT: usize = control::BYTES + ethernet::BYTES;

#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    pub(crate) state: QueueState,
    pub(crate) completion_queue: u32,
    /// Set when the doorbell rings or the queue fails, until all entries are worked off.
    pub(crate) rung: bool,
    ring: Ring,
    /// The address at which the driver records how far it has written.
    record: u64,
    counter: u16,
}

/// The work that an entry asks for.
#[derive(Debug)]
enum Work {
    Nothing,
    Send(Vec<u8>, Offloads),
    Cut {
        large: Vec<u8>,
        head: usize,
        size: usize,
        offloads: Offloads,
    },
}

impl SendQueue {
    /// Carries out CREATE_SQ.
    pub(crate) fn create(input: &[u8], events: &Events) -> Result<Self, Status> {
        let context = create_sq_in::CTX.of(input);
        let work = sqc::WQ.of(context);
        let completion_queue = sqc::CQN.get32(context);
        events.completion_queues.get(completion_queue)?;
        let ring = Ring::of_work_queue(work)?;
        if ring.element_bytes() != BLOCK {
            return Err(Status::BadParameter);
        }
        Ok(Self {
            state: QueueState::Reset,
            completion_queue,
            rung: false,
            ring,
            record: wq::DBR_ADDR.get(work),
            counter: 0,
        })
    }

    /// Changes the state; a queue that leaves the reset state starts again.
    pub(crate) fn set_state(&mut self, state: QueueState) {
        if self.state == QueueState::Reset || state == QueueState::Reset {
            self.counter = 0;
        }
        // The entries that are left have to be completed, as errors.
        self.rung = state == QueueState::Error;
        self.state = state;
    }

    /// Returns how many blocks of entries the driver has written that have not been worked off.
    pub(crate) fn entries_left(&self, bus: &mut dyn Bus) -> u16 {
        let written = read_word(bus, self.record, doorbell_record::SEND_PRODUCER);
        // CAST: the counter has 16 bits.
        written.map_or(0, |written| (written as u16).wrapping_sub(self.counter))
    }

    /// Breaks the queue if the next entry is a frame; returns whether it was.
    pub(crate) fn break_at_frame(
        &mut self,
        bus: &mut dyn Bus,
        events: &mut Events,
        number: u32,
    ) -> bool {
        let mut entry = [0; control::BYTES];
        let read = self
            .ring
            .read(bus, u32::from(self.counter), &mut entry)
            .and(read_word(bus, self.record, doorbell_record::SEND_PRODUCER));
        // CAST: the counter has 16 bits.
        let left = read.map_or(0, |written| (written as u16).wrapping_sub(self.counter));
        let operation = control::OPCODE.get(&entry);
        let breaks = left != 0 && matches!(operation, op::SEND | op::LSO);
        if breaks {
            self.fail(bus, events, number, left, syndrome::PROTECTION);
        }
        breaks
    }

    /// Works off the entries that are there until `frames` frames have been sent; returns how many there were.
    ///
    /// Entries that come meanwhile have a doorbell of their own, so that no driver can keep the card here.
    pub(crate) fn run(
        &mut self,
        bus: &mut dyn Bus,
        keys: &mut MemoryKeys,
        events: &mut Events,
        number: u32,
        frames: usize,
    ) -> usize {
        let mut sent = 0;
        let Ok(written) = read_word(bus, self.record, doorbell_record::SEND_PRODUCER) else {
            self.fail(bus, events, number, 1, syndrome::PROTECTION);
            self.rung = false;
            return sent;
        };
        loop {
            // CAST: the counter has 16 bits.
            let left = (written as u16).wrapping_sub(self.counter);
            if left == 0
                || u32::from(left) > self.ring.elements()
                || self.state == QueueState::Reset
            {
                self.rung = false;
                return sent;
            }
            if !events.has_room(bus, self.completion_queue, 1) {
                return sent;
            }
            if self.state == QueueState::Error {
                self.fail(bus, events, number, left, syndrome::FLUSHED);
                continue;
            }
            let most = frames.saturating_sub(sent);
            match self.step(bus, keys, events, number, left, most) {
                Ok(Some(count)) => sent += count,
                Ok(None) => return sent,
                Err(why) => self.fail(bus, events, number, left, why),
            }
        }
    }

    /// Works off one entry of `left` blocks at most; returns how many frames it was, or none if it has to wait.
    fn step(
        &mut self,
        bus: &mut dyn Bus,
        keys: &mut MemoryKeys,
        events: &mut Events,
        number: u32,
        left: u16,
        frames: usize,
    ) -> Result<Option<usize>, u8> {
        let mut entry = vec![0; BLOCK];
        let read = |bus: &mut dyn Bus, counter: u16, into: &mut [u8]| {
            self.ring
                .read(bus, u32::from(counter), into)
                .map_err(|_| syndrome::PROTECTION)
        };
        read(bus, self.counter, &mut entry)?;
        let blocks = length(&entry).div_ceil(BLOCK).max(1);
        let operation = control::OPCODE.get(&entry);
        if matches!(operation, op::SEND | op::LSO) && frames == 0 {
            return Ok(None);
        }
        if blocks > usize::from(left).min(MOST_BLOCKS) {
            return Err(syndrome::LENGTH);
        }
        entry.resize(blocks * BLOCK, 0);
        for block in 1..blocks {
            // CAST: at most 16.
            let counter = self.counter.wrapping_add(block as u16);
            read(bus, counter, &mut entry[block * BLOCK..(block + 1) * BLOCK])?;
        }
        let work = match operation {
            op::NOP => Work::Nothing,
            op::UMR => {
                keys.update(&entry).map_err(|Denied| syndrome::PROTECTION)?;
                Work::Nothing
            }
            op::SEND | op::LSO => gather(bus, keys, &entry, operation)?,
            _ => return Err(BAD_OPERATION),
        };
        let count = match work {
            Work::Nothing => 0,
            Work::Send(mut frame, offloads) => {
                segment::finish(&mut frame, offloads);
                bus.tx_frame(&frame);
                1
            }
            Work::Cut {
                large,
                head,
                size,
                offloads,
            } => {
                let mut count = 0;
                let cut = segment::cut(&large, head, size, offloads, |frame| {
                    bus.tx_frame(frame);
                    count += 1;
                });
                if !cut {
                    return Err(syndrome::LENGTH);
                }
                count
            }
        };
        if control::COMPLETION_MODE.get(&entry) == ASKS_FOR_COMPLETION {
            let done = self.completion(REQUEST, operation, number);
            events.complete(bus, self.completion_queue, &done);
        }
        // CAST: at most 16.
        self.counter = self.counter.wrapping_add(blocks as u16);
        Ok(Some(count))
    }

    /// Completes one entry of `left` blocks at most with an error; the queue stops until the driver resets it.
    ///
    /// An entry that claims more blocks is cut there: else the counter would pass the driver's and never meet it.
    pub(crate) fn fail(
        &mut self,
        bus: &mut dyn Bus,
        events: &mut Events,
        number: u32,
        left: u16,
        why: u8,
    ) {
        let mut entry = [0; control::BYTES];
        let known = self
            .ring
            .read(bus, u32::from(self.counter), &mut entry)
            .is_ok();
        let blocks = length(&entry)
            .div_ceil(BLOCK)
            .min(usize::from(left))
            .clamp(1, MOST_BLOCKS);
        let operation = control::OPCODE.get(&entry);
        let mut entry = self.completion(REQUEST_ERROR, if known { operation } else { 0 }, number);
        err_cqe::SYNDROME.set(&mut entry, why.into());
        events.complete(bus, self.completion_queue, &entry);
        // CAST: at most 16.
        self.counter = self.counter.wrapping_add(blocks as u16);
        self.state = QueueState::Error;
        self.rung = true;
    }

    /// Returns the completion of the work queue entry that is next.
    fn completion(&self, opcode: u64, operation: u64, number: u32) -> CompletionEntry {
        let mut entry = [0; completion::BYTES];
        completion::SEND_OPCODE.set(&mut entry, operation);
        completion::SEND_QUEUE.set(&mut entry, number.into());
        completion::WQE_COUNTER.set(&mut entry, self.counter.into());
        completion::OPCODE.set(&mut entry, opcode);
        entry
    }
}

/// Returns how many bytes an entry says it has.
fn length(entry: &[u8]) -> usize {
    usize::from(control::LENGTH.get16(entry)) * UNIT
}

/// Collects a frame from a work queue entry: inline headers, then data segments.
fn gather(bus: &mut dyn Bus, keys: &MemoryKeys, entry: &[u8], operation: u64) -> Result<Work, u8> {
    let how = &entry[control::BYTES..];
    let offloads = Offloads {
        ip_checksum: ethernet::L3_CHECKSUM.is_set(how),
        transport_checksum: ethernet::L4_CHECKSUM.is_set(how),
    };
    let inserts = ethernet::INSERT_TAG.is_set(how);
    let head = if inserts {
        0
    } else {
        usize::from(ethernet::HEADER_BYTES.get16(how))
    };
    let inline = |at: usize, bytes: usize| entry.get(at..at + bytes).ok_or(syndrome::LENGTH);
    let mut frame = inline(HEADERS_AT, head)?.to_vec();
    let end = length(entry).min(entry.len());
    let mut at = (HEADERS_AT + head).next_multiple_of(UNIT).max(DATA_AT);
    while at + data::BYTES <= end {
        let segment = &entry[at..];
        if data::IS_INLINE.is_set(segment) {
            let bytes = usize::from(data::INLINE_BYTES.get16(segment));
            frame.extend_from_slice(inline(at + wqe_inline_seg::BYTES, bytes)?);
            at += (wqe_inline_seg::BYTES + bytes).next_multiple_of(UNIT);
            continue;
        }
        let start = frame.len();
        let bytes = data::MEMORY_BYTES.get32(segment) as usize;
        if start + bytes > MOST_BYTES {
            return Err(syndrome::LENGTH);
        }
        frame.resize(start + bytes, 0);
        let (key, address) = (data::LKEY.get32(segment), data::ADDR.get(segment));
        keys.read(bus, key, address, &mut frame[start..])
            .map_err(|Denied| syndrome::PROTECTION)?;
        at += data::BYTES;
    }
    if inserts {
        insert_tag(
            &mut frame,
            Tag {
                control: ethernet::INSERT_VLAN_TCI.get16(how),
                service: ethernet::SERVICE_TAG.is_set(how),
            },
        );
    }
    if frame.len() < LINK_BYTES {
        return Err(syndrome::LENGTH);
    }
    Ok(if operation == op::LSO {
        Work::Cut {
            large: frame,
            head,
            size: usize::from(ethernet::MSS.get16(how)),
            offloads,
        }
    } else {
        Work::Send(frame, offloads)
    })
}
