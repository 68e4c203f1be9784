// SPDX-License-Identifier: GPL-2.0

//! Each fault that is ordered happens exactly as ordered, and as often.

use mlx5_model::firmware::layout::cmd_queue_entry as command;
use mlx5_model::firmware::layout::completion::{FRAME_BYTES, QUEUE, WQE_COUNTER, WQE_ID};
use mlx5_model::firmware::layout::initial_seg;
use mlx5_model::host::device::{Config, Receive};
use mlx5_model::host::faults::Fault;

use crate::driver::{Driver, ENTRIES};
use crate::queues::{frame, post_striding, two_striding_buffers, EVENT_CQ};

#[test]
fn a_duplicate_has_a_buffer_of_its_own() {
    let (mut driver, path, buffers) = Driver::receiver(ENTRIES);
    driver.inject(Fault::Duplicate(1));
    driver.receive(&frame(60, 1));
    driver.receive(&frame(61, 2));
    let said = driver.entries(path.completions, 3, [WQE_COUNTER, FRAME_BYTES]);
    assert_eq!(said, [[0, 60], [1, 60], [2, 61]]);
    for (index, mark) in [1, 1, 2].into_iter().enumerate() {
        assert_eq!(driver.machine.memory[buffers + index * 4096 + 59], mark);
    }
}

#[test]
fn in_a_cyclic_queue_a_frame_is_overtaken_buffer_and_all() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    driver.inject(Fault::Overtake(1));
    driver.receive(&frame(60, 1));
    assert!(!driver.is_written(path.completions, 0));
    driver.receive(&frame(61, 2));
    driver.receive(&frame(62, 3));
    let said = driver.entries(path.completions, 3, [WQE_COUNTER, FRAME_BYTES]);
    // A driver takes the buffers of such a queue in their order.
    assert_eq!(said, [[0, 61], [1, 60], [2, 62]]);
}

#[test]
fn in_a_striding_queue_only_the_completion_is_overtaken() {
    let (mut driver, path, memory) = two_striding_buffers();
    driver.inject(Fault::Overtake(1));
    for (size, mark) in [(300, 1), (60, 2), (61, 3)] {
        assert_eq!(driver.receive(&frame(size, mark)), Receive::Taken);
    }
    let said = driver.entries(path.completions, 3, [WQE_ID, WQE_COUNTER, FRAME_BYTES]);
    assert_eq!(said, [[0, 2, 60], [0, 0, 300], [0, 3, 61]]);
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
        assert!(!driver.is_written(path.completions, 0));
        driver.machine.now_ns += 1_000_000_000;
        driver.device.flush(&mut driver.machine);
        assert_eq!(driver.entries(path.completions, 1, [FRAME_BYTES]), [[60]]);
    }
}

#[test]
fn events_and_interrupts_come_twice_or_not_at_all() {
    let (mut driver, path, _) = Driver::receiver(ENTRIES);
    let mut consumer = 0;
    for (fault, events, interrupts) in [
        (Fault::DuplicateEvents(1), 2, 2),
        (Fault::LoseEvents(1), 0, 0),
        (Fault::LoseInterrupts(1), 1, 0),
        (Fault::LoseInterrupts(0), 1, 1),
    ] {
        driver.machine.interrupts.clear();
        driver.arm_events(path.events, consumer);
        let number = QUEUE.get32(&driver.entry(path.completions, 0));
        assert!(number == 0 || number == path.receive.number);
        let received = driver.device.traffic().1.total().frames;
        driver.arm_completions(path.completions, u32::try_from(received).unwrap());
        driver.inject(fault);
        driver.receive(&frame(60, 1));
        assert_eq!(driver.machine.interrupts.len(), interrupts, "{fault:?}");
        let about = driver.entries(path.events, ENTRIES, [EVENT_CQ]);
        let number = u64::from(path.completions.number);
        let come = about.iter().filter(|about| about[0] == number).count();
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
    let (mut driver, ..) = Driver::receiver(ENTRIES);
    driver.inject(Fault::Fatal);
    let state = |driver: &mut Driver| {
        let mut segment = [0; 28];
        driver.device.read(0, &mut segment);
        initial_seg::NIC_INTERFACE.get(&segment)
    };
    assert_eq!(state(&mut driver), 1, "it takes no commands");
    driver.set(0, command::OWNERSHIP, 1);
    driver.ring_for_command();
    assert_eq!(driver.command_state(), (0, 1), "a command has no answer");
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Wait);
    assert!(driver.device.objects() > 0);
    driver.write(initial_seg::CMDQ_PHY_ADDR_31_12.word(), &[0; 4]);
    assert_eq!((state(&mut driver), driver.device.objects()), (0, 0));
    // As good as new.
    let path = driver.path(false, false);
    driver.post(&path, ENTRIES);
    assert_eq!(driver.receive(&frame(60, 1)), Receive::Taken);
    assert_eq!(driver.entries(path.completions, 1, [FRAME_BYTES]), [[60]]);
}

#[test]
fn a_stalled_card_answers_late() {
    let mut driver = Driver::new(Config::default());
    driver.inject(Fault::Stalled(true));
    // An unknown command without mailboxes.
    driver.ask(0xffff, &mut [0; 16], 16);
    assert_eq!(driver.command_state(), (0, 1));
    driver.inject(Fault::Stalled(false));
    assert_eq!(
        driver.command_state(),
        (0, 0),
        "the entry is the driver's again"
    );
    assert_eq!(driver.device.unknown_commands(), 1);
}
