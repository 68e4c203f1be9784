// SPDX-License-Identifier: GPL-2.0

//! Queues: what goes in comes out, in the right places, and the driver is told.

use mlx5_model::device::{Config, Receive};
use mlx5_model::faults::Fault;
use mlx5_model::field::{be16, be32, put};

use crate::driver::{bytes, counter, opcode, Driver, Path, ENTRIES};

const RECEIVED: u8 = 2;
const RECEIVE_ERROR: u8 = 14;
const SENT: u8 = 0;
const SEND_ERROR: u8 = 13;
const COMPRESSED: u8 = 0x2c;

pub(crate) fn frame(bytes: usize, mark: u8) -> Vec<u8> {
    let mut frame = vec![mark; bytes];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame
}

#[test]
fn cyclic_buffers_are_filled_in_order() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let buffers = driver.post(&path, 3);
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
    for mark in 0..3_u8 {
        let entry = driver.entry(path.completions, u32::from(mark));
        assert_eq!(
            (opcode(&entry), bytes(&entry), counter(&entry)),
            (RECEIVED, 100 + u32::from(mark), u16::from(mark))
        );
        assert_eq!(entry[63] & 1, 0, "first round");
        let at = buffers + usize::from(mark) * 4096;
        assert_eq!(driver.machine.memory[at..at + 100], frame(100, mark)[..]);
    }
    let entry = driver.entry(path.completions, 3);
    assert_eq!(
        entry[63], 0xf1,
        "nothing was written for the frame that waits"
    );
}

#[test]
fn the_owners_bit_turns_with_every_round() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, 2 * ENTRIES);
    for index in 0..2 * ENTRIES {
        // The queue has room for its entries less one: a frame may need two.
        assert_eq!(
            driver.receive(&frame(60, 1)),
            Receive::Taken,
            "frame {index}"
        );
        assert_eq!(
            u32::from(driver.entry(path.completions, index)[63] & 1),
            index / ENTRIES
        );
        driver.consume(path.completions, index + 1);
    }
}

#[test]
fn a_full_completion_queue_holds_frames_up() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
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
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    driver.arm_events(path.events, 0);
    driver.receive(&frame(60, 1));
    assert!(
        driver.machine.interrupts.is_empty(),
        "nobody has asked about the completion queue"
    );
    // Asked late: at once.
    driver.arm_completions(path.completions, 0);
    assert_eq!(driver.machine.interrupts, [1]);
    let event = driver.entry(path.events, 0);
    assert_eq!(
        (event[1], be32(&event, 56), event[63]),
        (0, path.completions.number, 0)
    );
    driver.receive(&frame(60, 1));
    assert_eq!(driver.machine.interrupts, [1], "asked for once");
    driver.arm_events(path.events, 1);
    driver.arm_completions(path.completions, 2);
    assert_eq!(driver.machine.interrupts, [1], "nothing has come since");
    driver.receive(&frame(60, 1));
    assert_eq!(driver.machine.interrupts, [1, 1]);
    assert_eq!(driver.now(), 1, "the model did not look at the clock");
}

/// Posts one striding buffer at `index`, whose successor is the next one.
pub(crate) fn post_striding(driver: &mut Driver, path: &Path, index: u16, address: usize) {
    let at = path.receive.memory + usize::from(index) * 32;
    put(
        &mut driver.machine.memory,
        at + 2,
        &(index + 1).to_be_bytes(),
    );
    put(&mut driver.machine.memory, at + 20, &path.key.to_be_bytes());
    put(
        &mut driver.machine.memory,
        at + 24,
        &(address as u64).to_be_bytes(),
    );
    put(
        &mut driver.machine.memory,
        path.receive.record,
        &u32::from(index + 1).to_be_bytes(),
    );
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
    let said: Vec<_> = (0..4)
        .map(|index| {
            let entry = driver.entry(path.completions, index);
            (
                be16(&entry, 2),
                counter(&entry),
                be32(&entry, 44) >> 16,
                bytes(&entry),
            )
        })
        .collect();
    // Buffer, first stride, strides (with the filler's mark), bytes.
    assert_eq!(
        said,
        [
            (0, 0, 6, 1518),
            (0, 6, 6, 1500),
            (0, 12, 3, 600),
            (0, 0, 0, 0)
        ]
    );
    assert_eq!(driver.receive(&frame(400, 4)), Receive::Taken);
    let filler = driver.entry(path.completions, 3);
    assert_eq!(
        (be16(&filler, 2), counter(&filler), be32(&filler, 44)),
        (0, 15, 0x8001_0000)
    );
    let next = driver.entry(path.completions, 4);
    assert_eq!((be16(&next, 2), counter(&next), bytes(&next)), (1, 0, 400));
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
    assert_eq!(
        driver.entry(path.completions, 0)[63],
        0xf1,
        "they wait for the end of the burst"
    );
    driver.device.flush(&mut driver.machine);
    let title = driver.entry(path.completions, 0);
    assert_eq!((title[63], be32(&title, 44)), (COMPRESSED, 3));
    let small = driver.entry(path.completions, 1);
    assert_eq!(
        [be32(&small, 4), be32(&small, 12), be32(&small, 20)],
        [60, 70, 80]
    );
    // One alone stays as it is, in the place after the three.
    driver.receive(&frame(90, 1));
    let alone = driver.entry(path.completions, 3);
    assert_eq!((alone[63], bytes(&alone)), (0x20, 90));
}

/// Writes a request to send one piece of memory.
fn write_send(driver: &mut Driver, path: &Path, index: u32, flags: u8, piece: (u32, u32, usize)) {
    let mut entry = [0; 64];
    entry[3] = 0x0a;
    put(&mut entry, 4, &(path.send.number << 8 | 3).to_be_bytes());
    entry[11] = flags;
    let (key, bytes, address) = piece;
    put(&mut entry, 32, &bytes.to_be_bytes());
    put(&mut entry, 36, &key.to_be_bytes());
    put(&mut entry, 40, &(address as u64).to_be_bytes());
    let at = path.send.memory + (index % ENTRIES) as usize * 64;
    put(&mut driver.machine.memory, at, &entry);
}

#[test]
fn frames_are_sent_and_completed_where_that_is_asked_for() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let data = driver.pages(1);
    let wanted = frame(200, 5);
    put(&mut driver.machine.memory, data, &wanted);
    write_send(&mut driver, &path, 0, 0, (path.key, 100, data));
    write_send(&mut driver, &path, 1, 8, (path.key, 200, data));
    driver.send(path.send, 2);
    assert_eq!(driver.machine.frames, [wanted[..100].to_vec(), wanted]);
    let entry = driver.entry(path.completions, 0);
    assert_eq!(
        (opcode(&entry), counter(&entry), be32(&entry, 56)),
        (SENT, 1, 0x0a00_0000 | path.send.number)
    );
    assert_eq!(driver.entry(path.completions, 1)[63], 0xf1);
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
    let said: Vec<_> = (0..2)
        .map(|index| {
            let entry = driver.entry(path.completions, index);
            (opcode(&entry), entry[55], counter(&entry))
        })
        .collect();
    assert_eq!(said, [(SEND_ERROR, 4, 1), (SEND_ERROR, 5, 2)]);
}

#[test]
fn faults_happen_as_often_as_they_are_asked_for() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    driver
        .device
        .inject(&mut driver.machine, Fault::NoBuffers(2));
    for _ in 0..3 {
        assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    }
    assert_eq!(
        counter(&driver.entry(path.completions, 0)),
        0,
        "only the third has a buffer"
    );
    assert_eq!(driver.entry(path.completions, 1)[63], 0xf1);
    driver
        .device
        .inject(&mut driver.machine, Fault::Stalled(true));
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Wait);
    driver
        .device
        .inject(&mut driver.machine, Fault::Stalled(false));
    driver
        .device
        .inject(&mut driver.machine, Fault::ReceiveError);
    driver.receive(&frame(60, 1));
    let entry = driver.entry(path.completions, 1);
    assert_eq!((opcode(&entry), entry[55]), (RECEIVE_ERROR, 4));
    // A broken queue takes nothing.
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    assert_eq!(driver.entry(path.completions, 2)[63], 0xf1);
    driver.device.inject(&mut driver.machine, Fault::Health(7));
    let mut byte = [0];
    driver.device.read(0x23d, &mut byte);
    assert_eq!(byte, [7]);
    driver
        .device
        .inject(&mut driver.machine, Fault::Link(false));
    let before = driver.device.traffic().1;
    driver.receive(&frame(60, 1));
    assert_eq!(driver.device.traffic().1, before);
}

#[test]
fn frames_longer_than_allowed_are_dropped() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    assert_eq!(driver.receive(&frame(1519, 1)), Receive::Taken);
    assert_eq!(driver.entry(path.completions, 0)[63], 0xf1);
    assert_eq!(driver.receive(&frame(1518, 1)), Receive::Taken);
    assert_eq!(bytes(&driver.entry(path.completions, 0)), 1518);
}
