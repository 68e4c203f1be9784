// SPDX-License-Identifier: GPL-2.0

//! The effect that each program shall have on a frame, in plain Rust: written from the standards and from `c-shims/hike/REASONS`,
//! with no table, layout or limit of the implementation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use mflow_hike::config::path::Exceptions;
use mflow_hike::{Behaviour, Direction, ExactFlow, Lanes, Path, Rule};

use super::packet::{Answered, Hop, Leaving, Packet, Segments, Tag, IPV4, IPV6, TCP, UDP};
use crate::hike::TEST_RUN_MAC;

const VLAN: [u16; 2] = [0x8100, 0x88a8];
const SCTP: u8 = 132;
/// The room that drivers leave in front of a frame, less the part that the kernel keeps there.
const HEADROOM: usize = 256 - 40;

/// A monitored flow: its colour is this bit of the traffic class, or (0) the L bit of the option; its packets are coloured so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colour {
    pub(crate) class_bit: u8,
    pub(crate) now: bool,
}

/// A flow as its packets show it: the FlowMonID of the option, the source, and the SIDs as an SRH has them, the last one first.
pub(crate) type Shown = (Option<u32>, Ipv6Addr, Vec<Ipv6Addr>);

/// A prefix: address and bits.
pub(crate) type Prefix = (IpAddr, u8);

/// The treatment of packets of a prefix, or of a flow.
#[derive(Debug)]
pub(crate) struct Class {
    /// Names of the chain's programs.
    pub(crate) chain: Vec<&'static str>,
    pub(crate) path: Option<Path>,
    pub(crate) behaviour: Option<Behaviour>,
    pub(crate) lanes: Option<Lanes>,
    /// True if it is for packets that come by a device inside, which none does here.
    pub(crate) inside: bool,
}

/// The same configuration as the programs have.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The longest prefix counts.
    pub(crate) classes: Vec<(Prefix, Rc<Class>)>,
    /// Flows that have a class of their own.
    pub(crate) exact: BTreeMap<ExactFlow, Rc<Class>>,
    pub(crate) table: Vec<(Prefix, Hop)>,
    /// The tags, without priorities, that some device is for, and whether all packets of that device are left to the kernel.
    pub(crate) receivers: BTreeMap<[Tag; 2], bool>,
    /// The routes that the kernel's rules lead to.
    pub(crate) fib: Vec<(Prefix, Hop)>,
    /// The destinations that are the host's own.
    pub(crate) own: Vec<Prefix>,
    /// Those of them that other hosts of a link have, too.
    pub(crate) of_several: Vec<Prefix>,
    /// The kernel's tables, by number.
    pub(crate) tables: BTreeMap<u32, Vec<(Prefix, Hop)>>,
    /// The access list, and how many packets each rule has decided on.
    pub(crate) rules: Vec<(Rule, u64)>,
    /// The flows that are monitored.
    pub(crate) flows: BTreeMap<(Direction, Shown), Colour>,
    /// The number of packets that were counted, by flow and colour.
    pub(crate) counted: BTreeMap<(Direction, Shown, bool), u64>,
    pub(crate) reasons: BTreeMap<&'static str, u64>,
}

/// The result of the model for a frame.
pub(crate) struct Done {
    pub(crate) reason: &'static str,
    /// The frame, with its metadata in front.
    pub(crate) frame: Vec<u8>,
    /// True if the frame leaves by the device that it was at.
    pub(crate) stays: bool,
    answered: Option<Answered>,
}

impl Done {
    /// Returns the frame, if the programs have written this: of an answer to a test packet they say the times.
    pub(crate) fn frame_at_time_of(&self, written: &[u8]) -> Cow<'_, [u8]> {
        match &self.answered {
            None => Cow::Borrowed(&self.frame),
            Some(answered) => Cow::Owned(answered.at_time_of(&self.frame, written)),
        }
    }
}

impl Model {
    /// Takes a frame through that was received, or that leaves.
    pub(crate) fn run(&mut self, frame: &[u8], leaving: Option<Leaving>) -> Done {
        let mut packet = Packet {
            frame: frame.to_vec(),
            ip_at: 0,
            headroom: HEADROOM,
            on_path: 0,
            metadata: Vec::new(),
            leaving,
            segments: Segments {
                count: 1,
                longest: None,
            },
            stays: false,
            answered: None,
        };
        let reason = self.decide(&mut packet);
        *self.reasons.entry(reason).or_default() += 1;
        Done {
            reason,
            frame: [packet.metadata, packet.frame].concat(),
            stays: packet.stays,
            answered: packet.answered,
        }
    }

    fn decide(&mut self, packet: &mut Packet) -> &'static str {
        if !packet.frame.starts_with(&packet.own_mac()) {
            return "other-host";
        }
        let destination = match packet.find() {
            Ok(destination) => destination,
            Err(reason) => return reason,
        };
        packet.segments = packet.segments();
        let flows = packet.exact_flows();
        let exact = flows.iter().find_map(|flow| self.exact.get(flow));
        let Some(class) = exact.or_else(|| longest(&self.classes, destination)) else {
            return "no-class";
        };
        let class = Rc::clone(class);
        if class.inside {
            return "from-outside";
        }
        for &name in &class.chain {
            let done = match (name, &class.path, &class.behaviour) {
                ("enc", Some(path), _) => packet
                    .may_go(&self.own)
                    .and_then(|()| packet.encapsulate(path)),
                ("mon-in", ..) => self.monitor(packet, Direction::In),
                ("mon-out", ..) => self.monitor(packet, Direction::Out),
                ("fw-fib", path, _) => {
                    packet.forward_by_kernel(&self.receivers, &self.fib, path.as_ref())
                }
                ("fw-table", path, _) => packet
                    .may_go(&self.own)
                    .and_then(|()| packet.forward(&self.table, path.as_ref())),
                ("fw-kernel", ..) => Err("by-chain"),
                ("drop", ..) => Err("by-program"),
                ("lanes", ..) => {
                    packet.ask(class.lanes);
                    Ok(())
                }
                ("reflect", ..) => packet.reflect(&self.own, &self.of_several),
                ("send-back", ..) => Err(packet.send_back()),
                ("acl", ..) => packet.hold_against(&mut self.rules),
                ("end", _, Some(Behaviour::End { flavours })) => packet.end(*flavours),
                (
                    "end-x",
                    _,
                    Some(Behaviour::EndX {
                        next_hop, flavours, ..
                    }),
                ) => packet.end_x(*next_hop, *flavours, &self.receivers, &self.fib),
                ("dec", _, Some(behaviour)) => {
                    packet.dec(behaviour, &self.receivers, &self.fib, &self.tables)
                }
                (name, ..) => panic!("no model of {name}"),
            };
            if let Err(reason) = done {
                return reason;
            }
        }
        "broken-chain"
    }

    fn monitor(&mut self, packet: &mut Packet, direction: Direction) -> Result<(), &'static str> {
        if let Some(flow) = packet.flow() {
            let key = (direction, flow);
            if let Some(&Colour { class_bit, now }) = self.flows.get(&key) {
                let Some((at, bit)) = packet.colour_at(class_bit) else {
                    return Ok(());
                };
                let colour = match direction {
                    Direction::In => now,
                    Direction::Out => packet.frame[at] & bit != 0,
                };
                packet.frame[at] &= !bit;
                packet.frame[at] |= if colour { bit } else { 0 };
                let (direction, flow) = key;
                let counted = self.counted.entry((direction, flow, colour));
                *counted.or_default() += packet.segments.count;
            }
        }
        Ok(())
    }
}

impl Packet {
    /// Leaves a hint to mflow in front of the frame, where there is room: its layout is that of rust/algo/headers/hint.rs.
    fn ask(&mut self, lanes: Option<Lanes>) {
        let word = match lanes {
            None => return,
            Some(Lanes::Split) => 1,
            Some(Lanes::Never) => 2,
        };
        let hint = [b'm', b'f', b'l', b'w', 1, 8, word, 0];
        if self.headroom >= hint.len() {
            self.headroom -= hint.len();
            self.metadata = hint.to_vec();
        }
    }

    pub(crate) fn ip(&self) -> &[u8] {
        &self.frame[self.ip_at..]
    }

    pub(crate) fn ip_mut(&mut self) -> &mut [u8] {
        &mut self.frame[self.ip_at..]
    }

    pub(crate) fn half(&self, at: usize) -> Option<u16> {
        let bytes = self.frame.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn address(&self, at: usize) -> Option<Ipv6Addr> {
        let bytes: [u8; 16] = self.frame.get(at..at + 16)?.try_into().ok()?;
        Some(bytes.into())
    }

    /// Returns the Ethernet address that a frame of this host's has. Of one that leaves, it is that of its device: test runs take frames
    /// with others for those of other hosts.
    pub(crate) fn own_mac(&self) -> [u8; 6] {
        self.leaving.map_or(TEST_RUN_MAC, Leaving::mac)
    }

    /// Looks for the IP header behind at most two VLAN tags; returns the destination.
    fn find(&mut self) -> Result<IpAddr, &'static str> {
        let mut at = 14;
        let mut kind = self.half(12).ok_or("malformed")?;
        // Where packets leave, tags are put on behind the hook.
        let tags = if self.leaving.is_some() { 0 } else { 2 };
        for _ in 0..tags {
            if VLAN.contains(&kind) {
                kind = self.half(at + 2).ok_or("malformed")?;
                at += 4;
            }
        }
        self.ip_at = at;
        let ip = &self.frame[at..];
        match kind {
            IPV6 if ip.len() >= 40 && ip[0] >> 4 == 6 => {
                Ok(self.address(at + 24).ok_or("malformed")?.into())
            }
            IPV4 if ip.len() >= 20 && ip[0] >> 4 == 4 && ip[0] & 15 >= 5 => {
                Ok(Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]).into())
            }
            IPV4 | IPV6 => Err("malformed"),
            _ => Err("not-ip"),
        }
    }

    /// Returns the flows that it may be of, the one that counts most first.
    fn exact_flows(&self) -> Vec<ExactFlow> {
        let v6 = self.is_v6();
        let ip = self.ip();
        let (protocol, transport_at, fragment) = if v6 {
            (ip[6], 40, false)
        } else {
            let fragment = ip[6] & 0x3f != 0 || ip[7] != 0;
            (ip[9], 4 * usize::from(ip[0] & 15), fragment)
        };
        let has_ports = [TCP, UDP, SCTP].contains(&protocol) && !fragment;
        let ports = ip
            .get(transport_at..transport_at + 4)
            .filter(|_| has_ports)
            .map_or((0, 0), |ports| {
                let half = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
                (half(0), half(2))
            });
        let (source, destination) = self.ends();
        let by_ports = ExactFlow::Ports {
            source,
            destination,
            protocol,
            ports,
        };
        let mut flows = vec![by_ports];
        if let (IpAddr::V6(source), IpAddr::V6(destination)) = (source, destination) {
            flows.push(ExactFlow::Label {
                source,
                destination,
                label: u32::from_be_bytes([0, ip[1] & 15, ip[2], ip[3]]),
            });
        }
        flows
    }

    /// Returns whether the packet passes a hop here: where packets leave, the kernel has counted the hop.
    pub(crate) fn is_hop(&self) -> bool {
        self.leaving.is_none()
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.ip()[0] >> 4 == 6
    }

    /// Returns the length in the IP header, if it can be true.
    pub(crate) fn ip_bytes(&self) -> Result<usize, &'static str> {
        let at = self.ip_at;
        let (field_at, beyond, header_bytes) = if self.is_v6() {
            (at + 4, 40, 40)
        } else {
            (at + 2, 0, 4 * usize::from(self.ip()[0] & 15))
        };
        let bytes = beyond + usize::from(self.half(field_at).ok_or("malformed")?);
        if bytes < header_bytes || bytes > self.ip().len() {
            return Err("malformed");
        }
        Ok(bytes)
    }

    fn hop_limit_at(&self) -> usize {
        self.ip_at + if self.is_v6() { 7 } else { 8 }
    }

    pub(crate) fn hop_limit(&self) -> u8 {
        self.frame[self.hop_limit_at()]
    }

    /// Takes one from the hop limit; a checksum that was wrong stays wrong by as much.
    pub(crate) fn decrease_hop_limit(&mut self) {
        let at = self.hop_limit_at();
        self.frame[at] -= 1;
        if !self.is_v6() {
            let ip = self.ip_mut();
            let check = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + 0x100;
            // CAST: the carry is added, so 16 bits are left; all ones stand for zero as well.
            let check = (check + u32::from(check >= 0xffff)) as u16;
            ip[10..12].copy_from_slice(&check.to_be_bytes());
        }
    }

    /// Returns what a flow is told by.
    fn flow(&self) -> Option<Shown> {
        let at = self.ip_at;
        if !self.is_v6() {
            return None;
        }
        let source = self.address(at + 8)?;
        let mut next = self.frame[at + 6];
        let mut header = at + 40;
        let mut id = None;
        if next == 60 {
            let options = self.frame.get(header..header + 8)?;
            if options[2..4] == [0x12, 4] {
                let word = u32::from_be_bytes([options[4], options[5], options[6], options[7]]);
                id = Some(word >> 12);
            }
            next = options[0];
            header += 8 * (usize::from(options[1]) + 1);
        }
        if next != 43 {
            return Some((id, source, vec![self.address(at + 24)?]));
        }
        let routing = self.frame.get(header..header + 8)?;
        let (words, kind, last) = (routing[1], routing[2], routing[4]);
        let entries = usize::from(last) + 1;
        if kind != 4 || entries > 16 || entries * 2 > usize::from(words) {
            return None;
        }
        let sids = (0..entries).map(|entry| self.address(header + 8 + 16 * entry));
        Some((id, source, sids.collect::<Option<_>>()?))
    }

    /// Returns the byte and the bit in it that is the colour.
    fn colour_at(&self, class_bit: u8) -> Option<(usize, u8)> {
        let at = self.ip_at;
        match class_bit {
            // The upper half of the class is in the first byte, the lower half in the second.
            0 => {
                let is_option =
                    self.frame[at + 6] == 60 && self.frame[at + 42..at + 44] == [0x12, 4];
                is_option.then_some((at + 46, 0x08))
            }
            bit @ 0x10.. => Some((at, bit >> 4)),
            bit => Some((at + 1, bit << 4)),
        }
    }

    /// Fails if a packet that the kernel's routes are not asked for stays here. What is on a path goes to the path's first SID.
    fn may_go(&self, own: &[Prefix]) -> Result<(), &'static str> {
        if self.on_path > 0 {
            return Ok(());
        }
        let (source, destination) = self.ends();
        // Messages of neighbour discovery have passed no router: RFC 4861, 4.
        let ip = self.ip();
        let looks_for_neighbours = self.is_v6()
            && (ip[6], ip[7]) == (58, 255)
            && ip.get(40).is_some_and(|kind| (133..=137).contains(kind));
        if !routable(source) || !routable(destination) || looks_for_neighbours {
            return Err("fw-not-routable");
        }
        // What is for this host leaves by no device.
        let is_own = own.iter().any(|own| matches(*own, destination));
        match is_own && self.leaving.is_none() {
            true => Err("own-address"),
            false => Ok(()),
        }
    }

    fn forward(
        &mut self,
        routes: &[(Prefix, Hop)],
        path: Option<&Path>,
    ) -> Result<(), &'static str> {
        let destination = self.forwardable()?;
        self.leave_or_tell(route_to(routes, destination)?, path)
    }

    /// Sends the packet to a next hop, or tells its source that the link does not take it.
    fn leave_or_tell(&mut self, hop: &Hop, path: Option<&Path>) -> Result<(), &'static str> {
        let left = self.leave(hop);
        // The kernel would answer the one who has put it on the path: this host.
        let tells = |path: &&Path| path.exceptions == Exceptions::Told;
        let path = path.filter(|_| self.on_path > 0 && self.is_hop());
        match (left, path.filter(tells)) {
            (Err("fw-too-big"), Some(path)) => Err(self.tell(path, hop.mtu, self.on_path)),
            _ => left,
        }
    }

    fn forward_by_kernel(
        &mut self,
        receivers: &BTreeMap<[Tag; 2], bool>,
        routes: &[(Prefix, Hop)],
        path: Option<&Path>,
    ) -> Result<(), &'static str> {
        let destination = self.forwardable()?;
        self.find_receiver(receivers)?;
        self.leave_or_tell(route_to(routes, destination)?, path)
    }

    /// Looks which device the kernel would take the packet from: each is what it seems, but that of some tags.
    pub(crate) fn find_receiver(
        &self,
        receivers: &BTreeMap<[Tag; 2], bool>,
    ) -> Result<(), &'static str> {
        let mut tags = [[0; 4]; 2];
        let in_frame = self.frame[12..self.ip_at - 2].chunks(4);
        for (tag, bytes) in tags.iter_mut().zip(in_frame) {
            tag.copy_from_slice(bytes);
            tag[2] &= 0x0f;
        }
        match receivers.get(&tags) {
            _ if self.ip_at == 14 => Ok(()),
            Some(false) => Ok(()),
            Some(true) => Err("fw-device"),
            None => Err("fw-vlan"),
        }
    }

    /// Returns the destination if routers forward such a packet.
    pub(crate) fn forwardable(&self) -> Result<IpAddr, &'static str> {
        let v6 = self.is_v6();
        self.ip_bytes()?;
        let ip = self.ip();
        if (v6 && ip[6] == 0) || (!v6 && ip[0] & 15 != 5) {
            return Err("fw-options");
        }
        if self.is_hop() && self.hop_limit() <= 1 {
            return Err("fw-hop-limit");
        }
        // What the path has put in front has addresses of its own.
        let (source, destination): (IpAddr, IpAddr) = if v6 {
            let address = |at| self.address(self.ip_at + at).ok_or("malformed");
            (address(8)?.into(), address(24)?.into())
        } else {
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            (address(12).into(), address(16).into())
        };
        if !routable(source) || !routable(destination) {
            return Err("fw-not-routable");
        }
        Ok(destination)
    }

    /// Sends the packet to a next hop, if the link takes it.
    pub(crate) fn leave(&mut self, hop: &Hop) -> Result<(), &'static str> {
        let bytes = self.ip_bytes()?;
        if self.wire_bytes(bytes, 0) > hop.mtu {
            return Err("fw-too-big");
        }
        if self.leaving.is_some() {
            return self.leave_at_tcx(hop);
        }
        let next = hop.destination.ok_or("fw-no-neighbour")?;
        if !hop.is_port {
            return Err("fw-no-port");
        }
        self.decrease_hop_limit();
        let kind = if self.is_v6() { IPV6 } else { IPV4 };
        let tags = hop.tags.concat();
        let link = [&next[..], &hop.source, &tags[..], &kind.to_be_bytes()].concat();
        if link.len() > self.ip_at + self.headroom {
            return Err("no-headroom");
        }
        self.frame.splice(..self.ip_at, link);
        Err("forwarded")
    }
}

/// Returns whether routers forward packets from and to an address.
pub(crate) fn routable(address: IpAddr) -> bool {
    let has_scope = match address {
        IpAddr::V4(address) => (1..224).contains(&address.octets()[0]) && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_unspecified(),
    };
    has_scope && !address.is_multicast() && !address.is_loopback()
}

/// Returns the next hop for an address.
pub(crate) fn route_to(routes: &[(Prefix, Hop)], address: IpAddr) -> Result<&Hop, &'static str> {
    let hop = longest(routes, address).ok_or("fw-no-route")?;
    hop.kept.map_or(Ok(hop), Err)
}

/// Returns the entry with the longest prefix of an address.
fn longest<T>(entries: &[(Prefix, T)], address: IpAddr) -> Option<&T> {
    let matching = entries
        .iter()
        .filter(|(prefix, _)| matches(*prefix, address));
    let longest = matching.max_by_key(|((_, bits), _)| *bits);
    longest.map(|(_, entry)| entry)
}

/// Returns whether an address is in a prefix.
pub(crate) fn matches((own, bits): Prefix, address: IpAddr) -> bool {
    let bits_of = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    };
    let differs = bits_of(own) ^ bits_of(address);
    own.is_ipv4() == address.is_ipv4() && differs.leading_zeros() >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts() {
        let prefix = |text: &str, bits| (text.parse::<IpAddr>().expect(text), bits);
        let entries = [
            (prefix("10.0.0.0", 8), 'a'),
            (prefix("10.1.0.0", 16), 'b'),
            (prefix("::", 0), 'c'),
        ];
        let of = |text: &str| {
            let address = text.parse().expect(text);
            longest(&entries, address).copied()
        };
        assert_eq!(
            (of("10.1.2.3"), of("10.2.2.3"), of("11.0.0.0")),
            (Some('b'), Some('a'), None)
        );
        assert_eq!(of("2001:db8::1"), Some('c'));
    }
}
