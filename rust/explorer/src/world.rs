// SPDX-License-Identifier: GPL-2.0

//! The state, and what its events do.

use std::array;
use std::panic::{self, AssertUnwindSafe};

use crate::algo::flow::dispatcher::{Config, Dispatched, Unbuilt};
use crate::algo::headers::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};
use crate::algo::headers::overlay::Fragment;
use crate::algo::knobs::Build;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::tag::{Tag, TagKind, BATCH_BITS};
use crate::around::{IDLE_US, ORDINARY_US};
use crate::books::Broken;
use crate::event::{Amid, Core, Event, Fate, OldTags, Other, Scenario, Step, Wait};
use crate::hooks::{self, Endless};
use crate::image::{clear_stack, Image};
use crate::packet::{self, TestRequest};

/// Packets in a batch.
pub(crate) const BATCH_PKTS: u32 = 2;

/// The first numbers of batches: they wrap soon, and so do those in tags.
pub(crate) const FIRST: u32 = u32::MAX - 2;

/// The time at which sequences begin: its milliseconds wrap when a window has passed.
const BEGIN_US: u64 = ((1 << 32) - 40) * 1_000;

/// The times that pass at once.
const TIMEOUT_US: u64 = crate::around::TIMEOUT_US as u64 + 1;
const WINDOW_US: u64 = 101_000;

/// The distance of an old tag that is a little ahead, and that of one that is behind. They differ, so that a straggler from the start is
/// not met by chance.
const AHEAD: u32 = 40;
const BEHIND: u32 = 60;

/// The greatest distance by which a tag can be ahead, less the batches that may follow the tag's.
const FAR_AHEAD: u32 = (1 << (BATCH_BITS - 1)) - 1 - 16;

/// A state of the host, and the scenario in which it is.
pub(crate) struct World {
    pub(crate) image: Image,
    pub(crate) scenario: Scenario,
    /// The only property that is looked for, if not all are.
    pub(crate) wanted: Option<Broken>,
    hasher: FlowHasher,
    /// The uses of shared words in the last event.
    pub(crate) last_uses: u32,
    /// Those in the longest event so far.
    pub(crate) longest_event: u32,
    /// The most packets that were parked in a slot so far.
    pub(crate) most_parked: u32,
    /// The longest time for which packets were parked at the end of a sequence so far.
    pub(crate) longest_wait_us: u64,
}

impl World {
    /// Returns the state in which all sequences of a scenario begin.
    pub(crate) fn new(scenario: Scenario, wanted: Option<Broken>) -> Self {
        let mut world = Self {
            image: Image::new(scenario, [FIRST; NR_SLOTS], FIRST),
            scenario,
            wanted,
            hasher: FlowHasher::new(1),
            last_uses: 0,
            longest_event: 0,
            most_parked: 0,
            longest_wait_us: 0,
        };
        world.image.around_mut().now_us = BEGIN_US;
        for source in 0..scenario.sources {
            world.end_poll(source.into());
        }
        if let Some(ahead) = scenario.straggler {
            let around = world.image.around_mut();
            let mut straggler = around.nodes.packet(0, 0, 0);
            let batch = FIRST.wrapping_add(ahead);
            straggler.set_tag(Tag::new(TagKind::Split, 0, batch));
            around.sources[0].sent = 1;
            around.books.expect(0, 0);
            around.hold(straggler);
        }
        world
    }

    fn config(&self, source: usize) -> Config {
        Config {
            batch_pkts: BATCH_PKTS,
            min_window_pkts: 1,
            build: if self.scenario.driver_asks {
                Build::Lane
            } else {
                Build::Auto
            },
            stopping: self.image.around().sources[source].stopping,
        }
    }

    fn key(&self, source: usize) -> (FlowKey, Ipv4Flow) {
        let mut header = [0; 28];
        header[0] = 0x45;
        header[9] = 17;
        // CAST: a small number.
        header[21] = source as u8 + 1;
        let key = self.hasher.key(ETH_P_IP, &header);
        let flow = Ipv4Flow::of(&header);
        (key.expect("a key"), flow.expect("a flow of IPv4"))
    }

    /// Lets a step happen. Returns whether it can.
    pub(crate) fn apply(&mut self, step: Step) -> Result<bool, Broken> {
        hooks::begin_event();
        hooks::forget_reports();
        clear_stack();
        let late_pkts = self.image.late_pkts();
        let call = AssertUnwindSafe(|| match step.amid {
            None => self.happen(step.event),
            Some(amid) => self.happen_with(step.event, amid),
        });
        let can_be = panic::catch_unwind(call).map_err(|panic| {
            if panic.is::<Endless>() {
                Broken::Endless
            } else {
                Broken::Panic
            }
        })?;
        self.last_uses = hooks::uses();
        self.longest_event = self.longest_event.max(self.last_uses);
        self.image.look_into_rings();
        if can_be {
            let now_late_pkts = self.image.late_pkts();
            let late_pkts =
                array::from_fn(|slot| now_late_pkts[slot].saturating_sub(late_pkts[slot]));
            let around = self.image.around_mut();
            around.incidents += u8::from(step.incident().is_some());
            around.books.end_event(late_pkts);
            self.check()?;
        } else {
            packet::take_taken_twice();
        }
        Ok(can_be)
    }

    /// Lets an event happen with something in the middle. Returns whether all of it can, and the event lasts until then.
    fn happen_with(&self, event: Event, amid: Amid) -> bool {
        let mut can_be = true;
        let mut happen = || {
            can_be = match amid.what {
                Other::One(other) => {
                    hooks::note(|| format!("- meanwhile {other}"));
                    self.is_possible(other) && self.happen(other)
                }
                Other::First(events) => self.happen_on_others(event.core(), events),
            };
            hooks::note(|| "- it goes on".to_owned());
        };
        let (event_can_be, is_called) =
            hooks::with_amid(amid.uses.into(), &mut happen, || self.happen(event));
        can_be && event_can_be && is_called
    }

    /// Lets all cores but one go on for so many events. Returns whether there were so many.
    fn happen_on_others(&self, core: Option<Core>, events: u8) -> bool {
        let begun_us = self.image.around().now_us;
        for _ in 0..events {
            hooks::begin_event();
            let Some(event) = self.next_event_but_on(core) else {
                return false;
            };
            hooks::note(|| format!("- meanwhile {event}"));
            self.happen(event);
            // The core may have stood still for longer than the ordinary path is supposed to.
            let around = self.image.around();
            if around.now_us - begun_us >= ORDINARY_US {
                around.excuse_ordinary();
            }
        }
        true
    }

    fn happen(&self, event: Event) -> bool {
        match event {
            Event::Receive { source, inner_flow } => self.receive(source.into(), inner_flow),
            Event::EndPoll { source } => self.end_poll(source.into()),
            Event::Inline { source, fate } => {
                return self.image.stack(source.into()).carry_inline(fate)
            }
            Event::Ordinary {
                source,
                inner_flow,
                fate,
            } => {
                let mut stack = self.image.stack(source.into());
                return stack.carry_ordinary(inner_flow.into(), fate);
            }
            Event::Lane { source, lane, fate } => {
                let (source, number) = (source.into(), lane.into());
                // SAFETY: Events of a lane happen one after the other.
                let lane = unsafe { &mut *self.image.lane(source, number) };
                return self.image.stack(source).step_lane(lane, number, fate);
            }
            Event::Park { source, lane } => {
                let (source, number) = (source.into(), lane.into());
                // SAFETY: As above.
                let lane = unsafe { &mut *self.image.lane(source, number) };
                return self.image.stack(source).park_collected(lane, number);
            }
            Event::Queued { source, lane } => {
                return self.image.stack(source.into()).carry_queued(lane.into())
            }
            Event::Release { place } => {
                let mut stack = self.image.stack(0);
                let nodes = stack.around.nodes;
                let packet = stack.around.held.remove(nodes, place.into());
                stack.arrive(packet);
            }
            Event::Read { slot } => self.image.stack(0).merge_slot(slot.into()),
            Event::Fire { slot } => self.fire(slot.into()),
            Event::Wait(wait) => self.wait(wait),
            Event::Stop { source } => {
                self.image.live().sources[usize::from(source)].stopping = true;
            }
            Event::Start { source } => {
                self.image.live().sources[usize::from(source)].stopping = false;
            }
            Event::Die { source, lane } => {
                let source = &mut self.image.live().sources[usize::from(source)];
                source.lanes[usize::from(lane)].is_dead = true;
            }
            Event::Offline { source, lane } => {
                // SAFETY: Events of a dispatcher happen one after the other.
                let dispatcher = unsafe { &mut *self.image.dispatcher(source.into()) };
                dispatcher.lanes.set_offline(1 << lane);
            }
            Event::QueuePath => self.image.live().path_queues = true,
            Event::Begin => self.image.shared().slots.note_source(),
            Event::Reload(old_tags) => self.reload(old_tags),
        }
        true
    }

    /// Receives the next packet of a source, as `glue/packet/source.rs: dispatch` does.
    fn receive(&self, source: usize, inner_flow: u8) {
        let (config, (key, flow)) = (self.config(source), self.key(source));
        let asks = self.scenario.driver_asks;
        // SAFETY: Events of a dispatcher happen one after the other.
        let dispatcher = unsafe { &mut *self.image.dispatcher(source) };
        let counters = self.image.counters(source);
        let mut stack = self.image.stack(source);
        let nodes = stack.around.nodes;
        let state = &mut stack.around.sources[source];
        let number = state.sent;
        state.sent += 1;
        // Nothing but a run waits for the end of a poll, unless time passes.
        state.polls |= asks;
        let rests = state.rests;
        // CAST: a small number.
        let source_number = source as u8;
        stack.around.books.expect(source_number, number);
        let packet = nodes.packet(source_number, number, inner_flow);
        if rests {
            note(number, "passes a source that rests");
            return stack.put_on_ordinary_path(packet);
        }
        if asks {
            let now_ms = (stack.around.now_us / 1_000) as u32;
            let bytes = packet.memory_bytes();
            let unbuilt = Unbuilt {
                flow: Some(flow),
                key: || Some(key),
                inner_flow: || packet.inner_flow(),
                fragment: || Fragment::None,
                bytes,
                most: 1,
            };
            let requests = match dispatcher.run_of(Some(flow), 1, config.stopping, now_ms) {
                Some(run) => dispatcher.take_of_run(run, bytes),
                None => dispatcher.take_requests(counters, now_ms, config.stopping, unbuilt),
            };
            if let Some(request) = requests.first() {
                note(number, "is left to a lane before it is built");
                TestRequest::fill(request, packet);
                dispatcher.lanes.take_touched(&stack.shared.ring_bytes);
                return;
            }
        }
        let dispatched = dispatcher.dispatch(counters, &mut stack, config, key, packet);
        dispatcher.lanes.take_touched(&stack.shared.ring_bytes);
        match dispatched {
            Dispatched::ToLane => note(number, "is given to a lane"),
            Dispatched::Ordinary(packet) => {
                note(
                    number,
                    match packet.tag().kind() {
                        TagKind::Probe => "takes the ordinary path as a probe",
                        TagKind::Fence => "takes the ordinary path as a fence",
                        _ => "takes the ordinary path",
                    },
                );
                stack.put_on_ordinary_path(packet);
            }
            Dispatched::Inline(packet) => {
                note(number, "is kept by the dispatching core, in a batch");
                let inline = &mut stack.around.sources[source].inline;
                inline.push(nodes, packet);
            }
            Dispatched::InlineAlone(packet) => {
                note(number, "is carried by the dispatching core, in a batch");
                stack.arrive(packet);
            }
        }
    }

    /// Ends a poll, as `glue/packet/source.rs: flush` does behind GRO's.
    fn end_poll(&self, source: usize) {
        let config = self.config(source);
        // SAFETY: Events of a dispatcher happen one after the other.
        let dispatcher = unsafe { &mut *self.image.dispatcher(source) };
        let counters = self.image.counters(source);
        let mut stack = self.image.stack(source);
        while stack.carry_inline(Fate::Pass) {}
        dispatcher.end_runs(counters);
        dispatcher.reap_if_due(counters, &mut stack, config);
        let now_ms = (stack.around.now_us / 1_000) as u32;
        let has_flows = stack.around.active > 0;
        let rests = dispatcher.end_poll(counters, now_ms, has_flows, &stack.shared.orders);
        dispatcher.lanes.take_touched(&stack.shared.ring_bytes);
        let state = &mut stack.around.sources[source];
        (state.rests, state.polls) = (rests, false);
    }

    fn fire(&self, slot: usize) {
        let mut stack = self.image.stack(0);
        let at = std::mem::take(&mut stack.around.timers[slot]);
        let now_us = stack.around.now_us;
        stack.around.now_us = now_us.max(at);
        stack.shared.slots.slot(slot).expire();
        stack.merge_slot(slot);
    }

    fn wait(&self, wait: Wait) {
        let mut around = self.image.live();
        around.wait(match wait {
            Wait::Timeout => TIMEOUT_US,
            Wait::Window => WINDOW_US,
            Wait::Idle => IDLE_US,
        });
        if wait != Wait::Timeout {
            for source in &mut around.sources {
                // Its NAPI polls for other flows.
                source.polls = true;
            }
        }
    }

    /// Takes the module away, as `glue/control/stop.rs` does, and loads it again. Packets that are kept back or queued keep their
    /// tags.
    fn reload(&self, old_tags: OldTags) {
        let next = self.image.shared().slots.slot(0).next();
        let late_pkts = self.image.late_pkts();
        for _ in 0..3 {
            for source in 0..usize::from(self.scenario.sources) {
                self.image.live().sources[source].stopping = true;
                let config = self.config(source);
                // SAFETY: Events of a dispatcher happen one after the other.
                let dispatcher = unsafe { &mut *self.image.dispatcher(source) };
                let mut stack = self.image.stack(source);
                dispatcher.reap(self.image.counters(source), &mut stack, config, 0);
            }
            self.image.live().wait(IDLE_US);
        }
        for slot in 0..NR_SLOTS {
            self.image.stack(0).deliver_rest(slot);
        }
        // The counters go with the module.
        let now_late_pkts = self.image.late_pkts();
        let late_pkts = array::from_fn(|slot| now_late_pkts[slot] - late_pkts[slot]);
        self.image.live().books.end_event(late_pkts);
        let ahead = match old_tags {
            OldTags::FarAhead => FAR_AHEAD,
            OldTags::Ahead => AHEAD,
            OldTags::Behind => BEHIND.wrapping_neg(),
        };
        let first = next.wrapping_sub(ahead);
        self.image.start_module([first; NR_SLOTS], first);
        let mut around = self.image.live();
        around.timers = [0; NR_SLOTS];
        around.active = 0;
        around.books.forget_given_up();
        for source in &mut around.sources {
            source.restart();
        }
    }
}

/// Notes where a packet goes.
fn note(number: u8, where_to: &str) {
    hooks::note(|| format!("packet {number} {where_to}"));
}
