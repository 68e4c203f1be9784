// SPDX-License-Identifier: GPL-2.0

//! The parser of the card: it finds a frame's outermost headers, without copying them.

use super::checksum;
use crate::firmware::field::be16;

/// Bytes of an Ethernet header.
pub const LINK_BYTES: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_BYTES: usize = 4;
/// The shortest frame, without its check sequence.
pub const LEAST_BYTES: usize = 60;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// The IP protocol number of TCP.
pub const TCP: u8 = 6;
/// The IP protocol number of UDP.
pub const UDP: u8 = 17;

/// Bits of a TCP header's thirteenth byte.
pub mod tcp_flag {
    /// The sender is done.
    pub const FIN: u8 = 0x01;
    /// Deliver at once.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Priority and identifier.
    pub control: u16,
    /// True if it is a service tag (802.1ad).
    pub service: bool,
}

/// The Internet layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// 4 or 6.
    pub version: u8,
    /// The offset of its header.
    pub at: usize,
    /// The protocol number of its payload.
    pub protocol: u8,
    /// True if it is a fragment of a larger packet.
    pub fragment: bool,
    /// The offset of its payload.
    pub payload: usize,
    /// The offset of its payload's end, by its own length field.
    pub end: usize,
}

/// A frame's outermost headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The type after all tags.
    pub ether_type: u16,
    /// The outer tag.
    pub tag: Option<Tag>,
    /// The Internet layer, if the frame has a good one.
    pub ip: Option<Ip>,
    /// True if a whole TCP or UDP header follows.
    pub ports: bool,
}

impl Headers {
    /// Parses a frame; a header that is cut off counts as absent.
    pub fn parse(frame: &[u8]) -> Self {
        let mut at = 12;
        let mut tag = None;
        let mut ether_type = be16(frame, at);
        // Two tags at most.
        for _ in 0..2 {
            let is_tag = matches!(ether_type, CUSTOMER_TAG | SERVICE_TAG);
            if !is_tag || frame.len() < at + TAG_BYTES {
                break;
            }
            tag = tag.or(Some(Tag {
                control: be16(frame, at + 2),
                service: ether_type == SERVICE_TAG,
            }));
            at += TAG_BYTES;
            ether_type = be16(frame, at);
        }
        let ip = match ether_type {
            IPV4 => ipv4(frame, at + 2),
            IPV6 => ipv6(frame, at + 2),
            _ => None,
        };
        let ports = ip.is_some_and(|ip| {
            let need = match ip.protocol {
                TCP => 20,
                UDP => 8,
                _ => return false,
            };
            !ip.fragment && ip.payload + need <= ip.end
        });
        Self {
            ether_type,
            tag,
            ip,
            ports,
        }
    }
}

fn ipv4(frame: &[u8], at: usize) -> Option<Ip> {
    let header = frame.get(at..at + 20)?;
    let bytes = usize::from(header[0] & 15) * 4;
    let total = usize::from(be16(header, 2));
    if header[0] >> 4 != 4 || bytes < 20 || total < bytes || frame.len() < at + total {
        return None;
    }
    Some(Ip {
        version: 4,
        at,
        protocol: header[9],
        fragment: be16(header, 6) & 0x3fff != 0,
        payload: at + bytes,
        end: at + total,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Ip> {
    let header = frame.get(at..at + 40)?;
    let end = at + 40 + usize::from(be16(header, 4));
    if header[0] >> 4 != 6 || frame.len() < end {
        return None;
    }
    let mut protocol = header[6];
    let mut payload = at + 40;
    let mut fragment = false;
    // Hop-by-hop, routing, fragment and destination options; eight are more than real traffic has.
    for _ in 0..8 {
        let bytes = match protocol {
            0 | 43 | 60 => 8 + usize::from(*frame.get(payload + 1)?) * 8,
            44 => {
                fragment |= be16(frame, payload + 2) & 0xfff9 != 0;
                8
            }
            _ => break,
        };
        if payload + bytes > end {
            return None;
        }
        protocol = frame[payload];
        payload += bytes;
    }
    Some(Ip {
        version: 6,
        at,
        protocol,
        fragment,
        payload,
        end,
    })
}

impl Ip {
    /// Returns the two addresses.
    pub fn addresses<'a>(&self, frame: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (from, bytes) = if self.version == 4 {
            (self.at + 12, 4)
        } else {
            (self.at + 8, 16)
        };
        (
            &frame[from..from + bytes],
            &frame[from + bytes..from + 2 * bytes],
        )
    }

    /// Returns whether the checksum of the IP header is right; IPv6 has none.
    pub fn is_good(&self, frame: &[u8]) -> bool {
        self.version == 6 || checksum::sum(&frame[self.at..self.payload]) == 0xffff
    }

    /// Returns whether the checksum of the TCP or UDP header is right, or there is none.
    pub fn transport_is_good(&self, frame: &[u8]) -> bool {
        if self.protocol == UDP && self.version == 4 && be16(frame, self.payload + 6) == 0 {
            return true;
        }
        checksum::finish(self.pseudo(frame, &frame[self.payload..self.end])) == 0
    }

    /// Writes the checksum of the IP header.
    pub fn write_checksum(&self, frame: &mut [u8]) {
        if self.version == 4 {
            frame[self.at + 10..self.at + 12].fill(0);
            let sum = checksum::finish(checksum::add(0, &frame[self.at..self.payload]));
            frame[self.at + 10..self.at + 12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Writes the checksum of the TCP or UDP header, if there is one.
    pub fn write_transport_checksum(&self, frame: &mut [u8]) {
        let at = self.payload + if self.protocol == TCP { 16 } else { 6 };
        frame[at..at + 2].fill(0);
        let mut sum = checksum::finish(self.pseudo(frame, &frame[self.payload..self.end]));
        if self.protocol == UDP && sum == 0 {
            // Zero would mean that there is none.
            sum = 0xffff;
        }
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the sum of the payload and of the part of the IP header that belongs to it.
    fn pseudo(&self, frame: &[u8], payload: &[u8]) -> u32 {
        let (from, to) = self.addresses(frame);
        let sum = checksum::add(checksum::add(0, from), to);
        let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
        checksum::add(checksum::add(sum, &length), &[0, self.protocol])
            .wrapping_add(checksum::add(0, payload))
    }
}

/// Takes the outer tag out of a frame.
pub fn strip_tag(frame: &mut Vec<u8>) {
    frame.drain(12..12 + TAG_BYTES);
}

/// Puts a tag into a frame.
pub fn insert_tag(frame: &mut Vec<u8>, tag: Tag) {
    if frame.len() >= 12 {
        let kind = if tag.service {
            SERVICE_TAG
        } else {
            CUSTOMER_TAG
        };
        let [a, b] = kind.to_be_bytes();
        let [c, d] = tag.control.to_be_bytes();
        frame.splice(12..12, [a, b, c, d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::datagram;

    #[test]
    fn checksums_that_are_written_are_good() {
        let mut frame = datagram(b"odd length", [1, 2]);
        frame.push(9);
        let headers = Headers::parse(&frame);
        let ip = headers.ip.unwrap();
        assert!(headers.ports && ip.is_good(&frame) && ip.transport_is_good(&frame));
        assert_eq!(ip.end, frame.len() - 1);
        frame[45] ^= 1;
        assert!(ip.is_good(&frame) && !ip.transport_is_good(&frame));
        frame[20] ^= 1;
        assert!(!ip.is_good(&frame));
    }

    #[test]
    fn tags_come_and_go() {
        let plain = datagram(b"x", [1, 2]);
        let tag = Tag {
            control: 0x2005,
            service: false,
        };
        let mut frame = plain.clone();
        insert_tag(&mut frame, tag);
        let headers = Headers::parse(&frame);
        assert_eq!((headers.tag, headers.ether_type), (Some(tag), IPV4));
        assert_eq!(headers.ip.unwrap().at, 18);
        strip_tag(&mut frame);
        assert_eq!(frame, plain);
    }

    #[test]
    fn nothing_that_is_cut_off_is_seen() {
        let frame = datagram(b"payload", [1, 2]);
        for end in 0..frame.len() {
            assert_eq!(Headers::parse(&frame[..end]).ip, None);
        }
        let mut fragment = frame.clone();
        fragment[20] = 0x20;
        assert!(!Headers::parse(&fragment).ports);
    }
}
