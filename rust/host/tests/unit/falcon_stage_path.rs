// SPDX-License-Identifier: GPL-2.0

//! A pipelined flow that changes its CPUs stays in order: queues between cores against a counter.

use std::collections::{BTreeMap, VecDeque};

use mflow_algo::falcon::stage_path::{StagePath, MAX_STAGES};
use proptest::prelude::*;

const NR_CPUS: usize = 3;

/// How stages find their CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A flow that may not move stays.
    Stay,
    /// A flow that may not move waits at the stage.
    Hold,
    /// It moves at once: what must go wrong.
    Move,
}

/// One flow in stages. What goes from one core to another has a queue of its own; a core may look at its queues in any order.
struct World {
    rule: Rule,
    path: StagePath,
    wanted: [u32; MAX_STAGES],
    /// By stage, from which core, to which core.
    queues: BTreeMap<(usize, usize, usize), VecDeque<u64>>,
    /// What each stage's feeder holds, and the core on which it does.
    held: [VecDeque<(u64, usize)>; MAX_STAGES],
    sent: u64,
    delivered: Vec<u64>,
    dropped: u64,
    moves: u32,
}

impl World {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            path: StagePath::new(),
            wanted: [0; MAX_STAGES],
            queues: BTreeMap::new(),
            held: Default::default(),
            sent: 0,
            delivered: Vec::new(),
            dropped: 0,
            moves: 0,
        }
    }

    fn send(&mut self) {
        self.held[0].push_back((self.sent, 0));
        self.sent += 1;
        self.feed(0);
    }

    /// Lets what has come to a stage enter it.
    fn feed(&mut self, stage: usize) {
        while let Some((packet, from)) = self.held[stage].pop_front() {
            let wanted = self.wanted[stage];
            let before = self.path.queue(stage);
            let queue = match self.rule {
                Rule::Move => {
                    if !self.path.try_enter(stage, wanted) {
                        self.path.enter_behind(stage, wanted);
                    }
                    wanted
                }
                _ if self.path.try_enter(stage, wanted) => wanted,
                Rule::Stay => self.path.enter_behind(stage, wanted),
                Rule::Hold => {
                    self.held[stage].push_front((packet, from));
                    return;
                }
            };
            self.moves += u32::from(before.is_some_and(|before| before != queue));
            if let Some(before) = stage.checked_sub(1) {
                self.path.leave(before);
            }
            let key = (stage, from, queue as usize);
            self.queues.entry(key).or_default().push_back(packet);
        }
    }

    /// A core carries the next packet of one of its queues; whether there is one.
    fn carry(&mut self, which: usize, drops: bool) -> bool {
        let busy: Vec<_> = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .collect();
        if busy.is_empty() {
            return false;
        }
        let key @ (stage, _, core) = *busy[which % busy.len()].0;
        let packet = self
            .queues
            .get_mut(&key)
            .and_then(VecDeque::pop_front)
            .unwrap();
        if drops {
            self.path.leave(stage);
            self.dropped += 1;
        } else if stage + 1 == MAX_STAGES {
            self.delivered.push(packet);
            self.path.leave(stage);
        } else {
            self.held[stage + 1].push_back((packet, core));
            self.feed(stage + 1);
        }
        // Whoever holds something asks again.
        (0..MAX_STAGES).rev().for_each(|stage| self.feed(stage));
        true
    }

    fn run(&mut self, steps: &[(u8, u8, u8)]) {
        for &(what, a, b) in steps {
            match what {
                0..5 => self.send(),
                5..8 => self.wanted[usize::from(a) % MAX_STAGES] = u32::from(b) % NR_CPUS as u32,
                _ => {
                    self.carry(usize::from(a), b == 0);
                }
            }
        }
        while self.carry(0, false) {}
    }

    fn is_in_order(&self) -> bool {
        self.delivered.is_sorted()
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0..18u8, any::<u8>(), any::<u8>()), 1..400)
}

proptest! {
    #[test]
    fn order_holds_and_nothing_stays_behind(steps in steps(), holds in any::<bool>()) {
        let mut world = World::new(if holds { Rule::Hold } else { Rule::Stay });
        world.run(&steps);
        prop_assert!(world.is_in_order(), "{:?}", world.delivered);
        prop_assert_eq!(world.delivered.len() as u64 + world.dropped, world.sent);
        prop_assert!(world.path.may_move(0));
    }
}

/// The world would show it if the rule were not kept.
#[test]
fn moving_at_once_breaks_order() {
    let mut world = World::new(Rule::Move);
    // Two packets to core 0, which waits; then one to core 1, which carries it.
    world.send();
    world.wanted[0] = 1;
    world.send();
    while world.carry(1, false) {}
    assert!(!world.is_in_order(), "{:?}", world.delivered);
}

#[test]
fn a_flow_moves_once_nothing_is_left_behind_the_stage() {
    let path = StagePath::new();
    assert_eq!(path.queue(1), None);
    assert!(path.try_enter(1, 7));
    assert!(path.try_enter(1, 7));
    assert!(!path.try_enter(1, 8));
    assert_eq!(path.enter_behind(1, 8), 7);
    // One of the three goes on to the next stage, the others are dropped.
    assert!(path.try_enter(2, 5));
    path.leave(1);
    path.leave(1);
    path.leave(1);
    assert!(
        !path.try_enter(1, 8),
        "the next stage's queue belongs to queue 7's core"
    );
    path.leave(2);
    assert!(path.try_enter(1, 8));
    assert_eq!(path.queue(1), Some(8));
    // What is before the stage does not matter.
    assert!(path.try_enter(0, 3));
    assert!(path.may_move(2) && !path.may_move(0));
}

/// A flow that is never without packets moves only if its feeder holds some back.
#[test]
fn a_busy_flow_moves_if_it_is_held() {
    for (rule, moves) in [(Rule::Stay, false), (Rule::Hold, true)] {
        let mut world = World::new(rule);
        for n in 0..2_000u32 {
            world.wanted = [n / 100 % 2; MAX_STAGES];
            world.send();
            world.send();
            // As much is carried as is sent, but two packets are always under way.
            (0..2 * MAX_STAGES).for_each(|_| {
                if world.queues.values().map(VecDeque::len).sum::<usize>() > 2 {
                    world.carry(0, false);
                }
            });
            if rule == Rule::Hold && !world.path.may_move(0) && n % 100 > 50 {
                while world.held[0].len() > 2 && world.carry(0, false) {}
            }
        }
        assert_eq!(world.moves > 0, moves, "{rule:?}: {} moves", world.moves);
        while world.carry(0, false) {}
        assert!(world.is_in_order());
        assert_eq!(world.delivered.len() as u64, world.sent);
    }
}
