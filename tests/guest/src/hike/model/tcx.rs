// SPDX-License-Identifier: GPL-2.0

//! The model of what is different where packets leave: at tcx, egress.

use super::packet::{Hop, Packet, Segments, TCP, UDP};

/// The longest that an IPv4 header can say; an IPv6 header says it of what is behind.
const MOST_BYTES: usize = 0xffff;
const ETHERNET_BYTES: usize = 14;

impl Packet {
    /// Finds out what it becomes on the wire: only of TCP and UDP right behind the IP header is that known to the byte.
    pub(crate) fn segments(&self) -> Segments {
        let uncut = Segments {
            count: 1,
            longest: None,
        };
        let Some(leaving) = self.leaving.filter(|leaving| leaving.gso_size > 0) else {
            return uncut;
        };
        let count = u64::from(leaving.gso_segs);
        let (whole, size) = (
            self.frame.len() - ETHERNET_BYTES,
            usize::from(leaving.gso_size),
        );
        match self.header_bytes() {
            Some(header) if header < whole => Segments {
                count: match count {
                    0 => (whole - header).div_ceil(size) as u64,
                    count => count,
                },
                longest: Some((header + size).min(whole).min(MOST_BYTES)),
            },
            _ => Segments {
                count: count.max(1),
                longest: None,
            },
        }
    }

    /// Returns the length of the headers that each segment has.
    fn header_bytes(&self) -> Option<usize> {
        let v6 = self.is_v6();
        let ip = self.ip();
        let (protocol, bytes) = match v6 {
            true => (ip[6], 40),
            false => (ip[9], 4 * usize::from(ip[0] & 15)),
        };
        match protocol {
            UDP => Some(bytes + 8),
            TCP => {
                let tcp = ip.get(bytes..bytes + 20)?;
                Some(bytes + 4 * usize::from(tcp[12] >> 4))
            }
            _ => None,
        }
    }

    /// Returns how long it is on the wire with this many bytes in front.
    pub(crate) fn wire_bytes(&self, whole: usize, more: usize) -> usize {
        match self.segments.longest {
            Some(longest) if whole + more <= MOST_BYTES => longest + more,
            _ => whole + more,
        }
    }

    /// Returns whether a task is left to the device that it cannot do behind another outer header. A test run knows no kind of
    /// segments for which the device could do it.
    pub(crate) fn is_offloaded(&self) -> bool {
        self.leaving.is_some_and(|leaving| leaving.gso_size > 0)
    }

    /// Sends it to a next hop: it stays at the device that it is at if that is the one; the kernel finds out about unknown neighbours.
    pub(crate) fn leave_at_tcx(&mut self, hop: &Hop) -> Result<(), &'static str> {
        let here = self
            .leaving
            .is_some_and(|leaving| leaving.device == Some(hop.source));
        // A VLAN's device is one like others here, and is no port.
        if !here && (!hop.is_port || !hop.tags.is_empty()) {
            return Err("fw-no-port");
        }
        if let Some(next) = hop.destination {
            self.frame[..6].copy_from_slice(&next);
            self.frame[6..12].copy_from_slice(&hop.source);
            self.stays = here;
        }
        Err("forwarded")
    }
}
