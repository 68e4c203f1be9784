// SPDX-License-Identifier: GPL-2.0

//! The parts that the [`pipeline`](super::pipeline) works with: cores, queues and streams. They are made from a scene.

use std::collections::VecDeque;

use mflow_algo::algo::merge::slot_pool::SlotPool;
use rand::rngs::Xoshiro256PlusPlus;
use rand::SeedableRng as _;

use super::arrivals::Arrivals;
use super::calendar::Calendar;
use super::control::{Control, Times};
use super::mflow::{self, Mflow};
use super::packet::{Factory, Packet};
use super::pipelined::{Pipelined, Staging};
use super::scene::{Counts, Knobs, Place, Scene, Stall};

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet reaches an idle NIC queue.
    Arrival(usize),
    /// An interrupt or a wake-up for a queue reaches its core.
    Ready(usize),
    Carried(usize),
    /// The timer of a stream's merge point fires.
    Deadline(usize),
    Resume(usize),
    /// Loads are looked at.
    Sample,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Nic,
    Hop,
    Lane(usize),
    /// A stage of a pipelined stream, on one of the cores where it can be; behind the last one: all of them on the NIC's core.
    Step(usize),
    App,
}

/// Packets that wait for one stage of one stream; those for a lane are in its ring.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) stream: usize,
    pub(super) stage: Stage,
    pub(super) place: Place,
    pub(super) packets: VecDeque<Packet>,
    /// On its core's list, on its way there, or being polled.
    pub(super) scheduled: bool,
}

#[derive(Debug, Default)]
pub(super) struct Core {
    pub(super) ready: VecDeque<usize>,
    pub(super) poll: Option<Poll>,
    pub(super) busy_ps: u64,
    pub(super) times: Times,
}

#[derive(Debug)]
pub(super) struct Poll {
    pub(super) queue: usize,
    pub(super) left: usize,
    pub(super) packet: Option<Packet>,
    /// True if this is the NIC core, and it carries the packet to the merge point.
    pub(super) inline: bool,
    /// The packets that go on at the end of the poll.
    pub(super) carried: Vec<Packet>,
}

pub(super) struct Stream {
    pub(super) arrivals: Arrivals,
    pub(super) ring: VecDeque<u64>,
    pub(super) pulled: u64,
    /// Without lanes there is none.
    pub(super) mflow: Option<Mflow>,
    pub(super) pipelined: Option<Pipelined>,
    pub(super) whole_ps: Option<f64>,
    /// The number that the reader expects at least.
    pub(super) expected: u64,
    /// The first of its queues: NIC, hops or lanes, then the reader's.
    pub(super) first: usize,
    pub(super) stages: usize,
}

pub(super) struct Machine<'a> {
    pub(super) knobs: &'a Knobs,
    pub(super) stall: Option<Stall>,
    pub(super) calendar: Calendar<Event>,
    pub(super) cores: Vec<Core>,
    pub(super) queues: Vec<Queue>,
    pub(super) streams: Vec<Stream>,
    pub(super) slots: Box<SlotPool<Packet>>,
    pub(super) control: Control,
    pub(super) staging: Staging,
    pub(super) packets: Factory,
    pub(super) rng: Xoshiro256PlusPlus,
    pub(super) counts: Counts,
    pub(super) latencies_ps: Vec<u64>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(scene: &'a Scene) -> Self {
        let control = Control::new(scene.control.clone(), scene.knobs.batch_pkts);
        let mut machine = Self {
            knobs: &scene.knobs,
            stall: scene.stall,
            calendar: Calendar::new(),
            cores: (0..scene.cores).map(|_| Core::default()).collect(),
            queues: Vec::new(),
            streams: Vec::new(),
            slots: mflow::slots(),
            staging: Staging::new(control.stage_orders),
            control,
            packets: Factory::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(scene.knobs.seed),
            counts: Counts::default(),
            latencies_ps: Vec::new(),
        };
        for (number, stream) in scene.streams.iter().enumerate() {
            let first = machine.queues.len();
            let mut add = |stage, place| {
                machine.queues.push(Queue {
                    stream: number,
                    stage,
                    place,
                    packets: VecDeque::new(),
                    scheduled: false,
                });
            };
            add(Stage::Nic, stream.nic);
            for place in &stream.hops {
                add(Stage::Hop, *place);
            }
            for (index, place) in stream.lanes.iter().enumerate() {
                add(Stage::Lane(index), *place);
            }
            if let Some(stages) = &stream.stages {
                for (step, packet_ps) in stages.packet_ps.iter().enumerate() {
                    for core in &stages.cores {
                        let (core, packet_ps) = (*core, *packet_ps);
                        add(Stage::Step(step), Place { core, packet_ps });
                    }
                }
                let (core, packet_ps) = (stream.nic.core, stages.whole_ps);
                add(
                    Stage::Step(stages.packet_ps.len()),
                    Place { core, packet_ps },
                );
            }
            add(Stage::App, stream.app);
            let stages = machine.queues.len() - first - 2;
            // Streams must not all draw the same numbers.
            let seed = scene.knobs.seed.wrapping_add(1 + number as u64);
            let arrivals = Arrivals::new(stream.load.clone(), scene.stream_pkts, seed);
            machine.streams.push(Stream {
                arrivals,
                ring: VecDeque::new(),
                pulled: 0,
                mflow: (!stream.lanes.is_empty())
                    .then(|| Mflow::new(stream.lanes.len(), stream.gro_joins, &scene.knobs)),
                pipelined: stream.stages.clone().map(Pipelined::new),
                whole_ps: stream.whole_ps,
                expected: 0,
                first,
                stages,
            });
            machine.await_arrival(number);
        }
        machine.await_sample();
        machine
    }
}
