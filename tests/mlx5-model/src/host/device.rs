// SPDX-License-Identifier: GPL-2.0

//! The card: its objects, and the way of a frame in and out.

use super::bus::Bus;
use super::events::{Event, Events, OVERTAKING_NS};
use super::faults::{take, Faults};
use crate::datapath::packet::{strip_tag, Headers};
use crate::datapath::port::{Counted, Port, Traffic};
use crate::datapath::receive::{syndrome, Delivery, QueueState, ReceiveQueue, Received};
use crate::datapath::rss::{Hash, Hashing};
use crate::datapath::steering::Steering;
use crate::datapath::transmit::SendQueue;
use crate::firmware::memory_keys::MemoryKeys;
use crate::firmware::objects::Objects;

/// The properties of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The number of its interrupts: one, and one more for each channel.
    pub vectors: u16,
    /// True if it offers receive buffers that several frames share.
    pub striding: bool,
    /// True if it offers compressed completions.
    pub compression: bool,
    /// True if commands that the model does not know fail.
    pub strict: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mac: [0x02, 0xc0, 0xff, 0xee, 0, 1],
            vectors: 17,
            striding: false,
            compression: false,
            strict: true,
        }
    }
}

/// A command that was carried out, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The command's name, if the model knows it.
    pub name: Option<&'static str>,
    /// The bytes that the driver sent.
    pub input: Vec<u8>,
    /// The bytes that the driver got.
    pub output: Vec<u8>,
}

/// The outcome for a frame from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// It is in the machine's memory, or was dropped as a card would.
    Taken,
    /// There is no buffer for it yet.
    Wait,
}

/// A destination of received frames.
#[derive(Clone, Debug)]
pub(crate) struct Tir {
    /// A table of queues; without one, a single queue.
    pub(crate) table: Option<u32>,
    pub(crate) queue: u32,
    pub(crate) hashing: Hashing,
}

/// The card.
pub struct Device {
    pub(crate) config: Config,
    pub(crate) port: Port,
    pub(crate) events: Events,
    pub(crate) keys: MemoryKeys,
    pub(crate) steering: Steering,
    pub(crate) receive_queues: Objects<ReceiveQueue>,
    pub(crate) send_queues: Objects<SendQueue>,
    pub(crate) tirs: Objects<Tir>,
    pub(crate) queue_tables: Objects<Vec<u32>>,
    /// Frames without a buffer, by counter set.
    pub(crate) counter_sets: Objects<u64>,
    pub(crate) doorbell_pages: Objects<()>,
    pub(crate) protection_domains: Objects<()>,
    pub(crate) transport_domains: Objects<()>,
    pub(crate) send_interfaces: Objects<()>,
    pub(crate) unknown_commands: u64,
    /// Objects that drivers had not destroyed when they tore the card down.
    left_behind: usize,
    pub(crate) faults: Faults,
    /// The address at which the driver keeps its commands.
    pub(crate) command_queue: u64,
    pub(crate) health_counter: u32,
    /// Commands that came while the card did nothing, one bit each.
    pub(crate) late_commands: u32,
    pub(crate) journal: Option<Vec<Done>>,
    /// The send queue to begin with, so that each has its turn.
    turn: u32,
    /// A frame that the next one shall overtake, and the time since which it has waited for that.
    overtaken: Option<(Vec<u8>, u64)>,
}

impl Device {
    /// Returns a card as it is after power-on.
    pub fn new(config: Config) -> Self {
        let port = Port::new(config.mac);
        let all = || Objects::new(1, 0xff_ffff);
        Self {
            config,
            port,
            events: Events::new(),
            keys: MemoryKeys::new(),
            steering: Steering::new(),
            receive_queues: Objects::new(0x100, 0xff_ffff),
            send_queues: Objects::new(0x100, 0xff_ffff),
            tirs: Objects::new(1, 0xff_ffff),
            queue_tables: Objects::new(1, 0xff_ffff),
            counter_sets: Objects::new(1, 0xff),
            // Pages below hold other registers, those above the interrupts.
            doorbell_pages: Objects::new(16, 127),
            protection_domains: all(),
            transport_domains: all(),
            send_interfaces: all(),
            unknown_commands: 0,
            left_behind: 0,
            faults: Faults::default(),
            command_queue: 0,
            health_counter: 0,
            late_commands: 0,
            journal: None,
            turn: 0,
            overtaken: None,
        }
    }

    /// Resets the card, as the machine does before a driver gets it.
    pub fn reset(&mut self) {
        let journal = self.journal.take();
        *self = Self::new(self.config.clone());
        self.journal = journal;
    }

    /// Ends the driver's work with the card, and counts objects that it has not destroyed.
    pub(crate) fn tear_down(&mut self) {
        self.left_behind += self.objects();
        self.forget_objects();
    }

    /// Forgets all objects, as a card does that begins again.
    pub(crate) fn forget_objects(&mut self) {
        let fresh = Self::new(self.config.clone());
        let old = std::mem::replace(self, fresh);
        self.port = old.port;
        self.command_queue = old.command_queue;
        self.health_counter = old.health_counter;
        self.journal = old.journal;
        self.faults = old.faults;
        self.unknown_commands = old.unknown_commands;
        self.left_behind = old.left_behind;
        self.events.lost_events = old.events.lost_events;
        self.events.lost_completions = old.events.lost_completions;
    }

    /// Keeps a record of commands, for [`Device::take_journal`].
    pub fn keep_journal(&mut self) {
        self.journal.get_or_insert_default();
    }

    /// Returns the commands since the last call.
    pub fn take_journal(&mut self) -> Vec<Done> {
        self.journal
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Returns what the port has sent and received.
    pub fn traffic(&self) -> (Traffic, Traffic) {
        (self.port.sent, self.port.received)
    }

    /// Returns how many objects drivers had not destroyed when they tore the card down: none, if they are correct.
    pub fn left_behind(&self) -> usize {
        self.left_behind
    }

    /// Returns how many objects there are; none once a driver has cleaned up.
    pub fn objects(&self) -> usize {
        self.events.event_queues.len()
            + self.events.completion_queues.len()
            + self.receive_queues.len()
            + self.send_queues.len()
            + self.tirs.len()
            + self.queue_tables.len()
            + self.keys.len()
            + self.steering.len()
            + self.counter_sets.len()
            + self.doorbell_pages.len()
            + self.protection_domains.len()
            + self.transport_domains.len()
            + self.send_interfaces.len()
    }

    /// Returns how many events and completions found no room.
    pub fn lost(&self) -> u64 {
        self.events.lost_events + self.events.lost_completions
    }

    /// Returns whether a fault keeps it from doing anything.
    pub fn is_idle(&self) -> bool {
        self.faults.idle()
    }

    /// Returns the number of commands the model does not know.
    pub fn unknown_commands(&self) -> u64 {
        self.unknown_commands
    }

    /// Returns whether there is something to send.
    pub fn wants_to_transmit(&self) -> bool {
        !self.faults.idle() && self.send_queues.iter().any(|(_, queue)| queue.rung)
    }

    /// Works off send queues until about `frames` frames are sent; other work is not bounded by it. Returns how many there were.
    pub fn transmit(&mut self, bus: &mut dyn Bus, frames: usize) -> usize {
        if self.faults.idle() {
            return 0;
        }
        let mut rung: Vec<u32> = self
            .send_queues
            .iter()
            .filter(|(_, queue)| queue.rung)
            .map(|(number, _)| number)
            .collect();
        let first = rung
            .iter()
            .position(|number| *number > self.turn)
            .unwrap_or(0);
        rung.rotate_left(first);
        let mut sent = 0;
        for number in rung {
            let Ok(queue) = self.send_queues.get_mut(number) else {
                continue;
            };
            // Only queues that send frames: the driver does not repair all others.
            if frames > 0
                && queue.state == QueueState::Ready
                && self.faults.send_error
                && queue.break_at_frame(bus, &mut self.events, number)
            {
                self.faults.send_error = false;
            }
            let mut counted = Counted::new(bus, &mut self.port);
            let count = queue.run(
                &mut counted,
                &mut self.keys,
                &mut self.events,
                number,
                frames.saturating_sub(sent),
            );
            if count > 0 {
                self.turn = number;
            }
            sent += count;
        }
        sent
    }

    /// Takes a frame from the wire, without its check sequence.
    pub fn receive(&mut self, bus: &mut dyn Bus, frame: &[u8]) -> Receive {
        if self.faults.idle() {
            return Receive::Wait;
        }
        let waiting = self.overtaken.take();
        let received = self.accept(bus, frame, waiting.is_none());
        if let Some((late, since)) = waiting {
            if received == Receive::Wait || self.accept(bus, &late, false) == Receive::Wait {
                self.overtaken = Some((late, since));
            }
        }
        if received == Receive::Taken && take(&mut self.faults.duplicates) {
            // If there is no buffer for the duplicate, it is left out.
            let _no_matter = self.accept(bus, frame, false);
        }
        received
    }

    /// Takes a frame; `out_of_turn`: it may be one that is to be overtaken.
    fn accept(&mut self, bus: &mut dyn Bus, frame: &[u8], out_of_turn: bool) -> Receive {
        if !self.port.up || frame.len() < 14 {
            return Receive::Taken;
        }
        if !self.port.takes(frame) {
            self.port.too_long += 1;
            return Receive::Taken;
        }
        let headers = Headers::parse(frame);
        let Some((number, hash, flow_tag)) = self.queue_for(frame, &headers) else {
            self.port.count_received(frame);
            return Receive::Taken;
        };
        let Ok(queue) = self.receive_queues.get_mut(number) else {
            return Receive::Taken;
        };
        if queue.state != QueueState::Ready {
            self.port.count_received(frame);
            return Receive::Taken;
        }
        if take(&mut self.faults.missing_buffers) {
            self.port.count_received(frame);
            self.count_missing_buffer(number);
            return Receive::Taken;
        }
        if std::mem::take(&mut self.faults.receive_error) {
            self.port.count_received(frame);
            queue.fail(bus, &mut self.events, number, syndrome::PROTECTION);
            return Receive::Taken;
        }
        let late = out_of_turn && take(&mut self.faults.overtakes);
        if late && !queue.takes_any_order() {
            self.overtaken = Some((frame.to_vec(), bus.now_ns()));
            return Receive::Taken;
        }
        // Service tags are left to the driver.
        let taken_out = headers.tag.filter(|tag| !tag.service && !queue.keeps_tags);
        let stripped = taken_out.map(|_| {
            let mut frame = frame.to_vec();
            strip_tag(&mut frame);
            frame
        });
        let headers = stripped.as_deref().map_or(headers, Headers::parse);
        let received = Received {
            frame: stripped.as_deref().unwrap_or(frame),
            headers,
            tag: taken_out,
            hash,
            flow_tag,
            late,
        };
        match queue.deliver(bus, &self.keys, &mut self.events, number, &received) {
            Delivery::NoRoom => Receive::Wait,
            Delivery::Done | Delivery::Failed => {
                self.port.count_received(frame);
                Receive::Taken
            }
        }
    }

    /// Drops a frame that has waited for a buffer, and counts it as a card would.
    pub fn drop_waiting(&mut self, frame: &[u8]) {
        let headers = Headers::parse(frame);
        self.port.count_received(frame);
        if let Some((number, ..)) = self.queue_for(frame, &headers) {
            self.count_missing_buffer(number);
        }
    }

    /// Sends the events for the work that [`Device::transmit`] and [`Device::receive`] have completed.
    pub fn flush(&mut self, bus: &mut dyn Bus) {
        if let Some((late, since)) = self.overtaken.take() {
            let over = bus.now_ns().saturating_sub(since) > OVERTAKING_NS;
            if !over || self.accept(bus, &late, false) == Receive::Wait {
                self.overtaken = Some((late, since));
            }
        }
        self.events.flush(bus);
    }

    fn queue_for(&self, frame: &[u8], headers: &Headers) -> Option<(u32, Hash, u32)> {
        let target = self.steering.find(frame, headers)?;
        let tir = self.tirs.get(target.tir).ok()?;
        let hash = tir.hashing.hash(frame, headers);
        let queue = match tir.table {
            None => tir.queue,
            Some(table) => {
                let table = self.queue_tables.get(table).ok()?;
                *table.get(hash.value as usize % table.len().max(1))?
            }
        };
        Some((queue, hash, target.flow_tag))
    }

    fn count_missing_buffer(&mut self, number: u32) {
        let set = self
            .receive_queues
            .get(number)
            .map(|queue| queue.counter_set);
        if let Some(count) = set.ok().and_then(|set| self.counter_sets.get_mut(set).ok()) {
            *count += 1;
        }
    }

    /// Sets the link's state and tells the driver.
    pub fn set_link(&mut self, bus: &mut dyn Bus, up: bool) {
        self.port.up = up;
        self.events.tell(bus, Event::Link(up));
    }
}
