// SPDX-License-Identifier: GPL-2.0

//! Exact flows, which can have classes of their own, whatever that of their destination is.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use anyhow::{ensure, Result};

use crate::layout;

/// Protocols whose ports tell flows apart: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// A flow, as its packets show it. One by ports counts more than one by flow label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExactFlow {
    /// By addresses, protocol and ports.
    Ports {
        /// The source address.
        source: IpAddr,
        /// The destination address.
        destination: IpAddr,
        /// The number of the protocol right behind the IP header.
        protocol: u8,
        /// The ports of source and destination. Packets of protocols other than TCP, UDP and SCTP, and fragments of IPv4, have 0
        /// and 0.
        ports: (u16, u16),
    },
    /// By addresses and flow label (RFC 6437).
    Label {
        /// The source address.
        source: Ipv6Addr,
        /// The destination address.
        destination: Ipv6Addr,
        /// 20 bits.
        label: u32,
    },
}

impl ExactFlow {
    /// Returns the destination address.
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::Ports { destination, .. } => *destination,
            Self::Label { destination, .. } => (*destination).into(),
        }
    }

    /// Fails if there can be no such flow.
    pub fn check(&self) -> Result<()> {
        self.layout().map(drop)
    }

    /// Returns the bit that the class of its destination has for it.
    pub(crate) fn bit(&self) -> u16 {
        match self {
            Self::Ports { .. } => layout::Class::HAS_PORTS,
            Self::Label { .. } => layout::Class::HAS_LABELS,
        }
    }

    /// Returns the flow of a key of the dispatcher's; none if packets have no such key.
    pub(crate) fn of_layout(key: &layout::ExactFlow) -> Option<Self> {
        let address = |bytes: [u8; 16], version| match version {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => IpAddr::from(bytes),
        };
        let ports_or_label = u32::from_be_bytes(key.ports_or_label);
        let flow = match key.version {
            0 => Self::Label {
                source: key.source.into(),
                destination: key.destination.into(),
                label: ports_or_label,
            },
            4 | 6 => Self::Ports {
                source: address(key.source, key.version),
                destination: address(key.destination, key.version),
                protocol: u8::try_from(key.protocol).ok()?,
                // CAST: the two halves.
                ports: ((ports_or_label >> 16) as u16, ports_or_label as u16),
            },
            _ => return None,
        };
        flow.layout()
            .is_ok_and(|layout| layout == *key)
            .then_some(flow)
    }

    /// Returns it as the dispatcher looks for it; fails if there can be no such flow.
    pub(crate) fn layout(&self) -> Result<layout::ExactFlow> {
        let (source, destination) = match *self {
            Self::Ports {
                source,
                destination,
                ..
            } => (source, destination),
            Self::Label {
                source,
                destination,
                ..
            } => (source.into(), destination.into()),
        };
        ensure!(
            source.is_ipv4() == destination.is_ipv4(),
            "no flow goes from {source} to {destination}: take addresses of one version"
        );
        let (version, protocol, ports_or_label) = match *self {
            Self::Ports {
                protocol, ports, ..
            } => {
                ensure!(
                    ports == (0, 0) || WITH_PORTS.contains(&protocol),
                    "ports of protocol {protocol} tell no flows apart; take one of {WITH_PORTS:?}, or ports 0 and 0"
                );
                let ports = u32::from(ports.0) << 16 | u32::from(ports.1);
                (if source.is_ipv4() { 4 } else { 6 }, protocol, ports)
            }
            Self::Label { label, .. } => {
                ensure!(
                    label < 1 << 20,
                    "{label} is no flow label: 0 to {} are allowed",
                    (1 << 20) - 1
                );
                (0, 0, label)
            }
        };
        Ok(layout::ExactFlow {
            source: layout::bytes(source),
            destination: layout::bytes(destination),
            version,
            protocol: protocol.into(),
            ports_or_label: ports_or_label.to_be_bytes(),
            zero: 0,
        })
    }
}

impl fmt::Display for ExactFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports {
                source,
                destination,
                protocol,
                ports,
            } => write!(
                f,
                "{source} port {} to {destination} port {}, protocol {protocol}",
                ports.0, ports.1
            ),
            Self::Label {
                source,
                destination,
                label,
            } => write!(f, "{source} to {destination}, flow label {label}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn a_flow_is_what_its_packets_show() {
        let flow = ExactFlow::Ports {
            source: address("10.0.0.1"),
            destination: address("10.0.0.2"),
            protocol: 17,
            ports: (0x1234, 53),
        };
        let layout = flow.layout().expect("good");
        assert_eq!((layout.version, layout.protocol), (4, 17));
        assert_eq!(layout.ports_or_label, [0x12, 0x34, 0, 53]);
        assert_eq!(layout.source[..5], [10, 0, 0, 1, 0]);
        assert_eq!(ExactFlow::of_layout(&layout), Some(flow));
        let wrong = layout::ExactFlow { zero: 1, ..layout };
        assert_eq!(ExactFlow::of_layout(&wrong), None);
        assert_eq!(
            flow.to_string(),
            "10.0.0.1 port 4660 to 10.0.0.2 port 53, protocol 17"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let ports = |source, destination, protocol, ports| ExactFlow::Ports {
            source: address(source),
            destination: address(destination),
            protocol,
            ports,
        };
        let error = |flow: ExactFlow| flow.layout().expect_err("bad").to_string();
        assert_eq!(
            error(ports("10.0.0.1", "2001:db8::1", 6, (1, 2))),
            "no flow goes from 10.0.0.1 to 2001:db8::1: take addresses of one version"
        );
        assert_eq!(
            error(ports("10.0.0.1", "10.0.0.2", 1, (1, 2))),
            "ports of protocol 1 tell no flows apart; take one of [6, 17, 132], or ports 0 and 0"
        );
        let label = ExactFlow::Label {
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
            label: 1 << 20,
        };
        assert_eq!(
            error(label),
            "1048576 is no flow label: 0 to 1048575 are allowed"
        );
    }
}
