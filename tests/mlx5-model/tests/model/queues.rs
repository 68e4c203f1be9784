// SPDX-License-Identifier: GPL-2.0

//! Queues: what goes in comes out, in the right places, and the driver is told.

use mlx5_model::firmware::field::{put, Field};
use mlx5_model::firmware::layout::completion::{
    BYTE_CNT, FILLER, FORMAT, FRAME_BYTES, OPCODE, OWNER, SEND_OPCODE, SEND_QUEUE, STRIDES,
    WQE_COUNTER, WQE_ID,
};
use mlx5_model::firmware::layout::err_cqe::SYNDROME;
use mlx5_model::firmware::layout::{
    comp_event, control_segment, data_segment, doorbell_record, eqe, ethernet_segment,
    health_buffer, initial_seg, mini_cqe8, wqe_srq_next_seg,
};
use mlx5_model::host::device::{Config, Receive};
use mlx5_model::host::faults::Fault;

use crate::driver::{Driver, Path, ENTRIES, ENTRY_BYTES};

const RECEIVED: u64 = 2;
const RECEIVE_ERROR: u64 = 14;
const SENT: u64 = 0;
const SEND_ERROR: u64 = 13;
const COMPRESSED: u64 = 3;
const SEND: u64 = 0x0a;
/// A completion is asked for.
pub(crate) const ASKED: u64 = 2;
/// The number of the queue that an event is about.
pub(crate) const EVENT_CQ: Field = comp_event::CQ_NUMBER.after(eqe::EVENT_DATA);

pub(crate) fn frame(bytes: usize, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; bytes];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

#[test]
fn cyclic_buffers_are_filled_in_order() {
    let (mut driver, path, buffers) = Driver::receiver(3);
    for mark in 0..3 {
        assert_eq!(
            driver.receive(&frame(100 + usize::from(mark), mark)),
            Receive::Taken
        );
    }
    assert_eq!(
        driver.receive(&frame(100, 9)),
        Receive::Wait,
        "there are three buffers"
    );
    let fields = [OPCODE, FRAME_BYTES, WQE_COUNTER, OWNER];
    let said = driver.entries(path.completions, 3, fields);
    let wanted: Vec<_> = (0..3)
        .map(|index| [RECEIVED, 100 + index, index, 0])
        .collect();
    assert_eq!(said, wanted);
    for mark in 0..3 {
        let at = buffers + usize::from(mark) * 4096;
        assert_eq!(driver.machine.memory[at..at + 100], frame(100, mark)[..]);
    }
    assert!(
        !driver.is_written(path.completions, 3),
        "nothing was written for the frame that waits"
    );
}

#[test]
fn the_owners_bit_turns_with_every_round() {
    let (mut driver, path, _) = Driver::receiver(2 * ENTRIES);
    for index in 0..2 * ENTRIES {
        // The queue has room for its entries less one: a frame may need two.
        assert_eq!(
            driver.receive(&frame(60, 1)),
            Receive::Taken,
            "frame {index}"
        );
        assert_eq!(
            OWNER.get32(&driver.entry(path.completions, index)),
            index / ENTRIES
        );
        driver.consume(path.completions, index + 1);
    }
}

#[test]
fn a_full_completion_queue_holds_frames_up() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    let taken = (0..ENTRIES)
        .filter(|_| driver.receive(&frame(60, 1)) == Receive::Taken)
        .count();
    assert_eq!(taken, ENTRIES as usize - 1);
    driver.consume(path.completions, 1);
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    assert_eq!(driver.device.lost(), 0);
}

#[test]
fn events_come_once_for_each_time_they_are_asked_for() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    driver.arm_events(path.events, 0);
    driver.receive(&frame(60, 1));
    assert!(
        driver.machine.interrupts.is_empty(),
        "no event about the completion queue was asked for"
    );
    // Asked late: at once.
    driver.arm_completions(path.completions, 0);
    assert_eq!(driver.machine.interrupts, [1]);
    let event = driver.entries(path.events, 1, [eqe::EVENT_TYPE, EVENT_CQ, eqe::OWNER]);
    assert_eq!(event, [[0, path.completions.number.into(), 0]]);
    driver.receive(&frame(60, 1));
    assert_eq!(driver.machine.interrupts, [1], "asked for once");
    driver.arm_events(path.events, 1);
    driver.arm_completions(path.completions, 2);
    assert_eq!(driver.machine.interrupts, [1], "nothing has come since");
    driver.receive(&frame(60, 1));
    assert_eq!(driver.machine.interrupts, [1, 1]);
    assert_eq!(driver.now(), 1, "the model did not look at the clock");
}

#[test]
fn the_card_tells_what_waits_for_whom() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    driver.arm_events(path.events, 0);
    driver.arm_completions(path.completions, 0);
    let queues = |driver: &mut Driver| driver.device.queues(&mut driver.machine);
    let ready = |left: u32| format!("receive {:#x}: Ready, {left} buffers", path.receive.number);
    // What is armed and empty is as it should be.
    let link = |received: u32| format!("link up, 0 sent, {received} received");
    assert_eq!(
        queues(&mut driver),
        format!("{}; {}", link(0), ready(ENTRIES))
    );
    driver.receive(&frame(60, 1));
    let (completions, events) = (path.completions.number, path.events.number);
    assert_eq!(
        queues(&mut driver),
        format!(
            "{}; {}; completions {completions:#x} (events {events}): 1; events {events} (vector 1): 1",
            link(1),
            ready(ENTRIES - 1)
        )
    );
}

/// Posts one striding buffer at `index`, whose successor is the next one.
pub(crate) fn post_striding(driver: &mut Driver, path: &Path, index: u16, address: usize) {
    let segment = wqe_srq_next_seg::BYTES;
    let at = path.receive.memory + usize::from(index) * (segment + data_segment::BYTES);
    let next = u64::from(index + 1);
    driver.set(at, wqe_srq_next_seg::NEXT_WQE_INDEX, next);
    driver.set_data(at + segment, path.key, 0, address);
    driver.set(path.receive.record, doorbell_record::RECEIVE_PRODUCER, next);
}

/// Returns a driver with two striding buffers posted, the second right behind the first in its memory.
pub(crate) fn two_striding_buffers() -> (Driver, Path, usize) {
    let mut driver = Driver::new(Config {
        striding: true,
        ..Config::default()
    });
    let path = driver.path(true, false);
    let memory = driver.pages(2);
    post_striding(&mut driver, &path, 0, memory);
    post_striding(&mut driver, &path, 1, memory + 4096);
    (driver, path, memory)
}

#[test]
fn strided_buffers_are_shared_and_closed_with_a_filler() {
    let (mut driver, path, memory) = two_striding_buffers();
    // Strides of 256, 16 in a buffer: 6, 6, 3, then one that needs more than the one that is left.
    for (size, mark) in [(1518, 1), (1500, 2), (600, 3)] {
        assert_eq!(driver.receive(&frame(size, mark)), Receive::Taken);
    }
    assert!(!driver.is_written(path.completions, 3));
    assert_eq!(driver.receive(&frame(400, 4)), Receive::Taken);
    // The first stride of each is the counter.
    let fields = [WQE_ID, WQE_COUNTER, STRIDES, FRAME_BYTES, FILLER];
    assert_eq!(
        driver.entries(path.completions, 5, fields),
        [
            [0, 0, 6, 1518, 0],
            [0, 6, 6, 1500, 0],
            [0, 12, 3, 600, 0],
            [0, 15, 1, 0, 1],
            [1, 0, 2, 400, 0],
        ]
    );
    assert_eq!(driver.machine.memory[memory + 12 * 256 + 14], 3);
    assert_eq!(driver.machine.memory[memory + 4096 + 14], 4);
}

#[test]
fn completions_of_a_kind_are_compressed() {
    let mut driver = Driver::new(Config {
        compression: true,
        ..Config::default()
    });
    let path = driver.path(false, true);
    driver.post(&path, ENTRIES);
    for size in [60, 70, 80] {
        let (device, machine) = (&mut driver.device, &mut driver.machine);
        assert_eq!(device.receive(machine, &frame(size, 1)), Receive::Taken);
    }
    assert!(
        !driver.is_written(path.completions, 0),
        "they wait for the end of the burst"
    );
    driver.device.flush(&mut driver.machine);
    let kind = |driver: &Driver, index| {
        let entry = driver.entry(path.completions, index);
        [OPCODE, FORMAT, OWNER, BYTE_CNT].map(|field| field.get(&entry))
    };
    assert_eq!(kind(&driver, 0), [RECEIVED, COMPRESSED, 0, 3]);
    let block = driver.entry(path.completions, 1);
    let small = block.chunks(mini_cqe8::BYTES).take(3);
    let bytes: Vec<_> = small.map(|small| mini_cqe8::BYTE_CNT.get(small)).collect();
    assert_eq!(bytes, [60, 70, 80]);
    // One alone stays as it is, in the place after the three.
    driver.receive(&frame(90, 1));
    assert_eq!(kind(&driver, 3), [RECEIVED, 0, 0, 90]);
}

/// Writes a request to send one piece of memory.
fn write_send(driver: &mut Driver, path: &Path, index: u32, mode: u64, piece: (u32, u32, usize)) {
    let at = path.send.memory + (index % ENTRIES) as usize * ENTRY_BYTES;
    driver.set(at, control_segment::OPCODE, SEND);
    driver.set(at, control_segment::QUEUE, path.send.number.into());
    driver.set(at, control_segment::LENGTH, 3);
    driver.set(at, control_segment::COMPLETION_MODE, mode);
    let (key, bytes, address) = piece;
    let data = at + control_segment::BYTES + ethernet_segment::BYTES;
    driver.set_data(data, key, bytes, address);
}

#[test]
fn frames_are_sent_and_completed_where_that_is_asked_for() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let data = driver.pages(1);
    let wanted = frame(200, 5);
    put(&mut driver.machine.memory, data, &wanted);
    write_send(&mut driver, &path, 0, 0, (path.key, 100, data));
    write_send(&mut driver, &path, 1, ASKED, (path.key, 200, data));
    driver.send(path.send, 2);
    assert_eq!(driver.machine.frames, [wanted[..100].to_vec(), wanted]);
    let fields = [OPCODE, WQE_COUNTER, SEND_OPCODE, SEND_QUEUE];
    let said = driver.entries(path.completions, 1, fields);
    assert_eq!(said, [[SENT, 1, SEND, path.send.number.into()]]);
    assert!(!driver.is_written(path.completions, 1));
    assert_eq!(driver.device.traffic().0.unicast.frames, 2);
}

#[test]
fn a_bad_request_breaks_the_queue_and_the_rest_is_flushed() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let data = driver.pages(1);
    for index in 0..3 {
        let key = if index == 1 { path.key ^ 1 } else { path.key };
        write_send(&mut driver, &path, index, 0, (key, 100, data));
    }
    driver.send(path.send, 3);
    assert_eq!(driver.machine.frames.len(), 1);
    let said = driver.entries(path.completions, 2, [OPCODE, SYNDROME, WQE_COUNTER]);
    assert_eq!(said, [[SEND_ERROR, 4, 1], [SEND_ERROR, 5, 2]]);
}

#[test]
fn faults_happen_as_often_as_they_are_asked_for() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    driver.inject(Fault::NoBuffers(2));
    for _ in 0..3 {
        assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    }
    assert_eq!(
        driver.entries(path.completions, 1, [WQE_COUNTER]),
        [[0]],
        "only the third has a buffer"
    );
    assert!(!driver.is_written(path.completions, 1));
    driver.inject(Fault::Stalled(true));
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Wait);
    driver.inject(Fault::Stalled(false));
    driver.inject(Fault::ReceiveError);
    driver.receive(&frame(60, 1));
    let said = driver.entries(path.completions, 2, [OPCODE, SYNDROME]);
    assert_eq!(said[1], [RECEIVE_ERROR, 4]);
    // A broken queue takes nothing.
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    assert!(!driver.is_written(path.completions, 2));
    driver.inject(Fault::Health(7));
    let mut byte = [0];
    let syndrome = health_buffer::SYND.after(initial_seg::HEALTH_BUFFER);
    driver.device.read(syndrome.byte() as u64, &mut byte);
    assert_eq!(byte, [7]);
    driver.inject(Fault::Link(false));
    let before = driver.device.traffic().1;
    driver.receive(&frame(60, 1));
    assert_eq!(driver.device.traffic().1, before);
}

#[test]
fn frames_longer_than_allowed_are_dropped() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    assert_eq!(driver.receive(&frame(1519, 1)), Receive::Taken);
    assert!(!driver.is_written(path.completions, 0));
    assert_eq!(driver.receive(&frame(1518, 1)), Receive::Taken);
    assert_eq!(driver.entries(path.completions, 1, [FRAME_BYTES]), [[1518]]);
}
