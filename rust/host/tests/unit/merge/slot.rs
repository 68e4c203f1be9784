// SPDX-License-Identifier: GPL-2.0

//! A slot on one thread: each rule of the merge by itself, then all orders in which lanes can be.

use mflow_algo::algo::counters::Counter;
use mflow_algo::algo::join::DatagramForm;
use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::merge::slot::{
    LaneId, Merged, PathFault, Slot, INLINE, MAX_PARKED_BYTES, MAX_PARKED_PKTS, ORDINARY_PATH,
    WINDOW_BATCHES,
};
use mflow_algo::algo::parked_amount::Amount;
use mflow_algo::algo::tag::{is_before, TagKind, BATCH_BITS};
use proptest::prelude::*;

use crate::common::cases;
use crate::support::packet::{Factory, TestPacket};
use crate::world::Socket;

/// A slot with a socket behind it. Lane 1 is the only one.
pub(super) struct Merger {
    slot: Slot<TestPacket>,
    /// The batch that is opened next.
    unopened: u32,
    pub(super) socket: Socket,
    packets: Factory,
}

impl Merger {
    fn starting_at(batch: u32) -> Self {
        Self {
            slot: Slot::starting_at(batch),
            unopened: batch,
            socket: Socket::new(1),
            packets: Factory::default(),
        }
    }

    pub(super) fn new() -> Self {
        Self::starting_at(0)
    }

    fn merge(&mut self) {
        assert_eq!(
            self.slot.merge(&mut self.socket.sink(0), u32::MAX),
            Merged::Done
        );
    }

    /// Opens a batch, and those before it that are not open yet.
    pub(super) fn open(&mut self, batch: u32, lane: LaneId) {
        self.open_up_to(batch.wrapping_sub(1));
        assert_eq!(self.unopened, batch, "it is open already");
        self.slot.open(batch, lane);
        self.unopened = batch.wrapping_add(1);
    }

    /// Opens batches up to this one, as the dispatcher has before any of it comes.
    fn open_up_to(&mut self, last: u32) {
        while !is_before(last, self.unopened) {
            assert_eq!(self.slot.room(self.unopened, 1), 1);
            self.slot.open(self.unopened, INLINE);
            self.unopened = self.unopened.wrapping_add(1);
        }
    }

    /// Parks packets; returns whether the slot wanted to be merged, which has then been done.
    pub(super) fn park(&mut self, batch: u32, ids: &[u64]) -> bool {
        self.open_up_to(batch);
        let chain = self.packets.chain(ids.iter().copied());
        let amount = self.packets.amount(ids.len());
        let shall_merge = self.slot.park(batch, chain, amount);
        if shall_merge {
            self.merge();
        }
        shall_merge
    }

    pub(super) fn complete(&mut self, batch: u32) -> bool {
        self.open_up_to(batch);
        let shall_merge = self.slot.complete(batch);
        if shall_merge {
            self.merge();
        }
        shall_merge
    }

    /// Lets time pass, and fires the timer if it is due.
    pub(super) fn wait(&mut self, us: u64) -> bool {
        self.socket.now_us += us;
        let is_due = self.socket.timers[0].is_some_and(|at| at <= self.socket.now_us);
        if is_due {
            self.socket.timers[0] = None;
            self.slot.expire();
            self.merge();
        }
        is_due
    }

    fn timer_us(&self) -> Option<u64> {
        self.socket.timers[0].map(|at| at - self.socket.now_us)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.slot.counters.get(counter)
    }
}

/// An aggregate that is cut costs more than a list, so a socket that cuts one gets none again until the flow's next probe.
#[test]
fn datagrams_pass_the_stack_in_the_form_that_suits_their_socket() {
    let slot = Merger::new().slot;
    assert_eq!(slot.datagram_form(), DatagramForm::Single, "before a probe");
    slot.note_takes_lists(true);
    assert_eq!(slot.datagram_form(), DatagramForm::List);
    slot.note_takes_aggregates(true);
    assert_eq!(slot.datagram_form(), DatagramForm::Aggregate);
    slot.note_takes_lists(false);
    assert_eq!(slot.datagram_form(), DatagramForm::Single, "written to");
    slot.note_takes_lists(true);
    for takes in [false, true] {
        slot.note_takes_aggregates(takes);
        assert_eq!(slot.datagram_form(), DatagramForm::List, "one was cut");
    }
    slot.forget_takes_aggregates();
    slot.note_takes_aggregates(true);
    assert_eq!(slot.datagram_form(), DatagramForm::Aggregate);
}

#[test]
fn turn_goes_from_batch_to_batch() {
    let mut m = Merger::new();
    assert!(m.park(1, &[2]));
    assert_eq!(m.socket.delivered, []);
    assert!(!m.slot.is_drained_up_to(0));
    assert!(!m.complete(1));
    assert!(m.park(0, &[0]));
    // The turn is theirs: packets of an open batch do not wait for its end.
    assert_eq!(m.socket.delivered, [0]);
    assert!(m.park(0, &[1]));
    assert!(m.complete(0));
    assert_eq!(m.socket.delivered, [0, 1, 2]);
    assert!(m.slot.is_drained_up_to(2));
    assert_eq!(m.slot.arrived_pkts(), 3);
    assert_eq!(m.count(Counter::MergedPkts), 3);
}

/// Another core has counted packets, and is about to put them into their place: it merges by itself.
#[test]
fn packets_on_the_way_into_their_place_arm_no_timer() {
    let mut m = Merger::new();
    m.open_up_to(0);
    assert!(m.slot.park(0, Chain::new(), m.packets.amount(1)));
    m.merge();
    assert_eq!(m.timer_us(), None);
}

#[test]
fn empty_batches_are_passed_over() {
    let mut m = Merger::new();
    assert!(!m.complete(1));
    assert!(!m.complete(2));
    assert!(m.park(3, &[3]));
    assert!(m.complete(0));
    assert_eq!(m.socket.delivered, [3]);
    assert_eq!(m.slot.next(), 3);
}

/// A core that parks while packets are held up looks at the clock: the core with the timer may be the busy one.
#[test]
fn deadline_needs_no_timer() {
    let mut m = Merger::new();
    assert!(m.park(1, &[1]));
    m.socket.timers[0] = None;
    m.socket.now_us += 199;
    assert!(m.park(2, &[2]));
    assert_eq!(m.socket.delivered, []);
    m.socket.now_us += 1;
    assert!(m.park(2, &[3]));
    assert_eq!(m.socket.delivered, [1]);
    assert_eq!(m.count(Counter::DeadlineBatches), 1);
}

#[test]
fn silent_batch_is_given_up_at_the_deadline() {
    let mut m = Merger::new();
    m.park(1, &[1]);
    m.complete(1);
    assert_eq!(m.timer_us(), Some(200));
    assert!(!m.wait(199));
    assert_eq!(m.socket.delivered, []);
    assert!(m.wait(1));
    assert_eq!(m.socket.delivered, [1]);
    assert_eq!(m.count(Counter::DeadlineBatches), 1);
    assert_eq!(m.timer_us(), None);

    // What comes now is late: delivered at once, and counted.
    assert!(m.park(0, &[0]));
    assert_eq!(m.socket.delivered, [1, 0]);
    assert_eq!(m.count(Counter::LatePkts), 1);
    assert_eq!(m.count(Counter::MergedPkts), 1);
    assert!(m.slot.is_drained_up_to(2));
}

#[test]
fn only_what_has_to_wait_is_early() {
    let mut m = Merger::new();
    m.park(0, &[0]);
    assert_eq!(m.count(Counter::EarlyPkts), 0, "its turn");
    m.park(1, &[2, 3]);
    m.park(3, &[5]);
    assert_eq!(m.count(Counter::EarlyPkts), 3);
    m.park(0, &[1]);
    m.complete(0);
    m.complete(1);
    m.park(2, &[4]);
    m.complete(2);
    assert_eq!(m.socket.delivered, [0, 1, 2, 3, 4, 5]);
    assert_eq!(m.count(Counter::EarlyPkts), 3);
}

#[test]
fn each_missing_batch_has_a_deadline_of_its_own() {
    let mut m = Merger::new();
    m.park(2, &[2]);
    assert!(m.wait(200));
    assert_eq!(m.slot.next(), 1);
    assert_eq!(m.timer_us(), Some(200));
    assert!(m.wait(200));
    assert_eq!(m.socket.delivered, [2]);
    assert_eq!(m.count(Counter::DeadlineBatches), 2);
}

#[test]
fn batch_whose_lane_works_is_waited_for() {
    let mut m = Merger::new();
    m.open(0, 1);
    m.park(1, &[100]);
    m.complete(1);
    for step in 0..50u32 {
        m.socket.progress[0] += 1;
        // Some of what the lane takes from its ring belongs to other flows and does not show here.
        if step % 10 == 0 {
            m.park(0, &[u64::from(step)]);
        }
        m.wait(190);
        assert_eq!(m.count(Counter::DeadlineBatches), 0, "step {step}");
        assert!(m.timer_us().is_some());
    }
    m.complete(0);
    assert_eq!(m.socket.delivered, [0, 10, 20, 30, 40, 100]);
    assert_eq!(m.count(Counter::LatePkts), 0);
}

#[test]
fn batch_whose_lane_stops_is_given_up() {
    let mut m = Merger::new();
    m.open(0, 1);
    m.park(1, &[1]);
    m.socket.progress[0] += 5;
    assert!(m.wait(200));
    assert_eq!(m.socket.delivered, []);
    // Silent from here on: at most two timeouts until it shows, and it is bounded.
    let mut waited_us = 0;
    while m.socket.delivered.is_empty() {
        waited_us += 10;
        m.wait(10);
        assert!(waited_us <= 400);
    }
    assert_eq!(m.count(Counter::DeadlineBatches), 1);
}

#[test]
fn timer_that_fires_for_another_batch_starts_again() {
    let mut m = Merger::new();
    m.park(1, &[1]);
    m.wait(150);
    m.park(2, &[2]);
    m.complete(0);
    // Batch 1 has its turn, is not complete, and 2 waits behind it: from now on, not from when 1 waited.
    assert_eq!(m.timer_us(), Some(50));
    assert!(m.wait(50));
    assert_eq!(m.count(Counter::DeadlineBatches), 0);
    assert_eq!(m.timer_us(), Some(150));
    assert!(m.wait(150));
    assert_eq!(m.socket.delivered, [1, 2]);
    assert_eq!(m.count(Counter::DeadlineBatches), 1);
}

#[test]
fn fired_timer_does_not_shorten_the_next_wait() {
    let mut m = Merger::new();
    m.park(1, &[1]);
    m.complete(0);
    m.complete(1);
    assert_eq!(m.socket.delivered, [1]);
    // The timer of that wait is still armed, and fires when nothing waits.
    assert!(m.wait(200));
    m.park(3, &[3]);
    assert_eq!(m.timer_us(), Some(200));
    assert!(!m.wait(199));
    assert!(m.wait(1));
    assert_eq!(m.socket.delivered, [1, 3]);
}

#[test]
fn too_many_parked_packets_end_the_wait() {
    for flows in [1, 7] {
        let mut m = Merger::new();
        m.slot.set_sharers(flows);
        let most = MAX_PARKED_PKTS / flows;
        for id in 0..u64::from(most) {
            m.park(1, &[id]);
        }
        assert_eq!(m.socket.delivered, []);
        assert_eq!(m.slot.parked_pkts(), most);
        m.park(1, &[u64::from(most)]);
        assert_eq!(m.socket.delivered.len(), most as usize + 1);
        assert!(m.socket.delivered.is_sorted());
        assert_eq!(m.count(Counter::OverflowBatches), 1);
        assert_eq!(m.slot.next(), 1);
    }
}

/// Those whose turn it is are delivered at once; what waits behind them may go on waiting.
#[test]
fn too_many_packets_of_the_turn_end_no_wait() {
    let mut m = Merger::new();
    m.park(1, &[1]);
    let ids: Vec<_> = (2..3 + u64::from(MAX_PARKED_PKTS)).collect();
    m.park(0, &ids);
    assert_eq!(m.socket.delivered, ids);
    assert_eq!(m.count(Counter::OverflowBatches), 0);
}

/// Large packets do so before they are many.
#[test]
fn too_many_parked_bytes_end_the_wait() {
    for flows in [1, 7] {
        let mut m = Merger::new();
        m.slot.set_sharers(flows);
        m.packets.bytes = 64 << 10;
        let most = MAX_PARKED_BYTES / u64::from(flows) / (64 << 10);
        for id in 0..most {
            m.park(1, &[id]);
        }
        assert_eq!(m.socket.delivered, []);
        assert_eq!(m.slot.parked().bytes(), most * (64 << 10));
        m.park(1, &[most]);
        assert_eq!(m.socket.delivered.len() as u64, most + 1);
        assert_eq!(m.count(Counter::OverflowBatches), 1);
        assert_eq!(m.slot.parked(), Amount::default());
    }
}

#[test]
fn budget_bounds_one_call() {
    let mut m = Merger::new();
    m.open_up_to(3);
    let packets = m.packets.clone();
    for batch in 1..4 {
        let first = u64::from(batch) * 10;
        assert_eq!(
            m.slot
                .park(batch, packets.chain(first..first + 10), packets.amount(10)),
            batch == 1
        );
        assert!(!m.slot.complete(batch));
    }
    assert!(m.slot.complete(0));
    let mut nr_calls = 0;
    while m.slot.merge(&mut m.socket.sink(0), 10) == Merged::More {
        nr_calls += 1;
        assert_eq!(m.socket.delivered.len(), nr_calls * 10);
    }
    assert_eq!(nr_calls, 3);
    assert!(m.slot.is_drained_up_to(4));
    assert!(m.socket.delivered.is_sorted());
}

/// Also within a batch, which may have grown, and where the packets are late: what is left keeps its place.
#[test]
fn budget_bounds_what_is_delivered_of_a_batch() {
    for is_late in [false, true] {
        let mut m = Merger::new();
        let first = u32::from(is_late);
        (0..first).for_each(|batch| {
            m.complete(batch);
        });
        m.open_up_to(0);
        let packets = m.packets.clone();
        assert!(m.slot.park(0, packets.chain(0..35), packets.amount(35)));
        let merge = |m: &mut Merger| {
            let before = m.socket.delivered.len();
            let merged = m.slot.merge(&mut m.socket.sink(0), 10);
            (merged, m.socket.delivered.len() - before)
        };
        assert_eq!(merge(&mut m), (Merged::More, 10));
        // These come behind what is left of the others.
        let _merges = m.slot.park(0, packets.chain(35..50), packets.amount(15));
        assert!(m.slot.is_ready());
        for _ in 0..4 {
            assert_eq!(merge(&mut m), (Merged::More, 10));
        }
        assert_eq!(merge(&mut m), (Merged::Done, 0));
        let late_pkts = if is_late { 50 } else { 0 };
        assert_eq!(m.count(Counter::LatePkts), late_pkts);
        assert_eq!(m.count(Counter::MergedPkts), 50 - late_pkts);
        assert_eq!(m.slot.parked_pkts(), 0);
        assert!(m.socket.delivered.iter().copied().eq(0..50));
    }
}

/// The part of a batch that the budget has left over is in order, though a late packet has come meanwhile.
#[test]
fn late_packet_makes_nothing_else_late() {
    let mut m = Merger::new();
    m.complete(0);
    m.open_up_to(1);
    let packets = m.packets.clone();
    let _ = m.slot.park(1, packets.chain(0..35), packets.amount(35));
    let mut merge = || m.slot.merge(&mut m.socket.sink(0), 10);
    assert_eq!(merge(), Merged::More);
    let _ = m.slot.park(0, packets.chain([35]), packets.amount(1));
    while merge() == Merged::More {}
    assert!(m.socket.delivered.iter().copied().eq(0..36));
    assert_eq!(m.count(Counter::LatePkts), 1);
    assert_eq!(m.count(Counter::MergedPkts), 35);
}

#[test]
fn completion_of_a_batch_given_up_does_not_undo_another() {
    let mut m = Merger::new();
    // Batch 0 is given up; the whole window after it is used, up to the number that shares its place.
    m.park(1, &[1]);
    m.wait(200);
    let sharing = WINDOW_BATCHES;
    for batch in 1..sharing - 1 {
        m.complete(batch);
    }
    m.park(sharing, &[2]);
    m.complete(sharing);
    // Batch 0's lane comes to its end only now.
    m.complete(0);
    m.complete(sharing - 1);
    assert_eq!(m.slot.next(), sharing + 1);
    assert_eq!(m.socket.delivered, [1, 2]);
}

#[test]
fn slot_that_is_ready_says_so() {
    let mut m = Merger::new();
    assert!(!m.slot.is_ready());
    m.open_up_to(1);
    let packets = m.packets.clone();
    let _ = m.slot.park(1, packets.chain([1]), packets.amount(1));
    assert!(!m.slot.is_ready());
    let _ = m.slot.complete(0);
    assert!(m.slot.is_ready());
    m.merge();
    assert!(!m.slot.is_ready());
    let _ = m.slot.park(1, packets.chain([2]), packets.amount(1));
    assert!(m.slot.is_ready());
    m.merge();
    assert_eq!(m.socket.delivered, [1, 2]);
}

#[test]
fn everything_leaves_in_order_in_the_end() {
    let mut m = Merger::starting_at(u32::MAX - 1);
    m.park(2, &[3, 4]);
    m.park(0, &[1]);
    m.park(1, &[2]);
    m.slot.deliver_all(&mut m.socket.sink(0));
    assert_eq!(m.socket.delivered, [1, 2, 3, 4]);
    assert_eq!(m.slot.parked_pkts(), 0);
    assert_eq!(m.packets.alive(), 0);
}

#[test]
fn dropped_slot_frees_its_packets() {
    let mut m = Merger::new();
    m.open_up_to(5);
    let packets = m.packets.clone();
    let _ = m.slot.park(1, packets.chain([1, 2]), packets.amount(2));
    let _ = m.slot.park(5, packets.chain([3]), packets.amount(1));
    drop(m);
    assert_eq!(packets.alive(), 0);
}

#[test]
fn last_probe_is_seen() {
    let m = Merger::new();
    assert!(!m.slot.has_seen_probe(0));
    m.slot.note_probe(0);
    assert!(m.slot.has_seen_probe(0));
    m.slot.note_probe(0x00ff_ffff);
    assert!(m.slot.has_seen_probe(0x00ff_ffff));
    assert!(!m.slot.has_seen_probe(0));
    assert_eq!(m.count(Counter::ProbesSeen), 2);
}

#[test]
fn queued_packets_keep_their_batch_open() {
    let mut m = Merger::new();
    m.park(1, &[9]);
    m.complete(1);
    m.park(0, &[0]);
    m.slot.note_queued(0, 1);
    m.slot.note_queued(0, 1);
    m.complete(0);
    assert_eq!(m.socket.delivered, [0]);

    assert!(m.park(0, &[1]));
    assert!(m.slot.note_arrived(0, 1));
    m.merge();
    assert_eq!(m.socket.delivered, [0, 1]);
    assert!(m.park(0, &[2]));
    assert!(m.slot.note_arrived(0, 1));
    m.merge();
    assert_eq!(m.socket.delivered, [0, 1, 2, 9]);
    assert_eq!(m.count(Counter::LatePkts), 0);

    // One that is late, one too many, and one of a batch that is not open change nothing.
    m.slot.note_queued(1, 1);
    assert!(!m.slot.note_arrived(1, 1));
    m.slot.note_queued(2, 1);
    assert!(!m.slot.note_arrived(2, 1));
    m.open_up_to(2);
    assert!(m.slot.note_arrived(2, 1));
    m.merge();
    m.park(2, &[10]);
    m.complete(2);
    assert!(m.slot.is_drained_up_to(3));
}

#[test]
fn packets_come_within_a_window_and_a_fence_once() {
    let mut merger = Merger::new();
    merger.open(0, ORDINARY_PATH);
    merger.open(1, 1);
    let may = |slot: &Slot<TestPacket>, kind, batch| slot.may_come(kind, batch);
    for kind in [TagKind::Split, TagKind::Queued] {
        let near = [0, 1, WINDOW_BATCHES - 1, 0_u32.wrapping_sub(WINDOW_BATCHES)];
        assert!(near.iter().all(|&batch| may(&merger.slot, kind, batch)));
        let far = [WINDOW_BATCHES, 0_u32.wrapping_sub(WINDOW_BATCHES + 1)];
        assert!(!far.iter().any(|&batch| may(&merger.slot, kind, batch)));
    }
    assert!(may(&merger.slot, TagKind::Fence, 0));
    assert!(!may(&merger.slot, TagKind::Fence, 1), "that of a lane");
    merger.complete(0);
    assert!(!may(&merger.slot, TagKind::Fence, 0));
    assert!(!may(&merger.slot, TagKind::Probe, 1));
}

/// GRO joins queued packets, and devices take them apart.
#[test]
fn queued_packets_are_counted_as_on_the_wire() {
    let mut m = Merger::new();
    m.park(1, &[9]);
    m.complete(1);
    (0..3).for_each(|_| m.slot.note_queued(0, 1));
    m.slot.note_queued(0, 2);
    m.complete(0);
    let mut arrive = |ids: &[u64], pkts| {
        m.park(0, ids);
        assert!(m.slot.note_arrived(0, pkts));
        m.merge();
        m.socket.delivered.len()
    };
    assert_eq!(arrive(&[0, 1], 2), 2);
    assert_eq!(arrive(&[2], 1), 3);
    assert_eq!(arrive(&[3], 1), 4);
    // What comes with it, the next batch has waited for.
    assert_eq!(arrive(&[4], 1), 6);
    assert_eq!(m.count(Counter::DeadlineBatches), 0);
}

#[test]
fn path_fault_is_told_once_and_the_worst_first() {
    let m = Merger::new();
    assert_eq!(m.slot.take_path_fault(), None);
    m.slot.note_path_fault(PathFault::Queues);
    assert_eq!(m.slot.take_path_fault(), Some(PathFault::Queues));
    assert_eq!(m.slot.take_path_fault(), None);
    m.slot.note_path_fault(PathFault::Ordered);
    m.slot.note_path_fault(PathFault::Queues);
    assert_eq!(m.slot.take_path_fault(), Some(PathFault::Ordered));
    assert_eq!(m.slot.take_path_fault(), None);
}

/// Two sockets of a group get the fence, and what is behind it waits for both copies.
#[test]
fn fence_is_complete_with_its_last_copy() {
    for copy_is_last in [false, true] {
        let mut m = Merger::new();
        m.open(0, ORDINARY_PATH);
        m.slot.note_queued(0, 1);
        m.park(1, &[9]);
        m.complete(1);
        let arrive = |m: &mut Merger, is_copy: bool, id: u64| {
            m.park(0, &[id]);
            if is_copy {
                assert!(m.slot.note_arrived(0, 1));
            } else {
                m.complete(0);
            }
            m.merge();
        };
        arrive(&mut m, !copy_is_last, 0);
        assert_eq!(m.socket.delivered, [0]);
        arrive(&mut m, copy_is_last, 1);
        assert_eq!(m.socket.delivered, [0, 1, 9]);
        assert_eq!(m.count(Counter::LatePkts), 0);
    }
}

#[test]
fn queued_packets_that_never_arrive_are_given_up() {
    for by_deadline in [false, true] {
        let mut m = Merger::new();
        m.open_up_to(0);
        m.slot.note_queued(0, 1);
        m.complete(0);
        m.park(1, &[1]);
        m.complete(1);
        assert_eq!(m.socket.delivered, []);
        if by_deadline {
            assert!(m.wait(200));
        } else {
            assert!(!m.slot.forget_queued(1));
            assert!(m.slot.forget_queued(0));
            m.merge();
        }
        assert_eq!(m.socket.delivered, [1]);
        assert_eq!(m.count(Counter::DeadlineBatches), u64::from(by_deadline));
        // The number that shares the place starts without them.
        let sharing = WINDOW_BATCHES;
        (2..sharing).for_each(|batch| {
            m.complete(batch);
        });
        m.open(sharing, 1);
        m.park(sharing, &[2]);
        m.complete(sharing);
        assert_eq!(m.slot.next(), sharing + 1);
    }
}

/// The lane has said that a batch is complete, and works for others: that is no reason to wait for what was queued.
#[test]
fn lane_that_works_for_others_prolongs_nothing() {
    let mut m = Merger::new();
    m.open(0, 1);
    m.slot.note_queued(0, 1);
    m.complete(0);
    m.park(1, &[1]);
    for _ in 0..25 {
        m.socket.progress[0] += 1;
        m.wait(10);
    }
    assert_eq!(m.socket.delivered, [1]);
    assert_eq!(m.count(Counter::DeadlineBatches), 1);
}

#[test]
fn fence_has_more_time() {
    let mut m = Merger::new();
    m.open(0, ORDINARY_PATH);
    m.park(1, &[1]);
    let mut waited_us = 0;
    while m.socket.delivered.is_empty() {
        waited_us += 100;
        m.wait(100);
    }
    assert!((10_000..=100_000).contains(&waited_us), "{waited_us}");
    // Unless the deadline of a batch is longer still.
    let mut m = Merger::new();
    m.socket.timeout_us = 1_000_000;
    m.open(0, ORDINARY_PATH);
    m.park(1, &[1]);
    assert_eq!(m.timer_us(), Some(1_000_000));
}

#[test]
fn slot_knows_its_socket() {
    let m = Merger::new();
    m.slot.note_socket(7);
    assert!(m.slot.is_for(7));
    assert!(!m.slot.is_for(8));
}

#[test]
fn batch_numbers_of_tags_come_round() {
    let mut m = Merger::new();
    let nr_batches = 1 << BATCH_BITS;
    for batch in 0..nr_batches {
        assert!(m.complete(batch));
    }
    assert!(m.park(nr_batches, &[1]));
    assert_eq!(m.socket.delivered, [1]);
    assert_eq!(m.slot.next(), nr_batches);
}

/// A lane's work on its batch: it parks the batch in parts, then completes it.
#[derive(Clone, Debug)]
struct BatchPlan {
    parts: Vec<u64>,
}

/// A call about a batch, of whatever number; numbers are counted from the one whose turn it is.
#[derive(Clone, Debug)]
enum Call {
    /// The dispatcher opens this many batches, if there is room.
    Open(u32),
    Park(i32, u64),
    Complete(i32),
    NoteQueued(i32, u32),
    NoteArrived(i32, u32),
    ForgetQueued(i32),
    Wait(u64),
}

fn number() -> impl Strategy<Value = i32> {
    const WINDOW: i32 = WINDOW_BATCHES as i32;
    const HALF_ROUND: i32 = 1 << (BATCH_BITS - 1);
    prop_oneof![
        8 => 0..4,
        6 => -3..30,
        3 => -2 * WINDOW..2 * WINDOW,
        1 => (0..4).prop_map(|more| more * WINDOW),
        1 => HALF_ROUND - 3..=HALF_ROUND,
        1 => -HALF_ROUND..=3 - HALF_ROUND,
        1 => any::<i32>(),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (1..20u32).prop_map(Call::Open),
        1 => Just(Call::Open(WINDOW_BATCHES)),
        12 => (number(), 1..5u64).prop_map(|(number, pkts)| Call::Park(number, pkts)),
        12 => number().prop_map(Call::Complete),
        3 => (number(), 1..4u32).prop_map(|(number, pkts)| Call::NoteQueued(number, pkts)),
        3 => (number(), 1..4u32).prop_map(|(number, pkts)| Call::NoteArrived(number, pkts)),
        1 => number().prop_map(Call::ForgetQueued),
        3 => (1..300u64).prop_map(Call::Wait),
    ]
}

fn batch_plan() -> impl Strategy<Value = BatchPlan> {
    prop::collection::vec(1..40u64, 0..5).prop_map(|parts| BatchPlan { parts })
}

proptest! {
    #![proptest_config(cases(512))]

    /// Batches with packets in several parts, in any interleaving that the window allows, over any wrap of the numbers:
    /// the result is the sorted list.
    #[test]
    fn any_interleaving_is_sorted(
        first in prop_oneof![
            any::<u32>(),
            Just(0u32),
            (0..40u32).prop_map(|ahead| u32::MAX - ahead),
            (0..40u32).prop_map(|ahead| (1 << BATCH_BITS) - ahead),
        ],
        plans in prop::collection::vec(batch_plan(), 1..60),
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
    ) {
        let mut m = Merger::starting_at(first);
        let mut next_id = 0;
        // Of each batch what is still to be done: parts as ranges of packet numbers, last first.
        let mut open: Vec<(u32, Vec<Vec<u64>>)> = Vec::new();
        for (at, plan) in plans.iter().enumerate() {
            let mut parts = Vec::new();
            for pkts in &plan.parts {
                parts.push((next_id..next_id + pkts).collect());
                next_id += pkts;
            }
            parts.reverse();
            open.push((first.wrapping_add(at as u32), parts));
        }
        let nr_batches = open.len() as u32;
        let mut choices = choices.iter().cycle();
        while !open.is_empty() {
            let at = choices.next().unwrap().index(open.len());
            let (batch, parts) = &mut open[at];
            match parts.pop() {
                Some(ids) => {
                    m.park(*batch, &ids);
                }
                None => {
                    m.complete(*batch);
                    open.remove(at);
                }
            }
            prop_assert!(m.slot.parked_pkts() == 0 || m.timer_us().is_some());
        }
        prop_assert_eq!(&m.socket.delivered, &(0..next_id).collect::<Vec<_>>());
        prop_assert!(m.slot.is_drained_up_to(first.wrapping_add(nr_batches)));
        prop_assert_eq!(m.count(Counter::LatePkts), 0);
        prop_assert_eq!(m.count(Counter::MergedPkts), next_id);
    }

    /// Calls with any number, whether a batch of it is open or not: each packet is delivered once, in order if its batch was
    /// open, and counted as late if not. The turn never goes further than to the batch that is opened next, and nothing hangs.
    #[test]
    fn any_number_at_any_time(
        first in prop_oneof![any::<u32>(), Just(0u32), (0..40u32).prop_map(|ahead| u32::MAX - ahead)],
        calls in prop::collection::vec(call(), 1..200),
    ) {
        let mut m = Merger::starting_at(first);
        let (mut nr_sent, mut nr_late, mut nr_opened) = (0, 0, 0);
        // What was parked in time: batches, counted from the first, and packets.
        let mut in_time = Vec::new();
        for call in calls {
            let next = m.slot.next();
            let batch_of = |number: i32| next.wrapping_add_signed(number);
            let shall_merge = match call {
                Call::Open(batches) => {
                    let room = m.slot.room(m.unopened, batches);
                    nr_opened += room;
                    m.open_up_to(m.unopened.wrapping_add(room).wrapping_sub(1));
                    false
                }
                Call::Park(number, pkts) => {
                    let batch = batch_of(number);
                    let ids = nr_sent..nr_sent + pkts;
                    nr_sent += pkts;
                    if batch.wrapping_sub(next) < m.unopened.wrapping_sub(next) {
                        in_time.extend(ids.clone().map(|id| (batch.wrapping_sub(first), id)));
                    } else {
                        nr_late += pkts;
                    }
                    let amount = m.packets.amount(pkts as usize);
                    m.slot.park(batch, m.packets.chain(ids), amount)
                }
                Call::Complete(number) => m.slot.complete(batch_of(number)),
                Call::NoteQueued(number, pkts) => {
                    m.slot.note_queued(batch_of(number), pkts);
                    false
                }
                Call::NoteArrived(number, pkts) => m.slot.note_arrived(batch_of(number), pkts),
                Call::ForgetQueued(number) => m.slot.forget_queued(batch_of(number)),
                Call::Wait(us) => {
                    m.wait(us);
                    false
                }
            };
            if shall_merge {
                m.merge();
            }
            prop_assert!(m.slot.next().wrapping_sub(first) <= nr_opened);
            prop_assert!(m.unopened.wrapping_sub(m.slot.next()) < WINDOW_BATCHES);
            let parked = u64::from(m.slot.parked_pkts());
            prop_assert_eq!(m.socket.delivered.len() as u64 + parked, nr_sent);
            prop_assert!(parked == 0 || m.timer_us().is_some() || m.slot.next().wrapping_sub(first) < nr_opened);
        }
        while m.slot.next() != m.unopened {
            let batch = m.slot.next();
            let _ = m.slot.forget_queued(batch);
            prop_assert!(m.slot.complete(batch));
            m.merge();
        }
        prop_assert!(m.slot.is_drained_up_to(first.wrapping_add(nr_opened)));
        prop_assert_eq!(m.count(Counter::LatePkts), nr_late);
        prop_assert_eq!(m.count(Counter::MergedPkts), in_time.len() as u64);
        in_time.sort_unstable();
        let in_turn: std::collections::HashSet<_> = in_time.iter().map(|(_, id)| *id).collect();
        let delivered = m.socket.delivered.iter().filter(|id| in_turn.contains(id));
        prop_assert!(delivered.eq(in_time.iter().map(|(_, id)| id)));
        let mut all = m.socket.delivered.clone();
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..nr_sent));
        prop_assert_eq!(m.packets.alive(), 0);
    }
}
