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
pub(crate) enum Event {
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
pub(crate) enum Stage {
    Nic,
    Hop,
    Lane(usize),
    /// A stage of a pipelined stream, on one of the cores where it can be; behind the last one: all of them on the NIC's core.
    Step(usize),
    App,
}

/// Packets that wait for one stage of one stream; those for a lane are in its ring.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) stream: usize,
    pub(crate) stage: Stage,
    pub(crate) place: Place,
    pub(crate) packets: VecDeque<Packet>,
    /// On its core's list, on its way there, or being polled.
    pub(crate) scheduled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Core {
    pub(crate) ready: VecDeque<usize>,
    pub(crate) poll: Option<Poll>,
    pub(crate) busy_ps: u64,
    pub(crate) times: Times,
}

#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) queue: usize,
    pub(crate) left: usize,
    pub(crate) packet: Option<Packet>,
    /// True if this is the NIC core, and it carries the packet to the merge point.
    pub(crate) inline: bool,
    /// The packets that go on at the end of the poll.
    pub(crate) carried: Vec<Packet>,
}

pub(crate) struct Stream {
    pub(crate) arrivals: Arrivals,
    pub(crate) ring: VecDeque<u64>,
    pub(crate) pulled: u64,
    /// Without lanes there is none.
    pub(crate) mflow: Option<Mflow>,
    pub(crate) pipelined: Option<Pipelined>,
    pub(crate) whole_ps: Option<f64>,
    /// The number that the reader expects at least.
    pub(crate) expected: u64,
    /// The first of its queues: NIC, hops or lanes, then the reader's.
    pub(crate) first: usize,
    pub(crate) stages: usize,
}

pub(crate) struct Machine<'a> {
    pub(crate) knobs: &'a Knobs,
    pub(crate) stall: Option<Stall>,
    pub(crate) calendar: Calendar<Event>,
    pub(crate) cores: Vec<Core>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) slots: Box<SlotPool<Packet>>,
    pub(crate) control: Control,
    pub(crate) staging: Staging,
    pub(crate) packets: Factory,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) counts: Counts,
    pub(crate) latencies_ps: Vec<u64>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(scene: &'a Scene) -> Self {
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
