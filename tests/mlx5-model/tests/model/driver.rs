// SPDX-License-Identifier: GPL-2.0

//! The smallest driver: it speaks to the card as Linux's does, through registers, memory and interrupts.

use mlx5_model::firmware::field::{put, Field};
use mlx5_model::firmware::layout::{
    cmd_if_box, cmd_queue_entry as command, completion, control_segment, cqc, create_cq_in,
    create_eq_in, create_flow_group_in, create_flow_table_in, create_mkey_in, create_rq_in,
    create_sq_in, create_tir_in, data_segment, dest_format_struct, doorbell, doorbell_record, eqc,
    eqe, flow_context, initial_seg, mkc, modify_rq_in, modify_sq_in, op, rqc, set_fte_in, sqc,
    tirc, wq,
};
use mlx5_model::firmware::registers::FIRST_DOORBELL;
use mlx5_model::host::bus::Bus as _;
use mlx5_model::host::device::{Config, Device, Receive};
use mlx5_model::host::faults::Fault;
use mlx5_model::host::testing::Machine;

const MEMORY_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// Every field of 24 bits with an object's number is here, in inputs and outputs.
pub(crate) const NUMBER: Field = Field::new(0x48, 24);
const COMMANDS: usize = 0;
/// The mailboxes of inputs and outputs, one a page apart.
const INPUT: usize = 0x1_0000;
const OUTPUT: usize = 0x2_0000;
/// Memory for queues begins here.
pub(crate) const FREE: usize = 0x4_0000;
/// Bytes of data in a mailbox, and how far apart the driver has them.
const MAILBOX_DATA: usize = 512;
const MAILBOX: usize = PAGE / 4;
pub(crate) const ENTRY_BYTES: usize = completion::BYTES;
/// The last byte of a completion that the card has not written.
pub(crate) const UNWRITTEN: u64 = 0xf1;
/// Entries of every queue.
pub(crate) const ENTRIES: u32 = 8;
const LOG_ENTRIES: u64 = 3;
const LARGEST_LOG_ENTRIES: u64 = 16;

/// The driver, its machine and its card.
pub(crate) struct Driver {
    pub(crate) device: Device,
    pub(crate) machine: Machine,
    /// The counter set for frames without a buffer, given to queues when they are created.
    pub(crate) counter_set: u32,
    free: usize,
}

/// A queue with memory of its own, and a record of how far the driver is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) memory: usize,
    pub(crate) record: usize,
    /// The number of entries that the memory has room for.
    pub(crate) entries: u32,
}

impl Queue {
    fn new(number: u32, memory: usize, record: usize) -> Self {
        Self {
            number,
            memory,
            record,
            entries: ENTRIES,
        }
    }
}

pub(crate) struct Path {
    pub(crate) events: Queue,
    pub(crate) completions: Queue,
    pub(crate) receive: Queue,
    pub(crate) send: Queue,
    pub(crate) key: u32,
}

impl Driver {
    pub(crate) fn new(config: Config) -> Self {
        let mut driver = Self {
            device: Device::new(config),
            machine: Machine::new(MEMORY_BYTES),
            counter_set: 0,
            free: FREE,
        };
        driver.write(initial_seg::CMDQ_PHY_ADDR_63_32.word(), &[0; 4]);
        let low = u32::try_from(COMMANDS).unwrap().to_be_bytes();
        driver.write(initial_seg::CMDQ_PHY_ADDR_31_12.word(), &low);
        driver
    }

    /// Returns a driver that has posted buffers of a cyclic queue, and the first of them.
    pub(crate) fn receiver(buffers: u32) -> (Self, Path, usize) {
        let mut driver = Self::new(Config::default());
        let path = driver.path(false, false);
        let first = driver.post(&path, buffers);
        (driver, path, first)
    }

    /// Sets a field of what is at `at` in memory.
    pub(crate) fn set(&mut self, at: usize, field: Field, value: u64) {
        field.set(&mut self.machine.memory[at..], value);
    }

    /// Rings for the first entry of the command queue.
    pub(crate) fn ring_for_command(&mut self) {
        let vector = initial_seg::COMMAND_DOORBELL_VECTOR.word();
        self.write(vector, &1_u32.to_be_bytes());
    }

    /// Returns the last byte of the first entry of the command queue: how it was delivered, and whose it is.
    pub(crate) fn command_state(&self) -> (u64, u64) {
        let entry = &self.machine.memory[COMMANDS..];
        (command::STATUS.get(entry), command::OWNERSHIP.get(entry))
    }

    /// Returns fields of the first entries of a queue.
    pub(crate) fn entries<const N: usize>(
        &self,
        queue: Queue,
        count: u32,
        fields: [Field; N],
    ) -> Vec<[u64; N]> {
        let entry = |index| self.entry(queue, index);
        (0..count)
            .map(|index| fields.map(|field| field.get(&entry(index))))
            .collect()
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.device.write(&mut self.machine, offset, data);
    }

    pub(crate) fn pages(&mut self, count: usize) -> usize {
        let at = self.free;
        self.free += count * PAGE;
        assert!(self.free <= MEMORY_BYTES, "the test needs more memory");
        at
    }

    /// Sends a command through the command queue; returns the status and the output.
    pub(crate) fn command(
        &mut self,
        operation: u16,
        input: &mut [u8],
        output_bytes: usize,
    ) -> (u8, Vec<u8>) {
        self.ask(operation, input, output_bytes);
        assert_eq!(
            self.command_state(),
            (0, 0),
            "the entry is the driver's again"
        );
        let inline = &self.machine.memory[COMMANDS + command::COMMAND_OUTPUT_INLINE_DATA.byte()..];
        let mut output = inline[..16].to_vec();
        let mut at = OUTPUT;
        while output.len() < output_bytes {
            output.extend_from_slice(&self.machine.memory[at..at + MAILBOX_DATA]);
            at += MAILBOX;
        }
        output.truncate(output_bytes.max(16));
        (output[0], output)
    }

    /// Sends a command that the card need not answer, as when it stands still.
    pub(crate) fn ask(&mut self, operation: u16, input: &mut [u8], output_bytes: usize) {
        put(input, 0, &operation.to_be_bytes());
        let inline = input.len().min(16);
        let entry = &mut self.machine.memory[COMMANDS..COMMANDS + command::BYTES];
        entry.fill(0);
        put(
            entry,
            command::COMMAND_INPUT_INLINE_DATA.byte(),
            &input[..inline],
        );
        for (field, value) in [
            (command::TYPE, 7),
            (command::INPUT_LENGTH, input.len()),
            (command::INPUT_MAILBOX_POINTER_31_9, INPUT >> 9),
            (command::OUTPUT_MAILBOX_POINTER_31_9, OUTPUT >> 9),
            (command::OUTPUT_LENGTH, output_bytes),
            (command::OWNERSHIP, 1),
        ] {
            field.set(entry, value as u64);
        }
        for base in [INPUT, OUTPUT] {
            for at in (base..).step_by(MAILBOX).take(16) {
                self.machine.memory[at..at + MAILBOX_DATA].fill(0);
                let next = (at + MAILBOX) as u64;
                self.set(at, cmd_if_box::NEXT_POINTER_31_10, next >> 10);
            }
        }
        for (at, part) in (INPUT..)
            .step_by(MAILBOX)
            .zip(input[inline..].chunks(MAILBOX_DATA))
        {
            put(&mut self.machine.memory, at, part);
        }
        self.ring_for_command();
    }

    /// Sends a command that must succeed; returns the number of what it created.
    pub(crate) fn create(&mut self, operation: u16, input: &mut [u8]) -> u32 {
        let (status, output) = self.command(operation, input, 16);
        assert_eq!(status, 0, "command {operation:#x}");
        NUMBER.get32(&output)
    }

    pub(crate) fn event_queue(&mut self, kinds: u64) -> Queue {
        let memory = self.pages(1);
        // The owner's bit of the first round is zero.
        for entry in 0..ENTRIES as usize {
            self.set(memory + entry * ENTRY_BYTES, eqe::OWNER, 1);
        }
        let mut input = vec![0; create_eq_in::BYTES + 8];
        create_eq_in::EVENT_BITMASK.set(&mut input, kinds);
        put(
            &mut input,
            create_eq_in::PAS.byte(),
            &(memory as u64).to_be_bytes(),
        );
        let context = create_eq_in::EQ_CONTEXT_ENTRY.of_mut(&mut input);
        eqc::LOG_EQ_SIZE.set(context, LOG_ENTRIES);
        eqc::INTR.set(context, 1);
        let number = self.create(op::CREATE_EQ, &mut input) & 0xff;
        Queue::new(number, memory, 0)
    }

    pub(crate) fn completion_queue(&mut self, events: u32, compressed: bool) -> Queue {
        self.completion_queue_with(events, |context| {
            cqc::CQE_COMP_EN.set(context, u64::from(compressed));
            cqc::MINI_CQE_RES_FORMAT.set(context, 1);
        })
    }

    /// Creates a completion queue whose context `set` adds to.
    pub(crate) fn completion_queue_with(
        &mut self,
        events: u32,
        set: impl FnOnce(&mut [u8]),
    ) -> Queue {
        let (memory, record) = (self.pages(1), self.pages(1));
        for entry in 0..ENTRIES as usize {
            self.set(memory + entry * ENTRY_BYTES, completion::OP_OWN, UNWRITTEN);
        }
        let mut input = vec![0; create_cq_in::BYTES + 8];
        put(
            &mut input,
            create_cq_in::PAS.byte(),
            &(memory as u64).to_be_bytes(),
        );
        let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
        cqc::LOG_CQ_SIZE.set(context, LOG_ENTRIES);
        cqc::C_EQN_OR_APU_ELEMENT.set(context, u64::from(events));
        cqc::DBR_ADDR.set(context, record as u64);
        set(context);
        let number = self.create(op::CREATE_CQ, &mut input);
        Queue::new(number, memory, record)
    }

    /// Creates a receive queue; a striding one has buffers of 16 strides of 256 bytes.
    pub(crate) fn receive_queue(&mut self, completions: u32, striding: bool) -> Queue {
        let (memory, record) = (self.pages(1), self.pages(1));
        let mut input = vec![0; create_rq_in::BYTES + 8];
        let context = create_rq_in::CTX.of_mut(&mut input);
        rqc::CQN.set(context, u64::from(completions));
        rqc::COUNTER_SET_ID.set(context, u64::from(self.counter_set));
        let work = rqc::WQ.of_mut(context);
        wq::WQ_TYPE.set(work, if striding { 2 } else { 1 });
        wq::LOG_WQ_STRIDE.set(work, if striding { 5 } else { 4 });
        wq::LOG_WQE_STRIDE_SIZE.set(work, 2);
        wq::LOG_WQE_NUM_OF_STRIDES.set(work, (16 + 4 - 9) & 15);
        self.work_queue(work, memory, record);
        let number = self.create(op::CREATE_RQ, &mut input);
        let mut input = vec![0; modify_rq_in::BYTES];
        modify_rq_in::RQN.set(&mut input, u64::from(number));
        rqc::STATE.set(modify_rq_in::CTX.of_mut(&mut input), 1);
        self.create(op::MODIFY_RQ, &mut input);
        Queue::new(number, memory, record)
    }

    pub(crate) fn send_queue(&mut self, completions: u32) -> Queue {
        let memory = self.pages(1);
        self.send_queue_in(completions, memory, LOG_ENTRIES, 1)
    }

    /// Creates a send queue of the greatest size; all its pages of 8 KB are one piece of memory.
    pub(crate) fn endless_send_queue(&mut self, completions: u32) -> Queue {
        let memory = self.pages(2);
        let queue = self.send_queue_in(completions, memory, LARGEST_LOG_ENTRIES, 512);
        Queue {
            entries: (2 * PAGE / ENTRY_BYTES) as u32,
            ..queue
        }
    }

    fn send_queue_in(
        &mut self,
        completions: u32,
        memory: usize,
        log_entries: u64,
        pages: usize,
    ) -> Queue {
        let record = self.pages(1);
        let mut input = vec![0; create_sq_in::BYTES + pages * 8];
        let context = create_sq_in::CTX.of_mut(&mut input);
        sqc::CQN.set(context, u64::from(completions));
        let work = sqc::WQ.of_mut(context);
        wq::WQ_TYPE.set(work, 1);
        wq::LOG_WQ_STRIDE.set(work, 6);
        wq::LOG_WQ_PG_SZ.set(work, u64::from(pages > 1));
        self.work_queue(work, memory, record);
        wq::LOG_WQ_SZ.set(work, log_entries);
        let list = wq::PAS.of_mut(work);
        for page in 0..pages {
            put(list, page * 8, &(memory as u64).to_be_bytes());
        }
        let number = self.create(op::CREATE_SQ, &mut input);
        let mut input = vec![0; modify_sq_in::BYTES];
        modify_sq_in::SQN.set(&mut input, u64::from(number));
        sqc::STATE.set(modify_sq_in::CTX.of_mut(&mut input), 1);
        self.create(op::MODIFY_SQ, &mut input);
        Queue::new(number, memory, record)
    }

    fn work_queue(&mut self, work: &mut [u8], memory: usize, record: usize) {
        wq::LOG_WQ_SZ.set(work, LOG_ENTRIES);
        wq::DBR_ADDR.set(work, record as u64);
        put(work, wq::PAS.byte(), &(memory as u64).to_be_bytes());
    }

    /// Creates a key; with translations, for this many pages.
    pub(crate) fn key(&mut self, pages: u64) -> u32 {
        let mut input = vec![0; create_mkey_in::BYTES];
        let context = create_mkey_in::MEMORY_KEY_MKEY_ENTRY.of_mut(&mut input);
        mkc::ACCESS_MODE_1_0.set(context, u64::from(pages > 0));
        mkc::TRANSLATIONS_OCTWORD_SIZE.set(context, pages.div_ceil(2));
        mkc::LOG_PAGE_SIZE.set(context, 12);
        mkc::MKEY_7_0.set(context, 0x42);
        self.create(op::CREATE_MKEY, &mut input) << 8 | 0x42
    }

    /// Leads all frames to one queue.
    pub(crate) fn steer(&mut self, receive: u32) {
        let mut input = vec![0; create_tir_in::BYTES];
        tirc::INLINE_RQN.set(create_tir_in::CTX.of_mut(&mut input), u64::from(receive));
        let tir = self.create(op::CREATE_TIR, &mut input);
        self.steer_to(tir);
    }

    /// Steers all frames to this TIR.
    pub(crate) fn steer_to(&mut self, tir: u32) {
        let table = self.create(op::CREATE_FLOW_TABLE, &mut [0; create_flow_table_in::BYTES]);
        let mut input = vec![0; create_flow_group_in::BYTES];
        create_flow_group_in::TABLE_ID.set(&mut input, u64::from(table));
        let group = self.create(op::CREATE_FLOW_GROUP, &mut input);
        let mut input = vec![0; set_fte_in::BYTES + dest_format_struct::BYTES];
        set_fte_in::TABLE_ID.set(&mut input, u64::from(table));
        let context = set_fte_in::FLOW_CONTEXT.of_mut(&mut input);
        flow_context::GROUP_ID.set(context, u64::from(group));
        flow_context::ACTION.set(context, 4);
        flow_context::DESTINATION_LIST_SIZE.set(context, 1);
        let list = flow_context::DESTINATION.of_mut(context);
        dest_format_struct::DESTINATION_TYPE.set(list, 2);
        dest_format_struct::DESTINATION_ID.set(list, u64::from(tir));
        self.create(op::SET_FLOW_TABLE_ENTRY, &mut input);
    }

    /// Creates one queue of each kind.
    pub(crate) fn path(&mut self, striding: bool, compressed: bool) -> Path {
        let events = self.event_queue(0);
        let completions = self.completion_queue(events.number, compressed);
        let receive = self.receive_queue(completions.number, striding);
        let send = self.send_queue(completions.number);
        let key = self.key(0);
        self.steer(receive.number);
        Path {
            events,
            completions,
            receive,
            send,
            key,
        }
    }

    /// Posts buffers of a cyclic queue, one a page, and returns the first.
    pub(crate) fn post(&mut self, path: &Path, count: u32) -> usize {
        let buffers = self.pages(ENTRIES as usize);
        self.post_at(path.receive, path.key, buffers, count);
        buffers
    }

    pub(crate) fn post_at(&mut self, queue: Queue, key: u32, buffers: usize, count: u32) {
        for index in 0..ENTRIES as usize {
            let at = queue.memory + index * data_segment::BYTES;
            self.set_data(at, key, 2048, buffers + index * PAGE);
        }
        self.set(
            queue.record,
            doorbell_record::RECEIVE_PRODUCER,
            count.into(),
        );
    }

    /// Writes a segment of a work queue entry that names a piece of memory.
    pub(crate) fn set_data(&mut self, at: usize, key: u32, bytes: u32, address: usize) {
        self.set(at, data_segment::BYTE_COUNT, bytes.into());
        self.set(at, data_segment::LKEY, key.into());
        self.set(at, data_segment::ADDR, address as u64);
    }

    pub(crate) fn receive(&mut self, frame: &[u8]) -> Receive {
        let outcome = self.device.receive(&mut self.machine, frame);
        self.device.flush(&mut self.machine);
        outcome
    }

    pub(crate) fn entry(&self, queue: Queue, index: u32) -> [u8; ENTRY_BYTES] {
        let at = queue.memory + (index % queue.entries) as usize * ENTRY_BYTES;
        self.machine.memory[at..at + ENTRY_BYTES]
            .try_into()
            .unwrap()
    }

    /// Returns whether the card has written a completion.
    pub(crate) fn is_written(&self, queue: Queue, index: u32) -> bool {
        completion::OP_OWN.get(&self.entry(queue, index)) != UNWRITTEN
    }

    /// Says that completions have been read.
    pub(crate) fn consume(&mut self, queue: Queue, count: u32) {
        self.set(
            queue.record,
            doorbell_record::COMPLETION_CONSUMER,
            count.into(),
        );
    }

    /// Rings a send queue's doorbell after `count` blocks were written, and lets the card work.
    pub(crate) fn send(&mut self, queue: Queue, count: u32) {
        self.set(queue.record, doorbell_record::SEND_PRODUCER, count.into());
        self.ring_to_send(queue.number);
        self.device.flush(&mut self.machine);
    }

    /// Rings a send queue's doorbell, and lets the card work.
    pub(crate) fn ring_to_send(&mut self, number: u32) {
        self.ring(doorbell::SEND, &[(control_segment::QUEUE, number)]);
        self.device.transmit(&mut self.machine, 64);
    }

    fn ring(&mut self, at: u64, fields: &[(Field, u32)]) {
        let mut bell = [0; 8];
        for (field, value) in fields {
            field.set(&mut bell, u64::from(*value));
        }
        self.write(FIRST_DOORBELL + at, &bell);
    }

    /// Asks for an event about a completion queue that was read up to `consumer`.
    pub(crate) fn arm_completions(&mut self, queue: Queue, consumer: u32) {
        let consumer = (doorbell::COMPLETION_CONSUMER, consumer);
        let number = (doorbell::COMPLETION_QUEUE, queue.number);
        self.ring(doorbell::COMPLETION, &[consumer, number]);
    }

    /// Asks for an interrupt about an event queue that was read up to `consumer`.
    pub(crate) fn arm_events(&mut self, queue: Queue, consumer: u32) {
        let consumer = (doorbell::EVENT_CONSUMER, consumer);
        let number = (doorbell::EVENT_QUEUE, queue.number);
        self.ring(doorbell::EVENT_ARM, &[consumer, number]);
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        self.device.inject(&mut self.machine, fault);
    }

    pub(crate) fn now(&mut self) -> u64 {
        self.machine.now_ns()
    }
}
