// SPDX-License-Identifier: GPL-2.0

//! The events that may follow a state, and those that must.

use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::tag::TagKind;
use crate::event::{Bounds, Core, Event, Fate, OldTags, Wait};
use crate::packet::MOST_PKTS;
use crate::world::World;
use crate::{CARRIERS, LANES};

impl World {
    /// Returns the events that may happen next, as far as the surroundings tell.
    pub(crate) fn events(&self, bounds: Bounds) -> Vec<Event> {
        let around = self.image.around();
        let may_have_incident = around.incidents < bounds.incidents;
        let mut events = Vec::new();
        for source in 0..self.scenario.sources {
            self.add_events_of(source, bounds.pkts, may_have_incident, &mut events);
        }
        // CAST: small numbers, both.
        events.extend((0..around.held.len() as u8).map(|place| Event::Release { place }));
        for slot in 0..NR_SLOTS as u8 {
            if self.image.shared().slots.slot(slot.into()).is_ready() {
                events.push(Event::Read { slot });
            }
            // A microsecond passes by itself.
            let timer = around.timers[usize::from(slot)];
            if timer != 0 && timer <= around.now_us + 1 {
                events.push(Event::Fire { slot });
            }
        }
        if may_have_incident {
            events.extend([Wait::Window, Wait::Idle].map(Event::Wait));
            if around.timers != [0; NR_SLOTS] {
                // Nothing else tells so short a time from none.
                events.push(Event::Wait(Wait::Timeout));
            }
            if !around.path_queues {
                events.push(Event::QueuePath);
            }
            events.push(Event::Begin);
            if self.may_reload() {
                let old_tags = [OldTags::FarAhead, OldTags::Ahead, OldTags::Behind];
                events.extend(old_tags.map(Event::Reload));
            }
            events.retain(|event| {
                event
                    .incident()
                    .is_none_or(|kind| bounds.kinds.contains(&kind))
            });
        }
        events
    }

    /// Returns the events that may happen in the middle of one. `before` are those that are possible before that one, and `behind` are those
    /// that are possible behind it.
    pub(crate) fn events_amid(event: Event, before: &[Event], behind: &[Event]) -> Vec<Event> {
        let mut amid: Vec<Event> = Vec::new();
        for other in before.iter().chain(behind) {
            let suits = other.incident().is_none() && other.is_beside(event);
            if suits && !amid.contains(other) {
                amid.push(*other);
            }
        }
        amid
    }

    /// Returns whether an event, which is no incident, is possible now.
    pub(crate) fn is_possible(&self, event: Event) -> bool {
        self.events(Bounds {
            // CAST: a small number.
            pkts: MOST_PKTS as u8,
            incidents: 0,
            kinds: &[],
            most_states: 0,
            most_bytes: 0,
        })
        .contains(&event)
    }

    /// Adds the events of one source.
    fn add_events_of(
        &self,
        source: u8,
        pkts: u8,
        may_have_incident: bool,
        events: &mut Vec<Event>,
    ) {
        let around = self.image.around();
        let state = &around.sources[usize::from(source)];
        // Anything but to pass is an incident.
        let fates = |is_possible: bool| {
            let fates = if is_possible && may_have_incident {
                Fate::ALL
            } else {
                &Fate::ALL[..1]
            };
            fates.iter().copied()
        };
        if state.sent < pkts {
            let inner_flows = 0..self.scenario.inner_flows;
            events.extend(inner_flows.map(|inner_flow| Event::Receive { source, inner_flow }));
        }
        if state.polls {
            events.push(Event::EndPoll { source });
        }
        if !state.inline.is_empty() {
            events.extend(fates(true).map(|fate| Event::Inline { source, fate }));
        }
        for (inner_flow, queue) in (0..).zip(&state.ordinary) {
            if let Some(first) = queue.nodes().first() {
                let kind = around.nodes.tag(*first).kind();
                let is_asked = matches!(kind, TagKind::Probe | TagKind::Fence);
                events.extend(fates(is_asked).map(|fate| Event::Ordinary {
                    source,
                    inner_flow,
                    fate,
                }));
            }
        }
        // CAST: a small number.
        for (lane, state) in (0..self.nr_carriers() as u8).zip(&state.lanes) {
            let is_between = state.is_between_items();
            if self.has_step(source, lane) {
                events.extend(fates(is_between).map(|fate| Event::Lane { source, lane, fate }));
            }
            if !state.queue.is_empty() {
                events.push(Event::Queued { source, lane });
            }
            if state.is_dead || !is_between {
                continue;
            }
            if state.collected != 0 {
                events.push(Event::Park { source, lane });
            }
            if may_have_incident && usize::from(lane) < LANES {
                events.push(Event::Die { source, lane });
                events.push(Event::Offline { source, lane });
            }
        }
        if state.stopping {
            events.push(Event::Start { source });
        } else if may_have_incident {
            events.push(Event::Stop { source });
        }
    }

    /// Returns an event that has to happen, without time passing: nothing keeps it from happening for ever.
    pub(crate) fn next_move(&self) -> Option<Event> {
        self.next_move_but_on(None)
    }

    /// Does the same for events on other cores than one.
    pub(crate) fn next_move_but_on(&self, core: Option<Core>) -> Option<Event> {
        let fate = Fate::Pass;
        let suits = |event: &Event| core.is_none() || event.core() != core;
        for (source, state) in (0..self.scenario.sources).zip(&self.image.around().sources) {
            let ordinary = (0..).zip(&state.ordinary).map(|(inner_flow, queue)| {
                (!queue.is_empty()).then_some(Event::Ordinary {
                    source,
                    inner_flow,
                    fate,
                })
            });
            // CAST: a small number.
            let lanes = (0..self.nr_carriers() as u8).zip(&state.lanes);
            let of_lanes = lanes.flat_map(|(lane, state)| {
                let has_collected = state.collected != 0 && !state.is_dead;
                [
                    self.has_step(source, lane)
                        .then_some(Event::Lane { source, lane, fate }),
                    has_collected.then_some(Event::Park { source, lane }),
                    (!state.queue.is_empty()).then_some(Event::Queued { source, lane }),
                ]
            });
            let mut moves = [
                state.polls.then_some(Event::EndPoll { source }),
                (!state.inline.is_empty()).then_some(Event::Inline { source, fate }),
            ]
            .into_iter()
            .chain(ordinary)
            .chain(of_lanes)
            .flatten();
            if let Some(event) = moves.find(suits) {
                return Some(event);
            }
        }
        None
    }

    /// Returns what happens next where a core stands still and all others go on: what has to, then a timer that is armed, and a further
    /// packet if there is neither.
    pub(crate) fn next_event_but_on(&self, core: Option<Core>) -> Option<Event> {
        let around = self.image.around();
        let timer = || {
            let armed = (0..NR_SLOTS).filter(|slot| around.timers[*slot] != 0);
            let first = armed.min_by_key(|slot| around.timers[*slot]);
            // CAST: a small number.
            first.map(|slot| Event::Fire { slot: slot as u8 })
        };
        let packet = || {
            let sources = 0..self.scenario.sources;
            let mut packets = sources.filter_map(|source| {
                let receive = Event::Receive {
                    source,
                    inner_flow: 0,
                };
                let sent = usize::from(around.sources[usize::from(source)].sent);
                (sent < MOST_PKTS && receive.core() != core).then_some(receive)
            });
            packets.next()
        };
        self.next_move_but_on(core).or_else(timer).or_else(packet)
    }

    /// Returns whether a lane has a next step.
    fn has_step(&self, source: u8, lane: u8) -> bool {
        let (source, lane) = (usize::from(source), usize::from(lane));
        let state = &self.image.around().sources[source].lanes[lane];
        !state.is_dead && (!state.is_between_items() || !self.image.ring(source, lane).is_empty())
    }

    fn nr_carriers(&self) -> usize {
        if self.scenario.has_own_lane {
            CARRIERS
        } else {
            LANES
        }
    }

    /// Returns whether the module may go: its lanes have carried what they had.
    fn may_reload(&self) -> bool {
        let around = self.image.around();
        let sources = &around.sources[..usize::from(self.scenario.sources)];
        sources.iter().enumerate().all(|(number, source)| {
            source.inline.is_empty()
                && source.lanes[..self.nr_carriers()]
                    .iter()
                    .enumerate()
                    .all(|(lane, state)| {
                        !state.is_dead
                            && state.is_between_items()
                            && state.collected == 0
                            && self.image.ring(number, lane).is_empty()
                    })
        })
    }
}
