// SPDX-License-Identifier: GPL-2.0

//! A configuration of what was written, or the first reason why that cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use mflow_hike::limits::{BEHAVIOURS, CHAINS, CLASSES, FLOWS, PATHS, PORTS, ROUTES, RULES};
use mflow_hike::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::{
    Behaviour, Chain, Destination, Direction, Engine, Flavours, Flow, Lanes, Marking, Monitor,
    Path, Rule,
};

use super::document::{
    ActionWord, BehaviourEntry, ClassEntry, DirectionWord, EngineWord, ExceptionsWord, FastEntry,
    FlavourWord, LanesWord, ModeWord, MonitorEntry, PathEntry, RouteEntry,
};
use super::exact::flow;
use super::objects::Kind;
use super::rules::{rule, RuleEntry};
use super::{Configuration, Counted, Document, FlowOf, Problem, Route, Way};

pub(super) type Result<T> = std::result::Result<T, Problem>;

const MOST_NAME_BYTES: usize = 63;
/// Of the kernel's names of devices: IFNAMSIZ less the byte at its end.
const MOST_DEVICE_BYTES: usize = 15;
/// A chain of its own takes what is to take the kernel's path.
pub(crate) const OWN_CHAINS: usize = 1;
/// The least MTU of IPv4: RFC 791.
const LEAST_MTU: i64 = 68;
const DEFAULT_PERIOD_MS: i64 = 1000;
const MOST_PERIOD_MS: i64 = 86_400_000;

impl TryFrom<&Document> for Configuration {
    type Error = Problem;

    fn try_from(document: &Document) -> Result<Self> {
        let configuration = Self {
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
        };
        configuration.check_sizes()?;
        configuration.check_rules()?;
        configuration.check_classes()?;
        configuration.check_flows()?;
        configuration.check_routes()?;
        configuration.check_monitors()?;
        Ok(configuration)
    }
}

/// Which entry something is said of.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    kind: Kind,
    name: &'a str,
}

impl At<'_> {
    pub(super) fn problem(self, text: impl std::fmt::Display) -> Problem {
        Problem::new([self.kind.section(), self.name], text)
    }

    pub(super) fn problem_of(self, field: &str, text: impl std::fmt::Display) -> Problem {
        Problem::new([self.kind.section(), self.name, field], text)
    }

    /// Returns a number that may be left out if it is in the range.
    pub(super) fn number<T: TryFrom<i64>>(
        self,
        field: &str,
        number: Option<i64>,
        least: i64,
        most: i64,
    ) -> Result<Option<T>> {
        let Some(number) = number else {
            return Ok(None);
        };
        let good = (least..=most).contains(&number).then_some(number);
        let good = good.and_then(|number| T::try_from(number).ok());
        let text = || format!("{field} is {number}: {least} to {most} are allowed");
        good.map(Some).ok_or_else(|| self.problem_of(field, text()))
    }

    pub(super) fn address(self, field: &str, text: &str) -> Result<Ipv6Addr> {
        text.parse().map_err(|_| {
            self.problem_of(
                field,
                format!("{field} has `{text}`: an IPv6 address is allowed, such as 2001:db8::1"),
            )
        })
    }

    pub(super) fn any_address(self, field: &str, text: &str) -> Result<IpAddr> {
        text.parse().map_err(|_| {
            self.problem_of(
                field,
                format!(
                    "{field} has `{text}`: an IPv4 or IPv6 address is allowed, such as 10.0.0.1"
                ),
            )
        })
    }

    fn addresses(self, field: &str, texts: &[String]) -> Result<Vec<Ipv6Addr>> {
        texts.iter().map(|text| self.address(field, text)).collect()
    }

    fn mac(self, field: &str, text: &str) -> Result<[u8; 6]> {
        let bytes: Vec<Option<u8>> = text
            .split(':')
            .map(|byte| {
                u8::from_str_radix(byte, 16)
                    .ok()
                    .filter(|_| byte.len() == 2)
            })
            .collect();
        let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        mac.ok_or_else(|| {
            self.problem_of(
                field,
                format!("{field} is `{text}`: an Ethernet address is allowed, such as 02:00:00:00:00:01"),
            )
        })
    }
}

fn devices(kind: Kind, names: &[String]) -> Result<BTreeSet<String>> {
    let mut devices = BTreeSet::new();
    for name in names {
        let at = At { kind, name };
        let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
        if name.is_empty() || name.len() > MOST_DEVICE_BYTES || !name.chars().all(good) {
            return Err(at.problem(format!(
                "no device can have this name: 1 to {MOST_DEVICE_BYTES} characters without space, / and : are allowed"
            )));
        }
        if !devices.insert(name.clone()) {
            return Err(at.problem("it stands here twice"));
        }
    }
    Ok(devices)
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

/// The programs that need the access list, and the hint of a class.
const ACL: &str = "acl";
const LANES: &str = "lanes";

fn has(chain: &Chain, program: &str) -> bool {
    chain.programs().iter().any(|one| one.name == program)
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
        (ActionWord::End, None, None) => Behaviour::End(flavours),
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

impl Configuration {
    fn check_sizes(&self) -> Result<()> {
        let is_exact = |destination: &&Destination| matches!(destination, Destination::Address(_));
        let exact = self.classes.keys().filter(is_exact).count();
        for (kind, what, count, most) in [
            (
                Kind::Chain,
                "chains",
                self.chains.len(),
                CHAINS - OWN_CHAINS,
            ),
            (Kind::Path, "paths", self.paths.len(), PATHS),
            // The first place stands for none.
            (
                Kind::Behaviour,
                "behaviours",
                self.behaviours.len(),
                BEHAVIOURS - 1,
            ),
            (Kind::Class, "addresses as classes", exact, CLASSES),
            (
                Kind::Class,
                "prefixes as classes",
                self.classes.len() - exact,
                CLASSES,
            ),
            (Kind::Flow, "flows", self.flows.len(), CLASSES),
            (Kind::Route, "routes", self.routes.len(), ROUTES),
            (Kind::Port, "ports", self.ports.len(), PORTS),
        ] {
            if count > most {
                let text = format!("there are {count} {what}: {most} are allowed");
                return Err(Problem::new([kind.section()], text));
            }
        }
        Ok(())
    }

    /// A list without rules lets all packets through, which whoever has a chain with it does not want.
    fn check_rules(&self) -> Result<()> {
        let mut chains = self.chains.iter().filter(|(_, chain)| has(chain, ACL));
        match chains.next() {
            Some((name, _)) if self.rules.is_empty() => {
                let at = At {
                    kind: Kind::Chain,
                    name,
                };
                Err(at.problem(format!(
                    "it has {ACL}, and without rules that lets all packets through; add rules, or take {ACL} out"
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_flows(&self) -> Result<()> {
        let mut known = BTreeMap::new();
        for (name, classed) in &self.flows {
            let at = At {
                kind: Kind::Flow,
                name,
            };
            self.check_way(at, &classed.way)?;
            if let Some(other) = known.insert(classed.flow, name) {
                return Err(at.problem(format!(
                    "the flow {other} has the same addresses, protocol and ports, or label; remove one of them"
                )));
            }
        }
        Ok(())
    }

    fn check_classes(&self) -> Result<()> {
        for (destination, way) in &self.classes {
            let name = destination.to_string();
            let at = At {
                kind: Kind::Class,
                name: &name,
            };
            self.check_way(at, way)?;
        }
        Ok(())
    }

    fn check_way(&self, at: At<'_>, way: &Way) -> Result<()> {
        let Way::Fast {
            chain,
            path,
            behaviour,
            lanes,
        } = way
        else {
            return Ok(());
        };
        let Some(programs) = self.chains.get(chain) else {
            return Err(at.problem(missing("chain", chain, &self.chains)));
        };
        match (path, programs.needs_path()) {
            (Some(path), _) if !self.paths.contains_key(path) => {
                return Err(at.problem(missing("path", path, &self.paths)));
            }
            (None, Some(program)) => {
                return Err(at.problem(format!(
                    "the chain {chain} has {}, which needs a path; add: path = NAME",
                    program.name
                )));
            }
            _ => {}
        }
        let known = match behaviour {
            None => None,
            Some(name) => match self.behaviours.get(name) {
                Some(known) => Some(known.program()),
                None => return Err(at.problem(missing("behaviour", name, &self.behaviours))),
            },
        };
        if let Some(program) = programs.needs_behaviour() {
            if known != Some(program.name) {
                return Err(at.problem(format!(
                    "the chain {chain} has {}, which needs a behaviour that it can do; add: behaviour = NAME",
                    program.name
                )));
            }
        }
        if lanes.is_some() && !has(programs, LANES) {
            return Err(at.problem(format!(
                "the chain {chain} has no {LANES}, which hands that on; add it to the chain, or leave {LANES} out"
            )));
        }
        Ok(())
    }

    fn check_routes(&self) -> Result<()> {
        for (destination, route) in &self.routes {
            let name = destination.to_string();
            let at = At {
                kind: Kind::Route,
                name: &name,
            };
            if *destination == Destination::Default {
                return Err(at.problem(
                    "a route has an address or a prefix; write the default as 0.0.0.0/0 and ::/0",
                ));
            }
            if !self.ports.contains(&route.port) {
                let ports: Vec<&str> = self.ports.iter().map(String::as_str).collect();
                return Err(at.problem(format!(
                    "{} is not one of the ports: {}",
                    route.port,
                    listed(&ports)
                )));
            }
        }
        Ok(())
    }

    fn check_monitors(&self) -> Result<()> {
        let mut flows = BTreeMap::new();
        let mut of_size = BTreeMap::<usize, usize>::new();
        for (name, counted) in &self.monitors {
            let at = At {
                kind: Kind::Monitor,
                name,
            };
            if let FlowOf::Path(path) = &counted.flow {
                let Some(known) = self.paths.get(path) else {
                    return Err(at.problem(missing("path", path, &self.paths)));
                };
                if counted.monitor.marking == Marking::Option && known.flow_id.is_none() {
                    return Err(at.problem(format!(
                        "the path {path} has no option for the colour; give the path a flow-id, or the monitor a dscp-bit"
                    )));
                }
            }
            let flow = self.flow(&counted.flow);
            let flow = flow.map_err(|error| at.problem(error))?;
            let sids = flow.sids().len();
            let count = of_size.entry(sids).or_default();
            *count += 1;
            if *count > FLOWS {
                return Err(at.problem(format!(
                    "{FLOWS} flows with {sids} SIDs are monitored already, and no more are allowed"
                )));
            }
            if let Some(other) = flows.insert((flow, counted.direction), name) {
                return Err(at.problem(format!(
                    "the monitor {other} counts the same flow in the same direction; remove one of them"
                )));
            }
        }
        Ok(())
    }
}

fn missing<T>(what: &str, name: &str, known: &BTreeMap<String, T>) -> String {
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    format!("there is no {what} `{name}`; there are {}", listed(&known))
}

/// The names that there are, as far as they fit into a sentence.
fn listed(names: &[&str]) -> String {
    const MOST: usize = 10;
    match names {
        [] => "none".to_owned(),
        names if names.len() > MOST => format!(
            "{} and {} more",
            names[..MOST].join(", "),
            names.len() - MOST
        ),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::document::parse;

    fn error(text: &str) -> String {
        let parsed = parse(std::path::Path::new("f"), text);
        parsed.expect_err(text).to_string()
    }

    const PATH: &str = "[paths.p]\nsource = \"fd00::1\"\nsids = [\"fc00::1\"]\n";

    #[test]
    fn names_lead_somewhere() {
        assert_eq!(
            error("[classes]\ndefault = { chain = \"a\" }"),
            "f:2: class default: there is no chain `a`; there are none"
        );
        assert_eq!(
            error("[chains]\na = \"enc,fw-fib\"\n[classes]\ndefault = { chain = \"a\" }"),
            "f:4: class default: the chain a has enc, which needs a path; add: path = NAME"
        );
        assert_eq!(
            error("ports = [\"eth1\"]\n[routes]\n\"::/0\" = { port = \"eth2\", next-hop = \"02:00:00:00:00:02\" }"),
            "f:3: route ::/0: eth2 is not one of the ports: eth1"
        );
        assert_eq!(
            error("[monitors]\nm = { direction = \"in\", path = \"p\" }"),
            "f:2: monitor m: there is no path `p`; there are none"
        );
    }

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

    #[test]
    fn monitors_have_one_flow_each_and_a_place_for_the_colour() {
        let monitors = |text: &str| error(&format!("{PATH}[monitors]\n{text}"));
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\" }"),
            "f:5: monitor m: the path p has no option for the colour; give the path a flow-id, or the monitor a dscp-bit"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", source = \"::1\" }"),
            "f:5: monitor m: it has to have either a path, or a source and sids"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", dscp-bit = 6 }"),
            "f:5: monitor m: dscp-bit is 6: 0 to 5 are allowed"
        );
        assert_eq!(
            monitors("m = { direction = \"in\", path = \"p\", dscp-bit = 0, period-ms = 9 }"),
            "f:5: monitor m: period-ms is 9: 10 to 86400000 are allowed"
        );
        let twice = "m = { direction = \"in\", path = \"p\", dscp-bit = 0 }\n\
                     n = { direction = \"in\", source = \"fd00::1\", sids = [\"fc00::1\"] }";
        assert_eq!(
            monitors(twice),
            "f:6: monitor n: the monitor m counts the same flow in the same direction; remove one of them"
        );
    }
}
