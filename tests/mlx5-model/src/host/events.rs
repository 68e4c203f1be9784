// SPDX-License-Identifier: GPL-2.0

//! Event queues and completion queues: how the card says that something has happened.

use super::bus::{read_word, Bus};
use super::faults::{take, EventFaults};
use crate::datapath::compress::Session;
use crate::datapath::ring::Ring;
use crate::firmware::commands::Status;
use crate::firmware::field::Field;
use crate::firmware::layout::{
    cmd_inter_comp_event, comp_event, completion, cqc, create_cq_in, create_eq_in, doorbell,
    doorbell_record, eqc, eqe, port_state_change_event,
};
use crate::firmware::objects::Objects;

/// The bits of a counter that doorbells and records hold.
const COUNTER: u32 = 0xff_ffff;
/// The longest time for which a frame or completion that is to be overtaken waits for the next one.
pub(crate) const OVERTAKING_NS: u64 = 10_000_000;

/// A completion, as it is in memory.
pub(crate) type CompletionEntry = [u8; completion::BYTES];

/// An event that the driver is told of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// This completion queue has a new completion.
    Completion(u32),
    /// The link of the first and only port is up, or is not.
    Link(bool),
    /// The command in this entry is done.
    Command(u32),
}

impl Event {
    /// The type of events about commands.
    pub(crate) const COMMAND: u8 = 0x0a;

    /// Returns the type, the subtype, and the only field of the data that is not zero.
    fn content(self) -> (u8, u8, Field, u32) {
        let command = cmd_inter_comp_event::COMMAND_COMPLETION_VECTOR;
        match self {
            Self::Completion(queue) => (0x00, 0, comp_event::CQ_NUMBER, queue),
            Self::Link(true) => (0x09, 4, port_state_change_event::PORT_NUM, 1),
            Self::Link(false) => (0x09, 1, port_state_change_event::PORT_NUM, 1),
            Self::Command(entry) => (Self::COMMAND, 0, command, 1 << entry),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct EventQueue {
    ring: Ring,
    vector: u16,
    /// The kinds of events that the queue takes, one bit each.
    kinds: u64,
    producer: u32,
    consumer: u32,
    armed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct CompletionQueue {
    ring: Ring,
    event_queue: u32,
    /// The address at which the driver records how far it has read.
    record: u64,
    producer: u32,
    armed: bool,
    /// True while the queue is listed in [`Events::fresh`].
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
    pub(crate) lost_events: u64,
    pub(crate) lost_completions: u64,
    /// A completion that the next one of its queue shall overtake.
    overtaken: Option<Overtaken>,
    pub(crate) faults: EventFaults,
}

/// A completion that has to wait for another one.
#[derive(Clone, Debug)]
struct Overtaken {
    queue: u32,
    entry: CompletionEntry,
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

    /// Carries out CREATE_EQ.
    pub(crate) fn create_event_queue(&mut self, input: &[u8], vectors: u16) -> Result<u32, Status> {
        let context = create_eq_in::EQ_CONTEXT_ENTRY.of(input);
        let vector = eqc::INTR.get16(context);
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

    /// Carries out CREATE_CQ.
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

    /// Sends an event about the card to the queue that takes its kind, if there is one.
    pub(crate) fn tell(&mut self, bus: &mut dyn Bus, event: Event) {
        if let Some(number) = self.queue_of(event.content().0) {
            self.send(bus, number, event);
        }
    }

    fn send(&mut self, bus: &mut dyn Bus, number: u32, event: Event) {
        let Ok(queue) = self.event_queues.get_mut(number) else {
            return;
        };
        if queue.producer.wrapping_sub(queue.consumer) >= queue.ring.elements() {
            self.lost_events += 1;
            return;
        }
        let (kind, subkind, field, value) = event.content();
        let mut entry = [0; eqe::BYTES];
        eqe::EVENT_TYPE.set(&mut entry, kind.into());
        eqe::EVENT_SUB_TYPE.set(&mut entry, subkind.into());
        field.after(eqe::EVENT_DATA).set(&mut entry, value.into());
        eqe::OWNER.set(&mut entry, queue.ring.rounds(queue.producer).into());
        if queue.ring.publish(bus, queue.producer, &entry).is_err() {
            self.lost_events += 1;
            return;
        }
        queue.producer = queue.producer.wrapping_add(1);
        let completion = matches!(event, Event::Completion(_));
        if completion && queue.armed && take(&mut self.faults.lost_interrupts) {
            queue.armed = false;
            return;
        }
        queue.fire(bus);
    }

    /// Takes the driver's position in an event queue, and its wish for an interrupt for events that are left or come.
    pub(crate) fn event_doorbell(&mut self, bus: &mut dyn Bus, data: &[u8], arm: bool) {
        let number = doorbell::EVENT_QUEUE.get32(data);
        let Ok(queue) = self.event_queues.get_mut(number) else {
            return;
        };
        let consumer = doorbell::EVENT_CONSUMER.get32(data);
        let behind = queue.producer.wrapping_sub(consumer) & COUNTER;
        if behind <= queue.ring.elements() {
            queue.consumer = queue.producer.wrapping_sub(behind);
        }
        if arm {
            queue.armed = true;
            queue.fire(bus);
        }
    }

    /// Takes the driver's position in a completion queue, and its wish for an event for completions that are left or come.
    pub(crate) fn completion_doorbell(&mut self, bus: &mut dyn Bus, data: &[u8]) {
        let number = doorbell::COMPLETION_QUEUE.get32(data);
        let Ok(queue) = self.completion_queues.get_mut(number) else {
            return;
        };
        queue.armed = true;
        let consumer = doorbell::COMPLETION_CONSUMER.get32(data);
        if queue.producer.wrapping_sub(consumer) & COUNTER != 0 {
            self.flush_queue(bus, number);
        }
    }

    /// Returns whether a completion queue has room for `count` more.
    pub(crate) fn has_room(&self, bus: &mut dyn Bus, number: u32, count: u32) -> bool {
        let Ok(queue) = self.completion_queues.get(number) else {
            return false;
        };
        let Ok(consumer) = read_word(bus, queue.record, doorbell_record::COMPLETION_CONSUMER)
        else {
            return false;
        };
        let waiting =
            queue.session.as_ref().map_or(0, Session::len) + u32::from(self.overtakes(number));
        let used = queue.producer.wrapping_sub(consumer) & COUNTER;
        used + waiting + count <= queue.ring.elements()
    }

    /// Adds a completion; the event follows with [`Events::flush`].
    pub(crate) fn complete(&mut self, bus: &mut dyn Bus, number: u32, entry: &CompletionEntry) {
        if !self.has_room(bus, number, 1) {
            self.lost_completions += 1;
            return;
        }
        self.add(bus, number, entry);
        if self.overtakes(number) {
            self.end_overtaking(bus);
        }
    }

    fn add(&mut self, bus: &mut dyn Bus, number: u32, entry: &CompletionEntry) {
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
    pub(crate) fn complete_late(
        &mut self,
        bus: &mut dyn Bus,
        number: u32,
        entry: &CompletionEntry,
    ) {
        if self.overtaken.is_some() {
            return self.complete(bus, number, entry);
        }
        self.overtaken = Some(Overtaken {
            queue: number,
            entry: *entry,
            since_ns: bus.now_ns(),
        });
    }

    /// Returns a line for each queue with something that the driver has not read, or that it waits for.
    pub(crate) fn unread(&self, bus: &mut dyn Bus) -> Vec<String> {
        let line = |name: String, unread: u32, armed: bool| {
            let armed_text = if armed { ", armed" } else { "" };
            (unread > 0 || !armed).then(|| format!("{name}: {unread}{armed_text}"))
        };
        let completions = self.completion_queues.iter().filter_map(|(number, queue)| {
            let consumer = read_word(bus, queue.record, doorbell_record::COMPLETION_CONSUMER);
            let unread = consumer.map_or(0, |consumer| {
                queue.producer.wrapping_sub(consumer) & COUNTER
            });
            let name = format!("completions {number:#x} (events {})", queue.event_queue);
            line(name, unread, queue.armed)
        });
        let completions: Vec<String> = completions.collect();
        let events = self.event_queues.iter().filter_map(|(number, queue)| {
            let unread = queue.producer.wrapping_sub(queue.consumer);
            let name = format!("events {number} (vector {})", queue.vector);
            line(name, unread, queue.armed)
        });
        completions.into_iter().chain(events).collect()
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

    /// Carries out DESTROY_CQ.
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
        let event = Event::Completion(number);
        self.send(bus, event_queue, event);
        if take(&mut self.faults.duplicates) {
            self.send(bus, event_queue, event);
            if let Ok(queue) = self.event_queues.get(event_queue) {
                bus.raise_msix(queue.vector);
            }
        }
    }
}

impl EventQueue {
    /// Raises the interrupt if the driver has asked for it and an event is there.
    fn fire(&mut self, bus: &mut dyn Bus) {
        if self.armed && self.producer != self.consumer {
            self.armed = false;
            bus.raise_msix(self.vector);
        }
    }
}

impl CompletionQueue {
    /// Adds a completion, to others of its kind where they are compressed.
    fn add(&mut self, bus: &mut dyn Bus, entry: &CompletionEntry) {
        if self
            .session
            .as_ref()
            .is_some_and(|session| !session.takes(entry))
        {
            self.end_session(bus);
        }
        match &mut self.session {
            Some(session) => session.push(entry),
            None => self.publish(bus, *entry, 1),
        }
    }

    /// Writes a completion that takes `count` places.
    fn publish(&mut self, bus: &mut dyn Bus, mut entry: CompletionEntry, count: u32) {
        let rounds = self.ring.rounds(self.producer);
        completion::OWNER.set(&mut entry, rounds.into());
        // If the memory of the queue is gone, the driver no longer reads it.
        let _gone = self.ring.publish(bus, self.producer, &entry);
        self.producer = self.producer.wrapping_add(count);
    }

    /// Writes the completions that wait for more of their kind.
    fn end_session(&mut self, bus: &mut dyn Bus) {
        let Some(session) = self.session.as_mut().filter(|session| session.len() > 0) else {
            return;
        };
        let entries = session.take();
        let [title] = &entries.full[..] else {
            return;
        };
        if entries.small.len() < 2 {
            return self.publish(bus, *title, 1);
        }
        // CAST: bounded by what a session takes.
        let count = entries.small.len() as u32;
        for (block, at) in entries.blocks() {
            // CAST: at most the count above.
            let _gone = bus.dma_write(
                self.ring.address(self.producer.wrapping_add(at as u32)),
                &block,
            );
        }
        self.publish(bus, entries.title(count), count);
    }

    /// Returns what QUERY_CQ says: the producer.
    pub(crate) fn producer(&self) -> u32 {
        self.producer
    }
}
