// SPDX-License-Identifier: GPL-2.0

//! The model of answers to the sources of packets that are too big: RFC 4443, 3.2, and RFC 1191, 4.

use std::net::{IpAddr, Ipv4Addr};

use mflow_hike::Path;

use super::packet::{Packet, IPV4, IPV6};
use super::programs::routable;

/// The bytes of an answer: the least MTU of IPv6, and what each host of IPv4 takes.
const ANSWER_V6_BYTES: usize = 1_280;
const ANSWER_V4_BYTES: usize = 576;
const LEAST_MTU_V6: usize = 1_280;
/// The address of one who has none: no route leads back to the sources of the model's frames.
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const FRAGMENT: u8 = 44;

impl Packet {
    /// Becomes the answer to its source that this many headers of the path leave of `most` bytes. Returns the reason.
    pub(crate) fn tell(&mut self, path: &Path, most: usize, headers: usize) -> &'static str {
        // The source of an answer to a test packet is this host.
        let told = self
            .answered
            .is_none()
            .then(|| self.answer(path, most, headers));
        match told.flatten() {
            Some(answer) => {
                self.frame = answer;
                "enc-too-big-told"
            }
            None => "enc-too-big-end",
        }
    }

    fn answer(&self, path: &Path, most: usize, headers: usize) -> Option<Vec<u8>> {
        let mtu = most.checked_sub(headers * path.bytes())?;
        // Where packets leave, none is turned round.
        if mtu == 0 || !self.is_hop() {
            return None;
        }
        let mut told = self.clone();
        let outer_bytes = self.on_path * path.bytes();
        told.frame.drain(self.ip_at..self.ip_at + outer_bytes);
        let bytes = told.ip_bytes().ok()?;
        let (from, to) = told.ends();
        if !routable(from) || !routable(to) {
            return None;
        }
        let v6 = told.is_v6();
        let ip = told.ip();
        let (answer, kind) = match (from, v6) {
            (IpAddr::V6(to), true) => {
                if bytes <= LEAST_MTU_V6 || !may_be_told_v6(ip) {
                    return None;
                }
                let mtu = mtu.max(LEAST_MTU_V6);
                let quote = &ip[..ANSWER_V6_BYTES - 48];
                let mut icmp = vec![2, 0, 0, 0];
                // CAST: below 65536.
                icmp.extend((mtu as u32).to_be_bytes());
                icmp.extend(quote);
                // CAST: 1,240.
                let length = (icmp.len() as u16).to_be_bytes();
                let ends = [path.source.octets(), to.octets()].concat();
                let pseudo = [&ends[..], &[0, 0], &length, &[0, 0, 0, ICMPV6]].concat();
                let sum = checksum(&[&pseudo[..], &icmp].concat());
                icmp[2..4].copy_from_slice(&sum);
                let head = [0x60, 0, 0, 0, length[0], length[1], ICMPV6, 64];
                ([&head[..], &ends, &icmp].concat(), IPV6)
            }
            (IpAddr::V4(to), false) => {
                if bytes < ANSWER_V4_BYTES || !may_be_told_v4(ip) {
                    return None;
                }
                let quote = &ip[..ANSWER_V4_BYTES - 28];
                // CAST: below 65536.
                let [high, low] = (mtu as u16).to_be_bytes();
                let mut icmp = [&[3, 4, 0, 0, 0, 0, high, low][..], quote].concat();
                let sum = checksum(&icmp);
                icmp[2..4].copy_from_slice(&sum);
                // CAST: 576.
                let length = (ANSWER_V4_BYTES as u16).to_be_bytes();
                let mut head = vec![0x45, 0xc0, length[0], length[1], 0, 0, 0x40, 0, 64, ICMP];
                head.extend([0, 0]);
                head.extend(NO_ADDRESS.octets());
                head.extend(to.octets());
                let sum = checksum(&head);
                head[10..12].copy_from_slice(&sum);
                ([head, icmp].concat(), IPV4)
            }
            _ => return None,
        };
        let header_bytes = if v6 { 48 } else { 28 };
        if header_bytes > outer_bytes + self.headroom {
            return None;
        }
        let (to, from) = (&self.frame[..6], &self.frame[6..12]);
        let tags = &self.frame[12..self.ip_at - 2];
        Some([from, to, tags, &kind.to_be_bytes(), &answer].concat())
    }
}

/// Returns whether errors are sent for a packet: not for errors, redirects, and what cannot be told from these.
fn may_be_told_v6(ip: &[u8]) -> bool {
    let (mut protocol, mut at) = (ip[6], 40);
    for _ in 0..4 {
        let Some(header) = ip.get(at..at + 8) else {
            return false;
        };
        match protocol {
            ICMPV6 => return header[0] >= 128 && header[0] != 137,
            0 | 43 | 60 => at += 8 * (usize::from(header[1]) + 1),
            FRAGMENT if u16::from_be_bytes([header[2], header[3]]) >= 8 => {
                return header[0] != ICMPV6;
            }
            FRAGMENT => at += 8,
            _ => return true,
        }
        protocol = header[0];
    }
    false
}

/// The same of IPv4; and whether a packet may not be cut, without which it is not too big for anything.
fn may_be_told_v4(ip: &[u8]) -> bool {
    let fragment = u16::from_be_bytes([ip[6], ip[7]]);
    if fragment & 0x4000 == 0 || fragment & 0x1fff != 0 {
        return false;
    }
    let header_bytes = 4 * usize::from(ip[0] & 15);
    let icmp = ip.get(header_bytes..header_bytes + 8);
    ip[9] != ICMP || icmp.is_some_and(|icmp| matches!(icmp[0], 0 | 8 | 13..=18))
}

/// Returns the checksum of an even number of bytes: RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let halves = bytes.chunks_exact(2);
    let mut sum: u32 = halves
        .map(|half| u32::from(u16::from_be_bytes([half[0], half[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: all carries have been added.
    (!(sum as u16)).to_be_bytes()
}
