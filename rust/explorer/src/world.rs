// SPDX-License-Identifier: GPL-2.0

//! The state, its events, and the properties that hold after each of them.

use std::panic::{self, AssertUnwindSafe};

use crate::algo::counters::Counter;
use crate::algo::flow::dispatcher::{Config, Dispatched, Unbuilt};
use crate::algo::headers::flow_key::{FlowHasher, FlowKey, Ipv4Flow, ETH_P_IP};
use crate::algo::headers::overlay::Fragment;
use crate::algo::knobs::Build;
use crate::algo::lanes::queue::ring::Item;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::merge::slot::{MAX_PARKED_BYTES, MAX_PARKED_PKTS};
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::tag::{Tag, TagKind, BATCH_BITS};
use crate::books::Broken;
use crate::event::{Bounds, Event, Fate, OldTags, Scenario, Wait};
use crate::hooks::{self, Endless};
use crate::image::{clear_stack, Image, Parts};
use crate::packet::{self, Nodes, TestRequest};
use crate::{CARRIERS, LANES};

/// Packets in a batch.
const BATCH_PKTS: u32 = 2;

/// The first numbers of batches: they wrap soon, and so do those in tags.
const FIRST: u32 = u32::MAX - 2;

/// The time at which sequences begin: its milliseconds wrap when a window has passed.
const BEGIN_US: u64 = ((1 << 32) - 40) * 1_000;

/// The times that pass at once.
const TIMEOUT_US: u64 = crate::around::TIMEOUT_US as u64 + 1;
const WINDOW_US: u64 = 101_000;
const IDLE_US: u64 = 1_200_000;

/// The distance of an old tag that is a little ahead, and that of one that is behind. They differ, so that a straggler from the start is
/// not met by chance.
const AHEAD: u32 = 40;
const BEHIND: u32 = 60;

/// The greatest distance by which a tag can be ahead, less the batches that may follow the tag's.
const FAR_AHEAD: u32 = (1 << (BATCH_BITS - 1)) - 1 - 16;

/// Timers that fire before all that is parked has left, where nothing else happens. A batch that holds others up may be looked at twice.
/// Where a call of the merge delivers one packet, each needs a timer.
const MOST_FIRES: usize = 24;

/// The times that pass until flows without packets have given their slots back.
const MOST_PERIODS: usize = 6;

/// The most that is parked beyond the bound: that of one run, which a core parks before it looks.
const RUN_PKTS: u32 = BATCH_PKTS;
const RUN_BYTES: u64 = 4 * 256;

/// A state of the host, and the scenario in which it is.
pub(crate) struct World {
    pub(crate) image: Image,
    scenario: Scenario,
    /// The only property that is looked for, if not all are.
    wanted: Option<Broken>,
    hasher: FlowHasher,
    /// The steps of the longest event so far.
    pub(crate) longest: u32,
    /// The most packets that were parked in a slot so far.
    pub(crate) most_parked: u32,
}

impl World {
    /// Returns the state in which all sequences of a scenario begin.
    pub(crate) fn new(scenario: Scenario, wanted: Option<Broken>) -> Self {
        let mut world = Self {
            image: Image::new(scenario, [FIRST; NR_SLOTS], FIRST),
            scenario,
            wanted,
            hasher: FlowHasher::new(1),
            longest: 0,
            most_parked: 0,
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
        // What happens to a packet: anything but to pass is an incident.
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

    /// Lets an event happen. Returns whether it can.
    pub(crate) fn apply(&mut self, event: Event) -> Result<bool, Broken> {
        hooks::take_steps();
        clear_stack();
        let overflows = self.image.count(Counter::OverflowBatches);
        let call = AssertUnwindSafe(|| self.happen(event));
        let can_be = panic::catch_unwind(call).map_err(|panic| {
            if panic.is::<Endless>() {
                Broken::Endless
            } else {
                Broken::Panic
            }
        })?;
        self.longest = self.longest.max(hooks::take_steps());
        self.image.look_into_rings();
        if can_be {
            self.image.around_mut().incidents += u8::from(event.incident().is_some());
            if self.image.count(Counter::OverflowBatches) != overflows {
                // A fence may have been given up.
                self.image.around().excuse_ordinary();
            }
            self.check()?;
        } else {
            packet::take_taken_twice();
        }
        Ok(can_be)
    }

    fn happen(&mut self, event: Event) -> bool {
        match event {
            Event::Receive { source, inner_flow } => self.receive(source.into(), inner_flow),
            Event::EndPoll { source } => self.end_poll(source.into()),
            Event::Inline { source, fate } => {
                return self.image.parts(source.into()).stack.carry_inline(fate)
            }
            Event::Ordinary {
                source,
                inner_flow,
                fate,
            } => {
                let mut stack = self.image.parts(source.into()).stack;
                return stack.carry_ordinary(inner_flow.into(), fate);
            }
            Event::Lane { source, lane, fate } => {
                let Parts {
                    lanes, mut stack, ..
                } = self.image.parts(source.into());
                let number = usize::from(lane);
                return stack.step_lane(&mut lanes[number], number, fate);
            }
            Event::Park { source, lane } => {
                let Parts {
                    lanes, mut stack, ..
                } = self.image.parts(source.into());
                let number = usize::from(lane);
                return stack.park_collected(&mut lanes[number], number);
            }
            Event::Queued { source, lane } => {
                let mut stack = self.image.parts(source.into()).stack;
                return stack.carry_queued(lane.into());
            }
            Event::Release { place } => {
                let mut stack = self.image.parts(0).stack;
                let nodes = stack.around.nodes;
                let packet = stack.around.held.remove(nodes, place.into());
                stack.arrive(packet);
            }
            Event::Read { slot } => self.image.parts(0).stack.merge_slot(slot.into()),
            Event::Fire { slot } => self.fire(slot.into()),
            Event::Wait(wait) => self.wait(wait),
            Event::Stop { source } => {
                self.image.around_mut().sources[usize::from(source)].stopping = true;
            }
            Event::Start { source } => {
                self.image.around_mut().sources[usize::from(source)].stopping = false;
            }
            Event::Die { source, lane } => {
                let source = &mut self.image.around_mut().sources[usize::from(source)];
                source.lanes[usize::from(lane)].is_dead = true;
            }
            Event::Offline { source, lane } => {
                let dispatcher = self.image.parts(source.into()).dispatcher;
                dispatcher.lanes.set_offline(1 << lane);
            }
            Event::QueuePath => self.image.around_mut().path_queues = true,
            Event::Begin => self.image.shared().slots.note_source(),
            Event::Reload(old_tags) => self.reload(old_tags),
        }
        true
    }

    /// Receives the next packet of a source, as `glue/packet/source.rs: dispatch` does.
    fn receive(&mut self, source: usize, inner_flow: u8) {
        let (config, (key, flow)) = (self.config(source), self.key(source));
        let asks = self.scenario.driver_asks;
        let Parts {
            dispatcher,
            counters,
            mut stack,
            ..
        } = self.image.parts(source);
        let nodes = stack.around.nodes;
        let state = &mut stack.around.sources[source];
        let number = state.sent;
        state.sent += 1;
        // Nothing but a run waits for the end of a poll, unless time passes.
        state.polls |= asks;
        // CAST: a small number.
        let source_number = source as u8;
        stack.around.books.expect(source_number, number);
        let mut packet = nodes.packet(source_number, number, inner_flow);
        let state = &mut stack.around.sources[source];
        if state.rests {
            packet.node_mut().batch = state.batch_of(0);
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
                packet.node_mut().batch = stack.around.sources[source].open_batch();
                TestRequest::fill(request, packet);
                dispatcher.lanes.take_touched(&stack.shared.ring_bytes);
                return;
            }
        }
        let dispatched = dispatcher.dispatch(counters, &mut stack, config, key, packet);
        dispatcher.lanes.take_touched(&stack.shared.ring_bytes);
        let index = Nodes::index(source_number, number);
        let tag = nodes.tag(index);
        let tag = if tag.kind() == TagKind::Split {
            tag.word()
        } else {
            0
        };
        let batch = stack.around.sources[source].batch_of(tag);
        nodes.set_batch(index, batch);
        match dispatched {
            Dispatched::ToLane => {}
            Dispatched::Ordinary(packet) => stack.put_on_ordinary_path(packet),
            Dispatched::Inline(packet) => {
                let inline = &mut stack.around.sources[source].inline;
                inline.push(nodes, packet);
            }
            Dispatched::InlineAlone(packet) => stack.arrive(packet),
        }
    }

    /// Ends a poll, as `glue/packet/source.rs: flush` does behind GRO's.
    fn end_poll(&mut self, source: usize) {
        let config = self.config(source);
        let Parts {
            dispatcher,
            counters,
            mut stack,
            ..
        } = self.image.parts(source);
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

    fn fire(&mut self, slot: usize) {
        let mut stack = self.image.parts(0).stack;
        let at = std::mem::take(&mut stack.around.timers[slot]);
        stack.around.now_us = stack.around.now_us.max(at);
        stack.shared.slots.slot(slot).expire();
        stack.merge_slot(slot);
    }

    fn wait(&mut self, wait: Wait) {
        let around = self.image.around_mut();
        around.wait(match wait {
            Wait::Timeout => TIMEOUT_US,
            Wait::Window => WINDOW_US,
            Wait::Idle => IDLE_US,
        });
        around.may_be_late |= wait == Wait::Idle;
        if wait != Wait::Timeout {
            for source in &mut around.sources {
                // Its NAPI polls for other flows.
                source.polls = true;
            }
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

    /// Takes the module away, as `glue/control/stop.rs` does, and loads it again. Packets that are kept back or queued keep their
    /// tags.
    fn reload(&mut self, old_tags: OldTags) {
        let next = self.image.shared().slots.slot(0).next();
        for _ in 0..3 {
            for source in 0..usize::from(self.scenario.sources) {
                self.image.around_mut().sources[source].stopping = true;
                let config = self.config(source);
                let Parts {
                    dispatcher,
                    counters,
                    mut stack,
                    ..
                } = self.image.parts(source);
                dispatcher.reap(counters, &mut stack, config, 0);
            }
            self.image.around_mut().wait(IDLE_US);
        }
        for slot in 0..NR_SLOTS {
            self.image.parts(0).stack.deliver_rest(slot);
        }
        let ahead = match old_tags {
            OldTags::FarAhead => FAR_AHEAD,
            OldTags::Ahead => AHEAD,
            OldTags::Behind => BEHIND.wrapping_neg(),
        };
        let first = next.wrapping_sub(ahead);
        self.image.start_module([first; NR_SLOTS], first);
        let around = self.image.around_mut();
        around.timers = [0; NR_SLOTS];
        around.active = 0;
        around.may_be_late = true;
        for source in &mut around.sources {
            source.restart();
        }
    }

    /// Returns an error if the broken property is one that is looked for.
    fn fail(&self, broken: Broken) -> Result<(), Broken> {
        if self.wanted.is_none_or(|wanted| wanted == broken) {
            Err(broken)
        } else {
            Ok(())
        }
    }

    /// Checks the properties that hold after each event.
    fn check(&mut self) -> Result<(), Broken> {
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
        let given_up =
            self.image.count(Counter::DeadlineBatches) + self.image.count(Counter::OverflowBatches);
        if self.image.count(Counter::LatePkts) > 0 && given_up == 0 && !around.may_be_late {
            self.fail(Broken::Order)?;
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
            if parked.pkts() > MAX_PARKED_PKTS + RUN_PKTS
                || parked.bytes() > MAX_PARKED_BYTES + RUN_BYTES
            {
                self.fail(Broken::Memory)?;
            }
            let delivers_all = self.scenario.merge_budget_pkts == u32::MAX;
            if parked.pkts() != 0 && (around.timers[number] == 0 || delivers_all && slot.is_ready())
            {
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
                self.apply(Event::Release { place: 0 })?;
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
        let (mut fires, mut periods) = (0, 0);
        loop {
            self.settle()?;
            let around = self.image.around();
            let armed = (0..NR_SLOTS).filter(|slot| around.timers[*slot] != 0);
            if let Some(slot) = armed.min_by_key(|slot| around.timers[*slot]) {
                fires += 1;
                if fires > MOST_FIRES {
                    return self.fail(Broken::Stuck);
                }
                // CAST: a small number.
                self.apply(Event::Fire { slot: slot as u8 })?;
                continue;
            }
            let slots = &self.image.shared().slots;
            if slots.iter().any(|slot| slot.parked_pkts() != 0) {
                return self.fail(Broken::Stuck);
            }
            if self.image.around().active == 0 {
                return Ok(());
            }
            periods += 1;
            if periods > MOST_PERIODS {
                if self.has_dead_lane() {
                    // A flow waits for a lane that stands still. So does the module when it goes, for a while.
                    return Ok(());
                }
                return self.fail(Broken::Leak);
            }
            self.apply(Event::Wait(Wait::Idle))?;
        }
    }

    /// Lets everything that can move do so, without time passing.
    fn settle(&mut self) -> Result<(), Broken> {
        while let Some(event) = self.next_move() {
            self.apply(event)?;
        }
        Ok(())
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

    fn has_dead_lane(&self) -> bool {
        let sources = self.image.around().sources.iter();
        let mut lanes = sources.flat_map(|source| &source.lanes);
        lanes.any(|lane| lane.is_dead)
    }

    /// Drops what lanes have that stand still for good, as the module does when it goes.
    fn bury(&mut self) {
        for source in 0..usize::from(self.scenario.sources) {
            let Parts { lanes, stack, .. } = self.image.parts(source);
            let states = stack.around.sources[source].lanes;
            for (number, lane) in lanes.iter_mut().enumerate() {
                if !states[number].is_dead {
                    continue;
                }
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
