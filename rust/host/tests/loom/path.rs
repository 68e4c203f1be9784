// SPDX-License-Identifier: GPL-2.0

//! Dispatcher, rings, lanes and slot together: a flow starts, is split and stops while its lanes run.

use loom::thread;

use crate::support::host::{check_order, Setup};

/// Runs a model whose first thread has room on its stack for a dispatcher.
fn model(test: fn()) {
    loom::model(move || {
        let first = thread::Builder::new().stack_size(1 << 16).spawn(test);
        first.unwrap().join().unwrap();
    });
}

fn new() -> Setup<2> {
    Setup::new(Box::default(), 1)
}

fn new_split() -> Setup<2> {
    Setup::new_split(Box::default(), 1)
}

/// Checks that one lane may carry `first` packets while the NIC's core hands out two more and the other lane carries them.
fn check_two_lanes(setup: Setup<2>, first_pkts: usize) {
    let Setup {
        mut nic,
        lanes: [mut first, mut second],
        shared,
        _rings,
    } = setup;
    nic.receive(first_pkts);
    let running = thread::spawn(move || {
        first.poll_all();
        first
    });
    nic.receive(2);
    second.poll_all();
    let first = running.join().unwrap();
    check_order(nic, [first, second], &shared);
}

#[test]
fn lanes_run_while_batches_come() {
    model(|| check_two_lanes(new_split(), 1));
}

/// The first packet of each batch comes built, the other does not.
#[test]
fn lanes_build_packets() {
    model(|| {
        let mut setup = Setup::new_split(Box::default(), 2);
        setup.nic.driver_asks = true;
        check_two_lanes(setup, 2);
    });
}

/// The fence is under way while a lane has its first batch already.
#[test]
fn split_waits_for_the_fence() {
    model(|| {
        let Setup {
            mut nic,
            lanes: [mut first, mut second],
            shared,
            _rings,
        } = new();
        nic.receive(2);
        let lanes = thread::spawn(move || {
            first.poll_all();
            second.poll_all();
            [first, second]
        });
        nic.run_ordinary();
        let lanes = lanes.join().unwrap();
        check_order(nic, lanes, &shared);
    });
}

/// The flow stops while its lanes are still at it: what goes untagged comes after all of them.
#[test]
fn stop_waits_for_the_lanes() {
    model(|| {
        let Setup {
            mut nic,
            lanes: [mut first, mut second],
            shared,
            _rings,
        } = new_split();
        nic.receive(2);
        let running = thread::spawn(move || {
            second.poll_all();
            second
        });
        first.poll_all();
        nic.config.stopping = true;
        nic.receive(2);
        // Whatever was let go to the ordinary path arrives there at once.
        nic.run_ordinary();
        let second = running.join().unwrap();
        check_order(nic, [first, second], &shared);
    });
}

/// The window is used up to its last number while the merger gives a turn away: numbers share places then.
#[test]
fn window_comes_round() {
    model(|| {
        let Setup {
            mut nic,
            lanes: [mut first, mut second],
            shared,
            _rings,
        } = new_split();
        // Two batches for the lanes, and the rest of the window for this core.
        nic.receive(3);
        // Ask for no more lanes: each further batch is parked by this core at once.
        nic.dispatcher.lanes.set_offline(0b11);
        let running = thread::spawn(move || {
            first.poll_all();
            second.poll_all();
            [first, second]
        });
        nic.receive(2);
        let lanes = running.join().unwrap();
        check_order(nic, lanes, &shared);
    });
}
