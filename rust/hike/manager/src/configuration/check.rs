// SPDX-License-Identifier: GPL-2.0

//! A configuration of what was written, entry by entry, or the first reason why that cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::limits::RULES;
use mflow_hike::{
    Behaviour, Destination, Direction, Engine, Flavours, Flow, Hook, Lanes, Marking, Monitor, Path,
    Rule,
};

use super::at::{At, Result};
use super::entries::{
    ActionWord, BehaviourEntry, ClassEntry, DirectionWord, EngineWord, ExceptionsWord, FastEntry,
    FlavourWord, HookWord, LanesWord, ModeWord, MonitorEntry, PathEntry, RouteEntry,
};
use super::exact::flow;
use super::kernel::kernel_route;
use super::objects::Kind;
use super::rules::{rule, RuleEntry};
use super::{Configuration, Counted, Document, FlowOf, Problem, Route, Way};

const MOST_NAME_BYTES: usize = 63;
/// Of the kernel's names of devices: IFNAMSIZ less the byte at its end.
const MOST_DEVICE_BYTES: usize = 15;
/// The least MTU of IPv4: RFC 791.
const LEAST_MTU: i64 = 68;
const DEFAULT_PERIOD_MS: i64 = 1000;
const MOST_PERIOD_MS: i64 = 86_400_000;

impl TryFrom<&Document> for Configuration {
    type Error = Problem;

    fn try_from(document: &Document) -> Result<Self> {
        let configuration = Self {
            hook: match document.hook {
                HookWord::Xdp => Hook::Xdp,
                HookWord::Tcx => Hook::Tcx,
            },
            engine: match document.engine {
                EngineWord::Compiled => Engine::Compiled,
                EngineWord::TailCalls => Engine::TailCalls,
            },
            devices: devices(Kind::Device, &document.devices)?,
            ports: devices(Kind::Port, &document.ports)?,
            rules: rules(&document.rules)?,
            chains: named(Kind::Chain, &document.chains, |at, text| {
                text.parse().map_err(|error| at.problem(error))
            })?,
            paths: named(Kind::Path, &document.paths, path)?,
            behaviours: named(Kind::Behaviour, &document.behaviours, behaviour)?,
            classes: by_destination(Kind::Class, &document.classes, |_, entry| Ok(way(entry)))?,
            flows: named(Kind::Flow, &document.flows, flow)?,
            routes: by_destination(Kind::Route, &document.routes, route)?,
            monitors: named(Kind::Monitor, &document.monitors, monitor)?,
            kernel_routes: named(Kind::KernelRoute, &document.kernel_routes, kernel_route)?,
        };
        configuration.check()?;
        Ok(configuration)
    }
}

fn devices(kind: Kind, names: &[String]) -> Result<BTreeSet<String>> {
    let mut devices = BTreeSet::new();
    for name in names {
        let at = At { kind, name };
        if let Some(text) = device_name(name) {
            return Err(at.problem(text));
        }
        if !devices.insert(name.clone()) {
            return Err(at.problem("it stands here twice"));
        }
    }
    Ok(devices)
}

/// Returns why no device can have this name.
pub(super) fn device_name(name: &str) -> Option<String> {
    let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    let is_good = !name.is_empty() && name.len() <= MOST_DEVICE_BYTES && name.chars().all(good);
    (!is_good).then(|| {
        format!("no device can have this name: 1 to {MOST_DEVICE_BYTES} characters without space, / and : are allowed")
    })
}

fn named<E, T>(
    kind: Kind,
    entries: &BTreeMap<String, E>,
    make: impl Fn(At<'_>, &E) -> Result<T>,
) -> Result<BTreeMap<String, T>> {
    let mut made = BTreeMap::new();
    for (name, entry) in entries {
        let at = At { kind, name };
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > MOST_NAME_BYTES || !name.chars().all(good) {
            return Err(at.problem(format!(
                "this is no name: 1 to {MOST_NAME_BYTES} letters, digits, - and _ are allowed"
            )));
        }
        made.insert(name.clone(), make(at, entry)?);
    }
    Ok(made)
}

fn by_destination<E, T>(
    kind: Kind,
    entries: &BTreeMap<String, E>,
    make: impl Fn(At<'_>, &E) -> Result<T>,
) -> Result<BTreeMap<Destination, T>> {
    let mut made = BTreeMap::new();
    for (name, entry) in entries {
        let at = At { kind, name };
        let destination: Destination = name.parse().map_err(|error| at.problem(error))?;
        if made.insert(destination, make(at, entry)?).is_some() {
            return Err(at.problem(format!("{destination} stands here twice")));
        }
    }
    Ok(made)
}

fn rules(entries: &[RuleEntry]) -> Result<Vec<Rule>> {
    if entries.len() > RULES {
        let text = format!("there are {} rules: {RULES} are allowed", entries.len());
        return Err(Problem::new([Kind::Rule.section()], text));
    }
    let rules = entries.iter().zip(1..).map(|(entry, number): (_, usize)| {
        let name = number.to_string();
        let at = At {
            kind: Kind::Rule,
            name: &name,
        };
        rule(at, entry)
    });
    rules.collect()
}

fn path(at: At<'_>, entry: &PathEntry) -> Result<Path> {
    const BITS_20: i64 = (1 << 20) - 1;
    let mut path = Path::new(
        at.address("source", &entry.source)?,
        at.addresses("sids", &entry.sids)?,
    );
    path.mode = match entry.mode {
        ModeWord::Encaps => Mode::Encaps,
        ModeWord::Reduced => Mode::Reduced,
    };
    path.exceptions = match entry.exceptions {
        ExceptionsWord::Dropped => Exceptions::Dropped,
        ExceptionsWord::Left => Exceptions::Left,
    };
    if let Some(hop_limit) = at.number("hop-limit", entry.hop_limit, 1, 255)? {
        path.hop_limit = hop_limit;
    }
    if let Some(dscp) = at.number("dscp", entry.dscp, 0, 63)? {
        path.dscp = Dscp::Fixed(dscp);
    }
    if let Some(label) = at.number("flow-label", entry.flow_label, 0, BITS_20)? {
        path.flow_label = FlowLabel::Fixed(label);
    }
    if let Some(mtu) = at.number("mtu", entry.mtu, 1280, 65_535)? {
        path.mtu = mtu;
    }
    path.flow_id = at.number("flow-id", entry.flow_id, 0, BITS_20)?;
    path.check().map_err(|error| at.problem(error))?;
    Ok(path)
}

fn behaviour(at: At<'_>, entry: &BehaviourEntry) -> Result<Behaviour> {
    let flavour = |word| entry.flavours.contains(&word);
    let flavours = Flavours {
        psp: flavour(FlavourWord::Psp),
        usp: flavour(FlavourWord::Usp),
        usd: flavour(FlavourWord::Usd),
    };
    let next_hop = entry.next_hop.as_deref();
    let next_hop = next_hop.map(|text| at.address("next-hop", text));
    let table = at.number("table", entry.table, 1, u32::MAX.into())?;
    let behaviour = match (entry.action, next_hop.transpose()?, table) {
        (ActionWord::End, None, None) => Behaviour::End { flavours },
        (ActionWord::EndX, Some(next_hop), None) => Behaviour::EndX { next_hop, flavours },
        (ActionWord::Dt4, None, table) if entry.flavours.is_empty() => Behaviour::Dt4 { table },
        (ActionWord::Dt6, None, table) if entry.flavours.is_empty() => Behaviour::Dt6 { table },
        (ActionWord::Dt46, None, table) if entry.flavours.is_empty() => Behaviour::Dt46 { table },
        _ => {
            return Err(at.problem(
                "End has flavours, End.X a next-hop and flavours, End.DT4, DT6 and DT46 a table, and none has more",
            ));
        }
    };
    behaviour.check().map_err(|error| at.problem(error))?;
    Ok(behaviour)
}

pub(super) fn way(entry: &ClassEntry) -> Way {
    match entry {
        ClassEntry::Kernel => Way::Kernel,
        ClassEntry::Fast(FastEntry {
            chain,
            path,
            behaviour,
            lanes,
        }) => Way::Fast {
            chain: chain.clone(),
            path: path.clone(),
            behaviour: behaviour.clone(),
            lanes: lanes.map(|word| match word {
                LanesWord::Split => Lanes::Split,
                LanesWord::Never => Lanes::Never,
            }),
        },
    }
}

fn route(at: At<'_>, entry: &RouteEntry) -> Result<Route> {
    let source = entry.source.as_deref();
    Ok(Route {
        port: entry.port.clone(),
        next_hop: at.mac("next-hop", &entry.next_hop)?,
        source: source.map(|text| at.mac("source", text)).transpose()?,
        mtu: at.number("mtu", entry.mtu, LEAST_MTU, 65_535)?,
    })
}

fn monitor(at: At<'_>, entry: &MonitorEntry) -> Result<Counted> {
    let flow = match (&entry.path, &entry.source, &entry.sids) {
        (Some(path), None, None) => FlowOf::Path(path.clone()),
        (None, Some(source), Some(sids)) => {
            let source = at.address("source", source)?;
            let flow = Flow::new(source, at.addresses("sids", sids)?);
            FlowOf::Sids(flow.map_err(|error| at.problem_of("sids", error))?)
        }
        _ => {
            return Err(at.problem("it has to have either a path, or a source and sids"));
        }
    };
    let period_ms = entry.period_ms.unwrap_or(DEFAULT_PERIOD_MS);
    let period_ms = at.number("period-ms", Some(period_ms), 10, MOST_PERIOD_MS)?;
    let dscp_bit = at.number("dscp-bit", entry.dscp_bit, 0, 5)?;
    let monitor = Monitor {
        period: Duration::from_millis(period_ms.unwrap_or_default()),
        marking: dscp_bit.map_or(Marking::Option, Marking::DscpBit),
    };
    monitor.check().map_err(|error| at.problem(error))?;
    Ok(Counted {
        direction: match entry.direction {
            DirectionWord::In => Direction::In,
            DirectionWord::Out => Direction::Out,
        },
        flow,
        monitor,
    })
}

#[cfg(test)]
mod tests {
    use crate::configuration::error;

    #[test]
    fn entries_are_checked_one_by_one() {
        assert_eq!(
            error("[chains]\na = \"enc,mon-in\"").split(';').next(),
            Some("f:2: chain a: after mon-in a packet has nowhere to go")
        );
        assert_eq!(
            error("[chains]\n\"a b\" = \"drop\""),
            "f:2: chain a b: this is no name: 1 to 63 letters, digits, - and _ are allowed"
        );
        assert_eq!(
            error("[classes]\n\"10.0.0.1/8\" = \"kernel\""),
            "f:2: class 10.0.0.1/8: 10.0.0.1/8 has bits beyond its prefix; 10.0.0.0/8 has not"
        );
        assert_eq!(
            error("[classes]\n\"10.0.0.1\" = \"kernel\"\n\"10.0.0.1/32\" = \"kernel\""),
            "f:3: class 10.0.0.1/32: 10.0.0.1 stands here twice"
        );
        assert_eq!(
            error("[paths.p]\nsids = [\n\"fc00::1\"]\nsource = \"10.0.0.1\""),
            "f:4: path p: source has `10.0.0.1`: an IPv6 address is allowed, such as 2001:db8::1"
        );
        assert_eq!(
            error("[paths.p]\nsource = \"fd00::1\"\nsids = []"),
            "f:1: path p: a path of 0 SIDs cannot be: 1 to 10 are allowed"
        );
        assert_eq!(
            error("ports = [\"e\"]\n[routes]\n\"::/0\" = { port = \"e\", next-hop = \"2:0:0:0:0:2\" }"),
            "f:3: route ::/0: next-hop is `2:0:0:0:0:2`: an Ethernet address is allowed, such as 02:00:00:00:00:01"
        );
        assert_eq!(
            error("[routes]\ndefault = { port = \"e\", next-hop = \"02:00:00:00:00:02\" }"),
            "f:2: route default: a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0"
        );
        assert!(error("devices = [\"a/b\"]")
            .starts_with("f:1: device a/b: no device can have this name"));
    }

    #[test]
    fn behaviours_have_what_they_need_and_a_program_that_does_them() {
        let behaviour = |text: &str| error(&format!("[behaviours]\nb = {{ {text} }}"));
        let rule = "f:2: behaviour b: End has flavours, End.X a next-hop and flavours, End.DT4, DT6 and DT46 a table, and none has more";
        for text in [
            "action = \"End\", table = 1",
            "action = \"End.X\"",
            "action = \"End.DT6\", flavours = [\"psp\"]",
            "action = \"End.DT46\", next-hop = \"2001:db8::1\"",
        ] {
            assert_eq!(behaviour(text), rule);
        }
        assert!(
            behaviour("action = \"End.X\", next-hop = \"fe80::1\"").contains("can be no next hop")
        );
        assert_eq!(
            behaviour("action = \"End.B6\""),
            "f:2: unknown variant `End.B6`, expected one of `End`, `End.X`, `End.DT4`, `End.DT6`, `End.DT46`"
        );
        let class = |behaviour: &str| {
            error(&format!(
                "[chains]\nc = \"dec\"\n[behaviours]\nb = {{ action = \"End\" }}\n[classes]\ndefault = {{ chain = \"c\"{behaviour} }}"
            ))
        };
        let needs = "f:6: class default: the chain c has dec, which needs a behaviour that it can do; add: behaviour = NAME";
        assert_eq!(class(""), needs);
        assert_eq!(class(", behaviour = \"b\""), needs);
        assert_eq!(
            class(", behaviour = \"a\""),
            "f:6: class default: there is no behaviour `a`; there are b"
        );
    }
}
