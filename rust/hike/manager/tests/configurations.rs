// SPDX-License-Identifier: GPL-2.0

//! Any configuration there can be is the same after it was written as a file or sent as a message, and any file is one or has a line
//! that says why not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path as FilePath;

use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::{
    Action, Behaviour, Cache, Chain, Destination, Direction, Engine, Flavours, Hook, Lanes, Path,
    Rule, XdpMode,
};
use mflow_hike_manager::configuration::file::parse;
use mflow_hike_manager::configuration::objects::differences;
use mflow_hike_manager::configuration::session::TestMode;
use mflow_hike_manager::configuration::{
    Classed, Configuration, Counted, Fast, KernelRoute, Mac, Origin, Route, Session, Way,
};
use mflow_hike_manager::v1;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

const CHAINS: [&str; 5] = [
    "drop",
    "fw-kernel",
    "mon-out,lanes,fw-table",
    "mon-in,mon-out,fw-fib",
    "acl,drop",
];
/// Those of them that hand on what mflow is asked for.
const LANES: &str = "lanes";
/// The wishes of a class beside its chain.
type Asked = (Option<Lanes>, Option<Origin>);

fn unicast() -> impl Strategy<Value = Ipv6Addr> {
    any::<u64>().prop_map(|bits| Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(bits)))
}

fn path() -> impl Strategy<Value = Path> {
    let sids = (unicast(), vec(unicast(), 1..=10), any::<bool>());
    let numbers = (1..=255u8, option::of(0..64u8), option::of(0..1u32 << 20));
    let all = vec![Exceptions::Told, Exceptions::Dropped, Exceptions::Left];
    let exceptions = prop::sample::select(all);
    let rest = (1280..=65_535u16, exceptions, option::of(0..1u32 << 20));
    (sids, numbers, rest).prop_map(|((source, sids, reduced), numbers, rest)| {
        let (hop_limit, dscp, flow_label) = numbers;
        let (mtu, exceptions, flow_id) = rest;
        Path {
            mode: if reduced { Mode::Reduced } else { Mode::Encaps },
            hop_limit,
            dscp: dscp.map_or(Dscp::Copied, Dscp::Fixed),
            flow_label: flow_label.map_or(FlowLabel::PerFlow, FlowLabel::Fixed),
            mtu,
            exceptions,
            flow_id,
            ..Path::new(source, sids)
        }
    })
}

fn destination() -> impl Strategy<Value = Destination> {
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
    ];
    (address, 0..=128u8).prop_map(|(address, bits)| match address {
        IpAddr::V4(address) => {
            let bits = bits.min(32);
            let kept = u32::from(address) & u32::MAX.checked_shl(u32::from(32 - bits)).unwrap_or(0);
            Destination::prefix(Ipv4Addr::from(kept).into(), bits).expect("masked")
        }
        IpAddr::V6(address) => {
            let shift = u32::from(128 - bits);
            let kept = u128::from(address) & u128::MAX.checked_shl(shift).unwrap_or(0);
            Destination::prefix(Ipv6Addr::from(kept).into(), bits).expect("masked")
        }
    })
}

fn route(ports: Vec<String>) -> impl Strategy<Value = Route> {
    let macs = (any::<[u8; 6]>(), option::of(any::<[u8; 6]>()));
    (
        any::<prop::sample::Index>(),
        macs,
        option::of(68..=65_535u16),
    )
        .prop_map(move |(port, (next_hop, source), mtu)| Route {
            port: ports[port.index(ports.len())].clone(),
            next_hop: Mac(next_hop),
            source: source.map(Mac),
            mtu,
        })
}

fn behaviour(ports: Vec<String>) -> impl Strategy<Value = Behaviour> {
    let flavours = any::<[bool; 3]>().prop_map(|[psp, usp, usd]| Flavours { psp, usp, usd });
    let next_hop = (unicast(), option::of(any::<prop::sample::Index>()));
    let parts = (0..5u8, next_hop, option::of(1..=u32::MAX), flavours);
    parts.prop_map(
        move |(kind, (next_hop, device), table, flavours)| match kind {
            0 => Behaviour::End { flavours },
            1 => {
                let port = device.map(|device| &ports[device.index(ports.len())]);
                let link_local = 0xfe80 << 112 | u128::from(next_hop) & u128::from(u64::MAX);
                Behaviour::EndX {
                    next_hop: port.map_or(next_hop, |_| link_local.into()),
                    device: port.map(|port| port.parse().expect("a device can have it")),
                    flavours,
                }
            }
            2 => Behaviour::Dt4 { table },
            3 => Behaviour::Dt6 { table },
            _ => Behaviour::Dt46 { table },
        },
    )
}

fn counted() -> impl Strategy<Value = Counted> {
    let flow = (unicast(), vec(unicast(), 1..=16));
    // One of both at least says where the colour is.
    let (id, bit) = (0..1u32 << 20, 0..6u8);
    let colour = prop_oneof![
        (id.clone(), option::of(bit.clone())).prop_map(|(id, bit)| (Some(id), bit)),
        (option::of(id), bit).prop_map(|(id, bit)| (id, Some(bit))),
    ];
    let how = (10..=86_400_000u32, colour);
    (any::<bool>(), flow, how).prop_map(|(enters, (source, sids), (period_ms, colour))| Counted {
        direction: if enters {
            Direction::In
        } else {
            Direction::Out
        },
        path: None,
        source: Some(source),
        sids: Some(sids),
        flow_id: colour.0,
        period_ms,
        dscp_bit: colour.1,
    })
}

fn session() -> impl Strategy<Value = Session> {
    let ends = (any::<bool>(), any::<bool>(), unicast(), any::<[u8; 2]>());
    let numbers = (
        1..=65_535u16,
        10..=3_600_000u32,
        10..=60_000u32,
        option::of(0..64u8),
    );
    (ends, numbers).prop_map(|((is_v4, has_source, v6, v4), numbers)| {
        let address = |last| match is_v4 {
            true => IpAddr::from([10, v4[0], v4[1], last]),
            false => v6.into(),
        };
        let (port, interval_ms, timeout_ms, dscp) = numbers;
        Session {
            reflector: address(1),
            port,
            source: has_source.then(|| address(2)),
            interval_ms,
            timeout_ms,
            dscp,
            mode: TestMode::default(),
        }
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let ports =
        || option::of(any::<(u16, u16)>().prop_map(|(one, other)| one.min(other)..=one.max(other)));
    let ends = prop_oneof![
        Just((Destination::Default, Destination::Default)),
        destination().prop_map(|end| (end, Destination::Default)),
        destination().prop_map(|end| (Destination::Default, end)),
        destination().prop_map(|end| (end, end)),
    ];
    let protocol = option::of(prop::sample::select(vec![6, 17, 33, 132, 136]));
    (any::<bool>(), ends, protocol, ports(), ports()).prop_map(
        |(denies, (source, destination), protocol, source_ports, destination_ports)| Rule {
            action: if denies { Action::Deny } else { Action::Allow },
            source,
            destination,
            protocol,
            source_ports,
            destination_ports,
        },
    )
}

fn flow() -> impl Strategy<Value = Classed> {
    let ports = any::<(u16, u16)>();
    let addresses = (any::<[Ipv4Addr; 2]>(), unicast(), unicast());
    let label = option::of(0..1u32 << 20);
    (any::<bool>(), addresses, ports, label).prop_map(|(is_v6, addresses, ports, flow_label)| {
        let (v4, source, destination) = addresses;
        let (source, destination) = match is_v6 || flow_label.is_some() {
            true => (source.into(), destination.into()),
            false => (v4[0].into(), v4[1].into()),
        };
        let ports = flow_label.map_or(ports, |_| (0, 0));
        Classed {
            source,
            destination,
            protocol: flow_label.is_none().then_some(17),
            source_port: ports.0,
            destination_port: ports.1,
            flow_label,
            class: Way::Kernel,
        }
    })
}

fn kernel_route() -> impl Strategy<Value = KernelRoute> {
    let numbers = (1..=u32::MAX, option::of(1025..=u32::MAX), 1..=u32::MAX);
    let does = (0..10u8, vec(unicast(), 1..=16), any::<bool>());
    let parts = (
        destination(),
        any::<Ipv4Addr>(),
        any::<bool>(),
        // Not lo, which has no routes of IPv6.
        "[a-km-z0-9][a-z0-9]{0,14}",
    );
    (numbers, does, parts).prop_map(|((table, metric, number), (kind, sids, is), parts)| {
        let (destination, v4, has_via, device) = parts;
        let is_v4 = destination.to_string().contains('.');
        let v6 = sids[0];
        let does = match kind {
            0 if !is_v4 && is => "action = 'End', flavours = ['psp']".to_owned(),
            1 if !is_v4 => "action = 'End'".to_owned(),
            2 if !is_v4 => format!("action = 'End.X', next-hop = '{v6}'"),
            3 if !is_v4 => format!("action = 'End.T', lookup-table = {number}"),
            4 if !is_v4 => format!("action = 'End.DX6', next-hop = '{v6}'"),
            5 if !is_v4 => format!("action = 'End.DX4', next-hop = '{v4}'"),
            6 if !is_v4 => format!("action = 'End.DT6', lookup-table = {number}"),
            7 if !is_v4 => format!("action = 'End.DT6', vrf-table = {number}"),
            8 if !is_v4 => format!("action = 'End.DT4', vrf-table = {number}"),
            9 if !is_v4 => format!("action = 'End.DT46', vrf-table = {number}"),
            _ => {
                let mode = if is { "reduced" } else { "encaps" };
                format!("sids = ['{v6}'], mode = '{mode}'")
            }
        };
        let text =
            format!("destination = '{destination}', device = '{device}', table = {table}, {does}");
        let text = format!("route = {{ {text} }}");
        let mut read: BTreeMap<String, KernelRoute> = toml::from_str(&text).expect(&text);
        let route = read.remove("route").expect("it was written");
        let via = if is_v4 { v4.into() } else { v6.into() };
        KernelRoute {
            via: (has_via && route.sids.is_some()).then_some(via),
            sids: route.sids.map(|_| sids),
            metric,
            ..route
        }
    })
}

/// Leaves out routes that are one to the kernel.
fn distinct(routes: BTreeMap<String, KernelRoute>) -> BTreeMap<String, KernelRoute> {
    let mut keys = BTreeSet::new();
    let routes = routes.into_iter();
    routes
        .filter(|(_, route)| keys.insert(route.key()))
        .collect()
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_-]{1,63}"
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let devices = || btree_set("[a-z0-9._-]{1,15}", 1..4);
    let named = (
        btree_map(name(), 0..CHAINS.len(), 1..5),
        btree_map(name(), path(), 1..5),
        btree_map(name(), counted(), 0..5),
        vec(rule(), 1..12),
        btree_map(name(), session(), 0..4),
    );
    let kernel_routes = btree_map(name(), kernel_route(), 0..4).prop_map(distinct);
    let cache = (any::<bool>(), 10..=17u8);
    let engine = (any::<bool>(), any::<bool>(), cache, kernel_routes);
    (engine, devices(), devices(), named).prop_flat_map(|(engine, devices, ports, named)| {
        let (calls, at_tcx, (no_cache, entries_bits), kernel_routes) = engine;
        let (chains, paths, monitors, rules, sessions) = named;
        let chains: BTreeMap<String, _> = chains
            .into_iter()
            .map(|(name, chain)| (name, CHAINS[chain].parse::<Chain>().expect("good")))
            .map(|(name, chain)| match Hook::Tcx.check(&chain) {
                Err(_) if at_tcx => (name, CHAINS[0].parse().expect("good")),
                _ => (name, chain),
            })
            .collect();
        let ways = vec(option::of(any::<prop::sample::Index>()), 3);
        let lanes = || option::of(prop::sample::select(vec![Lanes::Split, Lanes::Never]));
        let origins = vec![Origin::Inside, Origin::Anywhere];
        let asked = || (lanes(), option::of(prop::sample::select(origins.clone())));
        // At XDP, half of the configurations have a device inside.
        let inside: BTreeSet<String> = match at_tcx || calls {
            true => BTreeSet::new(),
            false => devices.iter().take(1).cloned().collect(),
        };
        let classes = btree_map(destination(), (ways, asked()), 0..8);
        let ways = vec(option::of(any::<prop::sample::Index>()), 2);
        let flows = vec((flow(), name(), ways, asked()), 0..5);
        let of_ports = || ports.iter().cloned().collect::<Vec<_>>();
        let routes = btree_map(destination(), route(of_ports()), 0..5);
        let behaviours = btree_map(name(), behaviour(of_ports()), 1..5);
        let more = (behaviours, classes, flows, routes);
        more.prop_map(move |(behaviours, classes, flows, routes)| {
            let names: [Vec<String>; 3] = [
                chains.keys().cloned().collect(),
                paths.keys().cloned().collect(),
                behaviours.keys().cloned().collect(),
            ];
            let way = |picked: Vec<Option<prop::sample::Index>>, asked: Asked| {
                let (lanes, from) = asked;
                let of = |place: usize| {
                    let names: &Vec<String> = &names[place];
                    let picked = picked.get(place).copied().flatten();
                    picked.map(|index| names[index.index(names.len())].clone())
                };
                of(0).map_or(Way::Kernel, |chain| {
                    Way::Fast(Fast {
                        lanes: lanes.filter(|_| chains[&chain].to_string().contains(LANES)),
                        chain,
                        path: of(1),
                        behaviour: of(2),
                        from: from.filter(|one| *one != Origin::Inside || !inside.is_empty()),
                    })
                })
            };
            Configuration {
                engine: if calls {
                    Engine::TailCalls
                } else {
                    Engine::Compiled
                },
                mode: if at_tcx || calls {
                    XdpMode::Native
                } else {
                    XdpMode::Generic
                },
                devices: devices.clone(),
                inside: inside.clone(),
                ports: ports.clone(),
                rules: rules.clone(),
                chains: chains.clone(),
                paths: paths.clone(),
                behaviours: behaviours.clone(),
                classes: classes
                    .into_iter()
                    .map(|(to, (one, asked))| (to, way(one, asked)))
                    .collect(),
                flows: flows
                    .into_iter()
                    .map(|(flow, name, one, asked)| {
                        let class = way(one, asked);
                        (name, Classed { class, ..flow })
                    })
                    .collect(),
                routes,
                monitors: monitors.clone(),
                sessions: sessions.clone(),
                hook: if at_tcx { Hook::Tcx } else { Hook::Xdp },
                cache: if no_cache { Cache::Off } else { Cache::On },
                cache_entries: (1 << entries_bits).try_into().expect("a power of two"),
                kernel_routes: kernel_routes.clone(),
            }
        })
    })
}

fn read(text: &str) -> Result<Configuration, String> {
    parse(FilePath::new("f"), text).map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn a_file_and_a_message_say_all_of_a_configuration(configuration in configuration()) {
        let text = configuration.to_toml();
        prop_assert_eq!(read(&text), Ok(configuration.clone()), "{}", text);
        let message = v1::Configuration::from(&configuration);
        prop_assert_eq!(Configuration::try_from(message), Ok(configuration));
    }

    #[test]
    fn operations_lead_from_one_configuration_to_another(
        before in configuration(),
        after in configuration(),
    ) {
        let mut changed = before.clone();
        // Rules behind one that goes have other numbers then.
        for difference in differences(&before.objects(), &after.objects()).into_iter().rev() {
            if difference.after.is_none() {
                let key = v1::ObjectKey {
                    kind: v1::Kind::from(difference.key.kind).into(),
                    name: difference.key.name,
                };
                let operation = Some(v1::operation::Operation::Remove(key));
                changed.change(v1::Operation { operation }).expect("it is there");
            }
        }
        for object in after.messages(None) {
            let operation = Some(v1::operation::Operation::Set(object));
            changed.change(v1::Operation { operation }).expect("it can be set");
        }
        prop_assert_eq!(changed, after);
    }

    #[test]
    fn what_is_not_a_configuration_says_a_line_that_is_there(
        configuration in configuration(),
        place in any::<prop::sample::Index>(),
        byte in 0x20..0x7fu8,
    ) {
        let mut text = configuration.to_toml().into_bytes();
        let place = place.index(text.len());
        text[place] = byte;
        let text = String::from_utf8(text).expect("ASCII");
        if let Err(error) = read(&text) {
            let line = error.strip_prefix("f:").and_then(|rest| rest.split(':').next());
            let line: usize = line.and_then(|line| line.parse().ok()).expect("a line");
            // What is missing at the end of a file is missing behind its last line.
            prop_assert!((1..=text.lines().count() + 1).contains(&line), "{}", error);
            prop_assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn a_configuration_differs_from_itself_in_nothing(configuration in configuration()) {
        let objects = configuration.objects();
        prop_assert!(differences(&objects, &objects).is_empty());
        let kinds: BTreeSet<_> = objects.keys().map(|key| key.kind).collect();
        prop_assert!(kinds.len() >= 5);
    }
}
