// SPDX-License-Identifier: GPL-2.0

//! Event queues and completion queues: how the card says that something has happened.

use crate::bus::{read_be32, Bus};
use crate::compress::Session;
use crate::faults::{take, EventFaults};
use crate::field::{be32, put};
use crate::layout::{cqc, create_cq_in, create_eq_in, eqc};
use crate::objects::Objects;
use crate::ring::Ring;
use crate::status::Status;

/// How long what is to be overtaken waits for what comes next.
pub(crate) const OVERTAKING_NS: u64 = 10_000_000;

/// What an event is about.
pub(crate) mod event {
    /// A completion queue has something.
    pub(crate) const COMPLETION: u8 = 0x00;
    /// The link has changed.
    pub(crate) const PORT_CHANGE: u8 = 0x09;
    /// A command is done.
    pub(crate) const COMMAND: u8 = 0x0a;
}

/// An event queue.
#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    ring: Ring,
    vector: u16,
    /// Which kinds of events it takes, one bit each.
    kinds: u64,
    producer: u32,
    consumer: u32,
    armed: bool,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub(crate) struct CompletionQueue {
    ring: Ring,
    event_queue: u32,
    /// Where the driver keeps how far it has read.
    record: u64,
    producer: u32,
    armed: bool,
    /// Whether it is among those that have something new in this burst.
    fresh: bool,
    /// Completions that wait for more of their kind, where they are compressed.
    session: Option<Session>,
}

/// All queues by which the card speaks to the driver.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    pub(crate) event_queues: Objects<EventQueue>,
    pub(crate) completion_queues: Objects<CompletionQueue>,
    /// Completion queues that have something new in this burst.
    fresh: Vec<u32>,
    /// Events that found no room.
    pub(crate) lost_events: u64,
    /// Completions that found no room.
    pub(crate) lost_completions: u64,
    /// A completion that the next one of its queue shall overtake.
    overtaken: Option<Overtaken>,
    pub(crate) faults: EventFaults,
}

/// A completion that has to wait for another one.
#[derive(Clone, Debug)]
struct Overtaken {
    queue: u32,
    entry: [u8; 64],
    since_ns: u64,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self {
            // Doorbells have eight bits for the number.
            event_queues: Objects::new(1, 255),
            completion_queues: Objects::new(0x40, 0xff_ffff),
            fresh: Vec::new(),
            lost_events: 0,
            lost_completions: 0,
            overtaken: None,
            faults: EventFaults::default(),
        }
    }

    /// CREATE_EQ.
    pub(crate) fn create_event_queue(&mut self, input: &[u8], vectors: u16) -> Result<u32, Status> {
        let context = create_eq_in::EQ_CONTEXT_ENTRY.of(input);
        // CAST: twelve bits.
        let vector = eqc::INTR.get(context) as u16;
        if vector >= vectors {
            return Err(Status::BadParameter);
        }
        self.event_queues.add(EventQueue {
            ring: Ring::new(
                create_eq_in::PAS.of(input),
                eqc::LOG_PAGE_SIZE.get32(context),
                eqc::PAGE_OFFSET.get32(context),
                6,
                eqc::LOG_EQ_SIZE.get32(context),
            )?,
            vector,
            kinds: create_eq_in::EVENT_BITMASK.get(input),
            producer: 0,
            consumer: 0,
            armed: false,
        })
    }

    /// CREATE_CQ.
    pub(crate) fn create_completion_queue(&mut self, input: &[u8]) -> Result<u32, Status> {
        let context = create_cq_in::CQ_CONTEXT.of(input);
        let event_queue = cqc::C_EQN_OR_APU_ELEMENT.get32(context);
        self.event_queues.get(event_queue)?;
        // Of a 128-byte element, only the second half is used.
        let log_element = if cqc::CQE_SZ.get(context) == 0 { 6 } else { 7 };
        let session = if cqc::CQE_COMP_EN.is_set(context) {
            Some(Session::new(cqc::MINI_CQE_RES_FORMAT.get32(context))?)
        } else {
            None
        };
        self.completion_queues.add(CompletionQueue {
            ring: Ring::new(
                create_cq_in::PAS.of(input),
                cqc::LOG_PAGE_SIZE.get32(context),
                cqc::PAGE_OFFSET.get32(context),
                log_element,
                cqc::LOG_CQ_SIZE.get32(context),
            )?,
            event_queue,
            record: cqc::DBR_ADDR.get(context),
            producer: 0,
            armed: false,
            fresh: false,
            session,
        })
    }

    /// Returns the event queue that takes events of a kind.
    pub(crate) fn queue_of(&self, kind: u8) -> Option<u32> {
        let takes = |queue: &EventQueue| queue.kinds >> kind & 1 == 1;
        self.event_queues
            .iter()
            .find(|(_, queue)| takes(queue))
            .map(|(number, _)| number)
    }

    /// Sends an event that is about the card to whoever asked for its kind.
    pub(crate) fn tell(&mut self, bus: &mut dyn Bus, kind: u8, subkind: u8, data: &[u8]) {
        if let Some(number) = self.queue_of(kind) {
            self.send(bus, number, kind, subkind, data);
        }
    }

    fn send(&mut self, bus: &mut dyn Bus, number: u32, kind: u8, subkind: u8, data: &[u8]) {
        let Ok(queue) = self.event_queues.get_mut(number) else {
            return;
        };
        if queue.producer.wrapping_sub(queue.consumer) >= queue.ring.elements() {
            self.lost_events += 1;
            return;
        }
        let mut event = [0; 64];
        event[1] = kind;
        event[3] = subkind;
        put(&mut event, 32, data);
        // CAST: one bit.
        event[63] = (queue.ring.rounds(queue.producer) & 1) as u8;
        if queue.ring.publish(bus, queue.producer, &event).is_err() {
            self.lost_events += 1;
            return;
        }
        queue.producer = queue.producer.wrapping_add(1);
        if kind == event::COMPLETION && queue.armed && take(&mut self.faults.lost_interrupts) {
            queue.armed = false;
            return;
        }
        queue.fire(bus);
    }

    /// The driver says how far it has read an event queue, and whether it wants an interrupt for what is left or comes.
    pub(crate) fn event_doorbell(&mut self, bus: &mut dyn Bus, value: u32, arm: bool) {
        let Ok(queue) = self.event_queues.get_mut(value >> 24) else {
            return;
        };
        let behind = queue.producer.wrapping_sub(value) & 0xff_ffff;
        if behind <= queue.ring.elements() {
            queue.consumer = queue.producer.wrapping_sub(behind);
        }
        if arm {
            queue.armed = true;
            queue.fire(bus);
        }
    }

    /// The driver has read a completion queue up to `value` and wants an event for what is left or comes.
    pub(crate) fn completion_doorbell(&mut self, bus: &mut dyn Bus, value: u32, number: u32) {
        let Ok(queue) = self.completion_queues.get_mut(number) else {
            return;
        };
        queue.armed = true;
        if queue.producer.wrapping_sub(value) & 0xff_ffff != 0 {
            self.flush_queue(bus, number);
        }
    }

    /// Returns whether a completion queue has room for `count` more.
    pub(crate) fn has_room(&self, bus: &mut dyn Bus, number: u32, count: u32) -> bool {
        let Ok(queue) = self.completion_queues.get(number) else {
            return false;
        };
        let Ok(consumer) = read_be32(bus, queue.record) else {
            return false;
        };
        let waiting =
            queue.session.as_ref().map_or(0, Session::len) + u32::from(self.overtakes(number));
        let used = queue.producer.wrapping_sub(consumer) & 0xff_ffff;
        used + waiting + count <= queue.ring.elements()
    }

    /// Adds a completion; the event follows with [`Events::flush`].
    pub(crate) fn complete(&mut self, bus: &mut dyn Bus, number: u32, entry: &[u8; 64]) {
        if !self.has_room(bus, number, 1) {
            self.lost_completions += 1;
            return;
        }
        self.add(bus, number, entry);
        if self.overtakes(number) {
            self.end_overtaking(bus);
        }
    }

    fn add(&mut self, bus: &mut dyn Bus, number: u32, entry: &[u8; 64]) {
        let Ok(queue) = self.completion_queues.get_mut(number) else {
            return;
        };
        if !queue.fresh {
            queue.fresh = true;
            self.fresh.push(number);
        }
        queue.add(bus, entry);
    }

    /// Adds a completion that the next one of its queue overtakes, if that comes soon.
    pub(crate) fn complete_late(&mut self, bus: &mut dyn Bus, number: u32, entry: &[u8; 64]) {
        if self.overtaken.is_some() {
            return self.complete(bus, number, entry);
        }
        self.overtaken = Some(Overtaken {
            queue: number,
            entry: *entry,
            since_ns: bus.now_ns(),
        });
    }

    fn overtakes(&self, number: u32) -> bool {
        let overtaken = self.overtaken.as_ref();
        overtaken.is_some_and(|overtaken| overtaken.queue == number)
    }

    fn end_overtaking(&mut self, bus: &mut dyn Bus) {
        if let Some(overtaken) = self.overtaken.take() {
            self.add(bus, overtaken.queue, &overtaken.entry);
        }
    }

    /// DESTROY_CQ.
    pub(crate) fn destroy_completion_queue(&mut self, number: u32) -> Result<(), Status> {
        self.overtaken
            .take_if(|overtaken| overtaken.queue == number);
        self.completion_queues.remove(number).map(drop)
    }

    /// Sends the events of all completion queues that have something new; called at the end of a burst.
    pub(crate) fn flush(&mut self, bus: &mut dyn Bus) {
        if let Some(overtaken) = &self.overtaken {
            if bus.now_ns().saturating_sub(overtaken.since_ns) > OVERTAKING_NS {
                self.end_overtaking(bus);
            }
        }
        while let Some(number) = self.fresh.pop() {
            self.flush_queue(bus, number);
        }
    }

    fn flush_queue(&mut self, bus: &mut dyn Bus, number: u32) {
        let Ok(queue) = self.completion_queues.get_mut(number) else {
            return;
        };
        queue.end_session(bus);
        queue.fresh = false;
        if !queue.armed {
            return;
        }
        queue.armed = false;
        let event_queue = queue.event_queue;
        if take(&mut self.faults.losses) {
            return;
        }
        let mut data = [0; 28];
        put(&mut data, 24, &number.to_be_bytes());
        self.send(bus, event_queue, event::COMPLETION, 0, &data);
        if take(&mut self.faults.duplicates) {
            self.send(bus, event_queue, event::COMPLETION, 0, &data);
            if let Ok(queue) = self.event_queues.get(event_queue) {
                bus.raise_msix(queue.vector);
            }
        }
    }
}

impl EventQueue {
    /// Raises the interrupt if somebody waits for it.
    fn fire(&mut self, bus: &mut dyn Bus) {
        if self.armed && self.producer != self.consumer {
            self.armed = false;
            bus.raise_msix(self.vector);
        }
    }
}

impl CompletionQueue {
    /// Adds a completion, to others of its kind where they are compressed.
    fn add(&mut self, bus: &mut dyn Bus, entry: &[u8; 64]) {
        if self
            .session
            .as_ref()
            .is_some_and(|session| !session.takes(entry))
        {
            self.end_session(bus);
        }
        match &mut self.session {
            Some(session) => session.push(entry),
            None => self.write(bus, entry),
        }
    }

    fn write(&mut self, bus: &mut dyn Bus, entry: &[u8; 64]) {
        let mut entry = *entry;
        // CAST: one bit.
        entry[63] |= (self.ring.rounds(self.producer) & 1) as u8;
        // A queue whose memory is gone is as good as one nobody reads.
        let _gone = self.ring.publish(bus, self.producer, &entry);
        self.producer = self.producer.wrapping_add(1);
    }

    /// Writes what waits for more of its kind.
    fn end_session(&mut self, bus: &mut dyn Bus) {
        let Some(session) = self.session.as_mut().filter(|session| session.len() > 0) else {
            return;
        };
        let entries = session.take();
        let [title] = &entries.full[..] else {
            return;
        };
        if entries.small.len() < 2 {
            let title = *title;
            self.write(bus, &title);
            return;
        }
        // CAST: bounded by what a session takes.
        let count = entries.small.len() as u32;
        for (block, at) in entries.blocks() {
            // CAST: the same.
            let _gone = bus.dma_write(
                self.ring.address(self.producer.wrapping_add(at as u32)),
                &block,
            );
        }
        let mut title = entries.title(count);
        // CAST: one bit.
        title[63] |= (self.ring.rounds(self.producer) & 1) as u8;
        let _gone = self.ring.publish(bus, self.producer, &title);
        self.producer = self.producer.wrapping_add(count);
    }

    /// Returns what QUERY_CQ says: the producer.
    pub(crate) fn producer(&self) -> u32 {
        self.producer
    }
}

/// Reads a completion doorbell: the number of the queue is in the second half.
pub(crate) fn completion_doorbell_of(data: &[u8]) -> (u32, u32) {
    (be32(data, 0), be32(data, 4))
}
