// SPDX-License-Identifier: GPL-2.0

//! The search: breadth first, so that a sequence of events which breaks a property is one of the shortest.
//!
//! Of each state the search keeps its digest, the state before, and the event between the two. To go on from a state, it goes back to the
//! nearest state of which it has a snapshot, and repeats the events from there. States are visited in the order in which they were
//! found, so one state and the next have most of their past in common.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use crate::algo::counters::Counter;
use crate::books::Broken;
use crate::event::{Amid, Bounds, Event, Incident, Other, Scenario, Step};
use crate::hooks;
use crate::image::Snapshot;
use crate::report::{Limit, Report, Sequence, SIGNS};
use crate::world::World;

/// One in so many states that are found again is compared with how it was found first. A prime: orders of events have other periods.
const COMPARED_ONE_OF: u64 = 4_099;

/// The most events that happen while a core stands still: timers may go on for ever.
const MOST_EVENTS_OF_OTHERS: u8 = 100;

/// A state that was found.
struct Found {
    /// The place of the state before.
    parent: u32,
    /// The step that leads here from there.
    step: Step,
}

/// A state that was found in two ways.
struct Twin {
    first: u32,
    parent: u32,
    step: Step,
}

/// Digests are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("digests are numbers");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

/// Tries every sequence of events in a scenario within bounds. Returns a shortest one that breaks a property, if any does.
pub fn explore(scenario: Scenario, bounds: Bounds) -> Result<Report, Box<Sequence>> {
    hooks::plant(None);
    Search::new(scenario, bounds, None).run()
}

/// Does the same with a fault planted. Only sequences that break the property `wanted` count.
pub fn find(
    fault: &str,
    wanted: Broken,
    scenario: Scenario,
    bounds: Bounds,
) -> Result<Report, Box<Sequence>> {
    hooks::plant(Some(fault));
    Search::new(scenario, bounds, Some(wanted)).run()
}

struct Search {
    world: World,
    scenario: Scenario,
    bounds: Bounds,
    /// The only property that counts, if not all do.
    wanted: Option<Broken>,
    /// The place of the state that has a digest.
    seen: HashMap<u64, u32, BuildHasherDefault<Same>>,
    found: Vec<Found>,
    found_again: u64,
    twins: Vec<Twin>,
    /// The places of states from the first on, each behind the one before, with their snapshots.
    path: Vec<(u32, Snapshot)>,
    /// Snapshots that are not used now.
    spare: Vec<Snapshot>,
    transitions: u64,
    races: u64,
    has_split_again: bool,
    seen_signs: [bool; SIGNS.len()],
}

impl Search {
    fn new(scenario: Scenario, bounds: Bounds, wanted: Option<Broken>) -> Self {
        let world = World::new(scenario, wanted);
        let first = world.image.snapshot();
        let mut seen = HashMap::default();
        seen.insert(world.image.digest(), 0);
        Self {
            world,
            scenario,
            bounds,
            wanted,
            seen,
            found: vec![Found {
                parent: 0,
                // No step leads to the first state.
                step: Step::of(Event::Begin),
            }],
            found_again: 0,
            twins: Vec::new(),
            path: vec![(0, first)],
            spare: Vec::new(),
            transitions: 0,
            races: 0,
            has_split_again: false,
            seen_signs: [false; SIGNS.len()],
        }
    }

    fn run(mut self) -> Result<Report, Box<Sequence>> {
        let begun = Instant::now();
        let mut next = 0;
        let mut cut_short_by = None;
        while next < self.found.len() && cut_short_by.is_none() {
            // CAST: a search of so many states would not fit into memory.
            self.go_on_from(next as u32)?;
            next += 1;
            if next < self.found.len() {
                cut_short_by = self.limit();
            }
        }
        let compared = if self.wanted.is_none() {
            self.compare_twins()
        } else {
            0
        };
        Ok(Report {
            scenario: self.scenario.name,
            bounds: self.bounds,
            states: self.found.len(),
            transitions: self.transitions,
            races: self.races,
            deepest: self.ancestors(next as u32 - 1).len(),
            cut_short_by,
            longest_event: self.world.longest_event,
            most_parked: self.world.most_parked,
            longest_wait_us: self.world.longest_wait_us,
            compared,
            has_split_again: self.has_split_again,
            seen: self.seen_signs,
            took: begun.elapsed(),
        })
    }

    /// Returns the limit at which the search is cut short, if it has come to one.
    fn limit(&self) -> Option<Limit> {
        let Bounds {
            most_states,
            most_bytes,
            ..
        } = self.bounds;
        if self.found.len() >= most_states {
            Some(Limit::States(most_states))
        } else if self.bytes() > most_bytes {
            Some(Limit::Bytes(most_bytes))
        } else {
            None
        }
    }

    /// Returns the memory that the search takes, or is about to take.
    fn bytes(&self) -> usize {
        // A table that is full grows by its size. While it does, the old one and the new one are there.
        let factor = |is_full| if is_full { 3 } else { 1 };
        let found = self.found.capacity() * factor(self.found.len() >= self.found.capacity());
        // An eighth of its places stays free, and each has a byte beside it.
        let places = (self.seen.capacity() / 7 * 8).next_power_of_two();
        let seen = places * factor(self.seen.len() >= self.seen.capacity());
        let snapshots = self.path.len() + self.spare.len();
        found * size_of::<Found>()
            + seen * (size_of::<(u64, u32)>() + 1)
            + snapshots * Snapshot::BYTES
            + self.twins.capacity() * size_of::<Twin>()
    }

    /// Takes all steps that are possible in a state that was found.
    fn go_on_from(&mut self, place: u32) -> Result<(), Box<Sequence>> {
        self.go_to(place);
        let events = self.world.events(self.bounds);
        let has_left = self.world.image.around().incidents < self.bounds.incidents;
        let may_be = |kind| has_left && self.bounds.kinds.contains(&kind);
        let (has_others, has_standstills) = (may_be(Incident::Amid), may_be(Incident::Standstill));
        for event in &events {
            let step = Step::of(*event);
            let Some(uses) = self.take(place, step)? else {
                continue;
            };
            if step.incident().is_some() {
                continue;
            }
            if has_others {
                self.take_with_others(place, *event, uses, &events)?;
            }
            if has_standstills {
                self.take_with_standstill(place, *event, uses)?;
            }
        }
        Ok(())
    }

    /// Takes an event with each event in the middle that can be there, at each place of so many uses of shared words. `before` are the events
    /// that are possible before it.
    fn take_with_others(
        &mut self,
        place: u32,
        event: Event,
        uses: u32,
        before: &[Event],
    ) -> Result<(), Box<Sequence>> {
        self.go_back();
        // The state behind the event.
        let _ = self.world.apply(Step::of(event));
        let behind = self.world.events(self.bounds);
        for other in World::events_amid(event, before, &behind) {
            // Before the first use and behind the last one it is as if one event came after the other.
            // CAST: an event has few uses.
            for uses in 1..uses as u16 {
                self.take_with(place, event, uses, Other::One(other))?;
            }
        }
        Ok(())
    }

    /// Takes an event whose core stands still at each place of so many uses of shared words, for each number of events on other cores.
    fn take_with_standstill(
        &mut self,
        place: u32,
        event: Event,
        uses: u32,
    ) -> Result<(), Box<Sequence>> {
        // CAST: an event has few uses.
        for uses in 1..uses as u16 {
            for events in 1..=MOST_EVENTS_OF_OTHERS {
                let what = Other::First(events);
                if self.take_with(place, event, uses, what)?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn take_with(
        &mut self,
        place: u32,
        event: Event,
        uses: u16,
        what: Other,
    ) -> Result<Option<u32>, Box<Sequence>> {
        self.races += 1;
        let amid = Some(Amid { uses, what });
        self.take(place, Step { event, amid })
    }

    /// Takes a step from the last state of the path, which was found at `place`. Returns how often it uses shared words, or `None` if it
    /// cannot be, or breaks a property that is not looked for.
    fn take(&mut self, place: u32, step: Step) -> Result<Option<u32>, Box<Sequence>> {
        self.go_back();
        match self.world.apply(step) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(broken) if self.counts(broken) => {
                return Err(self.sequence(place, step, false, broken))
            }
            Err(_) => return Ok(None),
        }
        let uses = Some(self.world.last_uses);
        self.transitions += 1;
        if !self.note_state(place, step) {
            return Ok(uses);
        }
        self.note_signs();
        if self.world.next_move().is_some() {
            // The state behind that move is found, too, and what is true of its end is true of this one's.
            return Ok(uses);
        }
        match self.world.end() {
            Err(broken) if self.counts(broken) => Err(self.sequence(place, step, true, broken)),
            Ok(()) | Err(_) => Ok(uses),
        }
    }

    /// Returns whether a broken property is one that is looked for.
    fn counts(&self, broken: Broken) -> bool {
        self.wanted.is_none_or(|wanted| wanted == broken)
    }

    /// Returns the places of states from the first one on to this one.
    fn ancestors(&self, place: u32) -> Vec<u32> {
        let mut places = vec![place];
        let mut place = place;
        while place != 0 {
            place = self.found[place as usize].parent;
            places.push(place);
        }
        places.reverse();
        places
    }

    /// Goes to a state that was found.
    fn go_to(&mut self, place: u32) {
        let places = self.ancestors(place);
        let both = self.path.iter().zip(&places);
        let common = both.take_while(|((at, _), place)| at == *place).count();
        self.spare
            .extend(self.path.drain(common..).map(|(_, snapshot)| snapshot));
        self.go_back();
        for place in &places[common..] {
            let step = self.found[*place as usize].step;
            let repeated = self.world.apply(step);
            assert!(matches!(repeated, Ok(true)), "a step is not the same again");
            let mut snapshot = self
                .spare
                .pop()
                .unwrap_or_else(|| self.world.image.snapshot());
            self.world.image.save(&mut snapshot);
            self.path.push((*place, snapshot));
        }
    }

    /// Goes back to the last state of the path.
    fn go_back(&mut self) {
        let (_, snapshot) = self.path.last().expect("the first state");
        self.world.image.restore(snapshot);
    }

    /// Returns the sequence that leads to a broken property, with notes of what happens in each step.
    fn sequence(&mut self, place: u32, step: Step, at_end: bool, broken: Broken) -> Box<Sequence> {
        let places = self.ancestors(place);
        let steps = places[1..]
            .iter()
            .map(|place| self.found[*place as usize].step);
        let steps: Vec<Step> = steps.chain([step]).collect();
        let mut lines = Vec::new();
        let mut add = |line: String| {
            lines.push(line);
            let notes = hooks::take_notes();
            lines.extend(notes.iter().map(|note| format!("       {note}")));
        };
        self.world.image.restore(&self.path[0].1);
        hooks::begin_notes();
        for (place, step) in (1..).zip(&steps) {
            let _ = self.world.apply(*step);
            add(format!("{place:3}. {step}"));
        }
        if at_end {
            let _ = self.world.end();
            add("  -  nothing happens any more but what must".to_owned());
        }
        hooks::end_notes();
        Box::new(Sequence {
            scenario: self.scenario,
            steps,
            lines,
            broken,
        })
    }

    fn note_signs(&mut self) {
        let image = &self.world.image;
        for (counter, seen) in SIGNS.into_iter().zip(&mut self.seen_signs) {
            *seen |= image.count(counter) > 0;
        }
        self.has_split_again |= image.count(Counter::FlowsSplit) > u64::from(self.scenario.sources);
    }

    /// Notes the state to which a step has led. Returns whether it is a new one.
    fn note_state(&mut self, parent: u32, step: Step) -> bool {
        let digest = self.world.image.digest();
        match self.seen.entry(digest) {
            Entry::Vacant(entry) => {
                // CAST: a search of so many states would not fit into memory.
                entry.insert(self.found.len() as u32);
                self.found.push(Found { parent, step });
                true
            }
            Entry::Occupied(entry) => {
                self.found_again += 1;
                if self.found_again % COMPARED_ONE_OF == 0 {
                    let first = *entry.get();
                    self.twins.push(Twin {
                        first,
                        parent,
                        step,
                    });
                }
                false
            }
        }
    }

    /// Checks that states of the same digest go on alike: the same events are possible, and the same ones behind each of these. Returns
    /// how many states were compared. (Digests behind an event may differ, as it may leave other bytes where nothing reads them.)
    fn compare_twins(&mut self) -> usize {
        let twins = std::mem::take(&mut self.twins);
        for twin in &twins {
            self.go_to(twin.first);
            let first = self.futures();
            self.go_to(twin.parent);
            let repeated = self.world.apply(twin.step);
            assert!(matches!(repeated, Ok(true)), "a step is not the same again");
            let mut second = self
                .spare
                .pop()
                .unwrap_or_else(|| self.world.image.snapshot());
            self.world.image.save(&mut second);
            self.path.push((u32::MAX, second));
            assert_eq!(
                first,
                self.futures(),
                "states of the same digest go on differently: {:?} and {:?} behind {:?}",
                self.ancestors(twin.first),
                twin.step,
                self.ancestors(twin.parent)
            );
        }
        twins.len()
    }

    /// Returns the events that follow the last state of the path, each with those that follow it.
    fn futures(&mut self) -> Vec<(Event, Vec<Event>)> {
        self.go_back();
        let mut futures = Vec::new();
        for event in self.world.events(self.bounds) {
            self.go_back();
            match self.world.apply(Step::of(event)) {
                Ok(true) => futures.push((event, self.world.events(self.bounds))),
                Ok(false) => {}
                Err(broken) => panic!("{event:?} breaks {broken:?} only now"),
            }
        }
        futures
    }
}
