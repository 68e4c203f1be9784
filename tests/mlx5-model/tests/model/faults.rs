// SPDX-License-Identifier: GPL-2.0

//! What goes wrong on request, goes wrong exactly that way and that often.

use mlx5_model::device::{Config, Receive};
use mlx5_model::faults::Fault;
use mlx5_model::field::{be16, be32, put};

use crate::driver::{bytes, counter, Driver, ENTRIES};
use crate::queues::{frame, post_striding, two_striding_buffers};

impl Driver {
    fn inject(&mut self, fault: Fault) {
        self.device.inject(&mut self.machine, fault);
    }
}

#[test]
fn a_duplicate_has_a_buffer_of_its_own() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    let buffers = driver.post(&path, ENTRIES);
    driver.inject(Fault::Duplicate(1));
    driver.receive(&frame(60, 1));
    driver.receive(&frame(61, 2));
    let said: Vec<_> = (0..3)
        .map(|index| {
            let entry = driver.entry(path.completions, index);
            (counter(&entry), bytes(&entry))
        })
        .collect();
    assert_eq!(said, [(0, 60), (1, 60), (2, 61)]);
    for (index, mark) in [1, 1, 2].into_iter().enumerate() {
        assert_eq!(driver.machine.memory[buffers + index * 4096 + 59], mark);
    }
}

#[test]
fn in_a_cyclic_queue_a_frame_is_overtaken_buffer_and_all() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    driver.inject(Fault::Overtake(1));
    driver.receive(&frame(60, 1));
    assert_eq!(driver.entry(path.completions, 0)[63], 0xf1);
    driver.receive(&frame(61, 2));
    driver.receive(&frame(62, 3));
    let said: Vec<_> = (0..3)
        .map(|index| {
            let entry = driver.entry(path.completions, index);
            (counter(&entry), bytes(&entry))
        })
        .collect();
    // A driver takes the buffers of such a queue in their order.
    assert_eq!(said, [(0, 61), (1, 60), (2, 62)]);
}

#[test]
fn in_a_striding_queue_only_the_completion_is_overtaken() {
    let (mut driver, path, memory) = two_striding_buffers();
    driver.inject(Fault::Overtake(1));
    for (size, mark) in [(300, 1), (60, 2), (61, 3)] {
        assert_eq!(driver.receive(&frame(size, mark)), Receive::Taken);
    }
    let said: Vec<_> = (0..3)
        .map(|index| {
            let entry = driver.entry(path.completions, index);
            (be16(&entry, 2), counter(&entry), bytes(&entry))
        })
        .collect();
    assert_eq!(said, [(0, 2, 60), (0, 0, 300), (0, 3, 61)]);
    assert_eq!(driver.machine.memory[memory + 299], 1);
}

#[test]
fn what_nothing_overtakes_comes_after_a_while() {
    for striding in [false, true] {
        let mut driver = Driver::new(Config {
            striding,
            ..Config::default()
        });
        let path = driver.path(striding, false);
        if striding {
            let memory = driver.pages(1);
            post_striding(&mut driver, &path, 0, memory);
        } else {
            driver.post(&path, 1);
        }
        driver.inject(Fault::Overtake(1));
        driver.receive(&frame(60, 1));
        assert_eq!(driver.entry(path.completions, 0)[63], 0xf1);
        driver.machine.now_ns += 1_000_000_000;
        driver.device.flush(&mut driver.machine);
        assert_eq!(bytes(&driver.entry(path.completions, 0)), 60);
    }
}

#[test]
fn events_and_interrupts_come_twice_or_not_at_all() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    let mut consumer = 0;
    for (fault, events, interrupts) in [
        (Fault::DuplicateEvents(1), 2, 2),
        (Fault::LoseEvents(1), 0, 0),
        (Fault::LoseInterrupts(1), 1, 0),
        (Fault::LoseInterrupts(0), 1, 1),
    ] {
        driver.machine.interrupts.clear();
        driver.arm_events(path.events, consumer);
        let number = be32(&driver.entry(path.completions, 0), 24);
        assert!(number == 0 || number == path.receive.number);
        let received = driver.device.traffic().1.total().frames;
        driver.arm_completions(path.completions, u32::try_from(received).unwrap());
        driver.inject(fault);
        driver.receive(&frame(60, 1));
        assert_eq!(driver.machine.interrupts.len(), interrupts, "{fault:?}");
        let come = (0..ENTRIES)
            .filter(|index| {
                let event = driver.entry(path.events, *index);
                be32(&event, 56) == path.completions.number
            })
            .count();
        assert_eq!(come, (consumer + events) as usize, "{fault:?}");
        consumer += events;
    }
    assert_eq!(
        driver.device.lost(),
        0,
        "what is lost on request is not counted"
    );
}

#[test]
fn a_dead_card_lives_again_when_it_is_set_up_anew() {
    let mut driver = Driver::new(Config::default());
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    driver.inject(Fault::Fatal);
    let state = |driver: &mut Driver| {
        let mut word = [0; 4];
        driver.device.read(0x14, &mut word);
        (u32::from_be_bytes(word) >> 8) & 7
    };
    assert_eq!(state(&mut driver), 1, "it takes no commands");
    put(&mut driver.machine.memory, 63, &[1]);
    driver.write(0x18, &1_u32.to_be_bytes());
    assert_eq!(driver.machine.memory[63], 1, "a command has no answer");
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Wait);
    assert!(driver.device.objects() > 0);
    driver.write(0x14, &[0; 4]);
    assert_eq!((state(&mut driver), driver.device.objects()), (0, 0));
    // As good as new.
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    assert_eq!(bytes(&driver.entry(path.completions, 0)), 60);
}

#[test]
fn a_stalled_card_answers_late() {
    let mut driver = Driver::new(Config::default());
    driver.inject(Fault::Stalled(true));
    // An unknown command without mailboxes.
    let mut entry = [0; 64];
    entry[0] = 7;
    put(&mut entry, 4, &16_u32.to_be_bytes());
    put(&mut entry, 16, &[0xff, 0xff]);
    put(&mut entry, 56, &16_u32.to_be_bytes());
    entry[63] = 1;
    put(&mut driver.machine.memory, 0, &entry);
    driver.write(0x18, &1_u32.to_be_bytes());
    assert_eq!(driver.machine.memory[63], 1);
    driver.inject(Fault::Stalled(false));
    assert_eq!(
        driver.machine.memory[63], 0,
        "the entry is the driver's again"
    );
    assert_eq!(driver.device.unknown_commands(), 1);
}
