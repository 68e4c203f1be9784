// SPDX-License-Identifier: GPL-2.0

//! The names that people use for a flow. The packet path knows only a key, from which nothing can be read.

use crate::algo::headers::flow_key::{Ipv4Flow, ETH_P_IP, ETH_P_IPV6, IPPROTO_TCP, IPPROTO_UDP};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Words that hold a name.
pub(crate) const NAME_WORDS: usize = 5;

/// The outer addresses and ports of a flow, and the queue of the NIC that a packet of it came through. All that is unknown
/// in the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowName {
    /// The addresses and ports on the wire.
    pub wire: Option<WireName>,
    /// The receive queue, if the driver has noted it.
    pub rx_queue: Option<u16>,
}

/// The protocol, addresses and ports of a flow on the wire. A [`FlowKey`](crate::algo::headers::flow_key::FlowKey) is a hash of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireName {
    /// UDP's or TCP's number.
    pub protocol: u8,
    /// The address and port of the sender.
    pub source: SocketAddr,
    /// The address and port of the receiver. For an overlay, these are the host and the tunnel's port.
    pub destination: SocketAddr,
}

impl WireName {
    /// Returns the name of the flow of a packet that has a key. `eth_proto` and `packet` as for
    /// [`FlowHasher::key`](crate::algo::headers::flow_key::FlowHasher::key).
    pub fn of(eth_proto: u16, packet: &[u8]) -> Option<Self> {
        match eth_proto {
            ETH_P_IP => {
                let (protocol, [source, destination], ports) = Ipv4Flow::of(packet)?.parts();
                let addresses = [source, destination].map(|address| Ipv4Addr::from(address).into());
                Some(Self::new(protocol, addresses, ports))
            }
            ETH_P_IPV6 => {
                let ([_, _, _, _, _, _, protocol, _], rest) = packet.split_first_chunk()?;
                let (source, rest) = rest.split_first_chunk::<16>()?;
                let (destination, l4) = rest.split_first_chunk::<16>()?;
                let (source_port, l4) = l4.split_first_chunk()?;
                let ports = [*source_port, *l4.first_chunk()?];
                let addresses =
                    [source, destination].map(|address| Ipv6Addr::from(*address).into());
                let is_known = matches!(*protocol, IPPROTO_UDP | IPPROTO_TCP);
                is_known.then(|| Self::new(*protocol, addresses, ports))
            }
            _ => None,
        }
    }

    fn new(protocol: u8, addresses: [IpAddr; 2], ports: [[u8; 2]; 2]) -> Self {
        let [source, destination] = addresses;
        let [source_port, destination_port] = ports.map(u16::from_be_bytes);
        Self {
            protocol,
            source: SocketAddr::new(source, source_port),
            destination: SocketAddr::new(destination, destination_port),
        }
    }
}

/// In the last word: that there is a name on the wire, that it is one of IPv6, and that the queue is known. Below are queue and
/// protocol, above the ports.
const HAS_WIRE: u64 = 1 << 24;
const IS_IPV6: u64 = 1 << 25;
const HAS_QUEUE: u64 = 1 << 26;

impl FlowName {
    /// Returns the words that [`of_words`](Self::of_words) makes the name of.
    pub(crate) fn words(&self) -> [u64; NAME_WORDS] {
        let mut last = match self.rx_queue {
            Some(queue) => u64::from(queue) | HAS_QUEUE,
            None => 0,
        };
        let mut addresses = [[0; 2]; 2];
        if let Some(wire) = &self.wire {
            let ends = [wire.source, wire.destination];
            addresses = ends.map(|end| match end.ip() {
                IpAddr::V4(address) => [u64::from(u32::from(address)), 0],
                IpAddr::V6(address) => {
                    let bits = u128::from(address);
                    // CAST: the two halves.
                    [bits as u64, (bits >> 64) as u64]
                }
            });
            last |= HAS_WIRE | u64::from(wire.protocol) << 16;
            last |= u64::from(wire.source.port()) << 32 | u64::from(wire.destination.port()) << 48;
            if wire.source.is_ipv6() {
                last |= IS_IPV6;
            }
        }
        let [[a, b], [c, d]] = addresses;
        [a, b, c, d, last]
    }

    pub(crate) fn of_words(words: [u64; NAME_WORDS]) -> Self {
        let [a, b, c, d, last] = words;
        // CAST: the fields of the word, 16 bits each and 8 for the protocol.
        let field = |at: u32| (last >> at) as u16;
        let address = |[low, high]: [u64; 2]| match last & IS_IPV6 {
            // CAST: the address has 32 bits.
            0 => IpAddr::from(Ipv4Addr::from(low as u32)),
            _ => Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)).into(),
        };
        let wire = WireName {
            protocol: field(16) as u8,
            source: SocketAddr::new(address([a, b]), field(32)),
            destination: SocketAddr::new(address([c, d]), field(48)),
        };
        Self {
            wire: (last & HAS_WIRE != 0).then_some(wire),
            rx_queue: (last & HAS_QUEUE != 0).then_some(field(0)),
        }
    }
}

impl fmt::Display for FlowName {
    /// Writes keys and values, a dash for what is unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rx_queue {
            Some(queue) => write!(f, "queue {queue} "),
            None => f.write_str("queue - "),
        }?;
        match &self.wire {
            Some(wire) => wire.fmt(f),
            None => f.write_str("proto - from - to -"),
        }
    }
}

impl fmt::Display for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            IPPROTO_TCP => "tcp",
            _ => "udp",
        };
        let (source, destination) = (self.source, self.destination);
        write!(f, "proto {protocol} from {source} to {destination}")
    }
}
