// SPDX-License-Identifier: GPL-2.0

//! Chains, paths, behaviours, routes and monitors as messages, and back.

use super::{number, Result};
use crate::configuration::entries::{
    ActionWord, BehaviourEntry, DirectionWord, EngineWord, ExceptionsWord, FlavourWord, ModeWord,
    MonitorEntry, PathEntry, RouteEntry,
};
use crate::configuration::objects::Kind;
use crate::configuration::Problem;
use crate::v1;

pub(super) fn engine_number(engine: EngineWord) -> i32 {
    let number = match engine {
        EngineWord::Compiled => v1::Engine::Compiled,
        EngineWord::TailCalls => v1::Engine::TailCalls,
    };
    number.into()
}

pub(super) fn engine(number: i32) -> Result<EngineWord> {
    match v1::Engine::try_from(number) {
        Ok(v1::Engine::Unspecified | v1::Engine::Compiled) => Ok(EngineWord::Compiled),
        Ok(v1::Engine::TailCalls) => Ok(EngineWord::TailCalls),
        Err(_) => Err(Problem::new(
            [],
            format!("{number} is no engine: 0 to 2 are allowed"),
        )),
    }
}

pub(super) fn chain(name: &str, programs: &str) -> v1::Chain {
    v1::Chain {
        name: name.to_owned(),
        programs: programs
            .split(',')
            .map(|one| one.trim().to_owned())
            .collect(),
    }
}

pub(super) fn chain_entry(chain: v1::Chain) -> Result<(String, String)> {
    Ok((chain.name, chain.programs.join(",")))
}

pub(super) fn path(name: &str, path: &PathEntry) -> v1::Path {
    let exceptions = match path.exceptions {
        ExceptionsWord::Dropped => v1::PathExceptions::Dropped,
        ExceptionsWord::Left => v1::PathExceptions::Left,
    };
    v1::Path {
        name: name.to_owned(),
        source: path.source.clone(),
        sids: path.sids.clone(),
        mode: mode_number(path.mode),
        hop_limit: number(path.hop_limit),
        dscp: number(path.dscp),
        flow_label: number(path.flow_label),
        mtu: number(path.mtu),
        exceptions: exceptions.into(),
        flow_id: number(path.flow_id),
    }
}

pub(super) fn path_entry(path: v1::Path) -> Result<(String, PathEntry)> {
    let problem = |text: String| Problem::new([Kind::Path.section(), &path.name], text);
    let unknown = |number: i32| {
        problem(format!(
            "{number} is no way with exceptions: 0 to 2 are allowed"
        ))
    };
    let entry = PathEntry {
        source: path.source,
        sids: path.sids,
        mode: mode_word(path.mode).map_err(problem)?,
        hop_limit: path.hop_limit.map(i64::from),
        dscp: path.dscp.map(i64::from),
        flow_label: path.flow_label.map(i64::from),
        mtu: path.mtu.map(i64::from),
        exceptions: match v1::PathExceptions::try_from(path.exceptions) {
            Ok(v1::PathExceptions::Unspecified | v1::PathExceptions::Dropped) => {
                ExceptionsWord::Dropped
            }
            Ok(v1::PathExceptions::Left) => ExceptionsWord::Left,
            Err(_) => return Err(unknown(path.exceptions)),
        },
        flow_id: path.flow_id.map(i64::from),
    };
    Ok((path.name, entry))
}

pub(super) fn mode_number(mode: ModeWord) -> i32 {
    let mode = match mode {
        ModeWord::Encaps => v1::PathMode::Encaps,
        ModeWord::Reduced => v1::PathMode::Reduced,
    };
    mode.into()
}

/// Returns a mode, or one sentence about the number.
pub(super) fn mode_word(number: i32) -> std::result::Result<ModeWord, String> {
    match v1::PathMode::try_from(number) {
        Ok(v1::PathMode::Unspecified | v1::PathMode::Encaps) => Ok(ModeWord::Encaps),
        Ok(v1::PathMode::Reduced) => Ok(ModeWord::Reduced),
        Err(_) => Err(format!("{number} is no mode: 0 to 2 are allowed")),
    }
}

pub(super) fn flavour_number(word: &FlavourWord) -> i32 {
    let flavour = match word {
        FlavourWord::Psp => v1::Flavour::Psp,
        FlavourWord::Usp => v1::Flavour::Usp,
        FlavourWord::Usd => v1::Flavour::Usd,
    };
    flavour.into()
}

/// Returns a flavour, or one sentence about the number.
pub(super) fn flavour_word(number: i32) -> std::result::Result<FlavourWord, String> {
    match v1::Flavour::try_from(number) {
        Ok(v1::Flavour::Psp) => Ok(FlavourWord::Psp),
        Ok(v1::Flavour::Usp) => Ok(FlavourWord::Usp),
        Ok(v1::Flavour::Usd) => Ok(FlavourWord::Usd),
        Ok(v1::Flavour::Unspecified) | Err(_) => {
            Err(format!("{number} is no flavour: 1 to 3 are allowed"))
        }
    }
}

pub(super) fn behaviour(name: &str, behaviour: &BehaviourEntry) -> v1::Behaviour {
    let action = match behaviour.action {
        ActionWord::End => v1::Action::End,
        ActionWord::EndX => v1::Action::EndX,
        ActionWord::Dt4 => v1::Action::EndDt4,
        ActionWord::Dt6 => v1::Action::EndDt6,
        ActionWord::Dt46 => v1::Action::EndDt46,
    };
    v1::Behaviour {
        name: name.to_owned(),
        action: action.into(),
        next_hop: behaviour.next_hop.clone(),
        table: number(behaviour.table),
        flavours: behaviour.flavours.iter().map(flavour_number).collect(),
    }
}

pub(super) fn behaviour_entry(behaviour: v1::Behaviour) -> Result<(String, BehaviourEntry)> {
    let unknown = |text: String| Problem::new([Kind::Behaviour.section(), &behaviour.name], text);
    let action = match v1::Action::try_from(behaviour.action) {
        Ok(v1::Action::End) => ActionWord::End,
        Ok(v1::Action::EndX) => ActionWord::EndX,
        Ok(v1::Action::EndDt4) => ActionWord::Dt4,
        Ok(v1::Action::EndDt6) => ActionWord::Dt6,
        Ok(v1::Action::EndDt46) => ActionWord::Dt46,
        Ok(v1::Action::Unspecified) | Err(_) => {
            return Err(unknown("its action is a number from 1 to 5".to_owned()));
        }
    };
    let flavours = behaviour.flavours.iter();
    let flavours = flavours.map(|one| flavour_word(*one).map_err(unknown));
    let entry = BehaviourEntry {
        action,
        flavours: flavours.collect::<Result<_>>()?,
        next_hop: behaviour.next_hop,
        table: behaviour.table.map(i64::from),
    };
    Ok((behaviour.name, entry))
}

pub(super) fn route(destination: &str, route: &RouteEntry) -> v1::Route {
    v1::Route {
        destination: destination.to_owned(),
        port: route.port.clone(),
        next_hop: route.next_hop.clone(),
        source: route.source.clone(),
        mtu: number(route.mtu),
    }
}

pub(super) fn route_entry(route: v1::Route) -> Result<(String, RouteEntry)> {
    let entry = RouteEntry {
        port: route.port,
        next_hop: route.next_hop,
        source: route.source,
        mtu: route.mtu.map(i64::from),
    };
    Ok((route.destination, entry))
}

pub(super) fn monitor(name: &str, monitor: &MonitorEntry) -> v1::Monitor {
    let direction = match monitor.direction {
        DirectionWord::In => v1::Direction::In,
        DirectionWord::Out => v1::Direction::Out,
    };
    let flow = match &monitor.path {
        Some(path) => v1::monitor::Flow::Path(path.clone()),
        None => v1::monitor::Flow::Sids(v1::Flow {
            source: monitor.source.clone().unwrap_or_default(),
            sids: monitor.sids.clone().unwrap_or_default(),
        }),
    };
    v1::Monitor {
        name: name.to_owned(),
        direction: direction.into(),
        flow: Some(flow),
        period_ms: number(monitor.period_ms),
        dscp_bit: number(monitor.dscp_bit),
    }
}

pub(super) fn monitor_entry(monitor: v1::Monitor) -> Result<(String, MonitorEntry)> {
    let direction = match v1::Direction::try_from(monitor.direction) {
        Ok(v1::Direction::In) => DirectionWord::In,
        Ok(v1::Direction::Out) => DirectionWord::Out,
        Ok(v1::Direction::Unspecified) | Err(_) => {
            let at = [Kind::Monitor.section(), &monitor.name];
            return Err(Problem::new(at, "its direction is 1 (in) or 2 (out)"));
        }
    };
    let (path, flow) = match monitor.flow {
        Some(v1::monitor::Flow::Path(path)) => (Some(path), None),
        Some(v1::monitor::Flow::Sids(flow)) => (None, Some(flow)),
        None => (None, None),
    };
    let (source, sids) = flow.map(|flow| (flow.source, flow.sids)).unzip();
    let entry = MonitorEntry {
        direction,
        path,
        source,
        sids,
        period_ms: monitor.period_ms.map(i64::from),
        dscp_bit: monitor.dscp_bit.map(i64::from),
    };
    Ok((monitor.name, entry))
}
