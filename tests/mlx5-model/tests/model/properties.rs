// SPDX-License-Identifier: GPL-2.0

//! Whatever a guest writes, the card survives: commands, doorbells, work queue entries, frames.

use mlx5_model::firmware::layout::{doorbell_record, initial_seg, COMMANDS};
use mlx5_model::firmware::registers::FIRST_DOORBELL;
use mlx5_model::host::device::{Config, Device};
use mlx5_model::host::journal;
use mlx5_model::host::testing::Machine;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::driver::{Driver, ENTRY_BYTES};
use crate::replay::RECORDED;

/// Returns a command that exists, more often than not.
fn operation() -> impl Strategy<Value = u16> {
    let known = (0..COMMANDS.len()).prop_map(|index| COMMANDS[index].0);
    prop_oneof![8 => known, 1 => any::<u16>()]
}

/// Bytes that are zero, small or anything: contexts of nothing but noise are refused too early.
fn noise(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![6 => Just(0_u8), 2 => 0..8_u8, 1 => any::<u8>()],
        0..most,
    )
}

/// Bytes that are close to what a driver would write, or anything.
fn change() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0_u8), Just(0xff), 0..32_u8, any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_commands(commands in vec((operation(), noise(1200), 0..600_usize), 1..20), frames in vec(noise(200), 0..4)) {
        let mut driver = Driver::new(Config { striding: true, compression: true, ..Config::default() });
        driver.path(true, true);
        for (operation, mut input, output_bytes) in commands {
            input.resize(input.len().max(2), 0);
            driver.command(operation, &mut input, output_bytes);
            for frame in &frames {
                driver.receive(frame);
            }
        }
    }

    #[test]
    fn what_a_driver_did_with_some_bytes_changed(
        which in 0..RECORDED.len(),
        changes in vec((any::<Index>(), any::<bool>(), any::<Index>(), change()), 1..200),
        frames in vec(noise(1600), 0..4),
    ) {
        let (text, striding) = RECORDED[which];
        let mut commands: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("0 "))
            .map(|line| journal::parse(line).expect("a recorded command"))
            .collect();
        for (command, in_use, byte, value) in changes {
            let input = &mut command.get_mut(&mut commands).input;
            // The command itself stays: what no driver sends is refused at once. What is not zero is most likely read.
            let places: Vec<usize> = (2..input.len())
                .filter(|at| !in_use || input[*at] != 0)
                .collect();
            if !places.is_empty() {
                input[*byte.get(&places)] = value;
            }
        }
        let mut driver = Driver::new(Config { striding, compression: true, ..Config::default() });
        for (number, mut command) in commands.into_iter().enumerate() {
            let operation = u16::from_be_bytes([command.input[0], command.input[1]]);
            driver.command(operation, &mut command.input, command.output_bytes);
            if number % 8 == 0 {
                for frame in &frames {
                    driver.receive(frame);
                }
                driver.device.transmit(&mut driver.machine, 8);
            }
        }
    }

    #[test]
    fn any_registers_over_any_memory(
        memory in noise(0x4000),
        writes in vec((0..0x20_0000_u64, vec(any::<u8>(), 0..9)), 1..40),
        commands in any::<u32>(),
    ) {
        let mut machine = Machine { memory, ..Machine::default() };
        let mut device = Device::new(Config::default());
        for (offset, data) in writes {
            device.write(&mut machine, offset, &data);
            device.read(offset, &mut [0; 8]);
        }
        device.write(&mut machine, initial_seg::COMMAND_DOORBELL_VECTOR.word(), &commands.to_be_bytes());
    }

    #[test]
    fn any_requests_and_doorbells(
        entries in vec(noise(64), 8),
        buffers in noise(128),
        counts in (any::<u32>(), any::<u32>()),
        bells in vec((0..0x1000_u64, any::<u64>()), 0..10),
        frames in vec(noise(1600), 0..6),
        striding in any::<bool>(),
        compressed in any::<bool>(),
    ) {
        let mut driver = Driver::new(Config { striding, compression: compressed, ..Config::default() });
        let path = driver.path(striding, compressed);
        let buffers_at = path.receive.memory;
        driver.machine.memory[buffers_at..buffers_at + buffers.len()].copy_from_slice(&buffers);
        for (index, entry) in entries.iter().enumerate() {
            let at = path.send.memory + index * ENTRY_BYTES;
            driver.machine.memory[at..at + entry.len()].copy_from_slice(entry);
        }
        driver.set(path.receive.record, doorbell_record::RECEIVE_PRODUCER, counts.0.into());
        for frame in &frames {
            driver.receive(frame);
        }
        driver.send(path.send, counts.1);
        for (offset, data) in bells {
            driver.write(FIRST_DOORBELL + offset, &data.to_be_bytes());
            driver.device.transmit(&mut driver.machine, 8);
        }
    }
}
