// SPDX-License-Identifier: GPL-2.0

//! A guest that does anything: the card must neither panic nor hang.
//!
//! It begins where a driver would be: with queues of its own, or in the middle of what Linux's driver was recorded to do,
//! some bytes of it changed. Then it sends commands, writes doorbells and its own memory, and frames come and go.
//!
//! Without libFuzzer, the program runs the inputs in the files it is given.

#![cfg_attr(fuzzing, no_main)]

use arbitrary::{Arbitrary, Unstructured};
use mlx5_model::firmware::field::Field;
use mlx5_model::firmware::layout::{
    control_segment, data_segment, doorbell_record, ethernet_segment, wqe_inline_seg, COMMANDS,
};
use mlx5_model::firmware::registers::FIRST_DOORBELL;
use mlx5_model::host::device::Config;
use mlx5_model::host::faults::Fault;
use mlx5_model::host::journal;

#[path = "../../tests/model/driver.rs"]
#[allow(dead_code, reason = "the model's own tests use the rest")]
mod driver;

use driver::{Driver, Path, Queue, ENTRIES, ENTRY_BYTES, FREE};

/// The commands that Linux's driver sent from probe to remove, by kind of receive queue.
const RECORDED: [&str; 2] = [
    include_str!("../../tests/recorded/cyclic.log"),
    include_str!("../../tests/recorded/striding.log"),
];
/// The number of bytes in which the guest keeps its queues.
const QUEUES_BYTES: usize = 16 * 4096;
const ENTRIES_BYTES: usize = ENTRIES as usize * ENTRY_BYTES;
/// The size of the guest's memory.
const MEMORY_BYTES: u32 = 1 << 20;
/// The operations of a send queue's entries: nothing, a change of a memory key, a frame, a frame to be cut into segments.
const OPERATIONS: [u8; 4] = [0x00, 0x25, 0x0a, 0x0e];
const DOORBELL_BYTES: u64 = 4096;
/// Segments of a send queue's entry begin at multiples of this.
const UNIT: usize = 16;
/// The number of the first send queue, and the number of send queues whose doorbells are rung.
const FIRST_QUEUE: u32 = 0x100;
const QUEUES: u32 = 16;

/// The guest's actions, and the kind of its card.
#[derive(Arbitrary, Debug)]
struct Guest {
    striding: bool,
    compression: bool,
    /// Its send queue is as large as can be, and all its pages are one page of memory.
    endless: bool,
    /// The recorded commands that the guest begins with; without them, it begins with queues of its own.
    recorded: Option<Recorded>,
    actions: Vec<Action>,
}

#[derive(Arbitrary, Debug)]
struct Recorded {
    commands: u16,
    changes: Vec<Change>,
}

/// A byte of a recorded command that is another.
#[derive(Arbitrary, Debug)]
struct Change {
    command: u16,
    byte: u16,
    value: u8,
}

#[derive(Arbitrary, Debug)]
enum Action {
    Command {
        operation: u8,
        input: Vec<u8>,
        output_bytes: u16,
    },
    /// A write to any doorbell.
    Doorbell {
        offset: u16,
        data: [u8; 8],
    },
    /// A write to the memory of a queue, or to memory of no queue in particular.
    Memory {
        queue: Option<Which>,
        offset: u16,
        data: Vec<u8>,
    },
    /// A write of the guest's position to the doorbell record of a queue.
    Record {
        queue: Which,
        count: u16,
    },
    Send(Vec<Entry>),
    Frame {
        for_card: bool,
        bytes: Vec<u8>,
    },
    /// A write to the doorbell of a send queue, of this guest or of the recorded driver.
    Ring {
        queue: u8,
    },
    Fault {
        which: u8,
        count: u8,
    },
    Transmit,
    Flush,
}

/// Returns a fault; those that happen more than once do so up to 255 times.
fn fault(which: u8, count: u8) -> Fault {
    let (on, many) = (count % 2 == 1, count.into());
    match which % 12 {
        0 => Fault::Link(on),
        1 => Fault::NoBuffers(many),
        2 => Fault::ReceiveError,
        3 => Fault::SendError,
        4 => Fault::Duplicate(many),
        5 => Fault::Overtake(many),
        6 => Fault::DuplicateEvents(many),
        7 => Fault::LoseEvents(many),
        8 => Fault::LoseInterrupts(many),
        9 => Fault::Stalled(on),
        10 => Fault::Health(count),
        _ => Fault::Fatal,
    }
}

/// An entry of a send queue.
#[derive(Arbitrary, Debug)]
struct Entry {
    operation: u8,
    wants_completion: bool,
    /// Checksums that the card is to make, and others that it may know.
    flags: u8,
    segment_bytes: u16,
    headers: Vec<u8>,
    segments: Vec<Segment>,
}

#[derive(Arbitrary, Debug)]
enum Segment {
    /// `bytes` are said to be here.
    Inline { bytes: u16, data: Vec<u8> },
    Memory {
        own_key: bool,
        key: u32,
        at: u32,
        bytes: u16,
    },
}

impl Entry {
    /// Returns it in blocks of a queue.
    fn blocks(&self, own_key: u32) -> Vec<u8> {
        let ethernet = control_segment::BYTES;
        let mut entry = vec![0; ethernet + ethernet_segment::INLINE_HDR_START.byte()];
        let mut set = |at: usize, field: Field, value: u64| field.set(&mut entry[at..], value);
        let operation = OPERATIONS
            .get(usize::from(self.operation % 8))
            .copied()
            .unwrap_or(self.operation);
        set(0, control_segment::OPCODE, operation.into());
        let mode = 2 * u64::from(self.wants_completion);
        set(0, control_segment::COMPLETION_MODE, mode);
        set(ethernet, ethernet_segment::CS_FLAGS, self.flags.into());
        set(ethernet, ethernet_segment::MSS, self.segment_bytes.into());
        let headers = &self.headers[..self.headers.len().min(200)];
        let count = headers.len() as u64;
        set(ethernet, ethernet_segment::INLINE_HDR_SZ, count);
        entry.extend_from_slice(headers);
        let end = entry.len().max(ethernet + ethernet_segment::BYTES);
        entry.resize(end.next_multiple_of(UNIT), 0);
        for segment in &self.segments {
            match segment {
                Segment::Inline { bytes, data } => {
                    let mut segment = [0; wqe_inline_seg::BYTES];
                    data_segment::BYTE_COUNT.set(&mut segment, 1 << 31 | u64::from(*bytes));
                    entry.extend_from_slice(&segment);
                    entry.extend_from_slice(&data[..data.len().min(200)]);
                    entry.resize(entry.len().next_multiple_of(UNIT), 0);
                }
                Segment::Memory {
                    own_key: is_own,
                    key,
                    at,
                    bytes,
                } => {
                    let (key, at) = match is_own {
                        true => (own_key, *at % MEMORY_BYTES),
                        false => (*key, *at),
                    };
                    let mut segment = [0; data_segment::BYTES];
                    data_segment::BYTE_COUNT.set(&mut segment, (*bytes).into());
                    data_segment::LKEY.set(&mut segment, key.into());
                    data_segment::ADDR.set(&mut segment, at.into());
                    entry.extend_from_slice(&segment);
                }
            }
        }
        let units = entry.len() / UNIT;
        control_segment::LENGTH.set(&mut entry, units as u64);
        entry.resize(entry.len().next_multiple_of(ENTRY_BYTES), 0);
        entry
    }
}

/// One of the guest's own queues.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Which {
    Send,
    Receive,
    Completions,
    Events,
}

impl Which {
    fn of(self, path: &Path) -> Queue {
        match self {
            Self::Send => path.send,
            Self::Receive => path.receive,
            Self::Completions => path.completions,
            Self::Events => path.events,
        }
    }
}

impl Guest {
    fn run(&self) {
        let mut driver = Driver::new(Config {
            striding: self.striding,
            compression: self.compression,
            ..Config::default()
        });
        let path = match &self.recorded {
            Some(recorded) => {
                recorded.run(&mut driver, RECORDED[usize::from(self.striding)]);
                None
            }
            None => {
                let mut path = driver.path(self.striding, self.compression);
                if self.endless {
                    path.send = driver.endless_send_queue(path.completions.number);
                }
                driver.post(&path, ENTRIES);
                Some(path)
            }
        };
        for action in &self.actions {
            action.run(&mut driver, path.as_ref());
        }
    }
}

impl Recorded {
    fn run(&self, driver: &mut Driver, text: &str) {
        // That driver had more memory.
        driver.machine.repeats = true;
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("0 ")).collect();
        let count = 1 + usize::from(self.commands) % lines.len();
        let mut commands: Vec<_> = lines[..count]
            .iter()
            .map(|line| journal::parse(line).expect("a recorded command"))
            .collect();
        for change in &self.changes {
            let input = &mut commands[usize::from(change.command) % count].input;
            // The command itself stays: another one would have its input elsewhere.
            let (_, fields) = input.split_at_mut(2);
            let length = fields.len().max(1);
            if let Some(byte) = fields.get_mut(usize::from(change.byte) % length) {
                *byte = change.value;
            }
        }
        for mut command in commands {
            let operation = u16::from_be_bytes([command.input[0], command.input[1]]);
            driver.ask(operation, &mut command.input, command.output_bytes);
        }
    }
}

impl Action {
    fn run(&self, driver: &mut Driver, path: Option<&Path>) {
        match self {
            Self::Command {
                operation,
                input,
                output_bytes,
            } => {
                let (operation, _) = COMMANDS[usize::from(*operation) % COMMANDS.len()];
                // As much as the mailboxes of the driver hold.
                let mut input = input[..input.len().min(4096)].to_vec();
                input.resize(input.len().max(2), 0);
                driver.ask(operation, &mut input, usize::from(*output_bytes) % 8192);
            }
            Self::Doorbell { offset, data } => {
                driver.write(FIRST_DOORBELL + u64::from(*offset) % DOORBELL_BYTES, data);
            }
            Self::Memory {
                queue,
                offset,
                data,
            } => {
                let at = match queue.zip(path) {
                    Some((queue, path)) => {
                        queue.of(path).memory + usize::from(*offset) % ENTRIES_BYTES
                    }
                    None => FREE + usize::from(*offset) % QUEUES_BYTES,
                };
                let memory = &mut driver.machine.memory[at..];
                let length = data.len().min(memory.len());
                memory[..length].copy_from_slice(&data[..length]);
            }
            Self::Record { queue, count } => {
                if let Some(path) = path {
                    // The word of a receive queue; a completion queue has its own in the same place.
                    let word = doorbell_record::RECEIVE_PRODUCER;
                    driver.set(queue.of(path).record, word, (*count).into());
                }
            }
            Self::Send(entries) => {
                if let Some(path) = path {
                    send(driver, path, entries);
                }
            }
            Self::Frame { for_card, bytes } => {
                let mut frame = Vec::new();
                if *for_card {
                    frame.extend_from_slice(&Config::default().mac);
                }
                frame.extend_from_slice(bytes);
                driver.receive(&frame);
            }
            Self::Ring { queue } => {
                driver.ring_to_send(FIRST_QUEUE + u32::from(*queue) % QUEUES);
            }
            Self::Fault { which, count } => driver.inject(fault(*which, *count)),
            Self::Transmit => {
                driver.device.transmit(&mut driver.machine, 64);
            }
            Self::Flush => driver.device.flush(&mut driver.machine),
        }
    }
}

/// Adds entries behind those that the queue has had, and has them sent.
fn send(driver: &mut Driver, path: &Path, entries: &[Entry]) {
    let record = &driver.machine.memory[path.send.record..];
    let mut counter = doorbell_record::SEND_PRODUCER.get32(record);
    for entry in entries {
        for block in entry.blocks(path.key).chunks(ENTRY_BYTES) {
            let at = path.send.memory + (counter % path.send.entries) as usize * ENTRY_BYTES;
            driver.machine.memory[at..at + ENTRY_BYTES].copy_from_slice(block);
            counter = counter.wrapping_add(1);
        }
    }
    driver.send(path.send, counter);
}

fn run(input: &[u8]) {
    if let Ok(guest) = Guest::arbitrary_take_rest(Unstructured::new(input)) {
        guest.run();
    }
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| run(input));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        run(&std::fs::read(path)?);
    }
    Ok(())
}
