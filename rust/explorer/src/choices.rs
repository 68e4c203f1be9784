// SPDX-License-Identifier: GPL-2.0

//! The events that may follow a state, and those that must.

use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::tag::TagKind;
use crate::event::{Bounds, Event, Fate, OldTags, Wait};
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
        let fate = Fate::Pass;
        for (source, state) in (0..self.scenario.sources).zip(&self.image.around().sources) {
            if state.polls {
                return Some(Event::EndPoll { source });
            }
            if !state.inline.is_empty() {
                return Some(Event::Inline { source, fate });
            }
            for (inner_flow, queue) in (0..).zip(&state.ordinary) {
                if !queue.is_empty() {
                    return Some(Event::Ordinary {
                        source,
                        inner_flow,
                        fate,
                    });
                }
            }
            // CAST: a small number.
            for (lane, state) in (0..self.nr_carriers() as u8).zip(&state.lanes) {
                if self.has_step(source, lane) {
                    return Some(Event::Lane { source, lane, fate });
                }
                if state.collected != 0 && !state.is_dead {
                    return Some(Event::Park { source, lane });
                }
                if !state.queue.is_empty() {
                    return Some(Event::Queued { source, lane });
                }
            }
        }
        None
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
