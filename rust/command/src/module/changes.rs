// SPDX-License-Identifier: GPL-2.0

//! The notifications of netlink's group `flows`, read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{DefaultNla, Nla as _};

use super::flow_name::FlowName;

/// Numbers of `c-shims/netlink/mflow_netlink.h`, which a test of [`super::netlink`] compares.
pub(super) const KIND: u16 = 1;
pub(super) const DEVICE: u16 = 2;
pub(super) const QUEUE: u16 = 3;
pub(super) const PROTOCOL: u16 = 4;
pub(super) const FROM_ADDRESS: u16 = 5;
pub(super) const FROM_PORT: u16 = 6;
pub(super) const TO_ADDRESS: u16 = 7;
pub(super) const TO_PORT: u16 = 8;
pub(super) const CPU: u16 = 9;
pub(super) const PPS: u16 = 10;
pub(super) const REASON: u16 = 11;
pub(super) const LOST: u16 = 13;
/// The kind of a flow that begins to be split.
const SPLIT: u32 = 0;
const TCP: u8 = 6;

/// A flow that begins to be split, or stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The flow.
    pub flow: FlowName,
    /// The CPU that dispatches it.
    pub cpu: Option<u32>,
    /// Its packets per second.
    pub pps: Option<u32>,
    /// The reason why it stops; nothing if it begins.
    pub reason: Option<String>,
    /// The number of changes just before this one that are not told.
    pub lost: u32,
}

/// The attributes of a notification.
struct Attributes<'a>(&'a [DefaultNla]);

impl Attributes<'_> {
    fn bytes(&self, kind: u16) -> Option<Vec<u8>> {
        let found = self.0.iter().find(|one| one.kind() == kind)?;
        let mut bytes = vec![0; found.value_len()];
        found.emit_value(&mut bytes);
        Some(bytes)
    }

    fn array<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        self.bytes(kind)?.try_into().ok()
    }

    fn number(&self, kind: u16) -> Option<u32> {
        self.array(kind).map(u32::from_ne_bytes)
    }

    fn text(&self, kind: u16) -> Option<String> {
        let bytes = self.bytes(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = bytes.get(..end.unwrap_or(bytes.len()))?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    fn end(&self, address: u16, port: u16) -> Option<SocketAddr> {
        let bytes = self.bytes(address)?;
        let address = match bytes.len() {
            4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        };
        let port = self.array(port).map(u16::from_ne_bytes)?;
        Some(SocketAddr::new(address, port))
    }
}

impl Change {
    /// Reads a notification. `None` if it is none.
    pub(super) fn of(attributes: &[DefaultNla]) -> Option<Self> {
        let attributes = Attributes(attributes);
        let reason = match attributes.number(KIND)? {
            SPLIT => None,
            _ => Some(attributes.text(REASON)?),
        };
        let protocol = attributes.array(PROTOCOL).map(|[number]: [u8; 1]| number);
        let name = |number| if number == TCP { "tcp" } else { "udp" };
        Some(Self {
            flow: FlowName {
                device: attributes.text(DEVICE)?,
                queue: attributes.array(QUEUE).map(u16::from_ne_bytes),
                proto: protocol.map(|number| name(number).to_owned()),
                from: attributes.end(FROM_ADDRESS, FROM_PORT),
                to: attributes.end(TO_ADDRESS, TO_PORT),
            },
            cpu: attributes.number(CPU),
            pps: attributes.number(PPS),
            reason,
            lost: attributes.number(LOST).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nla(kind: u16, value: &[u8]) -> DefaultNla {
        DefaultNla::new(kind, value.to_vec())
    }

    #[test]
    fn a_flow_that_stops_is_read() {
        let mut attributes = vec![
            nla(KIND, &1_u32.to_ne_bytes()),
            nla(DEVICE, b"eth0\0"),
            nla(CPU, &3_u32.to_ne_bytes()),
            nla(PPS, &20_000_u32.to_ne_bytes()),
            nla(REASON, b"silent\0"),
            nla(LOST, &2_u32.to_ne_bytes()),
            nla(PROTOCOL, &[17]),
            nla(FROM_ADDRESS, &[192, 0, 2, 1]),
            nla(FROM_PORT, &50_001_u16.to_ne_bytes()),
            nla(TO_ADDRESS, &Ipv6Addr::LOCALHOST.octets()),
            nla(TO_PORT, &4_789_u16.to_ne_bytes()),
        ];
        let change = Change::of(&attributes).expect("a change");
        let expected = Change {
            flow: FlowName {
                device: "eth0".to_owned(),
                queue: None,
                proto: Some("udp".to_owned()),
                from: "192.0.2.1:50001".parse().ok(),
                to: "[::1]:4789".parse().ok(),
            },
            cpu: Some(3),
            pps: Some(20_000),
            reason: Some("silent".to_owned()),
            lost: 2,
        };
        assert_eq!(change, expected);
        attributes.remove(4);
        assert_eq!(Change::of(&attributes), None, "there is no reason");
        attributes[0] = nla(KIND, &SPLIT.to_ne_bytes());
        let begun = Change::of(&attributes).expect("a change");
        assert_eq!(begun.reason, None);
        assert_eq!(Change::of(&[]), None);
    }
}
