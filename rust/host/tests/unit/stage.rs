// SPDX-License-Identifier: GPL-2.0

//! Flows that go from CPU to CPU: keys, choices, and a host of stages whose CPUs run in any order.

use std::collections::{HashMap, HashSet, VecDeque};

use mflow_algo::algo::headers::flow_key::{FlowHasher, ETH_P_IP, ETH_P_IPV6};
use mflow_algo::algo::knobs::{Knobs, Mode, Stages};
use mflow_algo::algo::lanes::lane_set::LaneSet;
use mflow_algo::algo::lanes::queue::ring::{Consumer, Item, RING_ITEMS};
use mflow_algo::algo::lanes::queue::Packet as _;
use mflow_algo::algo::lanes::ring_bytes::RingBytes;
use mflow_algo::algo::stage::{choose, HeldByGro, Route, Stage, StageKey, StageSet, Way};
use mflow_algo::algo::tag::{Tag, TagKind};
use proptest::prelude::*;

use crate::common::cases;
use crate::support::host::OwnedRing;
use crate::support::packet::{Factory, TestPacket, TestRequest};
use crate::zeroed::zeroed;

const KEYS: FlowHasher = FlowHasher::new(0x1234_5678_9abc_def0);

/// Returns the start of an IPv4 packet.
fn ipv4(protocol: u8, fragment: u16, source_port: u16, flags: u8) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[20..22].copy_from_slice(&source_port.to_be_bytes());
    packet[22..24].copy_from_slice(&80u16.to_be_bytes());
    packet[33] = flags;
    packet
}

fn key(packet: &[u8]) -> StageKey {
    StageKey::of(KEYS, ETH_P_IP, packet).expect("IPv4 has a key")
}

fn flow(number: u16) -> StageKey {
    key(&ipv4(17, 0, number, 0))
}

#[test]
fn all_packets_of_a_connection_have_one_key() {
    let (syn, data) = (key(&ipv4(6, 0, 1000, 0x02)), key(&ipv4(6, 0, 1000, 0x10)));
    assert_eq!(syn, data);
    assert_eq!(data, key(&ipv4(6, 0x4000, 1000, 0x11)), "do not fragment");
    assert_ne!(data, key(&ipv4(6, 0, 1001, 0x10)));
}

#[test]
fn what_has_no_ports_has_the_key_of_its_addresses() {
    // The first fragment has ports, and goes with the others.
    let fragments = [0x2000, 0x2001, 0x0001].map(|place| key(&ipv4(17, place, 1000, 0)));
    assert_eq!(
        HashSet::<_>::from_iter(fragments.map(|key| format!("{key:?}"))).len(),
        1
    );
    assert_eq!(fragments[0], key(&ipv4(1, 0, 7, 0)), "ICMP");
    assert_eq!(fragments[0], key(&ipv4(17, 0, 7, 0)[..20]), "cut off");
    assert_ne!(fragments[0], key(&ipv4(17, 0, 1000, 0)));
}

#[test]
fn only_ip_has_a_key() {
    assert_eq!(StageKey::of(KEYS, 0x0806, &ipv4(17, 0, 1, 0)), None);
    assert_eq!(StageKey::of(KEYS, ETH_P_IP, &[0x45; 19]), None);
    assert_eq!(StageKey::of(KEYS, ETH_P_IPV6, &[0x60; 39]), None);
    assert!(StageKey::of(KEYS, ETH_P_IPV6, &[0x60; 40]).is_some());
}

#[test]
fn a_tag_in_a_ring_is_nothing_to_hooks() {
    for stage in Stage::ALL {
        assert_eq!(stage.tag().kind(), TagKind::None);
        assert_eq!(Stage::of_tag(stage.tag()), Some(stage));
        assert_eq!(Stage::of_number(stage as u32), Some(stage));
    }
    assert_eq!(Stage::of_tag(Tag::NONE), None);
    assert_eq!(Stage::of_number(5), None);
}

fn knobs(mode: Mode, stages: Stages) -> Knobs {
    Knobs {
        mode,
        stages,
        ..Knobs::DEFAULT
    }
}

#[test]
fn transitions_are_those_of_mode_and_stages() {
    let contained = |mode, stages| {
        let set = StageSet::of(&knobs(mode, stages));
        Stage::ALL.map(|stage| set.contains(stage))
    };
    assert_eq!(contained(Mode::Mflow, Stages::All), [false; 4]);
    assert!(StageSet::of(&knobs(Mode::Mflow, Stages::All)).is_empty());
    assert_eq!(
        contained(Mode::FalconDev, Stages::All),
        [true, false, true, true]
    );
    assert_eq!(
        contained(Mode::FalconDev, Stages::Nic),
        [true, false, false, false]
    );
    assert_eq!(
        contained(Mode::FalconFunc, Stages::Tunnel),
        [false, true, true, false]
    );
    assert_eq!(
        contained(Mode::FalconFunc, Stages::Veth),
        [false, true, false, true]
    );
}

#[test]
fn what_begins_with_gro_and_what_is_counted() {
    let gro = Stage::ALL.map(Stage::begins_with_gro);
    assert_eq!(gro, [false, true, true, false]);
    let counters = Stage::ALL.map(|stage| stage.counter().name());
    assert_eq!(
        counters,
        [
            "stage_nic_pkts",
            "stage_nic_pkts",
            "stage_tunnel_pkts",
            "stage_veth_pkts"
        ]
    );
}

#[test]
fn first_stages_spread_evenly_over_cpus() {
    for nr_cpus in [1u8, 2, 3, 5, 16] {
        let mut counts = vec![0u32; usize::from(nr_cpus)];
        for number in 0..8_000 {
            counts[usize::from(choose(flow(number), 2, None, nr_cpus, 0))] += 1;
        }
        let share = 8_000 / u32::from(nr_cpus);
        for count in counts {
            assert!(count.abs_diff(share) <= share / 4 + 1, "{count} of {share}");
        }
    }
}

#[test]
fn a_loaded_first_choice_leads_to_the_second_and_no_further() {
    const NR_CPUS: u8 = 6;
    for here in [None, Some(0), Some(3), Some(5)] {
        let mut counts = [0u32; NR_CPUS as usize];
        for number in 0..2_000 {
            let to = |loaded| choose(flow(number), 2, here, NR_CPUS, loaded);
            let first = to(0);
            assert_eq!(to(!(1 << first)), first, "the loads of others");
            let second = to(1 << first);
            assert!(second != first && Some(second) != here && second < NR_CPUS);
            // However loaded that one is.
            assert_eq!(to(u16::MAX), second);
            counts[usize::from(second)] += 1;
        }
        let others = counts.iter().filter(|count| **count > 0).count();
        assert_eq!(others, usize::from(NR_CPUS) - here.iter().len());
        for count in counts.iter().filter(|count| **count > 0) {
            assert!((200..700).contains(count), "{counts:?} from {here:?}");
        }
    }
}

#[test]
fn a_flow_with_no_other_cpu_stays() {
    assert_eq!(choose(flow(1), 2, None, 1, 1), 0);
    assert_eq!(choose(flow(1), 2, Some(0), 1, 1), 0);
    let first = choose(flow(1), 2, None, 2, 0);
    assert_eq!(choose(flow(1), 2, None, 2, 1 << first), 1 - first);
    // The second of two is the one that it is on.
    assert_eq!(choose(flow(1), 2, Some(0), 2, 0b10), 0);
    assert_eq!(choose(flow(1), 2, Some(1), 2, 0b01), 1);
    assert_eq!(choose(flow(1), 2, Some(0), 2, 0b01), 1);
}

#[test]
fn devices_choose_for_themselves() {
    let choice = |device| choose(flow(1), device, None, 16, 0);
    assert!((2..20).map(choice).collect::<HashSet<_>>().len() > 4);
}

#[test]
fn routes_say_where_packets_go() {
    let ways = |home_is_empty: bool| {
        [0, 1, 2, 3].map(|number| Route::of_number(number).way(|| home_is_empty))
    };
    assert_eq!(
        ways(true),
        [Way::Onward, Way::Onward, Way::Held, Way::Ordinary]
    );
    assert_eq!(
        ways(false),
        [Way::Onward, Way::Onward, Way::Held, Way::Held]
    );
    for route in [
        Route::Gathering,
        Route::Onward,
        Route::Returning,
        Route::Home,
    ] {
        assert_eq!(Route::of_number(route as u8), route);
    }
}

#[test]
fn a_full_ring_gives_packets_back() {
    let factory = Factory::default();
    let (_ring, producer, mut consumer) = OwnedRing::new(zeroed());
    let (mut lanes, bytes) = (LaneSet::new(), RingBytes::new());
    assert!(lanes.add(producer, 1, 0).is_ok());
    assert_eq!(lanes.len(), 1);
    for id in 0..RING_ITEMS as u64 {
        assert!(lanes.hand_on(0, factory.packet(id), &bytes).is_ok());
    }
    assert_eq!(
        lanes
            .hand_on(0, factory.packet(9), &bytes)
            .map_err(|packet| packet.id()),
        Err(9)
    );
    assert!(consumer.pop(TestRequest::build).is_some());
    assert!(lanes.hand_on(0, factory.packet(10), &bytes).is_ok());
    assert!(
        lanes.hand_on(1, factory.packet(11), &bytes).is_err(),
        "no such lane"
    );
    assert_eq!(lanes.take_touched(&bytes), 1);
}

#[test]
fn too_many_bytes_give_packets_back() {
    let factory = Factory::default();
    let (_ring, producer, _consumer) = OwnedRing::new(zeroed());
    let (mut lanes, bytes) = (LaneSet::new(), RingBytes::new());
    assert!(lanes.add(producer, 1, 0).is_ok());
    bytes.charge(0, 1 << 30);
    assert!(lanes.hand_on(0, factory.packet(1), &bytes).is_err());
    bytes.release(0, 1 << 30);
    assert!(lanes.hand_on(0, factory.packet(1), &bytes).is_ok());
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_choice_is_a_cpu_and_the_first_unless_that_is_loaded(
        number: u16,
        device: u32,
        here in prop::option::of(0..16u8),
        nr_cpus in 1..=16u8,
        loaded: u16,
    ) {
        let here = here.map(|here| here % nr_cpus);
        let first = choose(flow(number), device, here, nr_cpus, 0);
        let choice = choose(flow(number), device, here, nr_cpus, loaded);
        prop_assert!(choice < nr_cpus);
        if loaded >> first & 1 == 0 {
            prop_assert_eq!(choice, first);
        } else {
            let others = nr_cpus - 1 - u8::from(here.is_some_and(|here| here != first));
            prop_assert_eq!(others > 0, choice != first && Some(choice) != here);
        }
    }

    #[test]
    fn three_stages_have_three_cpus(number: u16, devices: [u32; 3], nr_cpus in 1..=16u8) {
        let mut way = vec![choose(flow(number), devices[0], None, nr_cpus, 0)];
        for device in &devices[1..] {
            let next = choose(flow(number), *device, way.last().copied(), nr_cpus, 0);
            prop_assert!(next < nr_cpus);
            way.push(next);
        }
        let distinct = HashSet::<u8>::from_iter(way.iter().copied()).len();
        prop_assert_eq!(distinct, usize::from(nr_cpus.min(3)), "{:?}", way);
    }
}

const NIC_DEVICE: u32 = 2;
const DEVICES: [u32; 3] = [NIC_DEVICE, 5, 7];
const NR_STAGES: usize = DEVICES.len();

/// A packet where no ring is: its flow, its number there, and the stage that it has come to.
#[derive(Clone, Copy, Debug)]
struct Carried {
    flow: u16,
    number: u32,
    stage: usize,
}

impl Carried {
    fn id(self) -> u64 {
        u64::from(self.flow) << 40 | (self.stage as u64) << 32 | u64::from(self.number)
    }

    fn of_id(id: u64) -> Self {
        Self {
            flow: (id >> 40) as u16,
            number: id as u32,
            stage: (id >> 32) as usize & 0xff,
        }
    }
}

/// The source of packets: the NIC (`here` is none) or a CPU of the stages.
struct Source {
    lanes: LaneSet<TestPacket>,
    here: Option<u8>,
}

/// A host: one NIC's core with its ordinary path, and CPUs that stages are on. It knows each flow's latest packet.
struct Host {
    factory: Factory,
    bytes: RingBytes,
    /// That of the NIC first, then one for each CPU.
    sources: Vec<Source>,
    /// The lanes of each CPU: one from each source.
    consumers: Vec<Vec<Consumer<TestPacket>>>,
    _rings: Vec<OwnedRing>,
    route: Option<Route>,
    /// The CPUs that are no first choice, and those that shall be none.
    loaded: u16,
    wanted: u16,
    home: VecDeque<Carried>,
    /// The NIC's GRO, before which packets are taken. It lets go when it likes.
    gro: VecDeque<Carried>,
    held_by_gro: HeldByGro,
    /// The queues of the NIC's core, where packets go that no stage takes.
    ordinary: VecDeque<Carried>,
    sent: HashMap<u16, u32>,
    arrived: HashMap<u16, u32>,
}

impl Host {
    fn new(nr_cpus: u8) -> Self {
        let mut host = Self {
            factory: Factory::of_bytes(100),
            bytes: RingBytes::new(),
            sources: Vec::new(),
            consumers: (0..nr_cpus).map(|_| Vec::new()).collect(),
            _rings: Vec::new(),
            route: None,
            loaded: 0,
            wanted: 0,
            home: VecDeque::new(),
            gro: VecDeque::new(),
            held_by_gro: HeldByGro::default(),
            ordinary: VecDeque::new(),
            sent: HashMap::new(),
            arrived: HashMap::new(),
        };
        for here in [None].into_iter().chain((0..nr_cpus).map(Some)) {
            let mut lanes = LaneSet::new();
            for cpu in 0..nr_cpus {
                let (ring, producer, consumer) = OwnedRing::new(zeroed());
                assert!(lanes.add(producer, u32::from(cpu), u32::from(cpu)).is_ok());
                host.consumers[usize::from(cpu)].push(consumer);
                host._rings.push(ring);
            }
            host.sources.push(Source { lanes, here });
        }
        host
    }

    /// Gives the NIC's core a packet.
    fn receive(&mut self, flow: u16) {
        let next = self.sent.entry(flow).or_default();
        let carried = Carried {
            flow,
            number: *next,
            stage: 0,
        };
        *next += 1;
        let home_is_empty = self.home.is_empty();
        match self
            .route
            .map_or(Way::Ordinary, |route| route.way(|| home_is_empty))
        {
            Way::Onward => {
                self.flush_gro_first();
                self.hand_on(0, carried);
            }
            Way::Held => {
                self.flush_gro_first();
                self.home.push_back(carried);
            }
            Way::Ordinary => {
                self.held_by_gro.note_ordinary();
                self.gro.push_back(carried);
            }
        }
    }

    fn flush_gro(&mut self) {
        self.ordinary.append(&mut self.gro);
    }

    fn gro_may_hold(&self) -> bool {
        self.held_by_gro.may_hold() && !self.gro.is_empty()
    }

    fn flush_gro_first(&mut self) {
        if self.held_by_gro.take() {
            self.flush_gro();
        }
    }

    fn hand_on(&mut self, source: usize, carried: Carried) {
        let nr_cpus = self.consumers.len() as u8;
        let Source { lanes, here } = &mut self.sources[source];
        let device = DEVICES[carried.stage];
        let lane = choose(flow(carried.flow), device, *here, nr_cpus, self.loaded);
        if *here == Some(lane) {
            // There is no other CPU for it: it goes on there, in whatever stage comes next.
            return self.arrive(carried);
        }
        let packet = self.factory.packet(carried.id());
        assert!(lanes.hand_on(lane, packet, &self.bytes).is_ok());
    }

    /// Carries some packets of one of a CPU's lanes.
    fn poll(&mut self, cpu: usize, lane: usize, pkts: usize) {
        if self.route == Some(Route::Gathering) {
            return;
        }
        for _ in 0..pkts {
            let Some(Item::Packet(packet)) = self.consumers[cpu][lane].pop(TestRequest::build)
            else {
                break;
            };
            let mut carried = Carried::of_id(packet.id());
            self.bytes
                .release(cpu as u32, u64::from(packet.memory_bytes()));
            carried.stage += 1;
            if carried.stage < NR_STAGES {
                self.hand_on(1 + cpu, carried);
            } else {
                self.arrive(carried);
            }
        }
        for source in &mut self.sources {
            source.lanes.take_touched(&self.bytes);
        }
    }

    /// Carries packets of the NIC's core's ordinary path to the end.
    fn run_ordinary(&mut self, pkts: usize) {
        for _ in 0..pkts {
            let Some(carried) = self.ordinary.pop_front() else {
                break;
            };
            self.arrive(carried);
        }
    }

    /// Gives packets of the lane at home to the ordinary path.
    fn run_home(&mut self, pkts: usize) {
        for _ in 0..pkts {
            if self.route == Some(Route::Home) {
                self.ordinary.extend(self.home.pop_front());
            }
        }
    }

    fn stages_are_empty(&mut self) -> bool {
        let mut lanes = self.consumers.iter_mut().flatten();
        lanes.all(|lane| lane.waiting_items() == 0)
    }

    /// Goes on to the next route, as the thread that configures does if it may.
    fn configure(&mut self) {
        let stages_are_empty = self.stages_are_empty();
        self.route = match self.route {
            None => {
                // Another source, which knows nothing of what came before it.
                self.held_by_gro = HeldByGro::default();
                Some(Route::Gathering)
            }
            // Where no packet has come that had GRO let go, its timer has.
            Some(Route::Gathering) if self.ordinary.is_empty() && !self.gro_may_hold() => {
                Some(Route::Onward)
            }
            Some(Route::Onward) => Some(Route::Returning),
            Some(Route::Returning) if stages_are_empty => Some(Route::Home),
            Some(Route::Home) if self.home.is_empty() => {
                // Loads have changed, or the mode has.
                let moves = self.loaded != self.wanted;
                self.loaded = self.wanted;
                moves.then_some(Route::Gathering)
            }
            other => other,
        };
    }

    fn arrive(&mut self, carried: Carried) {
        let next = self.arrived.entry(carried.flow).or_default();
        assert_eq!(
            carried.number, *next,
            "flow {} in {:?}",
            carried.flow, self.route
        );
        *next += 1;
    }

    /// Lets everything arrive.
    fn finish(&mut self) {
        while self.route.is_some() {
            self.configure();
            self.run_everything();
        }
        self.run_everything();
        assert_eq!(self.sent, self.arrived);
        for source in &mut self.sources {
            source.lanes.take_touched(&self.bytes);
        }
        assert_eq!(self.bytes.all(), 0);
    }

    fn run_everything(&mut self) {
        self.run_home(100_000);
        self.flush_gro();
        self.run_ordinary(100_000);
        for _ in 0..NR_STAGES {
            for cpu in 0..self.consumers.len() {
                for lane in 0..self.consumers[cpu].len() {
                    self.poll(cpu, lane, 100_000);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Receive {
        flow: u16,
        pkts: u32,
    },
    Poll {
        cpu: usize,
        lane: usize,
        pkts: usize,
    },
    Gro,
    Ordinary {
        pkts: usize,
    },
    Home {
        pkts: usize,
    },
    Configure,
    Loads {
        wanted: u16,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..6u16, 1..40u32).prop_map(|(flow, pkts)| Step::Receive { flow, pkts }),
        20 => (0..5usize, 0..6usize, 1..80usize)
            .prop_map(|(cpu, lane, pkts)| Step::Poll { cpu, lane, pkts }),
        3 => Just(Step::Gro),
        5 => (1..60usize).prop_map(|pkts| Step::Ordinary { pkts }),
        4 => (1..60usize).prop_map(|pkts| Step::Home { pkts }),
        3 => Just(Step::Configure),
        1 => any::<u16>().prop_map(|wanted| Step::Loads { wanted }),
    ]
}

proptest! {
    #![proptest_config(cases(192))]

    /// Modes and loads come and go, and CPUs run in any order: each flow arrives whole and in order.
    #[test]
    fn each_flow_keeps_its_order(nr_cpus in 1..=5u8, steps in prop::collection::vec(step(), 1..150)) {
        let mut host = Host::new(nr_cpus);
        for step in steps {
            match step {
                Step::Receive { flow, pkts } => (0..pkts).for_each(|_| host.receive(flow)),
                Step::Poll { cpu, lane, pkts } => {
                    let cpu = cpu % host.consumers.len();
                    let lane = lane % host.consumers[cpu].len();
                    host.poll(cpu, lane, pkts);
                }
                Step::Gro => host.flush_gro(),
                Step::Ordinary { pkts } => host.run_ordinary(pkts),
                Step::Home { pkts } => host.run_home(pkts),
                Step::Configure => host.configure(),
                Step::Loads { wanted } => host.wanted = wanted,
            }
        }
        host.finish();
    }
}
