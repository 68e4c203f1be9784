// SPDX-License-Identifier: GPL-2.0

//! Flows that have classes of their own.

use std::net::IpAddr;

use anyhow::{bail, ensure, Result};
use mflow_hike::config::fields as library;
use mflow_hike::ExactFlow;
use serde::{Deserialize, Serialize};

use super::fields;
use super::way::Way;

/// A flow that has a class of its own: one by protocol and ports, or by flow label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Classed {
    /// The address that it comes from.
    #[serde(deserialize_with = "fields::ip_source")]
    pub source: IpAddr,
    /// The address that it goes to.
    #[serde(deserialize_with = "fields::ip_destination")]
    pub destination: IpAddr,
    /// The number of its protocol.
    #[serde(deserialize_with = "library::protocol", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Its source port; 0, as packets without ports have it.
    #[serde(deserialize_with = "fields::source_port", default)]
    #[serde(skip_serializing_if = "library::is_default")]
    pub source_port: u16,
    /// Its destination port; likewise.
    #[serde(deserialize_with = "fields::destination_port", default)]
    #[serde(skip_serializing_if = "library::is_default")]
    pub destination_port: u16,
    /// Its flow label.
    #[serde(deserialize_with = "library::flow_label", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_label: Option<u32>,
    /// The way of its packets.
    pub class: Way,
}

impl Classed {
    /// Returns the flow; fails if there can be none such.
    pub fn flow(&self) -> Result<ExactFlow> {
        let (source, destination) = (self.source, self.destination);
        let ports = (self.source_port, self.destination_port);
        let flow = match (self.protocol, self.flow_label, ports) {
            (Some(protocol), None, ports) => ExactFlow::Ports {
                source,
                destination,
                protocol,
                ports,
            },
            (None, Some(label), (0, 0)) => match (source, destination) {
                (IpAddr::V6(source), IpAddr::V6(destination)) => ExactFlow::Label {
                    source,
                    destination,
                    label,
                },
                _ => bail!(
                    "only packets of IPv6 have a flow-label; take addresses of IPv6, or a protocol"
                ),
            },
            _ => bail!("it has to have either a protocol, with ports or without, or a flow-label"),
        };
        flow.check()?;
        Ok(flow)
    }

    /// Fails if it cannot be.
    pub(super) fn check(&self) -> Result<()> {
        self.flow()?;
        ensure!(
            !matches!(&self.class, Way::Fast(fast) if fast.behaviour.is_some()),
            "its class has a behaviour, which only destinations have; leave it out"
        );
        Ok(())
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
            "f:4: flow f: only packets of IPv6 have a flow-label; take addresses of IPv6, or a protocol"
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
