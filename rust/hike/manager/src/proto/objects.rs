// SPDX-License-Identifier: GPL-2.0

//! Chains, paths, behaviours, routes, monitors and sessions as messages, and back.

use anyhow::{bail, Error, Result};
use mflow_hike::config::fields as library;
use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel, Mode};
use mflow_hike::{Behaviour, Chain, Direction, Flavour, Flavours, Flow, Path};

use super::{given, read, texts, Numbered as _};
use crate::configuration::monitor::USUAL_PERIOD_MS;
use crate::configuration::session::{TestMode, USUAL_INTERVAL_MS, USUAL_PORT, USUAL_TIMEOUT_MS};
use crate::configuration::{fields, Counted, Route, Session};
use crate::v1;

pub(super) fn chain(name: String, chain: &Chain) -> v1::Chain {
    let programs = chain.programs().iter();
    v1::Chain {
        name,
        programs: programs.map(|program| program.name.to_owned()).collect(),
    }
}

impl TryFrom<v1::Chain> for Chain {
    type Error = Error;

    fn try_from(message: v1::Chain) -> Result<Self> {
        message.programs.join(",").parse()
    }
}

pub(super) fn path(name: String, path: &Path) -> v1::Path {
    let usual = Path::new(path.source, []);
    v1::Path {
        name,
        source: path.source.to_string(),
        sids: texts(&path.sids),
        mode: v1::PathMode::from(path.mode).into(),
        hop_limit: (path.hop_limit != usual.hop_limit).then_some(path.hop_limit.into()),
        dscp: match path.dscp {
            Dscp::Copied => None,
            Dscp::Fixed(dscp) => Some(dscp.into()),
        },
        flow_label: match path.flow_label {
            FlowLabel::PerFlow => None,
            FlowLabel::Fixed(label) => Some(label),
        },
        mtu: (path.mtu != usual.mtu).then_some(path.mtu.into()),
        exceptions: v1::PathExceptions::from(path.exceptions).into(),
        flow_id: path.flow_id,
    }
}

impl TryFrom<v1::Path> for Path {
    type Error = Error;

    fn try_from(message: v1::Path) -> Result<Self> {
        let usual = Self::new(
            read(message.source, library::source)?,
            read::<_, Vec<_>>(message.sids, library::sids)?,
        );
        Ok(Self {
            mode: Mode::or_none(message.mode)?.unwrap_or_default(),
            hop_limit: given(message.hop_limit, library::hop_limit, usual.hop_limit)?,
            dscp: given(message.dscp, library::dscp, usual.dscp)?,
            flow_label: given(message.flow_label, library::flow_label, usual.flow_label)?,
            mtu: given(message.mtu, library::path_mtu, usual.mtu)?,
            exceptions: Exceptions::or_none(message.exceptions)?.unwrap_or_default(),
            flow_id: given(message.flow_id, library::flow_id, None)?,
            ..usual
        })
    }
}

pub(super) fn flavour_numbers(flavours: Flavours) -> Vec<i32> {
    let all = Vec::<Flavour>::from(flavours).into_iter();
    all.map(|one| v1::Flavour::from(one).into()).collect()
}

pub(super) fn flavours(numbers: &[i32]) -> Result<Flavours> {
    let all = numbers.iter().map(|one| Flavour::some(*one));
    Ok(all.collect::<Result<Vec<_>>>()?.into())
}

pub(super) fn behaviour(name: String, behaviour: &Behaviour) -> v1::Behaviour {
    let none = Flavours::default();
    let (action, next_hop, table, flavours) = match *behaviour {
        Behaviour::End { flavours } => (v1::Action::End, None, None, flavours),
        Behaviour::EndX {
            next_hop, flavours, ..
        } => (v1::Action::EndX, Some(next_hop), None, flavours),
        Behaviour::Dt4 { table } => (v1::Action::EndDt4, None, table, none),
        Behaviour::Dt6 { table } => (v1::Action::EndDt6, None, table, none),
        Behaviour::Dt46 { table } => (v1::Action::EndDt46, None, table, none),
    };
    v1::Behaviour {
        name,
        action: action.into(),
        next_hop: next_hop.map(|hop| hop.to_string()),
        table,
        flavours: flavour_numbers(flavours),
        device: behaviour.device().map(ToString::to_string),
    }
}

impl TryFrom<v1::Behaviour> for Behaviour {
    type Error = Error;

    fn try_from(message: v1::Behaviour) -> Result<Self> {
        use v1::Action;
        let (action, flavours) = (message.action(), flavours(&message.flavours)?);
        let next_hop = given(message.next_hop, library::next_hop, None)?;
        let table = given(message.table, library::table, None)?;
        let device = message.device.map(|name| name.parse()).transpose()?;
        let has_no_more = flavours == Flavours::default() && device.is_none();
        Ok(match (action, next_hop, table) {
            (Action::End, None, None) if device.is_none() => Self::End { flavours },
            (Action::EndX, Some(next_hop), None) => Self::EndX {
                next_hop,
                device,
                flavours,
            },
            (Action::EndDt4, None, table) if has_no_more => Self::Dt4 { table },
            (Action::EndDt6, None, table) if has_no_more => Self::Dt6 { table },
            (Action::EndDt46, None, table) if has_no_more => Self::Dt46 { table },
            (Action::Unspecified, ..) => bail!("its action is a number from 1 to 5"),
            _ => bail!(
                "End has flavours, End.X a next-hop, flavours and perhaps a device, End.DT4, DT6 and DT46 a table, and none has more"
            ),
        })
    }
}

pub(super) fn route(destination: String, route: &Route) -> v1::Route {
    v1::Route {
        destination,
        port: route.port.clone(),
        next_hop: route.next_hop.to_string(),
        source: route.source.map(|source| source.to_string()),
        mtu: route.mtu.map(u32::from),
    }
}

impl TryFrom<v1::Route> for Route {
    type Error = Error;

    fn try_from(message: v1::Route) -> Result<Self> {
        Ok(Self {
            port: message.port,
            next_hop: read(message.next_hop, fields::mac_next_hop)?,
            source: given(message.source, fields::mac_source, None)?,
            mtu: given(message.mtu, fields::route_mtu, None)?,
        })
    }
}

impl From<&Flow> for v1::Flow {
    fn from(flow: &Flow) -> Self {
        Self {
            source: flow.source().to_string(),
            sids: texts(flow.sids()),
            flow_id: flow.id(),
        }
    }
}

pub(super) fn monitor(name: String, counted: &Counted) -> v1::Monitor {
    let flow = match &counted.path {
        Some(path) => v1::monitor::Flow::Path(path.clone()),
        None => v1::monitor::Flow::Sids(v1::Flow {
            source: counted.source.map_or(String::new(), |one| one.to_string()),
            sids: texts(counted.sids.as_deref().unwrap_or_default()),
            flow_id: counted.flow_id,
        }),
    };
    v1::Monitor {
        name,
        direction: v1::Direction::from(counted.direction).into(),
        flow: Some(flow),
        period_ms: (counted.period_ms != USUAL_PERIOD_MS).then_some(counted.period_ms),
        dscp_bit: counted.dscp_bit.map(u32::from),
    }
}

impl TryFrom<v1::Monitor> for Counted {
    type Error = Error;

    fn try_from(message: v1::Monitor) -> Result<Self> {
        let (path, flow) = match message.flow {
            Some(v1::monitor::Flow::Path(path)) => (Some(path), None),
            Some(v1::monitor::Flow::Sids(flow)) => (None, Some(flow)),
            None => (None, None),
        };
        let flow_id = flow.as_ref().and_then(|flow| flow.flow_id);
        let (source, sids) = flow.map(|flow| (flow.source, flow.sids)).unzip();
        Ok(Self {
            direction: Direction::some(message.direction)?,
            path,
            source: given(source, library::source, None)?,
            sids: given(sids, library::sids, None)?,
            flow_id: given(flow_id, library::flow_id, None)?,
            period_ms: given(message.period_ms, fields::period_ms, USUAL_PERIOD_MS)?,
            dscp_bit: given(message.dscp_bit, fields::dscp_bit, None)?,
        })
    }
}

pub(super) fn session(name: String, session: &Session) -> v1::Session {
    let unusual = |number: u32, usual| (number != usual).then_some(number);
    v1::Session {
        name,
        reflector: session.reflector.to_string(),
        port: unusual(session.port.into(), USUAL_PORT),
        source: session.source.map(|source| source.to_string()),
        interval_ms: unusual(session.interval_ms, USUAL_INTERVAL_MS),
        timeout_ms: unusual(session.timeout_ms, USUAL_TIMEOUT_MS),
        dscp: session.dscp.map(u32::from),
    }
}

impl TryFrom<v1::Session> for Session {
    type Error = Error;

    fn try_from(message: v1::Session) -> Result<Self> {
        Ok(Self {
            reflector: read(message.reflector, fields::reflector)?,
            port: given(
                message.port,
                fields::port,
                library::usual::<_, USUAL_PORT>(),
            )?,
            source: given(message.source, fields::ip_source, None)?,
            interval_ms: given(message.interval_ms, fields::interval_ms, USUAL_INTERVAL_MS)?,
            timeout_ms: given(message.timeout_ms, fields::timeout_ms, USUAL_TIMEOUT_MS)?,
            dscp: given(message.dscp, library::dscp, None)?,
            mode: TestMode::Unauthenticated,
        })
    }
}
