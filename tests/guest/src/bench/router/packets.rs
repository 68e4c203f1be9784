// SPDX-License-Identifier: GPL-2.0

//! The packets that the router receives: small datagrams of IPv4, IPv6, or IPv6 in SRv6, to as many destinations as there are
//! flows.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{ensure, Context as _, Result};
use etherparse::PacketBuilder;
use mflow_protocol::bench::{Copies, Packets, PORT};
use mflow_protocol::network::{mac_bytes, CLIENT_HOST_MAC};

const SRC_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(super) const DST_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 4, 2);
pub(super) const SRC_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x60, 0, 0, 0, 0, 0, 1);
const HOP_LIMIT: u8 = 64;
const PAYLOAD: [u8; 16] = *b"sixteen of bytes";
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
/// The offset of the last two bytes of the destination in a frame of IPv6.
const FLOW_AT: usize = ETHERNET_BYTES + IPV6_BYTES - 2;

const ROUTING: u8 = 43;
const IPV6: u8 = 41;
const SEGMENT_ROUTING: u8 = 4;

pub(super) struct Traffic {
    pub(super) packets: Packets,
    pub(super) flows: u16,
    frame: Vec<u8>,
}

impl Traffic {
    /// Returns the traffic for the NIC with this address.
    pub(super) fn new(packets: Packets, flows: u16, nic_mac: &str) -> Result<Self> {
        let frame = frame(packets, nic_mac)?;
        ensure!(
            flows == 1 || packets == Packets::V6,
            "only plain IPv6 packets have several destinations"
        );
        Ok(Self {
            packets,
            flows,
            frame,
        })
    }

    /// Returns the order for as many frames as may be on their way.
    pub(super) fn copies(&self, credit: u64) -> Copies {
        Copies {
            frame: self.frame.clone(),
            flows: self.flows,
            flow_at: (self.flows > 1).then_some(FLOW_AT),
            credit,
        }
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        // CAST: a frame.
        self.frame.len() as u64
    }
}

/// Returns the destination of a flow.
pub(super) fn destination(flow: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x70, 0, 0, 0, 0, 0, flow)
}

/// Returns the SIDs of a flow's path, in the order in which they are visited; the first ones are in `fc00:1::/32`.
pub(super) fn sids(count: u16, flow: u16) -> Vec<Ipv6Addr> {
    (1..=count)
        .map(|place| Ipv6Addr::new(0xfc00, place, 0, 0, 0, 0, 0, flow))
        .collect()
}

/// Returns the bytes of the outer headers with this many SIDs.
pub(super) fn outer_bytes(sids: u16) -> u64 {
    // CAST: forty.
    IPV6_BYTES as u64 + 8 + 16 * u64::from(sids)
}

fn frame(packets: Packets, nic_mac: &str) -> Result<Vec<u8>> {
    let ethernet = PacketBuilder::ethernet2(address(CLIENT_HOST_MAC)?, address(nic_mac)?);
    let mut frame = Vec::new();
    match packets {
        Packets::V4 => ethernet
            .ipv4(SRC_V4.octets(), DST_V4.octets(), HOP_LIMIT)
            .udp(PORT, PORT)
            .write(&mut frame, &PAYLOAD)?,
        Packets::V6 | Packets::Srv6 { .. } => ethernet
            .ipv6(SRC_V6.octets(), destination(0).octets(), HOP_LIMIT)
            .udp(PORT, PORT)
            .write(&mut frame, &PAYLOAD)?,
    }
    if let Packets::Srv6 { sids: count } = packets {
        let inner = frame.split_off(ETHERNET_BYTES);
        frame.extend(outer(&sids(count, 0), inner.len())?);
        frame.extend(inner);
    }
    Ok(frame)
}

/// Returns the outer headers of a packet that is under way to the first of its SIDs: IPv6 and an SRH (RFC 8754).
fn outer(sids: &[Ipv6Addr], inner_bytes: usize) -> Result<Vec<u8>> {
    let first = sids.first().context("a path has one SID at least")?;
    let left = u8::try_from(sids.len() - 1)?;
    let words = u8::try_from(2 * sids.len())?;
    let mut headers = vec![0x60, 0, 0, 0];
    let srh_bytes = 8 + 16 * sids.len();
    headers.extend(u16::try_from(srh_bytes + inner_bytes)?.to_be_bytes());
    headers.extend([ROUTING, HOP_LIMIT]);
    headers.extend(SRC_V6.octets());
    headers.extend(first.octets());
    headers.extend([IPV6, words, SEGMENT_ROUTING, left, left, 0, 0, 0]);
    headers.extend(sids.iter().rev().flat_map(Ipv6Addr::octets));
    Ok(headers)
}

/// Reads an Ethernet address.
pub(super) fn address(text: &str) -> Result<[u8; 6]> {
    mac_bytes(text).with_context(|| format!("no hardware address: {text:?}"))
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket};

    use super::*;

    const NIC: &str = "52:54:00:00:00:03";

    #[test]
    fn the_flow_s_number_is_the_end_of_the_destination() {
        let mut order = Traffic::new(Packets::V6, 300, NIC).expect("good").copies(1);
        let at = order.flow_at.expect("several flows");
        order.frame[at..at + 2].copy_from_slice(&0x012a_u16.to_be_bytes());
        let sliced = SlicedPacket::from_ethernet(&order.frame).expect("good headers");
        let Some(NetSlice::Ipv6(ip)) = sliced.net else {
            panic!("no IPv6");
        };
        assert_eq!(ip.header().destination_addr(), destination(0x012a));
        assert!(Traffic::new(Packets::V4, 2, NIC).is_err());
        let one = Traffic::new(Packets::V4, 1, NIC).expect("good");
        assert_eq!(one.copies(1).flow_at, None);
    }

    #[test]
    fn srv6_packets_are_on_their_way_to_the_first_sid() {
        let plain = frame(Packets::V6, NIC).expect("good");
        let frame = frame(Packets::Srv6 { sids: 3 }, NIC).expect("good");
        assert_eq!(
            frame.len() as u64,
            plain.len() as u64 + outer_bytes(3),
            "{frame:02x?}"
        );
        let ip = &frame[ETHERNET_BYTES..];
        assert_eq!(ip[24..40], sids(3, 0)[0].octets());
        assert_eq!(ip[40..48], [41, 6, 4, 2, 2, 0, 0, 0]);
        assert_eq!(ip[48..64], sids(3, 0)[2].octets());
        assert_eq!(ip[80..96], sids(3, 0)[0].octets());
        assert_eq!(ip[96..], plain[ETHERNET_BYTES..]);
        let length = u16::from_be_bytes([ip[4], ip[5]]);
        assert_eq!(usize::from(length), ip.len() - 40);
    }
}
