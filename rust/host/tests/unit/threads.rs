// SPDX-License-Identifier: GPL-2.0

//! The whole path on real threads: more packets than loom can follow, on the machine's own memory model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::merge::slot::MAX_PARKED_PKTS;

use crate::support::host::{check_order, end_flow, Setup, Shared};
use crate::support::socket::TIMEOUT_US;
use crate::world::nr_overtaken;
use crate::zeroed::zeroed;

const NR_LANES: usize = 3;
const NR_PKTS: usize = 200_000;
const BATCH_PKTS: [u32; 3] = [1, 7, 64];
/// Packets that may be under way before the NIC's core lets the lanes catch up, so that no batch is given up because too
/// many wait behind it.
const MAX_PENDING_PKTS: u32 = MAX_PARKED_PKTS / 2;

/// Runs a flow with each lane on a thread of its own, and `timer` again and again on one more.
fn run(batch_pkts: u32, timer: impl Fn(&Shared) + Sync) -> Setup<NR_LANES> {
    let Setup {
        mut nic,
        lanes,
        shared,
        _rings,
    } = Setup::new_split(zeroed(), batch_pkts);
    let is_over = AtomicBool::new(false);
    let until_over = |step: &mut dyn FnMut()| {
        while !is_over.load(Ordering::Acquire) {
            step();
            thread::yield_now();
        }
    };
    let lanes = thread::scope(|scope| {
        let until_over = &until_over;
        let running = lanes.map(|mut lane| {
            scope.spawn(move || {
                until_over(&mut || {
                    lane.poll(64);
                });
                lane
            })
        });
        let (timer, timer_shared) = (&timer, &shared);
        scope.spawn(move || until_over(&mut || timer(timer_shared)));
        for _ in 0..NR_PKTS.div_ceil(50) {
            nic.receive(50);
            let nr_received = nic.nr_received() as u32;
            while nr_received - shared.slot().arrived_pkts() + shared.slot().parked_pkts()
                > MAX_PENDING_PKTS
            {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Release);
        running.map(|lane| lane.join().unwrap())
    });
    Setup {
        nic,
        lanes,
        shared,
        _rings,
    }
}

#[test]
fn lanes_on_threads_keep_the_order() {
    for batch_pkts in BATCH_PKTS {
        let Setup {
            nic,
            lanes,
            shared,
            _rings,
        } = run(batch_pkts, |_| ());
        check_order(nic, lanes, &shared);
    }
}

/// A deadline that strikes all the time: nothing is lost, and what is overtaken is counted.
#[test]
fn hasty_deadline_on_threads_loses_nothing() {
    for batch_pkts in BATCH_PKTS {
        let Setup {
            mut nic,
            mut lanes,
            shared,
            _rings,
        } = run(batch_pkts, |shared| {
            shared.socket.pass_time(TIMEOUT_US);
            shared.socket.fire(shared.slot());
        });
        let nr_sent = end_flow(&mut nic, &mut lanes, &shared);
        let mut delivered = shared.socket.delivered();
        let late = shared.slot().counters.get(Counter::LatePkts);
        assert!(nr_overtaken(&delivered) <= late);
        delivered.sort_unstable();
        assert!(delivered.into_iter().eq(0..nr_sent));
    }
}
