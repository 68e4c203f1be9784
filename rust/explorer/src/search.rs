// SPDX-License-Identifier: GPL-2.0

//! The search: breadth first, so that a sequence of events which breaks a property is one of the shortest.
//!
//! Of each state the search keeps its digest, the state before, and the event between the two. To go on from a state, it goes back to the
//! nearest state of which it has a snapshot, and repeats the events from there. States are visited in the order in which they were
//! found, so one state and the next have most of their past in common.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::BitOrAssign;
use std::time::{Duration, Instant};

use crate::algo::counters::Counter;
use crate::books::Broken;
use crate::event::{Bounds, Event, Scenario};
use crate::hooks;
use crate::image::Snapshot;
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

/// A sequence of events that breaks a property.
pub struct Sequence {
    /// The scenario in which it happens.
    pub scenario: Scenario,
    /// The events.
    pub events: Vec<Event>,
    /// True if the property is broken after them, where nothing happens any more but what must.
    pub at_end: bool,
    /// The property.
    pub broken: Broken,
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} in {:?} by", self.broken, self.scenario)?;
        for (place, event) in (1..).zip(&self.events) {
            writeln!(f, "{place:3} {event:?}")?;
        }
        if self.at_end {
            writeln!(f, "  - and nothing else but what must happen")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The things that have happened in at least one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// A flow began to be split for the second time.
    pub split_again: bool,
    /// A lane carried packets.
    pub lane: bool,
    /// A lane built packets.
    pub request: bool,
    /// The dispatching core carried packets.
    pub inline: bool,
    /// An inline batch went on because the window was full.
    pub window_full: bool,
    /// Packets waited for their turn.
    pub early: bool,
    /// Packets were late.
    pub late: bool,
    /// A batch was given up by the deadline.
    pub deadline: bool,
    /// A batch was given up because too much was parked.
    pub overflow: bool,
    /// A flow stopped because its path queues packets.
    pub path_queues: bool,
}

impl Happened {
    /// All of them.
    pub const ALL: Self = Self {
        split_again: true,
        lane: true,
        request: true,
        inline: true,
        window_full: true,
        early: true,
        late: true,
        deadline: true,
        overflow: true,
        path_queues: true,
    };
}

impl BitOrAssign for Happened {
    fn bitor_assign(&mut self, other: Self) {
        let Self {
            split_again,
            lane,
            request,
            inline,
            window_full,
            early,
            late,
            deadline,
            overflow,
            path_queues,
        } = other;
        self.split_again |= split_again;
        self.lane |= lane;
        self.request |= request;
        self.inline |= inline;
        self.window_full |= window_full;
        self.early |= early;
        self.late |= late;
        self.deadline |= deadline;
        self.overflow |= overflow;
        self.path_queues |= path_queues;
    }
}

/// The result of a search that has found no property broken.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The scenario's name.
    pub scenario: &'static str,
    /// The bounds.
    pub bounds: Bounds,
    /// The states that were found.
    pub states: usize,
    /// The events that lead from one to another.
    pub transitions: u64,
    /// The events of the longest of the shortest sequences.
    pub deepest: usize,
    /// True if no state within the bounds was left out.
    pub is_complete: bool,
    /// The steps of the longest event.
    pub longest_event: u32,
    /// The most packets that were parked in one slot.
    pub most_parked: u32,
    /// The states that were found in two ways, and compared.
    pub compared: usize,
    /// The things that have happened.
    pub happened: Happened,
    /// The time that it took.
    pub took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bounds {
            pkts, incidents, ..
        } = self.bounds;
        write!(
            f,
            "{}: {pkts} packets, {incidents} incidents of {} kinds: {} states ({}), {} transitions, {} events deep, {} steps in the \
            longest event, {} packets parked, {} states compared, {:.1} s",
            self.scenario,
            self.bounds.kinds.len(),
            self.states,
            if self.is_complete { "all" } else { "a part" },
            self.transitions,
            self.deepest,
            self.longest_event,
            self.most_parked,
            self.compared,
            self.took.as_secs_f64()
        )
    }
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
    happened: Happened,
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
            happened: Happened::default(),
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
                self.note_happened();
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
            longest_event: self.world.longest,
            most_parked: self.world.most_parked,
            compared,
            happened: self.happened,
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
            assert!(matches!(repeated, Ok(true)), "an event is not the same again");
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
        let events = places[1..].iter().map(|place| self.found[*place as usize].event);
        Box::new(Sequence {
            scenario: self.scenario,
            events: events.chain([event]).collect(),
            at_end,
            broken,
        })
    }

    fn note_happened(&mut self) {
        let count = |counter| self.world.image.count(counter);
        let happened = &mut self.happened;
        happened.split_again |= count(Counter::FlowsSplit) > u64::from(self.scenario.sources);
        happened.lane |= count(Counter::LanePkts) > 0;
        happened.request |= count(Counter::RequestPkts) > 0;
        happened.inline |= count(Counter::InlinePkts) > 0;
        happened.window_full |= count(Counter::BatchesGrown) > 0;
        happened.early |= count(Counter::EarlyPkts) > 0;
        happened.late |= count(Counter::LatePkts) > 0;
        happened.deadline |= count(Counter::DeadlineBatches) > 0;
        happened.overflow |= count(Counter::OverflowBatches) > 0;
        happened.path_queues |= count(Counter::PathsAsync) > 0;
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
            assert!(matches!(repeated, Ok(true)), "an event is not the same again");
            let mut second = self.spare.pop().unwrap_or_else(|| self.world.image.snapshot());
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
