// SPDX-License-Identifier: GPL-2.0

//! The properties that hold after each event, and at the end of each sequence.

use crate::algo::lanes::queue::ring::Item;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::merge::slot::{MAX_PARKED_BYTES, MAX_PARKED_PKTS};
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::around::ORDINARY_US;
use crate::books::Broken;
use crate::event::{Event, Step, Wait};
use crate::packet::{self, TestRequest};
use crate::world::{World, BATCH_PKTS};

/// The most that is parked beyond the bound: that of one run, which a core parks before it looks.
const RUN_PKTS: u32 = BATCH_PKTS;
const RUN_BYTES: u64 = 4 * 256;

/// The longest time for which packets are parked where nothing else happens: that of fences that do not arrive, and some more for
/// batches of lanes.
const MOST_WAIT_US: u64 = 2 * ORDINARY_US + 1_000;

/// The times that pass until flows without packets have given their slots back.
const MOST_PERIODS: usize = 6;

impl World {
    /// Returns an error if the broken property is one that is looked for.
    fn fail(&self, broken: Broken) -> Result<(), Broken> {
        if self.wanted.is_none_or(|wanted| wanted == broken) {
            Err(broken)
        } else {
            Ok(())
        }
    }

    /// Checks the properties that hold after each event.
    pub(crate) fn check(&mut self) -> Result<(), Broken> {
        if packet::take_taken_twice() {
            self.fail(Broken::Twice)?;
        }
        if let Some(broken) = self.image.around_mut().books.take_broken() {
            self.fail(broken)?;
        }
        let around = self.image.around();
        if around.nodes.has_lost() {
            self.fail(Broken::Lost)?;
        }
        let slots = &self.image.shared().slots;
        // CAST: a small number.
        if slots.taken().count() as i8 != around.active {
            self.fail(Broken::Leak)?;
        }
        let mut most_parked = self.most_parked;
        for (number, slot) in slots.iter().enumerate() {
            if around.owes(number) {
                continue;
            }
            let parked = slot.parked();
            most_parked = most_parked.max(parked.pkts());
            let exceeds = parked.pkts() > MAX_PARKED_PKTS + RUN_PKTS
                || parked.bytes() > MAX_PARKED_BYTES + RUN_BYTES;
            let is_ready = slot.is_ready();
            // With a budget, what is ready waits for the timer, and is not held up.
            let may_be_ready = self.scenario.merge_budget_pkts != u32::MAX;
            if exceeds && !(is_ready && may_be_ready) {
                self.fail(Broken::Memory)?;
            }
            let has_timer = around.timers[number] != 0;
            if parked.pkts() != 0 && (!has_timer || is_ready && !may_be_ready) {
                self.fail(Broken::Stuck)?;
            }
        }
        self.most_parked = most_parked;
        Ok(())
    }

    /// Lets nothing happen any more but what must: no packets come, and no incidents. Checks that all that is parked leaves, first while
    /// packets are kept back, and then behind these; and that nothing is left at the end.
    pub(crate) fn end(&mut self) -> Result<(), Broken> {
        self.calm_down()?;
        if !self.image.around().held.is_empty() {
            while !self.image.around().held.is_empty() {
                self.apply(Step::of(Event::Release { place: 0 }))?;
            }
            self.calm_down()?;
        }
        self.bury();
        let around = self.image.around();
        if !around.books.are_closed(around.nodes) {
            self.fail(Broken::Lost)?;
        }
        if self.image.shared().ring_bytes.all() != 0 {
            self.fail(Broken::Leak)?;
        }
        Ok(())
    }

    /// Lets time pass until nothing is parked and no flow has a slot.
    fn calm_down(&mut self) -> Result<(), Broken> {
        let (mut waited_us, mut periods) = (0, 0);
        loop {
            self.settle()?;
            let slots = &self.image.shared().slots;
            let parks = slots.iter().any(|slot| slot.parked_pkts() != 0);
            let around = self.image.around();
            let armed = (0..NR_SLOTS).filter(|slot| around.timers[*slot] != 0);
            let first = armed.min_by_key(|slot| around.timers[*slot]);
            if let (true, Some(slot)) = (parks, first) {
                waited_us += around.timers[slot].saturating_sub(around.now_us);
                self.longest_wait_us = self.longest_wait_us.max(waited_us);
            } else if parks || around.active == 0 {
                break;
            } else {
                periods += 1;
            }
            if waited_us > MOST_WAIT_US || periods > MOST_PERIODS {
                break;
            }
            // CAST: a small number.
            let event = first.map_or(Event::Wait(Wait::Idle), |slot| Event::Fire {
                slot: slot as u8,
            });
            self.apply(Step::of(event))?;
        }
        if self
            .image
            .shared()
            .slots
            .iter()
            .any(|slot| slot.parked_pkts() != 0)
        {
            self.fail(Broken::Stuck)?;
        }
        // A flow may wait for a lane that stands still. So does the module when it goes, for a while.
        if self.image.around().active != 0 && !self.has_dead_lane() {
            self.fail(Broken::Leak)?;
        }
        Ok(())
    }

    /// Lets everything that can move do so, without time passing.
    fn settle(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.next_move() {
            self.apply(Step::of(event))?;
        }
        Ok(())
    }

    fn has_dead_lane(&self) -> bool {
        let sources = self.image.around().sources.iter();
        let mut lanes = sources.flat_map(|source| &source.lanes);
        lanes.any(|lane| lane.is_dead)
    }

    /// Drops what lanes have that stand still for good, as the module does when it goes.
    fn bury(&mut self) {
        for source in 0..usize::from(self.scenario.sources) {
            let mut stack = self.image.stack(source);
            let states = stack.around.sources[source].lanes;
            for (number, state) in states.iter().enumerate() {
                if !state.is_dead {
                    continue;
                }
                // SAFETY: Nothing happens on any lane now.
                let lane = unsafe { &mut *self.image.lane(source, number) };
                let mut run = lane.collector.take();
                while let Some(packet) = run.as_mut().and_then(|run| run.chain.pop()) {
                    stack.around.books.drop(packet);
                }
                while let Some(item) = lane.consumer.pop(TestRequest::build) {
                    if let Item::Packet(packet) | Item::Built(packet) = item {
                        let bytes = u64::from(packet.memory_bytes());
                        // CAST: a small number.
                        stack.shared.ring_bytes.release(number as u32, bytes);
                        stack.around.books.drop(packet);
                    }
                }
            }
        }
    }
}
