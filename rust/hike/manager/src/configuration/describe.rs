// SPDX-License-Identifier: GPL-2.0

//! A configuration as it is written: what is as it would be anyway is left out.

use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::{Behaviour, Direction, Engine, Flavours, Hook, Lanes, Marking, Path};

use super::entries::{
    ActionWord, BehaviourEntry, ClassEntry, DirectionWord, EngineWord, ExceptionsWord, FastEntry,
    FlavourWord, HookWord, LanesWord, ModeWord, MonitorEntry, PathEntry, RouteEntry,
};
use super::{exact, kernel, rules, Configuration, Counted, Document, FlowOf, Route, Way};

impl From<&Configuration> for Document {
    fn from(configuration: &Configuration) -> Self {
        let named = |name: &String| name.clone();
        Self {
            hook: match configuration.hook {
                Hook::Xdp => HookWord::Xdp,
                Hook::Tcx => HookWord::Tcx,
            },
            engine: match configuration.engine {
                Engine::Compiled => EngineWord::Compiled,
                Engine::TailCalls => EngineWord::TailCalls,
            },
            devices: configuration.devices.iter().map(named).collect(),
            ports: configuration.ports.iter().map(named).collect(),
            rules: configuration.rules.iter().map(rules::entry).collect(),
            chains: each(&configuration.chains, ToString::to_string),
            paths: each(&configuration.paths, path),
            behaviours: each(&configuration.behaviours, behaviour),
            classes: each(&configuration.classes, class),
            flows: each(&configuration.flows, exact::entry),
            routes: each(&configuration.routes, route),
            monitors: each(&configuration.monitors, monitor),
            kernel_routes: each(&configuration.kernel_routes, kernel::entry),
        }
    }
}

fn each<'a, K: ToString + 'a, V: 'a, E>(
    entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    describe: impl Fn(&V) -> E,
) -> std::collections::BTreeMap<String, E> {
    let entries = entries.into_iter();
    let entries = entries.map(|(name, value)| (name.to_string(), describe(value)));
    entries.collect()
}

fn path(path: &Path) -> PathEntry {
    let usual = Path::new(path.source, []);
    let unusual = |is: i64, usually: i64| (is != usually).then_some(is);
    PathEntry {
        source: path.source.to_string(),
        sids: path.sids.iter().map(ToString::to_string).collect(),
        mode: match path.mode {
            Mode::Encaps => ModeWord::Encaps,
            Mode::Reduced => ModeWord::Reduced,
        },
        hop_limit: unusual(path.hop_limit.into(), usual.hop_limit.into()),
        dscp: match path.dscp {
            Dscp::Copied => None,
            Dscp::Fixed(dscp) => Some(dscp.into()),
        },
        flow_label: match path.flow_label {
            FlowLabel::PerFlow => None,
            FlowLabel::Fixed(label) => Some(label.into()),
        },
        mtu: unusual(path.mtu.into(), usual.mtu.into()),
        exceptions: match path.exceptions {
            Exceptions::Dropped => ExceptionsWord::Dropped,
            Exceptions::Left => ExceptionsWord::Left,
        },
        flow_id: path.flow_id.map(i64::from),
    }
}

fn behaviour(behaviour: &Behaviour) -> BehaviourEntry {
    let (action, table) = match behaviour {
        Behaviour::End { .. } => (ActionWord::End, None),
        Behaviour::EndX { .. } => (ActionWord::EndX, None),
        Behaviour::Dt4 { table } => (ActionWord::Dt4, *table),
        Behaviour::Dt6 { table } => (ActionWord::Dt6, *table),
        Behaviour::Dt46 { table } => (ActionWord::Dt46, *table),
    };
    let (next_hop, flavours) = match behaviour {
        Behaviour::End { flavours } => (None, *flavours),
        Behaviour::EndX { next_hop, flavours } => (Some(next_hop.to_string()), *flavours),
        _ => (None, Flavours::default()),
    };
    let words = [
        (flavours.psp, FlavourWord::Psp),
        (flavours.usp, FlavourWord::Usp),
        (flavours.usd, FlavourWord::Usd),
    ];
    BehaviourEntry {
        action,
        next_hop,
        table: table.map(i64::from),
        flavours: words.iter().filter(|one| one.0).map(|one| one.1).collect(),
    }
}

pub(crate) fn class(way: &Way) -> ClassEntry {
    match way {
        Way::Kernel => ClassEntry::Kernel,
        Way::Fast {
            chain,
            path,
            behaviour,
            lanes,
        } => ClassEntry::Fast(FastEntry {
            chain: chain.clone(),
            path: path.clone(),
            behaviour: behaviour.clone(),
            lanes: lanes.map(|lanes| match lanes {
                Lanes::Split => LanesWord::Split,
                Lanes::Never => LanesWord::Never,
            }),
        }),
    }
}

pub(crate) fn route(route: &Route) -> RouteEntry {
    RouteEntry {
        port: route.port.clone(),
        next_hop: mac(route.next_hop),
        source: route.source.map(mac),
        mtu: route.mtu.map(i64::from),
    }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

pub(crate) fn monitor(counted: &Counted) -> MonitorEntry {
    let (path, flow) = match &counted.flow {
        FlowOf::Path(path) => (Some(path.clone()), None),
        FlowOf::Sids(flow) => (None, Some(flow)),
    };
    // CAST: a day at most.
    let period_ms = counted.monitor.period.as_millis() as i64;
    MonitorEntry {
        direction: match counted.direction {
            Direction::In => DirectionWord::In,
            Direction::Out => DirectionWord::Out,
        },
        path,
        source: flow.map(|flow| flow.source().to_string()),
        sids: flow.map(|flow| flow.sids().iter().map(ToString::to_string).collect()),
        period_ms: (period_ms != 1000).then_some(period_ms),
        dscp_bit: match counted.monitor.marking {
            Marking::Option => None,
            Marking::DscpBit(bit) => Some(bit.into()),
        },
    }
}
