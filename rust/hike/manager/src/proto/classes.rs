// SPDX-License-Identifier: GPL-2.0

//! Classes, of destinations and of flows, as messages, and back.

use super::{number, Result};
use crate::configuration::entries::{ClassEntry, FastEntry, LanesWord};
use crate::configuration::exact::FlowEntry;
use crate::configuration::objects::Kind;
use crate::configuration::Problem;
use crate::v1;

pub(super) fn class(destination: &str, entry: &ClassEntry) -> v1::Class {
    let way = match entry {
        ClassEntry::Kernel => v1::class::Way::Kernel(v1::KernelPath {}),
        ClassEntry::Fast(fast) => v1::class::Way::Fast(fast_path(fast)),
    };
    v1::Class {
        destination: destination.to_owned(),
        way: Some(way),
    }
}

pub(super) fn class_entry(class: v1::Class) -> Result<(String, ClassEntry)> {
    let at = [Kind::Class.section(), &class.destination];
    let entry = match class.way {
        Some(v1::class::Way::Kernel(_)) => ClassEntry::Kernel,
        Some(v1::class::Way::Fast(fast)) => ClassEntry::Fast(fast_entry(at, fast)?),
        None => return Err(Problem::new(at, "a class is kernel or fast")),
    };
    Ok((class.destination, entry))
}

pub(super) fn flow(name: &str, entry: &FlowEntry) -> v1::FlowClass {
    let by = match entry.flow_label {
        Some(label) => v1::flow_class::By::FlowLabel(number(Some(label)).unwrap_or_default()),
        None => v1::flow_class::By::Transport(v1::Transport {
            protocol: number(entry.protocol).unwrap_or_default(),
            source_port: number(entry.source_port).unwrap_or_default(),
            destination_port: number(entry.destination_port).unwrap_or_default(),
        }),
    };
    let way = match &entry.class {
        ClassEntry::Kernel => v1::flow_class::Way::Kernel(v1::KernelPath {}),
        ClassEntry::Fast(fast) => v1::flow_class::Way::Fast(fast_path(fast)),
    };
    v1::FlowClass {
        name: name.to_owned(),
        source: entry.source.clone(),
        destination: entry.destination.clone(),
        by: Some(by),
        way: Some(way),
    }
}

pub(super) fn flow_entry(flow: v1::FlowClass) -> Result<(String, FlowEntry)> {
    let at = [Kind::Flow.section(), &flow.name];
    let class = match flow.way {
        Some(v1::flow_class::Way::Kernel(_)) => ClassEntry::Kernel,
        Some(v1::flow_class::Way::Fast(fast)) => ClassEntry::Fast(fast_entry(at, fast)?),
        None => return Err(Problem::new(at, "the class of a flow is kernel or fast")),
    };
    let (transport, label) = match flow.by {
        Some(v1::flow_class::By::Transport(transport)) => (Some(transport), None),
        Some(v1::flow_class::By::FlowLabel(label)) => (None, Some(label.into())),
        None => (None, None),
    };
    let port = |port: fn(&v1::Transport) -> u32| {
        let port = transport.as_ref().map(port).filter(|port| *port != 0);
        port.map(i64::from)
    };
    let entry = FlowEntry {
        source: flow.source,
        destination: flow.destination,
        protocol: transport.as_ref().map(|one| one.protocol.into()),
        source_port: port(|one| one.source_port),
        destination_port: port(|one| one.destination_port),
        flow_label: label,
        class,
    };
    Ok((flow.name, entry))
}

fn fast_path(fast: &FastEntry) -> v1::FastPath {
    let lanes = match fast.lanes {
        None => v1::Lanes::Unspecified,
        Some(LanesWord::Split) => v1::Lanes::Split,
        Some(LanesWord::Never) => v1::Lanes::Never,
    };
    v1::FastPath {
        chain: fast.chain.clone(),
        path: fast.path.clone(),
        behaviour: fast.behaviour.clone(),
        lanes: lanes.into(),
    }
}

fn fast_entry(at: [&str; 2], fast: v1::FastPath) -> Result<FastEntry> {
    let lanes = match v1::Lanes::try_from(fast.lanes) {
        Ok(v1::Lanes::Unspecified) => None,
        Ok(v1::Lanes::Split) => Some(LanesWord::Split),
        Ok(v1::Lanes::Never) => Some(LanesWord::Never),
        Err(_) => {
            let text = format!("{} asks nothing of lanes: 0 to 2 are allowed", fast.lanes);
            return Err(Problem::new(at, text));
        }
    };
    Ok(FastEntry {
        chain: fast.chain,
        path: fast.path,
        behaviour: fast.behaviour,
        lanes,
    })
}
