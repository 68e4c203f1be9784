// SPDX-License-Identifier: GPL-2.0

//! The envelope of an IP packet on the wire between the client's machine and the server's: a frame, and in the overlay also the
//! headers of VXLAN and a frame inside.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, SlicedPacket, TransportSlice, UdpHeader,
};
use mflow_protocol::network;

/// The first source port of the overlay's packets; a VXLAN sender makes it from the inner flow.
const OUTER_SOURCE_PORT: u16 = 50_001;
const TIME_TO_LIVE: u8 = 64;
/// An IPv4 header without options.
const IP_HEAD: usize = Ipv4Header::MIN_LEN;
/// The header of VXLAN, whose first byte says that the network identifier is valid.
const VXLAN_HEAD: [u8; 8] = {
    let [_, high, middle, low] = network::VNI.to_be_bytes();
    [0x08, 0, 0, 0, high, middle, low, 0]
};

/// The UDP checksum of the overlay's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterChecksum {
    /// None, as IPv4 allows.
    LeftOut,
    /// The right one, as Linux makes it unless it is told not to.
    Made,
}

/// Puts packets of the client into frames, and takes packets for it out of frames.
#[derive(Clone, Debug)]
pub struct Envelope {
    link: Ethernet2Header,
    /// The link inside, in the overlay.
    inner_link: Option<Ethernet2Header>,
}

/// The addresses that packets go from and to, and how long they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The client.
    pub client: Ipv4Addr,
    /// The server, or the container that it is in.
    pub server: Ipv4Addr,
    /// Bytes of the longest packet.
    pub mtu: usize,
}

impl Envelope {
    /// Returns the envelope of packets to the NIC with this address, in the overlay or without it.
    pub fn new(nic_mac: &str, overlay: bool) -> Result<Self> {
        let link = |destination: &str, source: &str| -> Result<Ethernet2Header> {
            Ok(Ethernet2Header {
                destination: mac(destination)?,
                source: mac(source)?,
                ether_type: EtherType::IPV4,
            })
        };
        let inner_link = link(network::CONTAINER_MAC, network::CLIENT_MAC)?;
        Ok(Self {
            link: link(nic_mac, network::CLIENT_HOST_MAC)?,
            inner_link: overlay.then_some(inner_link),
        })
    }

    /// Returns the path of the packets inside.
    pub fn path(&self) -> Path {
        match self.inner_link {
            Some(_) => Path {
                client: network::CLIENT,
                server: network::CONTAINER,
                mtu: network::OVERLAY_MTU,
            },
            None => Path {
                client: network::CLIENT_HOST,
                server: network::SERVER_HOST,
                mtu: network::WIRE_MTU,
            },
        }
    }

    /// Returns how many bytes go in front of a packet.
    pub fn head_bytes(&self) -> usize {
        let inner = IP_HEAD + UdpHeader::LEN + VXLAN_HEAD.len() + Ethernet2Header::LEN;
        Ethernet2Header::LEN + self.inner_link.as_ref().map_or(0, |_| inner)
    }

    /// Fills in what goes in front of a packet of this flow: the frame has [`Self::head_bytes`] bytes for it, and then the
    /// packet.
    pub fn seal(&self, flow: u16, checksum: OuterChecksum, frame: &mut [u8]) -> Result<()> {
        let head = self.head_bytes();
        let (link, rest) = frame
            .split_at_mut_checked(Ethernet2Header::LEN)
            .filter(|(_, rest)| Ethernet2Header::LEN + rest.len() > head)
            .with_context(|| format!("a frame has {head} bytes in front of its packet"))?;
        link.copy_from_slice(&self.link.to_bytes());
        let Some(inner_link) = &self.inner_link else {
            return Ok(());
        };
        let (ip_head, rest) = rest.split_at_mut(IP_HEAD);
        let (udp_head, payload) = rest.split_at_mut(UdpHeader::LEN);
        let (vxlan_head, inner) = payload.split_at_mut(VXLAN_HEAD.len());
        vxlan_head.copy_from_slice(&VXLAN_HEAD);
        inner[..Ethernet2Header::LEN].copy_from_slice(&inner_link.to_bytes());
        let (from, to) = (network::CLIENT_HOST.octets(), network::SERVER_HOST.octets());
        let mut ip = ipv4(UdpHeader::LEN + payload.len(), IpNumber::UDP, from, to)?;
        ip.dont_fragment = true;
        ip.header_checksum = ip.calc_header_checksum();
        let (source, destination) = (OUTER_SOURCE_PORT + flow, network::VXLAN_PORT);
        let udp = match checksum {
            OuterChecksum::LeftOut => {
                UdpHeader::without_ipv4_checksum(source, destination, payload.len())?
            }
            OuterChecksum::Made => {
                UdpHeader::with_ipv4_checksum(source, destination, &ip, payload)?
            }
        };
        ip_head.copy_from_slice(&ip.to_bytes());
        udp_head.copy_from_slice(&udp.to_bytes());
        Ok(())
    }

    /// Returns the packet in a frame of the server's machine, if the frame has one for the client.
    pub fn open<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let packet = packet_for(self.link.source, frame)?;
        let Some(inner_link) = &self.inner_link else {
            return Some(packet);
        };
        let outer = SlicedPacket::from_ip(packet).ok()?;
        let Some(TransportSlice::Udp(udp)) = outer.transport else {
            return None;
        };
        let inner = udp.payload().strip_prefix(&VXLAN_HEAD)?;
        (udp.destination_port() == network::VXLAN_PORT)
            .then(|| packet_for(inner_link.source, inner))?
    }
}

/// Returns the IPv4 packet in a frame for this address.
fn packet_for(mac: [u8; 6], frame: &[u8]) -> Option<&[u8]> {
    let (link, packet) = Ethernet2Header::from_slice(frame).ok()?;
    (link.destination == mac && link.ether_type == EtherType::IPV4).then_some(packet)
}

/// Returns the header of a packet, but for its checksum.
pub(crate) fn ipv4(
    payload: usize,
    protocol: IpNumber,
    from: [u8; 4],
    to: [u8; 4],
) -> Result<Ipv4Header> {
    let length = u16::try_from(payload).context("a packet is longer than 65,535 bytes")?;
    Ok(Ipv4Header::new(length, TIME_TO_LIVE, protocol, from, to)?)
}

fn mac(text: &str) -> Result<[u8; 6]> {
    network::mac_bytes(text).with_context(|| format!("no hardware address: {text:?}"))
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, PacketBuilder};

    use super::*;

    const NIC_MAC: &str = "52:54:00:00:00:03";
    const PACKET: [u8; 30] = [7; 30];

    fn sealed(overlay: bool, checksum: OuterChecksum) -> Vec<u8> {
        let envelope = Envelope::new(NIC_MAC, overlay).expect("an address");
        let mut frame = vec![0; envelope.head_bytes()];
        frame.extend(PACKET);
        envelope.seal(3, checksum, &mut frame).expect("room");
        frame
    }

    #[test]
    fn frames_without_overlay_have_a_link_s_header() {
        let frame = sealed(false, OuterChecksum::Made);
        let (link, packet) = Ethernet2Header::from_slice(&frame).expect("a frame");
        assert_eq!(link.destination, [0x52, 0x54, 0, 0, 0, 3]);
        assert_eq!(
            link.source,
            mac(network::CLIENT_HOST_MAC).expect("an address")
        );
        assert_eq!(packet, PACKET);
    }

    #[test]
    fn frames_of_the_overlay_have_two_and_good_checksums() {
        for checksum in [OuterChecksum::LeftOut, OuterChecksum::Made] {
            let frame = sealed(true, checksum);
            let outer = SlicedPacket::from_ethernet(&frame).expect("good headers");
            let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) =
                (outer.net, outer.transport)
            else {
                panic!("no UDP over IPv4");
            };
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(
                (ip.source, ip.destination),
                (network::CLIENT_HOST.octets(), network::SERVER_HOST.octets())
            );
            // GRO joins outer packets with one identification only if they must not be cut.
            assert!(ip.dont_fragment);
            let ports = (udp.source_port(), udp.destination_port());
            assert_eq!(ports, (OUTER_SOURCE_PORT + 3, network::VXLAN_PORT));
            let right = udp
                .to_header()
                .calc_checksum_ipv4(&ip, udp.payload())
                .expect("short enough");
            let wanted = match checksum {
                OuterChecksum::LeftOut => 0,
                OuterChecksum::Made => right,
            };
            assert_eq!(udp.checksum(), wanted);
            assert_eq!(udp.payload()[..8], [8, 0, 0, 0, 0, 0, 42, 0]);
            let (inner, packet) = Ethernet2Header::from_slice(&udp.payload()[8..]).expect("inner");
            let ends = [network::CONTAINER_MAC, network::CLIENT_MAC];
            let ends = ends.map(|text| mac(text).expect("an address"));
            assert_eq!([inner.destination, inner.source], ends);
            assert_eq!(packet, PACKET);
        }
    }

    #[test]
    fn a_frame_without_room_is_refused() {
        let envelope = Envelope::new(NIC_MAC, true).expect("an address");
        for bytes in [0, 14, 64] {
            let sealed = envelope.seal(0, OuterChecksum::Made, &mut vec![0; bytes]);
            assert!(sealed.is_err(), "{bytes}");
        }
        assert!(Envelope::new("52:54:00", true).is_err());
    }

    /// Returns a frame of the server's machine with this network identifier and port, for these two hardware addresses.
    fn answer(vni: u8, port: u16, outer: &str, inner: &str) -> Vec<u8> {
        let [outer, inner, nic] = [outer, inner, NIC_MAC].map(|text| mac(text).expect("good"));
        let mut payload = vec![8, 0, 0, 0, 0, 0, vni, 0];
        payload.extend(inner);
        payload.extend(nic);
        payload.extend([8, 0]);
        payload.extend(PACKET);
        let (from, to) = (network::SERVER_HOST.octets(), network::CLIENT_HOST.octets());
        let head = PacketBuilder::ethernet2(nic, outer).ipv4(from, to, 64);
        let mut frame = Vec::new();
        head.udp(1, port)
            .write(&mut frame, &payload)
            .expect("a frame");
        frame
    }

    #[test]
    fn packets_for_the_client_are_found_and_nothing_else() {
        let overlay = Envelope::new(NIC_MAC, true).expect("an address");
        let native = Envelope::new(NIC_MAC, false).expect("an address");
        let (host, client) = (network::CLIENT_HOST_MAC, network::CLIENT_MAC);
        let good = answer(42, network::VXLAN_PORT, host, client);
        assert_eq!(overlay.open(&good), Some(&PACKET[..]));
        assert_eq!(native.open(&good), Some(&good[14..]));
        for other in [
            answer(43, network::VXLAN_PORT, host, client),
            answer(42, network::VXLAN_PORT + 1, host, client),
            answer(42, network::VXLAN_PORT, client, client),
            answer(42, network::VXLAN_PORT, host, host),
            good[..60].to_vec(),
            sealed(true, OuterChecksum::Made),
            Vec::new(),
        ] {
            assert_eq!(overlay.open(&other), None);
        }
        assert_eq!(native.open(&sealed(false, OuterChecksum::Made)), None);
        // No IPv4.
        let mut arp = good;
        arp[13] = 6;
        assert_eq!(native.open(&arp), None);
    }
}
