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
use crate::event::{Bounds, Event, Scenario};
use crate::hooks;
use crate::image::Snapshot;
use crate::report::{Report, Sequence, SIGNS};
use crate::world::World;

/// One in so many states that are found again is compared with how it was found first. A prime: orders of events have other periods.
const COMPARED_ONE_OF: u64 = 4_099;

/// A state that was found.
struct Found {
    /// The place of the state before.
    parent: u32,
    /// The event that leads here from there.
    event: Event,
}

/// A state that was found in two ways.
struct Twin {
    first: u32,
    parent: u32,
    event: Event,
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
                // No event leads to the first state.
                event: Event::Begin,
            }],
            found_again: 0,
            twins: Vec::new(),
            path: vec![(0, first)],
            spare: Vec::new(),
            has_split_again: false,
            seen_signs: [false; SIGNS.len()],
        }
    }

    fn run(mut self) -> Result<Report, Box<Sequence>> {
        let begun = Instant::now();
        let mut transitions = 0;
        let mut next = 0;
        while next < self.found.len() && self.found.len() < self.bounds.most_states {
            // CAST: a search of so many states would not fit into memory.
            let place = next as u32;
            self.go_to(place);
            for event in self.world.events(self.bounds) {
                self.go_back();
                match self.world.apply(event) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(broken) if self.counts(broken) => {
                        return Err(self.sequence(place, event, false, broken))
                    }
                    Err(_) => continue,
                }
                transitions += 1;
                if !self.note_state(place, event) {
                    continue;
                }
                self.note_signs();
                if self.world.next_move().is_some() {
                    // The state behind that move is found, too, and what is true of its end is true of this one's.
                    continue;
                }
                match self.world.end() {
                    Err(broken) if self.counts(broken) => {
                        return Err(self.sequence(place, event, true, broken))
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            next += 1;
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
            transitions,
            deepest: self.ancestors(next as u32 - 1).len(),
            is_complete: next == self.found.len(),
            longest_event: self.world.longest_event,
            most_parked: self.world.most_parked,
            longest_wait_us: self.world.longest_wait_us,
            compared,
            has_split_again: self.has_split_again,
            seen: self.seen_signs,
            took: begun.elapsed(),
        })
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
            let event = self.found[*place as usize].event;
            let repeated = self.world.apply(event);
            assert!(
                matches!(repeated, Ok(true)),
                "an event is not the same again"
            );
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

    fn sequence(&self, place: u32, event: Event, at_end: bool, broken: Broken) -> Box<Sequence> {
        let places = self.ancestors(place);
        let events = places[1..]
            .iter()
            .map(|place| self.found[*place as usize].event);
        Box::new(Sequence {
            scenario: self.scenario,
            events: events.chain([event]).collect(),
            at_end,
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

    /// Notes the state to which an event has led. Returns whether it is a new one.
    fn note_state(&mut self, parent: u32, event: Event) -> bool {
        let digest = self.world.image.digest();
        match self.seen.entry(digest) {
            Entry::Vacant(entry) => {
                // CAST: a search of so many states would not fit into memory.
                entry.insert(self.found.len() as u32);
                self.found.push(Found { parent, event });
                true
            }
            Entry::Occupied(entry) => {
                self.found_again += 1;
                if self.found_again % COMPARED_ONE_OF == 0 {
                    let first = *entry.get();
                    self.twins.push(Twin {
                        first,
                        parent,
                        event,
                    });
                }
                false
            }
        }
    }

    /// Checks that states of the same digest go on alike: the same events are possible, and lead to states of the same digests.
    /// Returns how many states were compared.
    fn compare_twins(&mut self) -> usize {
        let twins = std::mem::take(&mut self.twins);
        for twin in &twins {
            self.go_to(twin.first);
            let first = self.futures();
            self.go_to(twin.parent);
            let repeated = self.world.apply(twin.event);
            assert!(
                matches!(repeated, Ok(true)),
                "an event is not the same again"
            );
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
                twin.event,
                self.ancestors(twin.parent)
            );
        }
        twins.len()
    }

    /// Returns the events that follow the last state of the path, each with the digest of the state to which it leads.
    fn futures(&mut self) -> Vec<(Event, u64)> {
        self.go_back();
        let mut futures = Vec::new();
        for event in self.world.events(self.bounds) {
            self.go_back();
            match self.world.apply(event) {
                Ok(true) => futures.push((event, self.world.image.digest())),
                Ok(false) => {}
                Err(broken) => panic!("{event:?} breaks {broken:?} only now"),
            }
        }
        futures
    }
}
