// SPDX-License-Identifier: GPL-2.0

//! The stack as one call of the algorithm sees it: what the module's glue does around the algorithm (`rust/glue/packet/`), step by
//! step, and the traits through which the algorithm asks for it.

use crate::algo::counters::Counter;
use crate::algo::flow::dispatcher::Host;
use crate::algo::lanes::queue::chain::Chain;
use crate::algo::lanes::queue::ring::{Consumer, Item};
use crate::algo::lanes::queue::Packet as _;
use crate::algo::lanes::ring_bytes::RingBytes;
use crate::algo::load::flow_orders::Orders;
use crate::algo::merge::lane_run::{Collector, Run};
use crate::algo::merge::slot::{LaneId, Merged, PathFault, Sink, Slot, WINDOW_BATCHES};
use crate::algo::merge::slot_pool::SlotPool;
use crate::algo::parked_amount::Amount;
use crate::algo::tag::{Tag, TagKind};
use crate::around::{Live, TIMEOUT_US};
use crate::books::How;
use crate::event::{Fate, Scenario};
use crate::hooks;
use crate::packet::{TestPacket, TestRequest};
use crate::world::FIRST;

/// The CPU on which dispatchers run.
const NIC_CPU: u32 = 7;

/// The parts of the module that all sources share.
pub(crate) struct Shared {
    pub(crate) slots: SlotPool<TestPacket>,
    pub(crate) ring_bytes: RingBytes,
    pub(crate) orders: Orders,
}

/// A lane's ends.
pub(crate) struct Lane {
    pub(crate) consumer: Consumer<TestPacket>,
    pub(crate) collector: Collector<TestPacket>,
}

/// The stack below one source.
pub(crate) struct Stack<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) around: Live,
    pub(crate) scenario: Scenario,
    pub(crate) source: usize,
}

struct SlotSink<'a> {
    merged: &'a Slot<TestPacket>,
    around: Live,
    slot: usize,
    /// True if it delivers all that is left, as the module goes.
    is_last: bool,
    /// The batches that had been given up before for more parked packets than may be.
    overflows: u64,
}

impl SlotSink<'_> {
    /// Notes the batches that have been given up. If more was parked than may be, they may have been fences, and packets may overtake those
    /// on the ordinary path.
    fn note_given_up(&mut self) {
        for batch in hooks::take_given_up(self.merged) {
            hooks::note(|| format!("batch {} is given up", name(batch)));
            self.around.books.give_up(self.slot, batch);
        }
        if self.merged.counters.get(Counter::OverflowBatches) != self.overflows {
            self.around.excuse_ordinary();
        }
    }
}

impl Sink<TestPacket> for SlotSink<'_> {
    fn deliver(&mut self, mut chain: Chain<TestPacket>) -> Amount {
        self.note_given_up();
        let mut amount = Amount::default();
        while let Some(packet) = chain.pop() {
            // Other cores may act between any two packets.
            hooks::count_use();
            amount += packet.amount();
            let next = self.merged.next();
            let ahead = packet.tag().batch_near(next).wrapping_sub(next);
            let how = if ahead == 0 || self.is_last && ahead < WINDOW_BATCHES {
                How::InTurn
            } else {
                How::Late
            };
            self.around.books.deliver(packet, how);
        }
        amount
    }

    fn now_us(&mut self) -> u64 {
        self.around.now_us
    }

    fn timeout_us(&mut self) -> u32 {
        TIMEOUT_US
    }

    fn lane_progress(&mut self, lane: LaneId) -> u32 {
        self.around.progress(lane)
    }

    fn arm_deadline(&mut self, after_us: u32) {
        self.around.timers[self.slot] = self.around.now_us + u64::from(after_us);
    }
}

/// Returns a batch in the words of notes: its number behind that of the first one.
fn name(batch: u32) -> i32 {
    // CAST: old tags are behind.
    batch.wrapping_sub(FIRST) as i32
}

impl Stack<'_> {
    fn slot(&self, tag: Tag) -> &Slot<TestPacket> {
        self.shared.slots.slot(tag.slot())
    }

    fn batch(&self, tag: Tag) -> u32 {
        tag.batch_near(self.slot(tag).next())
    }

    /// Delivers what a slot has, by `call`.
    fn delivering(&mut self, slot: usize, call: impl FnOnce(&Slot<TestPacket>, &mut SlotSink<'_>)) {
        let merged = self.shared.slots.slot(slot);
        let mut sink = SlotSink {
            merged,
            around: self.around,
            slot,
            is_last: false,
            overflows: merged.counters.get(Counter::OverflowBatches),
        };
        call(merged, &mut sink);
        sink.note_given_up();
    }

    /// Merges a slot.
    pub(crate) fn merge_slot(&mut self, slot: usize) {
        let budget_pkts = self.scenario.merge_budget_pkts;
        self.delivering(slot, |merged, sink| {
            if merged.merge(sink, budget_pkts) == Merged::More {
                sink.arm_deadline(1);
            }
        });
    }

    /// Delivers what a slot has left when the module goes.
    pub(crate) fn deliver_rest(&mut self, slot: usize) {
        self.delivering(slot, |merged, sink| {
            sink.is_last = true;
            merged.deliver_all(sink);
        });
    }

    /// Parks a run. Returns whether its slot has to be merged.
    fn park(&mut self, run: Run<TestPacket>) -> bool {
        let batch = self.batch(run.tag);
        let pkts = run.amount.pkts();
        hooks::note(|| format!("{pkts} packets of batch {} are parked", name(batch)));
        self.slot(run.tag).park(batch, run.chain, run.amount)
    }

    fn park_and_merge(&mut self, run: Run<TestPacket>) {
        let slot = run.tag.slot();
        if self.park(run) {
            self.merge_slot(slot);
        }
    }

    fn park_one(&mut self, packet: TestPacket) {
        let (tag, amount) = (packet.tag(), packet.amount());
        let mut chain = Chain::new();
        chain.push(packet);
        self.park_and_merge(Run {
            chain,
            amount,
            tag,
            socket: 0,
        });
    }

    /// Brings a packet to its socket that does not come in a lane's poll.
    pub(crate) fn arrive(&mut self, packet: TestPacket) {
        let tag = packet.tag();
        let slot = tag.slot();
        match tag.kind() {
            TagKind::Split => self.park_one(packet),
            TagKind::Queued => {
                self.park_one(packet);
                if self.slot(tag).note_arrived(self.batch(tag), 1) {
                    self.merge_slot(slot);
                }
            }
            TagKind::Fence => {
                self.park_one(packet);
                let batch = self.batch(tag);
                hooks::note(|| format!("batch {}, a fence, is complete", name(batch)));
                if self.slot(tag).complete(batch) {
                    self.merge_slot(slot);
                }
            }
            TagKind::Probe => {
                self.slot(tag).note_probe(tag.batch_bits());
                self.around.books.deliver(packet, How::NotSplit);
            }
            TagKind::None => self.around.books.deliver(packet, How::NotSplit),
        }
    }

    /// Makes the batch of a packet wait for it by itself.
    fn expect_queued(&self, packet: &mut TestPacket) {
        let tag = packet.tag();
        self.slot(tag).note_queued(self.batch(tag), 1);
        packet.set_tag(Tag::new(TagKind::Queued, tag.slot(), tag.batch_bits()));
    }

    /// Tells of a split packet that it is queued on its path.
    fn note_queued(&self, packet: &mut TestPacket) {
        self.slot(packet.tag()).note_path_fault(PathFault::Queues);
        self.expect_queued(packet);
    }

    /// Puts a packet on the ordinary path.
    pub(crate) fn put_on_ordinary_path(&mut self, mut packet: TestPacket) {
        let nodes = self.around.nodes;
        let inner_flow = usize::from(packet.node_mut().inner_flow);
        let queue = &mut self.around.sources[self.source].ordinary[inner_flow];
        queue.push(nodes, packet);
    }

    /// Makes a copy of a packet, if there is memory for one.
    fn copy(&mut self, packet: &mut TestPacket) -> Option<TestPacket> {
        let copy = self.around.nodes.copy(packet)?;
        let node = packet.node_mut();
        self.around.books.expect(node.source, node.number);
        Some(copy)
    }

    /// Does to a packet what its fate says, if it is a fate that all packets may have. Gives it back if it goes on. Returns false if
    /// that fate cannot be.
    fn meet(&mut self, mut packet: TestPacket, fate: Fate) -> Result<Option<TestPacket>, ()> {
        match fate {
            Fate::Pass | Fate::Copy | Fate::DropQueued => Ok(Some(packet)),
            Fate::Drop => {
                self.around.books.drop(packet);
                Ok(None)
            }
            Fate::Hold => {
                self.around.hold(packet);
                Ok(None)
            }
            Fate::HoldCopy => {
                let copy = self.copy(&mut packet).ok_or(())?;
                self.around.hold(copy);
                Ok(Some(packet))
            }
        }
    }

    /// Carries the first of the packets that the dispatching core carries itself. Returns whether that can be.
    pub(crate) fn carry_inline(&mut self, fate: Fate) -> bool {
        let nodes = self.around.nodes;
        let Some(packet) = self.around.sources[self.source].inline.pop(nodes) else {
            return false;
        };
        let Ok(packet) = self.meet(packet, fate) else {
            return false;
        };
        let Some(mut packet) = packet else {
            return true;
        };
        let queues = self.around.path_queues;
        match fate {
            Fate::DropQueued if !queues => return false,
            Fate::DropQueued => {
                self.note_queued(&mut packet);
                self.around.books.drop(packet);
            }
            Fate::Copy if queues => return false,
            Fate::Copy => {
                let Some(copy) = self.copy(&mut packet) else {
                    return false;
                };
                self.arrive(packet);
                self.arrive(copy);
            }
            _ if queues => {
                self.note_queued(&mut packet);
                self.put_on_ordinary_path(packet);
            }
            _ => self.arrive(packet),
        }
        true
    }

    /// Brings the first of the packets on the ordinary path to its end. Returns whether that can be.
    pub(crate) fn carry_ordinary(&mut self, inner_flow: usize, fate: Fate) -> bool {
        let nodes = self.around.nodes;
        let queue = &mut self.around.sources[self.source].ordinary[inner_flow];
        let first = queue.nodes().first().copied();
        let Some(packet) = queue.pop(nodes) else {
            return false;
        };
        // Another core may carry one in the middle.
        let before = self.around.carried;
        self.around.carried = first.map_or(0, |index| index + 1);
        let can_be = self.carry_on_ordinary_path(packet, fate);
        self.around.carried = before;
        can_be
    }

    fn carry_on_ordinary_path(&mut self, packet: TestPacket, fate: Fate) -> bool {
        let kind = packet.tag().kind();
        let Ok(packet) = self.meet(packet, fate) else {
            return false;
        };
        let Some(mut packet) = packet else {
            return true;
        };
        match (kind, fate) {
            (_, Fate::DropQueued) => return false,
            (TagKind::Fence, Fate::Copy) => {
                let Some(mut copy) = self.copy(&mut packet) else {
                    return false;
                };
                self.expect_queued(&mut copy);
                self.put_on_ordinary_path(copy);
            }
            (_, Fate::Copy) => return false,
            (TagKind::Probe, _) if self.around.path_queues => {
                let slot = self.slot(packet.tag());
                slot.note_path_fault(PathFault::Queues);
                packet.set_tag(Tag::NONE);
            }
            _ => {}
        }
        self.arrive(packet);
        true
    }

    /// Brings the first of the packets to its socket that the path of a lane has queued.
    pub(crate) fn carry_queued(&mut self, lane: usize) -> bool {
        let nodes = self.around.nodes;
        let queue = &mut self.around.sources[self.source].lanes[lane].queue;
        let packet = queue.pop(nodes);
        packet.map(|packet| self.arrive(packet)).is_some()
    }

    /// Parks a run of a lane, which merges in a later step.
    fn park_on_lane(&mut self, number: usize, run: Run<TestPacket>) {
        let slot = run.tag.slot();
        let owes = self.park(run);
        let state = &mut self.around.sources[self.source].lanes[number];
        state.owes |= u8::from(owes) << slot;
    }

    /// Parks what a lane has collected. Returns whether there was anything.
    pub(crate) fn park_collected(&mut self, lane: &mut Lane, number: usize) -> bool {
        self.around.sources[self.source].lanes[number].collected = 0;
        let run = lane.collector.take();
        run.map(|run| self.park_on_lane(number, run)).is_some()
    }

    fn collect(&mut self, lane: &mut Lane, number: usize, packet: TestPacket) {
        let (tag, amount) = (packet.tag(), packet.amount());
        let before = lane.collector.add(tag, 0, packet, amount);
        let state = &mut self.around.sources[self.source].lanes[number];
        state.collected += 1;
        if let Some(run) = before {
            state.collected = 1;
            self.park_on_lane(number, run);
        }
    }

    /// Takes the next step of a lane: merges what it owes; or completes a batch that has ended; or takes an item from its ring, and
    /// carries a packet, or parks what it has collected of a batch that ends. Returns false if there is no step, or if that fate cannot
    /// be.
    pub(crate) fn step_lane(&mut self, lane: &mut Lane, number: usize, fate: Fate) -> bool {
        let state = &mut self.around.sources[self.source].lanes[number];
        if !state.is_between_items() {
            if fate != Fate::Pass {
                return false;
            }
            let owes = std::mem::take(&mut state.owes);
            if owes != 0 {
                let slots = (0..u8::BITS as usize).filter(|slot| owes >> slot & 1 == 1);
                slots.for_each(|slot| self.merge_slot(slot));
            } else {
                let state = &mut self.around.sources[self.source].lanes[number];
                let tag = Tag::from_word(std::mem::take(&mut state.ending));
                let batch = self.batch(tag);
                hooks::note(|| format!("batch {} is complete", name(batch)));
                let owes = self.slot(tag).complete(batch);
                let state = &mut self.around.sources[self.source].lanes[number];
                state.owes |= u8::from(owes) << tag.slot();
            }
            return true;
        }
        let item = lane.consumer.pop(TestRequest::build);
        let state = &mut self.around.sources[self.source].lanes[number];
        state.progress += u32::from(item.is_some());
        match item {
            None => false,
            Some(Item::Packet(mut packet) | Item::Built(mut packet)) => {
                hooks::note(|| {
                    let (tag, number) = (packet.tag(), packet.node_mut().number);
                    format!(
                        "it takes packet {number} of batch {}",
                        name(self.batch(tag))
                    )
                });
                // CAST: a small number.
                let (cpu, bytes) = (number as u32, u64::from(packet.memory_bytes()));
                self.shared.ring_bytes.release(cpu, bytes);
                self.carry_on_lane(lane, number, packet, fate)
            }
            Some(Item::BatchEnd(tag)) => {
                hooks::note(|| "it takes the end of a batch".to_owned());
                state.ending = tag.word();
                self.park_collected(lane, number);
                fate == Fate::Pass
            }
            Some(Item::Nothing) => unreachable!("there is no building end"),
        }
    }

    fn carry_on_lane(
        &mut self,
        lane: &mut Lane,
        number: usize,
        packet: TestPacket,
        fate: Fate,
    ) -> bool {
        let Ok(packet) = self.meet(packet, fate) else {
            return false;
        };
        let Some(mut packet) = packet else {
            return true;
        };
        let queues = self.around.path_queues;
        if !queues {
            let copy = match fate {
                Fate::DropQueued => return false,
                Fate::Copy => match self.copy(&mut packet) {
                    None => return false,
                    copy => copy,
                },
                _ => None,
            };
            self.collect(lane, number, packet);
            if let Some(copy) = copy {
                self.collect(lane, number, copy);
            }
            return true;
        }
        if fate == Fate::Copy {
            return false;
        }
        self.park_collected(lane, number);
        self.note_queued(&mut packet);
        if fate == Fate::DropQueued {
            self.around.books.drop(packet);
        } else {
            let nodes = self.around.nodes;
            let queue = &mut self.around.sources[self.source].lanes[number].queue;
            queue.push(nodes, packet);
        }
        true
    }
}

impl Host<TestPacket> for Stack<'_> {
    fn now_ms(&mut self) -> u32 {
        // CAST: it wraps, as the kernel's does.
        (self.around.now_us / 1_000) as u32
    }

    fn cpu(&self) -> u32 {
        NIC_CPU
    }

    fn slots(&self) -> &SlotPool<TestPacket> {
        &self.shared.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        &self.shared.ring_bytes
    }

    fn orders(&self) -> &Orders {
        &self.shared.orders
    }

    fn fences_inner_flows(&self) -> bool {
        self.scenario.inner_flows > 1
    }

    fn flush_inline(&mut self) {
        while self.carry_inline(Fate::Pass) {}
    }

    fn merge(&mut self, slot: usize) {
        self.merge_slot(slot);
    }

    fn note_active(&mut self, taken: bool) {
        self.around.active += if taken { 1 } else { -1 };
    }
}
