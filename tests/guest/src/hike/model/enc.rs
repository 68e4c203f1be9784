// SPDX-License-Identifier: GPL-2.0

//! The model of `enc`: RFC 8986, 5.1 and 5.2.

use mflow_hike::config::path::{Dscp, Exceptions, FlowLabel};
use mflow_hike::Path;

use super::packet::{Packet, IPV6, TCP, UDP};

impl Packet {
    pub(crate) fn encapsulate(&mut self, path: &Path) -> Result<(), &'static str> {
        let inner_bytes = self.ip_bytes()?;
        let left = path.exceptions == Exceptions::Left;
        if self.is_hop() && self.hop_limit() <= 1 {
            // Behind outer headers of ours, the kernel would answer this host.
            let answers = path.exceptions == Exceptions::Told && self.on_path == 0;
            return Err(if left || answers {
                "enc-hop-limit"
            } else {
                "enc-hop-limit-end"
            });
        }
        let outer_bytes = path.bytes();
        if self.wire_bytes(inner_bytes, outer_bytes) > usize::from(path.mtu) {
            return Err(match path.exceptions {
                Exceptions::Told => self.tell(path, path.mtu.into(), self.on_path + 1),
                Exceptions::Left if self.answered.is_none() => "enc-too-big",
                Exceptions::Left => "enc-too-big-end",
                Exceptions::Dropped => "enc-too-big-end",
            });
        }
        if self.is_offloaded() {
            return Err(if left {
                "enc-offload"
            } else {
                "enc-offload-end"
            });
        }
        if self.is_hop() {
            if self.headroom < outer_bytes {
                return Err("no-headroom");
            }
            self.headroom -= outer_bytes;
        }
        let outer = self.outer(path, inner_bytes);
        if self.is_hop() {
            self.decrease_hop_limit();
        }
        let at = self.ip_at;
        self.frame[at - 2..at].copy_from_slice(&IPV6.to_be_bytes());
        self.frame.splice(at..at, outer);
        self.on_path += 1;
        Ok(())
    }

    fn outer(&self, path: &Path, inner_bytes: usize) -> Vec<u8> {
        let v6 = self.is_v6();
        let ip = self.ip();
        let class = if v6 { ip[0] << 4 | ip[1] >> 4 } else { ip[1] };
        let dscp = match path.dscp {
            Dscp::Copied => class >> 2,
            Dscp::Fixed(dscp) => dscp,
        };
        // RFC 6040, normal mode: all of the inner ECN field.
        let class = dscp << 2 | class & 3;
        let label = match path.flow_label {
            FlowLabel::Fixed(label) => label,
            FlowLabel::PerFlow => self.label(),
        };
        let listed = path.listed_sids();
        let inner = if v6 { 41 } else { 4 };
        let mut next_headers = Vec::new();
        next_headers.extend(path.flow_id.map(|_| 60));
        next_headers.extend((!listed.is_empty()).then_some(43));
        next_headers.push(inner);
        let mut next = next_headers.into_iter();
        let mut next_header = || next.next().unwrap_or(59);

        let mut outer = (6 << 28 | u32::from(class) << 20 | label)
            .to_be_bytes()
            .to_vec();
        // CAST: it fits into the path's MTU.
        outer.extend(((inner_bytes + path.bytes() - 40) as u16).to_be_bytes());
        outer.extend([next_header(), path.hop_limit]);
        outer.extend(path.source.octets());
        outer.extend(path.sids[0].octets());
        if let Some(flow_id) = path.flow_id {
            outer.extend([next_header(), 0, 0x12, 4]);
            outer.extend((flow_id << 12).to_be_bytes());
        }
        if !listed.is_empty() {
            // CAST: ten at most.
            let (entries, sids) = (listed.len() as u8, path.sids.len() as u8);
            outer.extend([
                next_header(),
                entries * 2,
                4,
                sids - 1,
                entries - 1,
                0,
                0,
                0,
            ]);
            for sid in listed.iter().rev() {
                outer.extend(sid.octets());
            }
        }
        outer
    }

    /// Returns the flow label of what is inside: any good enough hash would do, and this is the one of `enc.h`.
    fn label(&self) -> u32 {
        let mix = |hash: u64, one: u32, two: u32| {
            let hash = (hash ^ (u64::from(one) << 32 | u64::from(two)))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 32
        };
        let v6 = self.is_v6();
        let ip = self.ip();
        let native = |at: usize| u32::from_ne_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
        let ports = |at: usize, protocol: u8| match ip.get(at..at + 4) {
            Some(ports) if protocol == UDP || protocol == TCP => {
                u32::from_be_bytes([ports[0], ports[1], ports[2], ports[3]])
            }
            _ => 0,
        };
        let (hash, protocol, ports) = if v6 {
            let label = u32::from_be_bytes([0, ip[1] & 15, ip[2], ip[3]]);
            let hash = (0..4).fold(u64::from(label), |hash, word| {
                mix(hash, native(8 + 4 * word), native(24 + 4 * word))
            });
            (hash, ip[6], ports(40, ip[6]))
        } else {
            let whole = ip[0] & 15 == 5 && ip[6] & 0x3f == 0 && ip[7] == 0;
            let ports = if whole { ports(20, ip[9]) } else { 0 };
            (mix(0, native(12), native(16)), ip[9], ports)
        };
        // CAST: the upper 20 bits.
        let label = (mix(hash, ports, protocol.into()) >> 44) as u32;
        label.max(1)
    }
}
