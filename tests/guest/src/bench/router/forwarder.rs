// SPDX-License-Identifier: GPL-2.0

//! The forwarder of packets: the kernel's routes, a BPF program, or an instance of HIKE; and the device that packets leave by.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_hike::config::path::FlowLabel;
use mflow_hike::{
    Action, Baseline, Behaviour, Cache, Caching, Chain, Class, Destination, Direction, Engine,
    Flavours, Flow, Hike, Hook, Lanes, Marking, Monitor, Path, Route, Rule,
};
use mflow_protocol::bench::{self as protocol, Packets, Router};
use mflow_protocol::network::WIRE_MTU;
use nix::net::if_::if_nametoindex;

use super::packets::{address, destination, outer_bytes, sids, Traffic, DST_V4, SRC_V6};
use super::{Passed, OUT};
use crate::hike;
use crate::network::topology::{self, FEED};

/// The other end of the device that XDP's packets leave by.
const BEHIND: &str = "behind0";
/// The router behind it, which is not there.
const NEXT_HOP: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x61, 0, 0, 0, 0, 0, 2);
const NEXT_HOP_MAC: &str = "02:00:00:00:61:02";
const TUNNEL_SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x61, 0, 0, 0, 0, 0, 1);
/// Rules of the access list.
const RULES: u16 = 200;
/// Bits of the prefixes that packets have a class of.
const PREFIX_BITS: u8 = 64;
/// Packets that the host may send itself, such as those that look for neighbours.
const OWN_PKTS: u64 = 16;
/// Of a hundred packets of one flow, the cache is good for this many; others come while an entry ends, or while nobody watches.
const CACHED_PCT: u64 = 95;
/// The same of many flows in a cache with this many places for each: some find no place, and each has few packets in the second for which
/// an entry is good.
const MANY_CACHED_PCT: u64 = 60;
const PLACES_OF_FLOW: u32 = 3;
/// No block ends while packets are measured, or one.
const PERIOD: Duration = Duration::from_secs(3_600);

/// The forwarder of the packets that come to the router, until the end of the scope.
pub(super) struct Forwarder {
    /// Bytes that it puts in front of packets.
    added_bytes: u64,
    hike: Option<Hike>,
    /// The reason by which HIKE counts all packets.
    reason: &'static str,
    /// The number of packets that HIKE may count by any other reason: the host's own.
    own_pkts: u64,
    /// The number of packets in a hundred that the cache is good for, at least; `None`: any.
    cached_pct: Option<u64>,
    /// The flow whose packets are counted, and their direction, if flows are monitored.
    monitored: Option<(Flow, Direction)>,
    /// The program that sends packets on, and the one behind that drops them.
    _baselines: Vec<Baseline>,
    _devices: Devices,
}

/// The device that packets leave by, and that the kernel forwards.
struct Devices(());

impl Forwarder {
    pub(super) fn up(router: &Router, traffic: &Traffic) -> Result<Self> {
        // What the host books instructions to has names.
        topology::sysctl("net/core/bpf_jit_kallsyms", "1")?;
        let chain: Option<Chain> = match router {
            Router::Chain { programs, .. } => Some(programs.parse()?),
            _ => None,
        };
        let is_kernel = match router {
            Router::Kernel | Router::KernelEnd | Router::KernelEncaps { .. } => true,
            Router::PassThrough => false,
            Router::Chain { .. } => chain.as_ref().is_some_and(leaves_it_to_kernel),
        };
        let devices = Devices::up(is_kernel)?;
        let mut forwarder = Self {
            added_bytes: 0,
            hike: None,
            reason: "forwarded",
            own_pkts: 0,
            cached_pct: None,
            monitored: None,
            _baselines: Vec::new(),
            _devices: devices,
        };
        if !is_kernel {
            forwarder._baselines.push(Baseline::discard(BEHIND)?);
        }
        match router {
            Router::Kernel => ensure!(
                traffic.packets != Packets::V4,
                "the kernel is measured with IPv6"
            ),
            Router::KernelEnd => kernel_end(traffic)?,
            Router::KernelEncaps { sids } => {
                kernel_encaps(traffic, *sids)?;
                forwarder.added_bytes = outer_bytes(*sids);
            }
            Router::PassThrough => {
                let port = if_nametoindex(OUT)?;
                forwarder
                    ._baselines
                    .push(Baseline::pass_through(FEED, port)?);
            }
            Router::Chain { hook, .. } => {
                if is_kernel && *hook == protocol::Hook::Xdp {
                    kernel_end(traffic)?;
                }
                forwarder.chain(&chain.context("no chain")?, router, traffic)?;
            }
        }
        Ok(forwarder)
    }

    fn chain(&mut self, chain: &Chain, router: &Router, traffic: &Traffic) -> Result<()> {
        let Router::Chain {
            hook,
            lengths,
            others,
            engine,
            sids,
            cache,
            cache_entries,
            ..
        } = *router
        else {
            bail!("only a chain is made of programs");
        };
        let engine = match engine {
            protocol::Engine::Compiled => Engine::Compiled,
            protocol::Engine::TailCalls => Engine::TailCalls,
        };
        // At tcx, packets have been forwarded by the kernel when they come there.
        let (hook, device) = match hook {
            protocol::Hook::Xdp => (Hook::Xdp, FEED),
            protocol::Hook::Tcx => (Hook::Tcx, OUT),
        };
        let cache = if cache { Cache::On } else { Cache::Off };
        let mut caching = Caching {
            cache,
            ..Caching::default()
        };
        if let Some(entries) = cache_entries {
            caching.entries = i64::from(entries).try_into()?;
        }
        let mut hike = hike::instance_with(hook, engine, caching)?;
        let is_cached = hook == Hook::Xdp && cache == Cache::On && is_learned(chain);
        // Many flows share places in the cache, unless it has many more.
        let has_places = u32::from(traffic.flows) * PLACES_OF_FLOW <= caching.entries.get();
        self.cached_pct = match traffic.packets {
            Packets::Srv6 { .. } => None,
            _ if !is_cached || !has_places => None,
            _ if traffic.flows == 1 => Some(CACHED_PCT),
            _ => Some(MANY_CACHED_PCT),
        };
        self.own_pkts = if hook == Hook::Tcx { OWN_PKTS } else { 0 };
        let encaps = chain.needs_path().is_some();
        let direction = monitors(chain).filter(|_| traffic.packets != Packets::V4);
        let id = hike.add_chain(chain)?;
        let behaviour = chain.needs_behaviour();
        let behaviour = behaviour
            .map(|program| hike.add_behaviour(&behaviour_of(program.name)?))
            .transpose()?;
        hike.set_rules(&rules()?)?;
        for flow in 0..traffic.flows {
            let path = path(sids, flow);
            let class = Class {
                chain: id,
                path: encaps.then(|| hike.add_path(&path)).transpose()?,
                lanes: asks_lanes(chain).then_some(Lanes::Split),
            };
            let to: IpAddr = match traffic.packets {
                Packets::V4 => DST_V4.into(),
                Packets::V6 => destination(flow).into(),
                Packets::Srv6 { .. } => {
                    let first = arriving(traffic, flow)?.sids().first().copied();
                    first.context("no SID")?.into()
                }
            };
            let to = class_of(to, (lengths > 0).then_some(PREFIX_BITS))?;
            if flow == 0 {
                add_others(&mut hike, others, lengths, class)?;
            }
            match behaviour {
                Some(behaviour) => hike.set_local_sid(to, class, behaviour)?,
                None => hike.set_class(to, class)?,
            }
            if let Some(direction) = direction {
                let monitored = if encaps {
                    Flow::of(&path)?
                } else {
                    arriving(traffic, flow)?
                };
                let monitor = Monitor {
                    period: PERIOD,
                    marking: Marking::DscpBit(0),
                };
                hike.add_monitor(&monitored, direction, &monitor)?;
                self.monitored = Some((monitored, direction));
            }
        }
        if leaves_it_to_kernel(chain) {
            self.reason = "by-chain";
        } else {
            routes(&mut hike)?;
        }
        hike.attach(device)?;
        if encaps {
            self.added_bytes = outer_bytes(sids);
        }
        self.hike = Some(hike);
        Ok(())
    }

    /// Fails if packets did not take the way that is measured.
    pub(super) fn check(&self, passed: &Passed, traffic: &Traffic) -> Result<()> {
        passed.check(traffic.frame_bytes() + self.added_bytes)?;
        let Some(hike) = &self.hike else {
            return Ok(());
        };
        let hits = hike.cache_counts()?.hits;
        ensure!(
            self.cached_pct
                .is_none_or(|pct| hits * 100 >= passed.arrived_pkts * pct),
            "the cache was good for {hits} of {} packets",
            passed.arrived_pkts
        );
        let reasons = hike.reasons()?;
        let others = reasons
            .iter()
            .filter(|(reason, pkts)| reason.name != self.reason && *pkts > self.own_pkts);
        let others: Vec<String> = others
            .map(|(reason, pkts)| format!("{pkts} {}", reason.name))
            .collect();
        ensure!(
            others.is_empty(),
            "not all packets were {}: {}",
            self.reason,
            others.join(", ")
        );
        if let Some((flow, direction)) = &self.monitored {
            let counts = hike.counts(flow, *direction)?;
            let counted: u64 = counts.blocks().map(|(_, pkts)| pkts).sum();
            let expected = passed.arrived_pkts / u64::from(traffic.flows);
            ensure!(
                counted.abs_diff(expected) <= 1,
                "{counted} packets of a flow were counted, and not {expected}"
            );
        }
        Ok(())
    }
}

impl Devices {
    fn up(is_kernel: bool) -> Result<Self> {
        let devices = Self(());
        let kind = match is_kernel {
            true => "type dummy".to_owned(),
            false => format!("type veth peer name {BEHIND}"),
        };
        topology::ip(&format!("link add {OUT} {kind}"))?;
        for scope in ["all".to_owned(), FEED.to_owned(), OUT.to_owned()] {
            for knob in ["forwarding", "seg6_enabled"] {
                topology::sysctl(&format!("net/ipv6/conf/{scope}/{knob}"), "1")?;
            }
        }
        if !is_kernel {
            topology::ip(&format!("link set {BEHIND} addrgenmode none up"))?;
        }
        topology::ip(&format!(
            "link set {OUT} addrgenmode none mtu {WIRE_MTU} up
             neighbour replace {NEXT_HOP} lladdr {NEXT_HOP_MAC} dev {OUT}
             route add {NEXT_HOP}/128 dev {OUT}
             route add fc00::/16 via {NEXT_HOP} dev {OUT}
             route add fd00:70::/32 via {NEXT_HOP} dev {OUT}
             sr tunsrc set {TUNNEL_SOURCE}"
        ))?;
        Ok(devices)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // The next case finds out if something is left. Routes go with their device.
        let _gone = topology::ip(&format!("link delete {OUT}"));
        let _off = topology::sysctl("net/ipv6/conf/all/forwarding", "0");
    }
}

/// Tells HIKE where packets leave, whichever of the programs forwards them.
fn routes(hike: &mut Hike) -> Result<()> {
    let port = if_nametoindex(OUT)?;
    hike.add_port(port)?;
    let route = Route {
        port,
        // CAST: 1500.
        mtu: WIRE_MTU as u16,
        source: address(&topology::mac(OUT)?)?,
        destination: address(NEXT_HOP_MAC)?,
    };
    for prefix in ["fd00:70::/32", "fc00::/16", "10.9.4.0/24"] {
        hike.set_route(prefix.parse()?, &route)?;
    }
    Ok(())
}

/// Returns whether the cache learns of packets of a chain: of what forwards, behind headers and a monitor at most.
fn is_learned(chain: &Chain) -> bool {
    let names: Vec<&str> = chain.programs().iter().map(|one| one.name).collect();
    let names = names.strip_prefix(&["enc"]).unwrap_or(&names);
    matches!(
        names,
        ["fw-fib" | "fw-table"] | ["mon-in" | "mon-out", "fw-fib" | "fw-table"]
    )
}

/// Returns whether packets go on by the kernel's path at the end of a chain.
fn leaves_it_to_kernel(chain: &Chain) -> bool {
    let last = chain.programs().last();
    last.is_some_and(|program| program.name == "fw-kernel")
}

/// Returns what has a class: an address, or the network that it is in, as a prefix of 64 bits or more.
fn class_of(to: IpAddr, bits: Option<u8>) -> Result<Destination> {
    match (to, bits) {
        (IpAddr::V6(address), Some(bits)) => {
            let [a, b, c, d, ..] = address.segments();
            Destination::prefix(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into(), bits)
        }
        _ => Ok(Destination::Address(to)),
    }
}

/// Adds classes that no packet has: addresses, or prefixes of this many lengths.
fn add_others(hike: &mut Hike, count: u32, lengths: u8, class: Class) -> Result<()> {
    for number in 1..=count {
        // CAST: two halves.
        let [high, low] = [(number >> 16) as u16, number as u16];
        let to = Ipv6Addr::new(0xfd00, 0x70, high, low, 0, 0, 0, 1);
        // CAST: less than there are lengths.
        let longer = number
            .checked_rem(lengths.into())
            .map(|longer| longer as u8);
        let bits = longer.map(|longer| PREFIX_BITS + longer);
        hike.set_class(class_of(to.into(), bits)?, class)?;
    }
    Ok(())
}

/// Returns whether a chain asks for lanes.
fn asks_lanes(chain: &Chain) -> bool {
    chain
        .programs()
        .iter()
        .any(|program| program.name == "lanes")
}

/// Returns where a chain counts flows, if it does.
fn monitors(chain: &Chain) -> Option<Direction> {
    let mut programs = chain.programs().iter();
    programs.find_map(|program| match program.name {
        "mon-in" => Some(Direction::In),
        "mon-out" => Some(Direction::Out),
        _ => None,
    })
}

/// Returns what a program for local SIDs is measured with.
fn behaviour_of(program: &str) -> Result<Behaviour> {
    match program {
        "end" => Ok(Behaviour::End {
            flavours: Flavours::default(),
        }),
        other => bail!("{other} is not measured yet"),
    }
}

/// Returns an access list of which all packets meet the last rule.
fn rules() -> Result<Vec<Rule>> {
    let denies = |number: u16| {
        let host = Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 1);
        anyhow::Ok(Rule {
            source: Destination::Address(host.into()),
            destination: "2001:db8::/32".parse()?,
            protocol: Some(17),
            destination_ports: Some(number..=number),
            ..Rule::all(Action::Deny)
        })
    };
    let last = Rule::all(Action::Allow);
    (1..RULES).map(denies).chain([Ok(last)]).collect()
}

/// Returns what the kernel puts packets into, too: its flow label is that of the packet.
fn path(count: u16, flow: u16) -> Path {
    Path {
        flow_label: FlowLabel::Fixed(0),
        ..Path::new(TUNNEL_SOURCE, sids(count, flow))
    }
}

/// Returns the flow of packets as they arrive.
fn arriving(traffic: &Traffic, flow: u16) -> Result<Flow> {
    match traffic.packets {
        Packets::V4 => bail!("flows are of IPv6"),
        Packets::V6 => Flow::new(SRC_V6, [destination(flow)]),
        Packets::Srv6 { sids: count } => Flow::new(SRC_V6, sids(count, flow)),
    }
}

/// Makes the kernel a waypoint: it is where the first SID is.
fn kernel_end(traffic: &Traffic) -> Result<()> {
    match traffic.packets {
        Packets::V4 | Packets::V6 => bail!("only packets of SRv6 come to a waypoint"),
        Packets::Srv6 { sids } => ensure!(sids > 1, "End needs another SID to go on to"),
    }
    let action = "encap seg6local action End";
    topology::ip(&format!("route add fc00:1::/32 {action} dev {OUT}"))
}

/// Makes the kernel put each flow into SRv6, as a path of HIKE does.
fn kernel_encaps(traffic: &Traffic, count: u16) -> Result<()> {
    let mut routes = String::new();
    for flow in 0..traffic.flows {
        let sids: Vec<String> = sids(count, flow).iter().map(Ipv6Addr::to_string).collect();
        writeln!(
            routes,
            "route add {}/128 encap seg6 mode encap segs {} dev {OUT}",
            destination(flow),
            sids.join(",")
        )?;
    }
    topology::ip(&routes)
}
