// SPDX-License-Identifier: GPL-2.0

//! The model of local SIDs: what `end`, `end-x` and `dec` shall do, written from RFC 8986, 8754 and 6040.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use mflow_hike::{Behaviour, Flavours};

use super::packet::{Hop, Packet, Tag, IPV4, IPV6};
use super::programs::{route_to, Prefix};

const IPV6_BYTES: usize = 40;
const INSIDE_V4: u8 = 4;
const INSIDE_V6: u8 = 41;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;

/// Headers in front of what a packet carries; places are those in the frame.
struct Headers {
    /// The byte that names the SRH, or what would be in its place.
    named_at: usize,
    srh_at: usize,
    srh_bytes: usize,
    segments_left: usize,
    /// The protocol number of the payload behind these headers.
    carries: u8,
}

impl Packet {
    /// Reads the headers, which are destination options of eight bytes and an SRH without TLVs, or one of the two, or none.
    fn headers(&self) -> Result<Headers, &'static str> {
        if !self.is_v6() {
            return Err("sid-headers");
        }
        let ip_end = self.ip_at + self.ip_bytes()?;
        let mut headers = Headers {
            named_at: self.ip_at + 6,
            srh_at: self.ip_at + IPV6_BYTES,
            srh_bytes: 0,
            segments_left: 0,
            carries: self.frame[self.ip_at + 6],
        };
        let eight = |at: usize| self.frame.get(at..at + 8).ok_or("malformed");
        if headers.carries == DESTINATION_OPTIONS {
            let options = eight(headers.srh_at)?;
            if options[1] != 0 {
                return Err("sid-headers");
            }
            headers.named_at = headers.srh_at;
            headers.srh_at += 8;
            headers.carries = options[0];
        }
        if headers.carries == ROUTING {
            let srh = eight(headers.srh_at)?;
            if srh[2] != 4 {
                return Err("sid-headers");
            }
            let listed = usize::from(srh[4]) + 1;
            headers.carries = srh[0];
            headers.segments_left = srh[3].into();
            headers.srh_bytes = 8 * (usize::from(srh[1]) + 1);
            let needed = 8 + 16 * listed;
            // A first segment that is not listed is left, too, where H.Encaps.Red has put the packet in.
            if needed > headers.srh_bytes || headers.segments_left > listed {
                return Err("malformed");
            }
            if needed < headers.srh_bytes {
                return Err("sid-headers");
            }
        }
        if headers.srh_at + headers.srh_bytes > ip_end {
            return Err("malformed");
        }
        Ok(headers)
    }

    /// The next segment becomes the destination.
    fn advance(&mut self, headers: &mut Headers) {
        headers.segments_left -= 1;
        let from = headers.srh_at + 8 + 16 * headers.segments_left;
        let to = self.ip_at + 24;
        self.frame.copy_within(from..from + 16, to);
        // CAST: it has become less.
        self.frame[headers.srh_at + 3] = headers.segments_left as u8;
    }

    fn pop(&mut self, headers: &Headers) {
        self.frame[headers.named_at] = headers.carries;
        let end = headers.srh_at + headers.srh_bytes;
        self.frame.drain(headers.srh_at..end);
        self.headroom += headers.srh_bytes;
        let length_at = self.ip_at + 4;
        let bytes = usize::from(self.half(length_at).unwrap_or(0)) - headers.srh_bytes;
        // CAST: it has become less.
        self.frame[length_at..length_at + 2].copy_from_slice(&(bytes as u16).to_be_bytes());
    }

    /// Returns the packet without its outer headers; the reason is why it cannot be.
    fn inside(&self, headers: &Headers) -> Result<Self, &'static str> {
        let outer_end = self.ip_at + self.ip_bytes()?;
        let at = headers.srh_at + headers.srh_bytes;
        let (version, least_bytes, kind) = match headers.carries {
            INSIDE_V6 => (6, IPV6_BYTES, IPV6),
            _ => (4, 20, IPV4),
        };
        let header = self.frame.get(at..at + least_bytes).ok_or("malformed")?;
        if header[0] >> 4 != version || (version == 4 && header[0] & 15 < 5) {
            return Err("malformed");
        }
        let outer_ecn = self.traffic_class() & 3;
        let mut inner = self.clone();
        inner.frame.drain(self.ip_at..at);
        inner.headroom += at - self.ip_at;
        inner.frame[self.ip_at - 2..self.ip_at].copy_from_slice(&kind.to_be_bytes());
        if at + inner.ip_bytes()? > outer_end {
            return Err("malformed");
        }
        // RFC 6040, figure 4: rows are what came inside, columns what came outside; both: not ECT, ECT(1), ECT(0), CE.
        let became = [
            [Some(0), Some(0), Some(0), None],
            [Some(1), Some(1), Some(1), Some(3)],
            [Some(2), Some(1), Some(2), Some(3)],
            [Some(3), Some(3), Some(3), Some(3)],
        ];
        let class = inner.traffic_class();
        let ecn = became[usize::from(class & 3)][usize::from(outer_ecn)].ok_or("dec-congested")?;
        inner.set_traffic_class(class & !3 | ecn);
        Ok(inner)
    }

    fn traffic_class(&self) -> u8 {
        let v6 = self.is_v6();
        let ip = self.ip();
        match v6 {
            true => ip[0] << 4 | ip[1] >> 4,
            false => ip[1],
        }
    }

    /// An IPv4 header's checksum follows: RFC 1624, equation 3.
    fn set_traffic_class(&mut self, class: u8) {
        let v6 = self.is_v6();
        let ip = self.ip_mut();
        if v6 {
            ip[0] = 0x60 | class >> 4;
            ip[1] = ip[1] & 15 | class << 4;
        } else if ip[1] != class {
            let half = |high: u8, low: u8| u32::from(u16::from_be_bytes([high, low]));
            let sum = (0xffff - half(ip[10], ip[11]))
                + (0xffff - half(ip[0], ip[1]))
                + half(ip[0], class);
            let sum = (sum & 0xffff) + (sum >> 16);
            // CAST: all carries have been added.
            let sum = ((sum & 0xffff) + (sum >> 16)) as u16;
            ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
            ip[1] = class;
        }
    }

    pub(crate) fn end(&mut self, flavours: Flavours) -> Result<(), &'static str> {
        let mut headers = self.headers()?;
        self.on_path = 0;
        if headers.segments_left > 0 {
            self.advance(&mut headers);
            if headers.segments_left == 0 && flavours.psp {
                self.pop(&headers);
            }
            return Ok(());
        }
        if flavours.usd && [INSIDE_V4, INSIDE_V6].contains(&headers.carries) {
            *self = self.inside(&headers)?;
            return Ok(());
        }
        if flavours.usp && headers.srh_bytes > 0 {
            self.pop(&headers);
        }
        Err("sid-upper-layer")
    }

    pub(crate) fn end_x(
        &mut self,
        next_hop: Ipv6Addr,
        flavours: Flavours,
        receivers: &BTreeMap<[Tag; 2], bool>,
        fib: &[(Prefix, Hop)],
    ) -> Result<(), &'static str> {
        let mut headers = self.headers()?;
        let mut sent = self.clone();
        if headers.segments_left > 0 {
            sent.forwardable()?;
            sent.advance(&mut headers);
            if headers.segments_left == 0 && flavours.psp {
                sent.pop(&headers);
            }
        } else if flavours.usd && [INSIDE_V4, INSIDE_V6].contains(&headers.carries) {
            sent = self.inside(&headers)?;
            sent.forwardable()?;
        } else {
            return Err("sid-upper-layer");
        }
        self.find_receiver(receivers)?;
        self.become_if_forwarded(sent, route_to(fib, next_hop.into())?)
    }

    pub(crate) fn dec(
        &mut self,
        behaviour: &Behaviour,
        receivers: &BTreeMap<[Tag; 2], bool>,
        fib: &[(Prefix, Hop)],
        tables: &BTreeMap<u32, Vec<(Prefix, Hop)>>,
    ) -> Result<(), &'static str> {
        let headers = self.headers()?;
        if headers.segments_left > 0 {
            return Err("sid-segments-left");
        }
        let (takes, table): (&[u8], _) = match behaviour {
            Behaviour::Dt4 { table } => (&[INSIDE_V4], table),
            Behaviour::Dt6 { table } => (&[INSIDE_V6], table),
            Behaviour::Dt46 { table } => (&[INSIDE_V4, INSIDE_V6], table),
            other => panic!("{other} does not decapsulate"),
        };
        if !takes.contains(&headers.carries) {
            return Err("sid-upper-layer");
        }
        let inner = self.inside(&headers)?;
        let destination = inner.forwardable()?;
        self.find_receiver(receivers)?;
        let routes = match table {
            Some(table) => tables.get(table).ok_or("fw-no-route")?,
            None => fib,
        };
        self.become_if_forwarded(inner, route_to(routes, destination)?)
    }

    /// Becomes the changed packet if that can be sent. If not, the kernel gets the packet as it came.
    fn become_if_forwarded(&mut self, mut changed: Self, hop: &Hop) -> Result<(), &'static str> {
        let left = changed.leave(hop);
        if left == Err("forwarded") {
            *self = changed;
        }
        left
    }
}
