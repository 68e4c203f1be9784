// SPDX-License-Identifier: GPL-2.0

//! Receive queues: a buffer for each frame (cyclic), or large buffers of many strides that several frames share (striding).

use super::checksum;
use super::packet::{Headers, Tag, LINK_BYTES, TCP};
use super::ring::Ring;
use super::rss::Hash;
use crate::firmware::commands::Status;
use crate::firmware::field::Field;
use crate::firmware::layout::{
    completion, create_rq_in, data_segment, doorbell_record, err_cqe, rqc, wq, wqe_srq_next_seg,
};
use crate::firmware::memory_keys::{Denied, MemoryKeys};
use crate::host::bus::{read_word, Bus};
use crate::host::events::{CompletionEntry, Events};

/// Types of receive queues.
const CYCLIC: u64 = 1;
const STRIDING: u64 = 2;

/// Opcodes of completions: a frame was received, or the queue has failed.
pub(crate) const RESPONSE: u64 = 2;
const RESPONSE_ERROR: u64 = 14;

/// The reasons for which a completion is an error.
pub(crate) mod syndrome {
    /// The buffer is too short.
    pub(crate) const LENGTH: u8 = 0x01;
    /// The buffer's memory key does not allow it.
    pub(crate) const PROTECTION: u8 = 0x04;
    /// The queue has failed before.
    pub(crate) const FLUSHED: u8 = 0x05;
}

/// The state of a receive or send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// It was created, or reset.
    Reset = 0,
    /// It works.
    Ready = 1,
    /// It has failed.
    Error = 3,
}

impl QueueState {
    /// Returns the state with this number.
    pub(crate) fn of(number: u64) -> Result<Self, Status> {
        match number {
            0 => Ok(Self::Reset),
            1 => Ok(Self::Ready),
            3 => Ok(Self::Error),
            _ => Err(Status::BadParameter),
        }
    }

    /// Returns the state after a command that wants to go from one to another.
    pub(crate) fn go(self, from: u64, to: u64) -> Result<Self, Status> {
        let (from, to) = (Self::of(from)?, Self::of(to)?);
        let possible = matches!(
            (from, to),
            (_, Self::Error) | (_, Self::Reset) | (Self::Reset | Self::Ready, Self::Ready)
        );
        if self == from && possible {
            Ok(to)
        } else {
            Err(Status::BadResourceState)
        }
    }
}

/// The buffer of a striding queue that frames go into.
#[derive(Clone, Copy, Debug)]
struct Current {
    entry: u16,
    key: u32,
    address: u64,
    used: u32,
}

/// The kind of a queue's buffers.
#[derive(Clone, Debug)]
enum BufferKind {
    Cyclic,
    Striding {
        stride_bytes: u32,
        strides: u32,
        /// The entry to take next; each names its successor.
        next: u16,
        current: Option<Current>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) state: QueueState,
    pub(crate) completion_queue: u32,
    pub(crate) counter_set: u32,
    pub(crate) keeps_tags: bool,
    ring: Ring,
    /// The address at which the driver keeps the number of buffers it has posted.
    record: u64,
    /// The number of buffers that have been used.
    counter: u16,
    kind: BufferKind,
}

/// The facts that a completion states about a frame.
#[derive(Clone, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) headers: Headers,
    /// The tag that was taken out.
    pub(crate) tag: Option<Tag>,
    pub(crate) hash: Hash,
    pub(crate) flow_tag: u32,
    /// True if the next completion shall overtake this one's, which a striding queue allows.
    pub(crate) late: bool,
}

/// The outcome of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Done,
    /// There is no buffer, or no room for the completion.
    NoRoom,
    /// The queue is broken now.
    Failed,
}

impl ReceiveQueue {
    /// Carries out CREATE_RQ.
    pub(crate) fn create(input: &[u8], events: &Events) -> Result<Self, Status> {
        let context = create_rq_in::CTX.of(input);
        let work = rqc::WQ.of(context);
        let completion_queue = rqc::CQN.get32(context);
        events.completion_queues.get(completion_queue)?;
        let kind = match wq::WQ_TYPE.get(work) {
            CYCLIC => BufferKind::Cyclic,
            STRIDING => {
                // Four bits with a sign: from 2 to the 9th, or less.
                let log_strides = (wq::LOG_WQE_NUM_OF_STRIDES.get32(work) + 9) & 15;
                let log_bytes = 6 + wq::LOG_WQE_STRIDE_SIZE.get32(work);
                BufferKind::Striding {
                    stride_bytes: 1 << log_bytes,
                    strides: 1 << log_strides,
                    next: 0,
                    current: None,
                }
            }
            _ => return Err(Status::BadParameter),
        };
        Ok(Self {
            state: QueueState::Reset,
            completion_queue,
            counter_set: rqc::COUNTER_SET_ID.get32(context),
            keeps_tags: rqc::VSD.is_set(context),
            ring: Ring::of_work_queue(work)?,
            record: wq::DBR_ADDR.get(work),
            counter: 0,
            kind,
        })
    }

    /// Returns whether the driver finds a completion's buffer by its number, whatever the order they come in.
    pub(crate) fn takes_any_order(&self) -> bool {
        matches!(self.kind, BufferKind::Striding { .. })
    }

    /// Changes the state; a queue that leaves the reset state starts again.
    pub(crate) fn set_state(&mut self, state: QueueState) {
        if self.state == QueueState::Reset || state == QueueState::Reset {
            self.counter = 0;
            if let BufferKind::Striding { next, current, .. } = &mut self.kind {
                (*next, *current) = (0, None);
            }
        }
        self.state = state;
    }

    /// Returns how many posted buffers have not been begun.
    pub(crate) fn buffers_left(&self, bus: &mut dyn Bus) -> u16 {
        let posted = read_word(bus, self.record, doorbell_record::RECEIVE_PRODUCER);
        // CAST: the counter has 16 bits.
        posted.map_or(0, |posted| (posted as u16).wrapping_sub(self.counter))
    }

    /// Puts a frame into the next buffer.
    pub(crate) fn deliver(
        &mut self,
        bus: &mut dyn Bus,
        keys: &MemoryKeys,
        events: &mut Events,
        number: u32,
        received: &Received<'_>,
    ) -> Delivery {
        // A frame may need a filler, too.
        if !events.has_room(bus, self.completion_queue, 2) {
            return Delivery::NoRoom;
        }
        let Ok(posted) = read_word(bus, self.record, doorbell_record::RECEIVE_PRODUCER) else {
            return self.fail(bus, events, number, syndrome::PROTECTION);
        };
        // CAST: the counter has 16 bits.
        let left = (posted as u16).wrapping_sub(self.counter);
        let outcome = match self.kind {
            BufferKind::Cyclic => self.deliver_cyclic(bus, keys, received.frame, left),
            BufferKind::Striding { .. } => {
                self.deliver_striding(bus, keys, events, received.frame, left)
            }
        };
        match outcome {
            Ok(None) => Delivery::NoRoom,
            Ok(Some(place)) => {
                let entry = completion_of(number, received, &place);
                if received.late {
                    events.complete_late(bus, self.completion_queue, &entry);
                } else {
                    events.complete(bus, self.completion_queue, &entry);
                }
                Delivery::Done
            }
            Err(error) => self.fail(bus, events, number, error),
        }
    }

    fn deliver_cyclic(
        &mut self,
        bus: &mut dyn Bus,
        keys: &MemoryKeys,
        frame: &[u8],
        left: u16,
    ) -> Result<Option<FramePlace>, u8> {
        if left == 0 {
            return Ok(None);
        }
        let mut entry = vec![0; self.ring.element_bytes()];
        let index = self.counter;
        self.ring
            .read(bus, u32::from(index), &mut entry)
            .map_err(|_| syndrome::PROTECTION)?;
        let mut rest = frame;
        for segment in entry.chunks_exact(data_segment::BYTES) {
            let bytes = data_segment::MEMORY_BYTES.get32(segment) as usize;
            if rest.is_empty() || bytes == 0 {
                break;
            }
            let (now, later) = rest.split_at(bytes.min(rest.len()));
            let (key, address) = (
                data_segment::LKEY.get32(segment),
                data_segment::ADDR.get(segment),
            );
            keys.write(bus, key, address, now)
                .map_err(|Denied| syndrome::PROTECTION)?;
            rest = later;
        }
        if !rest.is_empty() {
            return Err(syndrome::LENGTH);
        }
        self.counter = self.counter.wrapping_add(1);
        Ok(Some(FramePlace::of_buffer(index)))
    }

    fn deliver_striding(
        &mut self,
        bus: &mut dyn Bus,
        keys: &MemoryKeys,
        events: &mut Events,
        frame: &[u8],
        left: u16,
    ) -> Result<Option<FramePlace>, u8> {
        let BufferKind::Striding {
            stride_bytes,
            strides,
            next,
            current,
        } = &mut self.kind
        else {
            return Ok(None);
        };
        // CAST: a frame is shorter than 64 KB.
        let need = (frame.len() as u32).div_ceil(*stride_bytes).max(1);
        if need > *strides {
            return Err(syndrome::LENGTH);
        }
        if let Some(full) = current.filter(|current| current.used + need > *strides) {
            if left == 0 {
                return Ok(None);
            }
            // The rest of this buffer stays empty, which the driver has to know.
            let filler = FramePlace {
                entry: full.entry,
                counter: full.used as u16,
                strides: *strides - full.used,
            };
            let mut entry = filler.completion();
            completion::FILLER.set(&mut entry, 1);
            events.complete(bus, self.completion_queue, &entry);
            *current = None;
        }
        if current.is_none() {
            if left == 0 {
                return Ok(None);
            }
            let mut entry = [0; wqe_srq_next_seg::BYTES + data_segment::BYTES];
            self.ring
                .read(bus, u32::from(*next), &mut entry)
                .map_err(|_| syndrome::PROTECTION)?;
            let (head, buffer) = entry.split_at(wqe_srq_next_seg::BYTES);
            *current = Some(Current {
                entry: *next,
                key: data_segment::LKEY.get32(buffer),
                address: data_segment::ADDR.get(buffer),
                used: 0,
            });
            *next = wqe_srq_next_seg::NEXT_WQE_INDEX.get16(head);
            self.counter = self.counter.wrapping_add(1);
        }
        let Some(place) = current else {
            return Ok(None);
        };
        let at = place
            .address
            .wrapping_add(u64::from(place.used * *stride_bytes));
        keys.write(bus, place.key, at, frame)
            .map_err(|Denied| syndrome::PROTECTION)?;
        // CAST: at most 2 to the 15th strides.
        let found = FramePlace {
            entry: place.entry,
            counter: place.used as u16,
            strides: need,
        };
        place.used += need;
        if place.used == *strides {
            *current = None;
        }
        Ok(Some(found))
    }

    /// Completes one buffer with an error; the queue stops until the driver resets it.
    pub(crate) fn fail(
        &mut self,
        bus: &mut dyn Bus,
        events: &mut Events,
        number: u32,
        why: u8,
    ) -> Delivery {
        let place = match &mut self.kind {
            BufferKind::Cyclic => FramePlace::of_buffer(self.counter),
            BufferKind::Striding {
                next,
                current,
                strides,
                ..
            } => {
                let (entry, used) = current
                    .take()
                    .map_or((*next, 0), |current| (current.entry, current.used));
                FramePlace {
                    entry,
                    // CAST: at most 2 to the 15th strides.
                    counter: used as u16,
                    strides: *strides - used,
                }
            }
        };
        let mut entry = place.completion();
        completion::QUEUE.set(&mut entry, number.into());
        err_cqe::SYNDROME.set(&mut entry, why.into());
        completion::OPCODE.set(&mut entry, RESPONSE_ERROR);
        events.complete(bus, self.completion_queue, &entry);
        self.state = QueueState::Error;
        Delivery::Failed
    }
}

/// The place of a received frame.
#[derive(Clone, Copy, Debug)]
struct FramePlace {
    entry: u16,
    /// The entry of a cyclic queue, the first stride of a striding one.
    counter: u16,
    strides: u32,
}

impl FramePlace {
    /// Returns the place of a frame in a buffer of its own.
    fn of_buffer(counter: u16) -> Self {
        Self {
            entry: 0,
            counter,
            strides: 0,
        }
    }

    fn completion(&self) -> CompletionEntry {
        let mut entry = [0; completion::BYTES];
        completion::WQE_ID.set(&mut entry, self.entry.into());
        completion::STRIDES.set(&mut entry, self.strides.into());
        completion::WQE_COUNTER.set(&mut entry, self.counter.into());
        completion::OPCODE.set(&mut entry, RESPONSE);
        entry
    }
}

/// Returns the completion of a received frame.
fn completion_of(number: u32, received: &Received<'_>, place: &FramePlace) -> CompletionEntry {
    let frame = received.frame;
    let mut entry = place.completion();
    let mut set = |field: Field, value: u64| field.set(&mut entry, value);
    set(completion::FRAME_BYTES, frame.len() as u64);
    set(completion::RSS_HASH_RESULT, received.hash.value.into());
    set(completion::HASH_IP, received.hash.ip.into());
    set(completion::HASH_L4, received.hash.transport.into());
    // Of the Internet packet alone: the driver adds tags in front of it and padding behind it.
    let summed = match received.headers.ip {
        Some(ip) => ip.at..ip.end,
        None => LINK_BYTES..frame.len(),
    };
    let sum = checksum::sum(frame.get(summed).unwrap_or_default());
    set(completion::CHECK_SUM, sum.into());
    set(completion::QUEUE, number.into());
    if let Some(ip) = received.headers.ip {
        let good = ip.is_good(frame);
        let transport = received.headers.ports;
        let transport_good = transport && good && ip.transport_is_good(frame);
        set(completion::L2_OK, 1);
        set(completion::L3_OK, good.into());
        set(completion::L4_OK, transport_good.into());
        set(completion::L3_TYPE, if ip.version == 4 { 2 } else { 1 });
        let layer4 = match (transport, ip.protocol) {
            (false, _) => 0,
            (true, TCP) => tcp_type(frame, ip.payload, ip.end),
            (true, _) => 2,
        };
        set(completion::L4_TYPE, layer4);
    }
    if let Some(tag) = received.tag {
        set(completion::HAS_TAG, 1);
        set(completion::VLAN_INFO, tag.control.into());
    }
    set(completion::FLOW_TAG, received.flow_tag.into());
    entry
}

/// Returns the type of a TCP segment: without acknowledgement, with it alone, or with data, too.
fn tcp_type(frame: &[u8], at: usize, end: usize) -> u64 {
    let header = usize::from(frame[at + 12] >> 4) * 4;
    match (
        frame[at + 13] & super::packet::tcp_flag::ACK != 0,
        at + header < end,
    ) {
        (false, _) => 1,
        (true, false) => 3,
        (true, true) => 4,
    }
}
