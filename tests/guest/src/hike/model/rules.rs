// SPDX-License-Identifier: GPL-2.0

//! The model of the access list: one rule after the other.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use mflow_hike::{Action, Destination, Rule};

use super::packet::Packet;
use super::programs::matches;

/// TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Extension headers behind which a transport header is looked for.
const MOST_HEADERS: usize = 4;

/// The value of a field, as far as it can be seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field<T> {
    Is(T),
    /// The packet has none.
    Absent,
    Unseen,
}

impl<T> Field<T> {
    /// Returns whether the field meets a rule that has this condition.
    fn meets(self, rule: &Rule, condition: Option<impl FnOnce(T) -> bool>) -> bool {
        match (condition, self) {
            (None, _) => true,
            (Some(holds), Self::Is(value)) => holds(value),
            (Some(_), Self::Absent) => false,
            (Some(_), Self::Unseen) => rule.action == Action::Deny,
        }
    }
}

impl Packet {
    /// The first rule that is met counts.
    pub(crate) fn hold_against(&self, rules: &mut [(Rule, u64)]) -> Result<(), &'static str> {
        let (source, destination) = self.ends();
        let (protocol, ports) = self.transport();
        let port = |place: usize| match ports {
            Field::Is(at) => Field::Is(self.half(at + 2 * place).unwrap_or(0)),
            Field::Absent => Field::Absent,
            Field::Unseen => Field::Unseen,
        };
        for (rule, hits) in rules {
            let within = |ports: &Option<RangeInclusive<u16>>| {
                let ports = ports.clone()?;
                Some(move |port: u16| ports.contains(&port))
            };
            let is_met = includes(rule.source, source)
                && includes(rule.destination, destination)
                && protocol.meets(rule, rule.protocol.map(|own| move |seen| own == seen))
                && port(0).meets(rule, within(&rule.source_ports))
                && port(1).meets(rule, within(&rule.destination_ports));
            if is_met {
                *hits += 1;
                return match rule.action {
                    Action::Allow => Ok(()),
                    Action::Deny => Err("denied"),
                };
            }
        }
        Ok(())
    }

    /// Returns source and destination.
    pub(crate) fn ends(&self) -> (IpAddr, IpAddr) {
        let at = self.ip_at;
        if self.is_v6() {
            let address = |at| self.address(at).map_or(IpAddr::from([0; 16]), IpAddr::V6);
            (address(at + 8), address(at + 24))
        } else {
            let ip = self.ip();
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (address(12).into(), address(16).into())
        }
    }

    /// Returns the protocol, and where in the frame the ports are.
    fn transport(&self) -> (Field<u8>, Field<usize>) {
        let at = self.ip_at;
        let (mut protocol, mut header, mut later) = if self.is_v6() {
            (self.frame[at + 6], at + 40, false)
        } else {
            let ip = self.ip();
            let offset = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff;
            let (protocol, bytes) = (ip[9], 4 * usize::from(ip[0] & 15));
            return self.ports(protocol, at + bytes, offset > 0);
        };
        let unseen = (Field::Unseen, Field::Unseen);
        for skipped in 0.. {
            let skips = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS].contains(&protocol);
            if !skips {
                break;
            }
            let Some(bytes) = self.frame.get(header..header + 8) else {
                return unseen;
            };
            if skipped == MOST_HEADERS || later {
                return unseen;
            }
            if protocol == FRAGMENT {
                later = u16::from_be_bytes([bytes[2], bytes[3]]) & !7 > 0;
                header += 8;
            } else {
                header += 8 * (usize::from(bytes[1]) + 1);
            }
            protocol = bytes[0];
        }
        self.ports(protocol, header, later)
    }

    fn ports(&self, protocol: u8, header: usize, later: bool) -> (Field<u8>, Field<usize>) {
        let ports = if !WITH_PORTS.contains(&protocol) {
            Field::Absent
        } else if later || self.frame.len() < header + 4 {
            Field::Unseen
        } else {
            Field::Is(header)
        };
        (Field::Is(protocol), ports)
    }
}

fn includes(prefix: Destination, address: IpAddr) -> bool {
    match prefix {
        Destination::Address(own) => own == address,
        Destination::Prefix(own, bits) => matches((own, bits), address),
        Destination::Default => true,
    }
}
