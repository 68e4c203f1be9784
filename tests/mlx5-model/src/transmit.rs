// SPDX-License-Identifier: GPL-2.0

//! Send queues: frames, cut and finished on their way out, and changes of memory keys.

use crate::bus::{read_be32, Bus};
use crate::events::Events;
use crate::field::{be16, be32, be64, put};
use crate::layout::{create_sq_in, sqc, wq};
use crate::memory_keys::{Denied, MemoryKeys};
use crate::packet::{insert_tag, Tag};
use crate::receive::{syndrome, State};
use crate::ring::Ring;
use crate::segment::{self, Offloads};
use crate::status::Status;

/// Operations.
mod op {
    pub(super) const NOP: u8 = 0x00;
    pub(super) const SEND: u8 = 0x0a;
    pub(super) const LSO: u8 = 0x0e;
    pub(super) const UMR: u8 = 0x25;
}

/// Completions of a request, and of one that failed.
const REQUEST: u8 = 0;
const REQUEST_ERROR: u8 = 13 << 4;
/// An operation the card does not know.
const BAD_OPERATION: u8 = 0x02;

/// The basic block of an entry.
const BLOCK: usize = 64;
/// No entry has more.
const MOST_BLOCKS: usize = 16;
/// No frame is longer before it is cut.
const MOST_BYTES: usize = 0x4_0000;
const ASKS_FOR_COMPLETION: u8 = 0x08;
const IS_INLINE: u32 = 0x8000_0000;

/// A send queue.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    pub(crate) state: State,
    pub(crate) completion_queue: u32,
    /// Whether its doorbell has rung and not all is done.
    pub(crate) rung: bool,
    ring: Ring,
    /// Where the driver keeps how far it has written.
    record: u64,
    counter: u16,
}

/// What to do with an entry.
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
    /// CREATE_SQ.
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
            state: State::Reset,
            completion_queue,
            rung: false,
            ring,
            record: wq::DBR_ADDR.get(work).wrapping_add(4),
            counter: 0,
        })
    }

    /// Changes the state; a queue that leaves the reset state starts anew.
    pub(crate) fn set_state(&mut self, state: State) {
        if self.state == State::Reset || state == State::Reset {
            self.counter = 0;
        }
        // What is left has to be completed, as errors.
        self.rung = state == State::Error;
        self.state = state;
    }

    /// Breaks the queue if the next entry is a frame; returns whether it was.
    pub(crate) fn break_at_frame(
        &mut self,
        bus: &mut dyn Bus,
        events: &mut Events,
        number: u32,
    ) -> bool {
        let mut control = [0; 16];
        let read = self
            .ring
            .read(bus, u32::from(self.counter), &mut control)
            .and(read_be32(bus, self.record));
        // CAST: the counter has 16 bits.
        let left = read.map_or(0, |written| (written as u16).wrapping_sub(self.counter));
        let breaks = left != 0 && matches!(control[3], op::SEND | op::LSO);
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
        let Ok(written) = read_be32(bus, self.record) else {
            self.fail(bus, events, number, 1, syndrome::PROTECTION);
            self.rung = false;
            return sent;
        };
        loop {
            // CAST: the counter has 16 bits.
            let left = (written as u16).wrapping_sub(self.counter);
            if left == 0 || u32::from(left) > self.ring.elements() || self.state == State::Reset {
                self.rung = false;
                return sent;
            }
            if !events.has_room(bus, self.completion_queue, 1) {
                return sent;
            }
            if self.state == State::Error {
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
        let blocks = (usize::from(entry[7] & 0x3f) * 16).div_ceil(BLOCK).max(1);
        let operation = entry[3];
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
        if entry[11] & 0x0c == ASKS_FOR_COMPLETION {
            let done = self.completion(REQUEST, operation, number);
            events.complete(bus, self.completion_queue, &done);
        }
        // CAST: at most 16.
        self.counter = self.counter.wrapping_add(blocks as u16);
        Ok(Some(count))
    }

    /// Completes one entry of `left` blocks at most with an error; the queue stops until the driver resets it.
    ///
    /// One that says it is longer ends with that: else the counter would step over the driver's, and go round.
    pub(crate) fn fail(
        &mut self,
        bus: &mut dyn Bus,
        events: &mut Events,
        number: u32,
        left: u16,
        why: u8,
    ) {
        let mut control = [0; 16];
        let known = self
            .ring
            .read(bus, u32::from(self.counter), &mut control)
            .is_ok();
        let blocks = (usize::from(control[7] & 0x3f) * 16)
            .div_ceil(BLOCK)
            .min(usize::from(left))
            .clamp(1, MOST_BLOCKS);
        let operation = if known { control[3] } else { 0 };
        let mut entry = self.completion(REQUEST_ERROR, operation, number);
        entry[55] = why;
        events.complete(bus, self.completion_queue, &entry);
        // CAST: at most 16.
        self.counter = self.counter.wrapping_add(blocks as u16);
        self.state = State::Error;
        self.rung = true;
    }

    /// Returns the completion of the work queue entry that is next.
    fn completion(&self, kind: u8, operation: u8, number: u32) -> [u8; 64] {
        let mut entry = [0; 64];
        let operation = u32::from(operation) << 24 | number;
        put(&mut entry, 56, &operation.to_be_bytes());
        put(&mut entry, 60, &self.counter.to_be_bytes());
        entry[63] = kind;
        entry
    }
}

/// Collects a frame from a work queue entry: inline headers, then data segments.
fn gather(bus: &mut dyn Bus, keys: &MemoryKeys, entry: &[u8], operation: u8) -> Result<Work, u8> {
    let flags = entry[20];
    let offloads = Offloads {
        ip_checksum: flags & 0x40 != 0,
        transport_checksum: flags & 0x80 != 0,
    };
    let kind = be16(entry, 28);
    let inserts = kind & 0x8000 != 0;
    let head = if inserts {
        0
    } else {
        usize::from(kind & 0x3ff)
    };
    let mut frame = entry.get(30..30 + head).ok_or(syndrome::LENGTH)?.to_vec();
    let end = (usize::from(entry[7] & 0x3f) * 16).min(entry.len());
    // Two bytes of inline headers have room in the segment before.
    let mut at = 32 + head.saturating_sub(2).div_ceil(16) * 16;
    while at + 16 <= end {
        let count = be32(entry, at);
        if count & IS_INLINE != 0 {
            let bytes = (count & 0x3ff) as usize;
            let here = entry.get(at + 4..at + 4 + bytes).ok_or(syndrome::LENGTH)?;
            frame.extend_from_slice(here);
            at += (4 + bytes).div_ceil(16) * 16;
            continue;
        }
        let (start, bytes) = (frame.len(), count as usize);
        if start + bytes > MOST_BYTES {
            return Err(syndrome::LENGTH);
        }
        frame.resize(start + bytes, 0);
        let (key, address) = (be32(entry, at + 4), be64(entry, at + 8));
        keys.read(bus, key, address, &mut frame[start..])
            .map_err(|Denied| syndrome::PROTECTION)?;
        at += 16;
    }
    if inserts {
        insert_tag(
            &mut frame,
            Tag {
                control: be16(entry, 30),
                service: kind & 1 != 0,
            },
        );
    }
    if frame.len() < 14 {
        return Err(syndrome::LENGTH);
    }
    Ok(if operation == op::LSO {
        Work::Cut {
            large: frame,
            head,
            size: usize::from(be16(entry, 22)),
            offloads,
        }
    } else {
        Work::Send(frame, offloads)
    })
}
