// SPDX-License-Identifier: GPL-2.0

//! The hand-over between lanes and the merger.
//!
//! The promise under test is that no core has to look again: once all threads have done their calls, everything that can
//! be delivered has been, and if something still waits, a deadline is armed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use loom::thread;
use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::merge::slot::{Merged, Slot, INLINE, WINDOW_BATCHES};

use crate::support::packet::TestPacket;
use crate::support::socket::{Socket, TIMEOUT_US};

fn spawn<F>(socket: &Arc<Socket>, slot: &Arc<Slot<TestPacket>>, lane: F) -> thread::JoinHandle<()>
where
    F: FnOnce(&Socket, &Slot<TestPacket>) + 'static,
{
    let (socket, slot) = (socket.clone(), slot.clone());
    thread::spawn(move || lane(&socket, &slot))
}

/// Returns a slot in which a window of batches is open.
fn opened() -> Arc<Slot<TestPacket>> {
    let slot = Slot::new();
    (0..WINDOW_BATCHES).for_each(|batch| slot.open(batch, INLINE));
    Arc::new(slot)
}

fn park(socket: &Socket, slot: &Slot<TestPacket>, batch: u32, ids: &[u64]) {
    let chain = socket.packets.chain(ids.iter().copied());
    socket.park(slot, batch, chain, socket.packets.amount(ids.len()));
}

fn counts(slot: &Slot<TestPacket>) -> (u64, u64, u64) {
    (
        slot.counters.get(Counter::MergedPkts),
        slot.counters.get(Counter::LatePkts),
        slot.counters.get(Counter::DeadlineBatches),
    )
}

/// Two lanes, one batch each: both complete, so all is delivered in order without another call.
#[test]
fn two_lanes_in_order() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let first = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0, 1]);
            socket.complete(slot, 0);
        });
        let second = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 1, &[2]);
            socket.complete(slot, 1);
        });
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(socket.delivered(), [0, 1, 2]);
        assert_eq!(counts(&slot), (3, 0, 0));
        assert!(slot.is_drained_up_to(2));
        assert_eq!(slot.arrived_pkts(), 3);
        assert_eq!(socket.packets.alive(), 0);
    });
}

/// A lane parks a batch in several polls while the batch behind it is complete already.
#[test]
fn batch_in_two_polls() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let first = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            park(socket, slot, 0, &[1]);
            socket.complete(slot, 0);
        });
        park(&socket, &slot, 1, &[2]);
        socket.complete(&slot, 1);
        first.join().unwrap();
        assert_eq!(socket.delivered(), [0, 1, 2]);
        assert!(slot.is_drained_up_to(2));
    });
}

/// Three cores: the batch in the middle is empty (all of it was dropped), its completion still counts.
#[test]
fn empty_batch_in_the_middle() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let middle = spawn(&socket, &slot, |socket, slot| socket.complete(slot, 1));
        let last = spawn(&socket, &slot, |socket, slot| park(socket, slot, 2, &[2]));
        park(&socket, &slot, 0, &[0]);
        socket.complete(&slot, 0);
        middle.join().unwrap();
        last.join().unwrap();
        assert_eq!(socket.delivered(), [0, 2]);
        assert_eq!(slot.next(), 2);
    });
}

/// A batch that never completes: what waits behind it has a deadline, and leaves with it.
#[test]
fn missing_batch_has_a_deadline() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let lanes = [1, 2].map(|batch| {
            spawn(&socket, &slot, move |socket, slot| {
                park(socket, slot, batch, &[u64::from(batch)]);
                socket.complete(slot, batch);
            })
        });
        for lane in lanes {
            lane.join().unwrap();
        }
        assert_eq!(socket.delivered(), []);
        assert_eq!(socket.armed.load(Relaxed), 1);

        socket.pass_time(TIMEOUT_US);
        assert!(socket.fire(&slot));
        assert_eq!(socket.delivered(), [1, 2]);
        assert_eq!(counts(&slot), (2, 0, 1));
        assert!(slot.is_drained_up_to(3));
    });
}

/// The timer fires while lanes park: what waits afterwards has a timer.
#[test]
fn no_wait_without_a_timer() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        park(&socket, &slot, 1, &[1]);
        assert_eq!(socket.armed.load(Relaxed), 1);

        let timer = spawn(&socket, &slot, |socket, slot| {
            socket.pass_time(TIMEOUT_US);
            socket.fire(slot);
        });
        let lane = spawn(&socket, &slot, |socket, slot| {
            socket.complete(slot, 1);
            park(socket, slot, 3, &[3]);
        });
        timer.join().unwrap();
        lane.join().unwrap();
        if slot.parked_pkts() > 0 {
            assert_eq!(socket.armed.load(Relaxed), 1);
        }
        for _ in 0..4 {
            socket.pass_time(TIMEOUT_US);
            socket.fire(&slot);
        }
        assert_eq!(socket.delivered(), [1, 3]);
        assert_eq!(slot.parked_pkts(), 0);
    });
}

/// The deadline gives a batch up while its lane parks and completes it: nothing is lost or delivered twice, and packets
/// leave out of order only if they are counted as late.
#[test]
fn deadline_against_its_own_lane() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        park(&socket, &slot, 1, &[2]);
        socket.complete(&slot, 1);
        socket.pass_time(TIMEOUT_US);

        let timer = spawn(&socket, &slot, |socket, slot| {
            socket.fire(slot);
        });
        let lane = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            park(socket, slot, 0, &[1]);
            socket.complete(slot, 0);
        });
        timer.join().unwrap();
        lane.join().unwrap();

        let delivered = socket.delivered();
        let (merged, late, _) = counts(&slot);
        let overtaken = delivered.iter().skip_while(|id| **id != 2).count() as u64 - 1;
        assert!(late >= overtaken, "{late} late, {delivered:?}");
        assert!(merged + late >= 3);
        // Those of one batch keep their order even when they are late.
        assert!(delivered.iter().filter(|id| **id < 2).is_sorted());
        let mut all = delivered;
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(slot.is_drained_up_to(2));
    });
}

/// Packets that reach the merge point after their batch was completed and its turn passed: delivered, not stranded.
#[test]
fn stragglers_are_delivered() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let lane = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            socket.complete(slot, 0);
        });
        let detour = spawn(&socket, &slot, |socket, slot| park(socket, slot, 0, &[9]));
        lane.join().unwrap();
        detour.join().unwrap();
        let mut delivered = socket.delivered();
        delivered.sort_unstable();
        assert_eq!(delivered, [0, 9]);
        assert!(slot.is_drained_up_to(1));
    });
}

/// A packet that was queued on its way arrives by itself, before or after its lane has completed the batch.
#[test]
fn queued_packets_are_waited_for() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        park(&socket, &slot, 1, &[1]);
        socket.complete(&slot, 1);
        slot.note_queued(0, 1);
        let lane = spawn(&socket, &slot, |socket, slot| socket.complete(slot, 0));
        let queue = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            if slot.note_arrived(0, 1) {
                socket.merge(slot);
            }
        });
        lane.join().unwrap();
        queue.join().unwrap();
        assert_eq!(socket.delivered(), [0, 1]);
        assert!(slot.is_drained_up_to(2));
    });
}

/// A batch gets its turn while the last of its queued packets arrives, or is given up.
#[test]
fn turn_comes_while_a_queued_packet_does() {
    for arrives in [true, false] {
        loom::model(move || {
            let (socket, slot) = (Socket::new(), opened());
            slot.note_queued(1, 1);
            socket.complete(&slot, 1);
            if arrives {
                park(&socket, &slot, 1, &[1]);
            }
            let lane = spawn(&socket, &slot, |socket, slot| socket.complete(slot, 0));
            let shall_merge = if arrives {
                slot.note_arrived(1, 1)
            } else {
                slot.forget_queued(1)
            };
            if shall_merge {
                socket.merge(&slot);
            }
            lane.join().unwrap();
            assert_eq!(socket.delivered().len(), usize::from(arrives));
            assert!(slot.is_drained_up_to(2));
        });
    }
}

/// A queued packet is given up while it arrives: it is delivered nevertheless.
#[test]
fn queued_packet_against_giving_it_up() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        slot.note_queued(0, 1);
        socket.complete(&slot, 0);
        let queue = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            if slot.note_arrived(0, 1) {
                socket.merge(slot);
            }
        });
        if slot.forget_queued(0) {
            socket.merge(&slot);
        }
        queue.join().unwrap();
        assert_eq!(socket.delivered(), [0]);
        assert!(slot.is_drained_up_to(1));
    });
}

/// A merger that runs out of budget says so, and its next call takes over whatever others have left to it.
#[test]
fn budget_hands_the_rest_on() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let lane = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 1, &[2]);
            socket.complete(slot, 1);
        });
        let chain = socket.packets.chain([0, 1]);
        let mut shall_merge = slot.park(0, chain, socket.packets.amount(2));
        shall_merge |= slot.complete(0);
        assert!(shall_merge);
        let mut nr_calls = 0;
        while slot.merge(&mut &*socket, 1) == Merged::More {
            nr_calls += 1;
            assert!(nr_calls < 8, "the budget is always used up");
        }
        lane.join().unwrap();
        assert_eq!(socket.delivered(), [0, 1, 2]);
        assert!(slot.is_drained_up_to(2));
    });
}

/// A core that sees a slot drained sees all its packets delivered: what it delivers past the slot comes after them.
#[test]
fn drained_means_delivered() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let lane = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 0, &[0]);
            socket.complete(slot, 0);
        });
        park(&socket, &slot, 1, &[1]);
        socket.complete(&slot, 1);
        let drained = slot.is_drained_up_to(2);
        if drained {
            // loom reports a race if the merger could still be delivering.
            socket.deliver_directly(socket.packets.packet(2));
        }
        lane.join().unwrap();
        let expected: &[u64] = if drained { &[0, 1, 2] } else { &[0, 1] };
        assert_eq!(socket.delivered(), expected);
    });
}

/// A probe that was noted is seen, and only the last one.
#[test]
fn probe_is_seen() {
    loom::model(|| {
        let slot = Arc::new(Slot::<TestPacket>::new());
        assert!(!slot.has_seen_probe(0));
        let merge_point = {
            let slot = slot.clone();
            thread::spawn(move || slot.note_probe(0))
        };
        let early = slot.has_seen_probe(0);
        merge_point.join().unwrap();
        assert!(slot.has_seen_probe(0));
        assert!(!slot.has_seen_probe(1));
        assert!(!early || slot.counters.get(Counter::ProbesSeen) <= 1);
    });
}

/// The batch that has the place of batch 0 next.
const NEXT_ONE: u32 = WINDOW_BATCHES;

/// Gives batch 0 up while `lane` is at it, and completes all others but the last of the window. Then opens the batch that has its
/// place next, once the slot has room for that. Returns what waits for the lane.
fn come_round(
    socket: &Arc<Socket>,
    slot: &Arc<Slot<TestPacket>>,
    lane: fn(&Socket, &Slot<TestPacket>),
) -> impl FnOnce() {
    let mut lane = Some(spawn(socket, slot, lane));
    park(socket, slot, 1, &[1]);
    socket.complete(slot, 1);
    socket.pass_time(TIMEOUT_US);
    socket.fire(slot);
    socket.complete(slot, 2);
    if slot.room(NEXT_ONE, 1) == 0 {
        // The lane is where it may yet park, or merges.
        lane.take().map(thread::JoinHandle::join);
        socket.pass_time(TIMEOUT_US);
        socket.fire(slot);
    }
    assert_eq!(slot.room(NEXT_ONE, 1), 1);
    slot.open(NEXT_ONE, INLINE);
    move || drop(lane.map(|lane| lane.join().unwrap()))
}

/// A lane stands still in the middle of completing a batch: the one that has its place next is complete nevertheless.
#[test]
fn completion_stands_still_for_a_window() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let wait = come_round(&socket, &slot, |socket, slot| socket.complete(slot, 0));
        socket.complete(&slot, NEXT_ONE);
        wait();
        socket.complete(&slot, 3);
        assert!(slot.is_drained_up_to(NEXT_ONE + 1));
        assert_eq!(socket.delivered(), [1]);
    });
}

/// The same while it parks: its packets are late, and no others.
#[test]
fn packets_stand_still_for_a_window() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        let wait = come_round(&socket, &slot, |socket, slot| park(socket, slot, 0, &[0]));
        park(&socket, &slot, NEXT_ONE, &[4]);
        wait();
        park(&socket, &slot, 3, &[3]);
        socket.complete(&slot, 3);
        socket.complete(&slot, NEXT_ONE);
        assert!(slot.is_drained_up_to(NEXT_ONE + 1));
        let delivered = socket.delivered();
        let others: Vec<_> = delivered.iter().filter(|id| **id > 0).collect();
        assert_eq!(others, [&1, &3, &4], "{delivered:?}");
        let (merged, late, given_up) = counts(&slot);
        assert!(late <= 1);
        assert_eq!((merged + late, given_up), (4, 1));
    });
}

/// The same with a queued packet that has arrived: another is still waited for.
#[test]
fn arrival_stands_still_for_a_window() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), opened());
        slot.note_queued(0, 1);
        let wait = come_round(&socket, &slot, |socket, slot| {
            if slot.note_arrived(0, 1) {
                socket.merge(slot);
            }
        });
        slot.note_queued(NEXT_ONE, 1);
        socket.complete(&slot, NEXT_ONE);
        wait();
        socket.complete(&slot, 3);
        assert_eq!(slot.next(), NEXT_ONE);
        assert!(slot.note_arrived(NEXT_ONE, 1));
        socket.merge(&slot);
        assert!(slot.is_drained_up_to(NEXT_ONE + 1));
    });
}

/// A packet of a number that nobody has opened arrives as that is opened: it is delivered, in time or late, and nothing waits.
#[test]
fn number_is_opened_while_an_old_packet_has_it() {
    loom::model(|| {
        let (socket, slot) = (Socket::new(), Arc::new(Slot::new()));
        slot.open(0, INLINE);
        let straggler = spawn(&socket, &slot, |socket, slot| {
            park(socket, slot, 1, &[9]);
            socket.complete(slot, 2);
        });
        slot.open(1, INLINE);
        park(&socket, &slot, 1, &[1]);
        socket.complete(&slot, 1);
        park(&socket, &slot, 0, &[0]);
        socket.complete(&slot, 0);
        straggler.join().unwrap();
        assert!(slot.is_drained_up_to(2));
        let mut delivered = socket.delivered();
        delivered.retain(|id| *id != 9);
        assert_eq!(delivered, [0, 1]);
        let (merged, late, given_up) = counts(&slot);
        assert_eq!((merged + late, given_up), (3, 0));
    });
}
