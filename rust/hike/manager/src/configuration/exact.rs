// SPDX-License-Identifier: GPL-2.0

//! Flows that have classes of their own: as they are written, and as the programs take them.

use mflow_hike::ExactFlow;
use serde::{Deserialize, Serialize};

use super::at::{At, Result};
use super::check::way;
use super::describe;
use super::entries::ClassEntry;
use super::{Classed, Way};

/// A flow with a class of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FlowEntry {
    /// The address that it comes from.
    pub source: String,
    /// The address that it goes to.
    pub destination: String,
    /// The number of its protocol, 0 to 255; absent: it is one by flow label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<i64>,
    /// Its source port; absent: 0, as packets without ports have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<i64>,
    /// Its destination port; likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<i64>,
    /// Its flow label, 0 to 1048575; absent: it is one by protocol and ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_label: Option<i64>,
    /// The way of its packets.
    pub class: ClassEntry,
}

/// Returns the flow that an entry says.
pub(super) fn flow(at: At<'_>, entry: &FlowEntry) -> Result<Classed> {
    const LABEL: i64 = (1 << 20) - 1;
    let port = |field: &str, port| {
        let port = at.number(field, port, 0, u16::MAX.into())?;
        Ok(port.unwrap_or(0))
    };
    let protocol = at.number("protocol", entry.protocol, 0, u8::MAX.into())?;
    let label = at.number("flow-label", entry.flow_label, 0, LABEL)?;
    let ports = (
        port("source-port", entry.source_port)?,
        port("destination-port", entry.destination_port)?,
    );
    let has_ports = entry.source_port.is_some() || entry.destination_port.is_some();
    let flow = match (protocol, label) {
        (Some(protocol), None) => ExactFlow::Ports {
            source: at.any_address("source", &entry.source)?,
            destination: at.any_address("destination", &entry.destination)?,
            protocol,
            ports,
        },
        (None, Some(label)) if !has_ports => ExactFlow::Label {
            source: at.address("source", &entry.source)?,
            destination: at.address("destination", &entry.destination)?,
            label,
        },
        _ => {
            return Err(at.problem(
                "it has to have either a protocol, with ports or without, or a flow-label",
            ));
        }
    };
    flow.check().map_err(|error| at.problem(error))?;
    let way = way(&entry.class);
    if let Way::Fast {
        behaviour: Some(_), ..
    } = way
    {
        return Err(
            at.problem("its class has a behaviour, which only destinations have; leave it out")
        );
    }
    Ok(Classed { flow, way })
}

/// Returns how a flow is written.
pub(crate) fn entry(classed: &Classed) -> FlowEntry {
    let (source, destination) = match classed.flow {
        ExactFlow::Ports {
            source,
            destination,
            ..
        } => (source, destination),
        ExactFlow::Label {
            source,
            destination,
            ..
        } => (source.into(), destination.into()),
    };
    let port = |port: u16| (port != 0).then_some(port.into());
    let (protocol, ports, label) = match classed.flow {
        ExactFlow::Ports {
            protocol, ports, ..
        } => (Some(protocol.into()), ports, None),
        ExactFlow::Label { label, .. } => (None, (0, 0), Some(label.into())),
    };
    FlowEntry {
        source: source.to_string(),
        destination: destination.to_string(),
        protocol,
        source_port: port(ports.0),
        destination_port: port(ports.1),
        flow_label: label,
        class: describe::class(&classed.way),
    }
}

#[cfg(test)]
mod tests {
    fn error(text: &str) -> String {
        crate::configuration::error(&format!(
            "[chains]\nc = \"lanes,fw-kernel\"\nd = \"drop\"\n[flows.f]\n{text}"
        ))
    }

    const V4: &str = "source = \"10.0.0.1\"\ndestination = \"10.0.0.2\"\n";

    #[test]
    fn flows_are_checked_one_by_one() {
        let either =
            "f:4: flow f: it has to have either a protocol, with ports or without, or a flow-label";
        for parts in [
            "",
            "source-port = 1\nflow-label = 1\n",
            "protocol = 17\nflow-label = 1\n",
        ] {
            assert_eq!(error(&format!("{V4}{parts}class = \"kernel\"")), either);
        }
        assert_eq!(
            error(&format!("{V4}protocol = 1\nsource-port = 5\nclass = \"kernel\"")),
            "f:4: flow f: ports of protocol 1 tell no flows apart; take one of [6, 17, 132], or ports 0 and 0"
        );
        assert_eq!(
            error("source = \"10.0.0.1\"\ndestination = \"::1\"\nprotocol = 6\nclass = \"kernel\""),
            "f:4: flow f: no flow goes from 10.0.0.1 to ::1: take addresses of one version"
        );
        assert_eq!(
            error(&format!("{V4}flow-label = 5\nclass = \"kernel\"")),
            "f:5: flow f: source has `10.0.0.1`: an IPv6 address is allowed, such as 2001:db8::1"
        );
        assert_eq!(
            error(&format!(
                "{V4}protocol = 6\nsource-port = 65536\nclass = \"kernel\""
            )),
            "f:8: flow f: source-port is 65536: 0 to 65535 are allowed"
        );
        assert_eq!(
            error(&format!("{V4}protocol = 6\nclass = {{ chain = \"a\" }}")),
            "f:4: flow f: there is no chain `a`; there are c, d"
        );
        assert_eq!(
            error(&format!(
                "{V4}protocol = 6\nclass = {{ chain = \"c\", behaviour = \"b\" }}"
            )),
            "f:4: flow f: its class has a behaviour, which only destinations have; leave it out"
        );
        assert_eq!(
            error(&format!("{V4}protocol = 6\nclass = {{ chain = \"d\", lanes = \"never\" }}")),
            "f:4: flow f: the chain d has no lanes, which hands that on; add it to the chain, or leave lanes out"
        );
        let twice = format!(
            "{V4}protocol = 6\nclass = \"kernel\"\n[flows.g]\n{V4}protocol = 6\nclass = {{ chain = \"d\" }}"
        );
        assert_eq!(
            error(&twice),
            "f:9: flow g: the flow f has the same addresses, protocol and ports, or label; remove one of them"
        );
    }
}
