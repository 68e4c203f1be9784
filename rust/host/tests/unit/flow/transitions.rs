// SPDX-License-Identifier: GPL-2.0

//! The table of a flow's transitions, held against all that happens to flows: each row is reached, and nothing else.

use mflow_algo::algo::flow::transitions::{StateKind, Transition, TRANSITIONS};
use mflow_algo::algo::headers::hint::Hint;
use mflow_algo::algo::limits::FLOW_PLACES;
use mflow_algo::algo::limits::RATE_WINDOW_MS;
use mflow_algo::algo::load::flow_orders::Order;
use mflow_algo::algo::merge::slot::PathFault;
use proptest::prelude::*;

use crate::common::cases;
use crate::world::{Fate, World};

const MS: u64 = 1_000;
const WINDOW_US: u64 = RATE_WINDOW_MS as u64 * MS;
const NR_LANES: usize = 2;
const INNER_FLOWS: u64 = 3;
/// The flow to which incidents happen, and the slot that it gets.
const FLOW: u16 = 0;
const SLOT: usize = 0;

/// The transitions of one dispatcher's flows.
pub(crate) struct Reached {
    /// Each that has happened, a single time.
    transitions: Vec<Transition>,
    /// The state of the flow in each place of the table. What takes the place of another is counted, as that was.
    states: [StateKind; FLOW_PLACES],
}

impl Reached {
    pub(crate) fn new() -> Self {
        Self {
            transitions: Vec::new(),
            states: [StateKind::Counting; FLOW_PLACES],
        }
    }

    /// Adds a transition, and checks that it begins where the flow's last one has ended.
    pub(crate) fn add(&mut self, place: u8, transition: Transition) {
        let state = &mut self.states[usize::from(place)];
        assert_eq!(
            *state, transition.from,
            "a state has changed without a transition before {transition:?}"
        );
        *state = transition.next;
        if !self.transitions.contains(&transition) {
            self.transitions.push(transition);
        }
    }

    /// Returns those that are not in the table.
    fn others(&self) -> Vec<Transition> {
        let all = self.transitions.iter().copied();
        all.filter(|transition| !TRANSITIONS.contains(transition))
            .collect()
    }
}

fn new(fences_inner_flows: bool) -> World {
    // Of one packet, so that each may be the first of a batch: this is where most reasons to stop are looked for.
    let mut world = World::new(NR_LANES, 1);
    world.around.fences_inner_flows = fences_inner_flows;
    world.around.packets.inner_flows = INNER_FLOWS;
    world
}

/// Returns a world whose flow is in this state.
fn in_state(state: StateKind) -> World {
    let mut world = new(state == StateKind::Starting);
    match state {
        StateKind::Counting => receive(&mut world, 1),
        StateKind::Probing => receive(&mut world, 4),
        StateKind::Starting | StateKind::Split => world.start_split(FLOW),
        StateKind::Stopping => {
            world.start_split(FLOW);
            receive(&mut world, 8);
            world.config.stopping = true;
            receive(&mut world, 1);
        }
        StateKind::Draining => {
            world.start_split(FLOW);
            world.config.stopping = true;
            // The last batch has one packet, and that is queued.
            world.around.fate = |_| Fate::Queue;
            receive(&mut world, 2);
        }
    }
    calm_down(&mut world);
    let mut states = world.around.reached.states.iter();
    let other = states.find(|kind| **kind != StateKind::Counting);
    assert_eq!(other.unwrap_or(&StateKind::Counting), &state);
    world
}

/// Receives packets of the flow.
fn receive(world: &mut World, pkts: u32) {
    world.receive(FLOW, pkts);
}

/// Takes back what incidents have left behind for the packets to come.
fn calm_down(world: &mut World) {
    world.config.stopping = false;
    world.around.fate = |_| Fate::Pass;
    world.around.packets.hint = Hint::None;
    give_order(world, Order::NONE);
}

fn give_order(world: &World, order: Order) {
    let orders = &world.around.orders;
    orders.give(SLOT, orders.generation(SLOT), order);
}

/// Receives packets at a steady rate for so many windows, none of which arrives meanwhile.
fn windows(world: &mut World, pkts: u32, nr_windows: usize) {
    for _ in 0..nr_windows {
        world.around.wait(WINDOW_US);
        receive(world, pkts);
    }
}

fn fault(world: &mut World, fault: PathFault) {
    world.around.slot(SLOT).note_path_fault(fault);
    receive(world, 1);
}

type Incident = fn(&mut World);

/// All that may happen to a flow, in any state.
const INCIDENTS: &[(&str, Incident)] = &[
    ("its packets arrive", |world| {
        for _ in 0..60 {
            receive(world, 1);
            world.settle();
            world.around.wait(2 * MS);
        }
    }),
    ("a packet comes, and none arrives", |world| {
        world.around.wait(250 * MS);
        receive(world, 1);
    }),
    ("its path queues", |world| fault(world, PathFault::Queues)),
    ("its path needs its order", |world| {
        fault(world, PathFault::Ordered);
    }),
    ("its packets get lost", |world| {
        world.around.fate = |_| Fate::Drop;
        windows(world, 4, 12);
    }),
    ("lanes are busy", |world| {
        let stops = Order {
            stops: true,
            ..Order::NONE
        };
        give_order(world, stops);
        receive(world, 1);
    }),
    ("a hint says no", |world| {
        world.around.packets.hint = Hint::Never;
        windows(world, 1, 1);
    }),
    ("it slows down", |world| windows(world, 1, 3)),
    ("another source begins", |world| {
        world.around.slots.note_source();
        receive(world, 1);
    }),
    ("it is silent", |world| {
        world.around.wait(1_200 * MS);
        world.end_nic_poll();
    }),
    ("it is told to stop", |world| {
        world.config.stopping = true;
        receive(world, 1);
    }),
];

const STATES: [StateKind; 6] = [
    StateKind::Counting,
    StateKind::Probing,
    StateKind::Starting,
    StateKind::Split,
    StateKind::Stopping,
    StateKind::Draining,
];

/// Each incident in each state leads along rows of the table, and each row is needed for that.
#[test]
fn each_row_is_reached_and_nothing_else() {
    let mut reached: Vec<Transition> = Vec::new();
    for state in STATES {
        for (name, incident) in INCIDENTS {
            let mut world = in_state(state);
            incident(&mut world);
            calm_down(&mut world);
            world.finish();
            assert_eq!(world.around.reached.others(), [], "{state:?}: {name}");
            reached.extend(&world.around.reached.transitions);
        }
    }
    let unreached: Vec<_> = TRANSITIONS
        .iter()
        .filter(|row| !reached.contains(row))
        .collect();
    assert!(unreached.is_empty(), "nothing leads here: {unreached:#?}");
}

#[test]
fn no_row_is_there_twice() {
    for (number, row) in TRANSITIONS.iter().enumerate() {
        assert!(!TRANSITIONS[..number].contains(row), "{row:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Incident { number: usize },
    CalmDown,
    Receive { flow: u16, pkts: u32 },
    Poll { lane: usize, pkts: usize },
    Ordinary { pkts: usize },
    Wait { us: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..INCIDENTS.len()).prop_map(|number| Step::Incident { number }),
        2 => Just(Step::CalmDown),
        6 => (0..2u16, 1..10u32).prop_map(|(flow, pkts)| Step::Receive { flow, pkts }),
        6 => (0..NR_LANES, 1..20usize).prop_map(|(lane, pkts)| Step::Poll { lane, pkts }),
        4 => (1..20usize).prop_map(|pkts| Step::Ordinary { pkts }),
        3 => (1..2 * WINDOW_US).prop_map(|us| Step::Wait { us }),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    /// The same, one after the other in any order, with packets of two flows under way.
    #[test]
    fn nothing_leads_past_the_table(
        fences_inner_flows: bool,
        steps in prop::collection::vec(step(), 5..60),
    ) {
        let mut world = new(fences_inner_flows);
        for step in steps {
            match step {
                Step::Incident { number } => INCIDENTS[number].1(&mut world),
                Step::CalmDown => calm_down(&mut world),
                Step::Receive { flow, pkts } => {
                    world.receive(flow, pkts);
                }
                Step::Poll { lane, pkts } => {
                    world.around.poll(lane, pkts);
                }
                Step::Ordinary { pkts } => {
                    world.around.run_ordinary(pkts);
                }
                Step::Wait { us } => world.around.wait(us),
            }
            world.end_nic_poll();
        }
        calm_down(&mut world);
        world.finish();
        prop_assert_eq!(world.around.reached.others(), []);
    }
}
