// SPDX-License-Identifier: GPL-2.0

//! The join against a model of GRO, which is written from the kernel's functions one by one (Linux 6.12; identifiers also as
//! in 6.1 and 7.3).

use mflow_algo::algo::headers::checksums::{good_checksums, suit_checksum};
use mflow_algo::algo::join::{Alone, Held, IdentifierRule, Identifiers, Joined, Layout, Template};
use proptest::prelude::*;

use crate::common::cases;

const ETHERNET: usize = 14;
const VXLAN_PORT: u16 = 4_789;
const GENEVE_PORT: u16 = 6_081;
/// The length below which GRO keeps a packet by default, from IP on (`GRO_LEGACY_MAX_SIZE`).
const MOST_BYTES: u32 = 65_536;

/// The tunnel around the frames of a run.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    is_ipv6: bool,
    has_checksum: bool,
    is_atomic: bool,
    /// Words of Geneve's options; VXLAN if there is none.
    option_words: Option<u8>,
}

/// Frames of one inner flow, each of which continues the one before.
#[derive(Clone, Copy, Debug)]
struct Run {
    tunnel: Option<Tunnel>,
    is_ipv6: bool,
    is_tcp: bool,
    /// If these are datagrams: GRO makes a list of packets of them, and not one packet.
    is_list: bool,
    is_atomic: bool,
    has_fixed_id: bool,
    tcp_option_words: u8,
    has_echo: bool,
    payload: usize,
    first_id: u16,
    first_sequence: u32,
    /// `gro_max_size` of the device.
    most_bytes: u32,
    /// The rule of the kernel's GRO.
    rule: IdentifierRule,
}

impl Run {
    /// Returns the length below which GRO keeps a packet of the run (`mflow_held_limit()`).
    fn limit(&self) -> u32 {
        match (self.is_tcp, self.tunnel) {
            (false, _) if self.is_list => MOST_BYTES,
            (true, None) => self.most_bytes,
            _ => self.most_bytes.min(MOST_BYTES),
        }
    }

    /// Returns a frame of the run, with a payload of its own length.
    fn frame(&self, nr: u16, payload: usize) -> Vec<u8> {
        let mut transport = vec![0x9c, 0x40, 0x13, 0x89];
        if self.is_tcp {
            let sent = u32::from(nr) * self.payload as u32;
            transport.extend(self.first_sequence.wrapping_add(sent).to_be_bytes());
            transport.extend([1, 2, 3, 4, (5 + self.tcp_option_words) << 4]);
            transport.push(0x10 | if self.has_echo { 0x40 } else { 0 });
            transport.extend([0x01, 0xf5, nr as u8, 7, 0, 0]);
            transport.extend(vec![1; usize::from(self.tcp_option_words) * 4]);
        } else {
            transport.extend((8 + payload as u16).to_be_bytes());
            transport.extend([nr as u8, 7]);
        }
        transport.extend(vec![nr as u8; payload]);
        let protocol = if self.is_tcp { 6 } else { 17 };
        let id = self
            .first_id
            .wrapping_add(if self.has_fixed_id { 0 } else { nr });
        let inner = network(self.is_ipv6, self.is_atomic, id, protocol, &transport);
        let inner = ethernet(self.is_ipv6, inner);
        let Some(tunnel) = self.tunnel else {
            return inner;
        };
        let mut payload = match tunnel.option_words {
            None => vec![8, 0, 0, 0, 0, 0, 42, 0],
            Some(words) => {
                let mut header = vec![words, 0, 0x65, 0x58, 0, 0, 42, 0];
                header.extend(vec![5; usize::from(words) * 4]);
                header
            }
        };
        payload.extend(inner);
        let port = match tunnel.option_words {
            None => VXLAN_PORT,
            Some(_) => GENEVE_PORT,
        };
        let mut udp = vec![0xc3, 0x50];
        udp.extend(port.to_be_bytes());
        udp.extend((8 + payload.len() as u16).to_be_bytes());
        udp.extend(if tunnel.has_checksum {
            [nr as u8, 9]
        } else {
            [0, 0]
        });
        udp.extend(payload);
        // GRO has one word for both headers.
        let id = if tunnel.is_atomic {
            77
        } else {
            self.first_id
                .wrapping_mul(3)
                .wrapping_add(if self.has_fixed_id { 0 } else { nr })
        };
        let outer = network(tunnel.is_ipv6, tunnel.is_atomic, id, 17, &udp);
        ethernet(tunnel.is_ipv6, outer)
    }

    fn layout(&self) -> Layout {
        let ip = |is_ipv6: bool| if is_ipv6 { 40 } else { 20 };
        let (outer_at, network_at) = match self.tunnel {
            None => (None, ETHERNET),
            Some(tunnel) => {
                let options = usize::from(tunnel.option_words.unwrap_or(0)) * 4;
                let inner = ETHERNET + ip(tunnel.is_ipv6) + 8 + 8 + options + ETHERNET;
                (Some(ETHERNET), inner)
            }
        };
        Layout {
            outer_at,
            network_at,
            transport_at: network_at + ip(self.is_ipv6),
        }
    }

    fn header_bytes(&self) -> usize {
        let transport = if self.is_tcp {
            20 + usize::from(self.tcp_option_words) * 4
        } else {
            8
        };
        self.layout().transport_at + transport
    }
}

fn ethernet(is_ipv6: bool, packet: Vec<u8>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(packet);
    frame
}

fn network(is_ipv6: bool, is_atomic: bool, id: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header;
    if is_ipv6 {
        header = vec![0x60, 0x20, 0, 3];
        header.extend((payload.len() as u16).to_be_bytes());
        header.extend([protocol, 64]);
        header.extend([0xfd; 32]);
    } else {
        header = vec![0x45, 2];
        header.extend((20 + payload.len() as u16).to_be_bytes());
        header.extend(id.to_be_bytes());
        header.extend([if is_atomic { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
        header.extend([10, 0, 1, 1, 10, 0, 1, 2]);
        seal(&mut header);
    }
    header.extend(payload);
    header
}

/// Writes the checksum of an IPv4 header of 20 bytes.
fn seal(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum: u32 = header[..20]
        .chunks(2)
        .map(|word| u32::from(be16(word, 0)))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A packet as GRO holds it.
#[derive(Clone, Debug)]
struct Packet {
    first: Vec<u8>,
    layout: Layout,
    is_list: bool,
    count: u16,
    payload: u32,
    mss: u32,
    limit: u32,
    rule: IdentifierRule,
    /// `ip_fixedid`: bits of the headers, or one for all.
    fixed: u8,
    /// `is_atomic`, which kernels before 6.10 have in its place.
    is_atomic: bool,
}

impl Packet {
    fn new(run: &Run) -> Self {
        Self {
            first: run.frame(0, run.payload),
            layout: run.layout(),
            is_list: run.is_list && !run.is_tcp,
            count: 1,
            payload: run.payload as u32,
            mss: run.payload as u32,
            limit: run.limit(),
            rule: run.rule,
            fixed: 0,
            is_atomic: run.is_ipv6 || run.is_atomic,
        }
    }

    fn held(&self, header_bytes: usize) -> Held<'_> {
        Held {
            headers: &self.first[..header_bytes],
            layout: self.layout,
            frames: self.count,
            // GRO lets datagrams go when there are 64.
            room_frames: if self.first_is_segment(header_bytes) {
                u16::MAX
            } else {
                63 - self.count
            },
            room_fragments: u16::MAX,
            is_summed: false,
            is_list: self.is_list,
            bytes: self.payload + header_bytes as u32,
            limit_bytes: self.limit + ETHERNET as u32,
            frame_payload_bytes: self.mss,
            identifiers: Identifiers {
                rule: self.rule,
                fixed: self.fixed_ids(),
            },
        }
    }

    /// Returns what the module reads of GRO's notes (`mflow_held_fixed_ids()`).
    fn fixed_ids(&self) -> u8 {
        let is_ipv4 = self.first[self.layout.network_at] >> 4 == 4;
        match self.rule {
            IdentifierRule::Packet | IdentifierRule::Each => self.fixed,
            IdentifierRule::Innermost => u8::from(self.count > 1 && is_ipv4 && self.is_atomic),
        }
    }

    fn first_is_segment(&self, header_bytes: usize) -> bool {
        header_bytes - self.layout.transport_at > 8
    }

    /// Returns whether GRO joins a frame and goes on to hold the packet, and notes it.
    fn gro_receive(&mut self, frame: &[u8]) -> bool {
        let before = self.clone();
        let is_held = self.joins_and_is_held(frame) == Some(true);
        if !is_held {
            *self = before;
        }
        is_held
    }

    fn joins_and_is_held(&mut self, frame: &[u8]) -> Option<bool> {
        let first = self.first.clone();
        // gro_list_prepare()
        let mut is_same_flow = first[..ETHERNET] == *frame.get(..ETHERNET)?;
        let mut flush = false;
        let mut at = ETHERNET;
        let mut outer_at = None;
        let (network_at, number) = loop {
            let network_at = at;
            let number = match be16(frame, at - 2) {
                0x0800 => ipv4_gro_receive(&first, frame, at, &mut is_same_flow, &mut flush)?,
                0x86dd => ipv6_gro_receive(&first, frame, at, &mut is_same_flow, &mut flush)?,
                _ => return None,
            };
            at += if be16(frame, at - 2) == 0x0800 {
                20
            } else {
                40
            };
            let port = be16(frame.get(at..at + 8)?, 2);
            let is_tunnel = number == 17 && matches!(port, VXLAN_PORT | GENEVE_PORT);
            if !is_tunnel {
                break (network_at, number);
            }
            // udp_gro_receive()
            if outer_at.is_some() {
                return None;
            }
            outer_at = Some(network_at);
            is_same_flow &= first[at..at + 4] == frame[at..at + 4]
                && (first[at + 6..at + 8] == [0; 2]) == (frame[at + 6..at + 8] == [0; 2]);
            at += 8;
            let header = frame.get(at..at + 8)?;
            let mut bytes = 8;
            if port == GENEVE_PORT {
                // geneve_gro_receive()
                bytes += usize::from(header[0] & 0x3f) * 4;
                if header[0] >> 6 != 0 || header[1] & 0x80 != 0 || be16(header, 2) != 0x6558 {
                    return None;
                }
            }
            // vxlan_gro_receive(), and eth_gro_receive()
            let end = at + bytes + ETHERNET;
            is_same_flow &= first.get(at..end)? == frame.get(at..end)?;
            at = end;
        };
        if !is_same_flow {
            return None;
        }
        if (outer_at, network_at) != (self.layout.outer_at, self.layout.network_at) {
            // Another port: no tunnel, or another one.
            return None;
        }
        let len = frame.len() - at;
        match number {
            6 => self.tcp_gro_receive(frame, at, len, flush),
            17 => self.udp_gro_receive_segment(frame, at, len, flush),
            _ => None,
        }
    }

    fn tcp_gro_receive(
        &mut self,
        frame: &[u8],
        at: usize,
        len: usize,
        ip_flush: bool,
    ) -> Option<bool> {
        let (th, th2) = (frame.get(at..)?, self.first[at..].to_vec());
        let thlen = usize::from(th.get(12)? >> 4) * 4;
        if thlen < 20 || th.len() < thlen || th[..4] != th2[..4] {
            return None;
        }
        let len = (len - thlen) as u32;
        let flags = be32(th, 12);
        const CWR: u32 = 0x0080_0000;
        const URG: u32 = 0x0020_0000;
        const PSH: u32 = 0x0008_0000;
        const RST: u32 = 0x0004_0000;
        const SYN: u32 = 0x0002_0000;
        const FIN: u32 = 0x0001_0000;
        let mut flush = flags & CWR != 0;
        flush |= (flags ^ be32(&th2, 12)) & !(CWR | FIN | PSH) != 0;
        flush |= be32(th, 8) != be32(&th2, 8);
        flush |= th[20..thlen] != *th2.get(20..thlen)?;
        flush |= self.network_flush(frame);
        flush |= len.wrapping_sub(1) >= self.mss;
        flush |= be32(&th2, 4).wrapping_add(self.payload) != be32(th, 4);
        if flush || ip_flush || !self.skb_gro_receive(len, at + thlen, 0) {
            return None;
        }
        let flush = len < self.mss || flags & (URG | PSH | RST | SYN | FIN) != 0;
        Some(!flush)
    }

    fn udp_gro_receive_segment(
        &mut self,
        frame: &[u8],
        at: usize,
        len: usize,
        ip_flush: bool,
    ) -> Option<bool> {
        let (uh, uh2) = (frame.get(at..at + 8)?, self.first[at..at + 8].to_vec());
        let ulen = be16(uh, 4);
        if uh[6..] == [0; 2] || ulen <= 8 || usize::from(ulen) != len || uh[..4] != uh2[..4] {
            return None;
        }
        if ulen > be16(&uh2, 4) || self.network_flush(frame) || ip_flush {
            return None;
        }
        // skb_gro_receive_list() counts the datagram with its headers.
        let in_front = if self.is_list { at + 8 - ETHERNET } else { 0 };
        let payload = u32::from(ulen) - 8;
        if !self.skb_gro_receive(payload, at + 8, in_front as u32) {
            return None;
        }
        Some(ulen == be16(&uh2, 4) && self.count < 64)
    }

    fn skb_gro_receive(&mut self, len: u32, header_bytes: usize, more_bytes: u32) -> bool {
        let in_front = (header_bytes - ETHERNET) as u32;
        if in_front + self.payload + len + more_bytes >= self.limit {
            return false;
        }
        self.count += 1;
        self.payload += len;
        true
    }

    /// Does what gro_receive_network_flush() does.
    fn network_flush(&mut self, frame: &[u8]) -> bool {
        let (outer_at, network_at) = (self.layout.outer_at, self.layout.network_at);
        let headers = outer_at
            .into_iter()
            .map(|at| (at, false))
            .chain([(network_at, outer_at.is_some())]);
        let headers: Vec<_> = headers.collect();
        if self.rule == IdentifierRule::Innermost {
            return self.flush_of_6_1(frame, &headers);
        }
        // All are called, as each may note something.
        headers.into_iter().fold(false, |flush, (at, is_inner)| {
            let is_outer = outer_at == Some(at);
            flush
                | match self.rule {
                    IdentifierRule::Each => self.flush_of_6_18(frame, at, is_inner),
                    _ => self.flush_of_6_10(frame, at, is_outer),
                }
        })
    }

    /// Returns whether fields differ that have to be the same.
    fn differs(&self, frame: &[u8], at: usize) -> bool {
        let (nh, nh2) = (&frame[at..], &self.first[at..]);
        if nh[0] >> 4 == 6 {
            return (be32(nh, 0) ^ be32(nh2, 0)) & 0x0ff0_0000 != 0 || nh[7] != nh2[7];
        }
        nh[8] != nh2[8] || nh[1] != nh2[1] || (be16(nh, 6) ^ be16(nh2, 6)) & 0x4000 != 0
    }

    fn flush_of_6_10(&mut self, frame: &[u8], at: usize, is_outer: bool) -> bool {
        let (nh, nh2) = (&frame[at..], &self.first[at..]);
        let df = be16(nh, 6) & 0x4000;
        let flush = self.differs(frame, at);
        if nh[0] >> 4 == 6 || flush || is_outer && df != 0 {
            return flush;
        }
        let offset = be16(nh, 4).wrapping_sub(be16(nh2, 4));
        if self.count == 1 && df != 0 && offset == 0 {
            self.fixed = 1;
        }
        offset != if self.fixed != 0 { 0 } else { self.count }
    }

    fn flush_of_6_18(&mut self, frame: &[u8], at: usize, is_inner: bool) -> bool {
        let (nh, nh2) = (&frame[at..], &self.first[at..]);
        let flush = self.differs(frame, at);
        if nh[0] >> 4 == 6 || flush {
            return flush;
        }
        let offset = be16(nh, 4).wrapping_sub(be16(nh2, 4));
        let bit = 1 << u8::from(is_inner);
        if self.count == 1 && offset == 0 {
            self.fixed |= bit;
        }
        offset != if self.fixed & bit != 0 { 0 } else { self.count }
    }

    /// Does what inet_gro_receive(), ipv6_gro_receive() and tcp_gro_receive() do in turn.
    fn flush_of_6_1(&mut self, frame: &[u8], headers: &[(usize, bool)]) -> bool {
        let mut flush = false;
        let mut flush_id = 0_u16;
        // The note of the packet that comes.
        let mut is_atomic = true;
        for &(at, _) in headers {
            let (nh, nh2) = (&frame[at..], &self.first[at..]);
            flush |= self.differs(frame, at);
            let (mut this_id, mut df) = (0, true);
            if nh[0] >> 4 == 4 {
                this_id = be16(nh, 4).wrapping_sub(be16(nh2, 4));
                df = be16(nh, 6) & 0x4000 != 0;
                if !self.is_atomic || !df {
                    this_id = if this_id == self.count { 0 } else { 0xffff };
                }
            }
            flush_id = if is_atomic {
                this_id
            } else {
                flush_id | this_id
            };
            is_atomic = df;
        }
        if flush_id != 1 || self.count != 1 || !self.is_atomic {
            flush || flush_id != 0
        } else {
            self.is_atomic = false;
            flush
        }
    }
}

fn ipv4_gro_receive(
    first: &[u8],
    frame: &[u8],
    at: usize,
    is_same_flow: &mut bool,
    flush: &mut bool,
) -> Option<u8> {
    let iph = frame.get(at..at + 20)?;
    let iph2 = first.get(at..at + 20)?;
    let sum: u32 = iph.chunks(2).map(|word| u32::from(be16(word, 0))).sum();
    let is_good = (sum & 0xffff) + (sum >> 16) == 0xffff;
    if iph[0] != 0x45 || be16(iph, 6) & 0x3fff != 0 || !is_good {
        return None;
    }
    *flush |= usize::from(be16(iph, 2)) != frame.len() - at || be16(iph, 6) & !0x4000 != 0;
    *is_same_flow &= iph[9] == iph2[9] && iph[12..] == iph2[12..];
    Some(iph[9])
}

fn ipv6_gro_receive(
    first: &[u8],
    frame: &[u8],
    at: usize,
    is_same_flow: &mut bool,
    flush: &mut bool,
) -> Option<u8> {
    let iph = frame.get(at..at + 40)?;
    let iph2 = first.get(at..at + 40)?;
    *flush |= usize::from(be16(iph, 4)) != frame.len() - at - 40;
    *is_same_flow &= (be32(iph, 0) ^ be32(iph2, 0)) & 0xf00f_ffff == 0
        && iph[8..] == iph2[8..]
        && iph[6] == iph2[6];
    Some(iph[6])
}

/// A change of one frame of a run.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    /// Bits of one byte among the headers; with IPv4 headers that are sealed again, or not.
    Byte {
        at: usize,
        bits: u8,
        seals: bool,
    },
    /// Another frame of the run instead.
    Nr(u16),
    /// A payload of another length.
    Payload(usize),
    /// Bytes behind the frame, as of short frames that are filled up.
    Padded(usize),
    /// Without its last bytes.
    Cut(usize),
}

impl Change {
    fn applied(self, run: &Run, nr: u16) -> Vec<u8> {
        let mut frame = match self {
            Self::Nr(other) => run.frame(other, run.payload),
            Self::Payload(payload) => run.frame(nr, payload),
            _ => run.frame(nr, run.payload),
        };
        match self {
            Self::Byte { at, bits, seals } => {
                let at = at % run.header_bytes();
                frame[at] ^= bits;
                let Layout {
                    outer_at,
                    network_at,
                    ..
                } = run.layout();
                for at in [outer_at, Some(network_at)].into_iter().flatten() {
                    if seals && be16(&frame, at - 2) == 0x0800 {
                        seal(&mut frame[at..at + 20]);
                    }
                }
            }
            Self::Padded(bytes) => frame.extend(vec![0; bytes]),
            Self::Cut(bytes) => frame.truncate(frame.len() - bytes.min(run.payload)),
            Self::Nothing | Self::Nr(_) | Self::Payload(_) => {}
        }
        frame
    }
}

fn tunnels() -> impl Strategy<Value = Tunnel> {
    let option_words = proptest::option::of(0..4_u8);
    (any::<[bool; 3]>(), option_words).prop_map(
        |([is_ipv6, has_checksum, is_atomic], option_words)| Tunnel {
            is_ipv6,
            has_checksum,
            is_atomic,
            option_words,
        },
    )
}

fn runs() -> impl Strategy<Value = Run> {
    (
        proptest::option::of(tunnels()),
        any::<[bool; 6]>(),
        0..4_u8,
        1..1_400_usize,
        any::<(u16, u32)>(),
        limits(),
        rules(),
    )
        .prop_map(
            |(tunnel, bits, tcp_option_words, payload, firsts, most_bytes, rule)| {
                let (first_id, first_sequence) = firsts;
                let [is_ipv6, is_tcp, is_list, is_atomic, has_fixed_id, has_echo] = bits;
                Run {
                    tunnel,
                    is_ipv6,
                    is_tcp,
                    is_list,
                    is_atomic,
                    has_fixed_id,
                    tcp_option_words,
                    has_echo,
                    payload,
                    first_id,
                    first_sequence,
                    most_bytes,
                    rule,
                }
            },
        )
}

fn rules() -> impl Strategy<Value = IdentifierRule> {
    (0..3_u8).prop_map(|number| IdentifierRule::of_number(number).unwrap())
}

fn limits() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(MOST_BYTES),
        1 => 100..4_000_u32,
        1 => Just(16_384_u32),
        1 => Just(131_072_u32),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let byte = (any::<usize>(), 1..=255_u8, any::<bool>());
    prop_oneof![
        12 => Just(Change::Nothing),
        6 => byte.prop_map(|(at, bits, seals)| Change::Byte { at, bits, seals }),
        1 => (0..8_u16).prop_map(Change::Nr),
        1 => (0..1_400_usize).prop_map(Change::Payload),
        1 => (1..20_usize).prop_map(Change::Padded),
        1 => (1..20_usize).prop_map(Change::Cut),
    ]
}

/// Returns the template of a packet.
fn template(packet: &Packet, run: &Run) -> Option<Template> {
    let mut template = Template::default();
    template
        .read(&packet.held(run.header_bytes()))
        .then_some(template)
}

/// Returns how a frame joins a packet, if it does. Its checksums are not looked at.
fn joined(template: &mut Option<Template>, frame: &[u8]) -> Option<Joined> {
    template.as_mut()?.join(frame, 2, |_| 0).ok()
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// Demands that GRO would have joined each frame that joins, and would go on to hold the packet.
    #[test]
    fn frame_joins_only_where_gro_joins_it(
        run in runs(),
        changes in proptest::collection::vec(changes(), 1..8),
    ) {
        let mut packet = Packet::new(&run);
        let mut template = template(&packet, &run);
        for change in changes {
            let frame = change.applied(&run, packet.count);
            let mut by_gro = packet.clone();
            let is_held = by_gro.gro_receive(&frame);
            let joined = joined(&mut template, &frame);
            if let Some(joined) = joined {
                prop_assert!(is_held, "{change:?}: GRO does not join it, or lets it go");
                prop_assert_eq!(joined.identifiers.fixed, by_gro.fixed_ids());
                prop_assert_eq!(joined.payload_at, run.header_bytes());
            }
            if is_held {
                packet = by_gro;
                if joined.is_none() {
                    template = self::template(&packet, &run);
                }
            }
        }
    }

    /// A frame as it should be joins wherever GRO would join it.
    #[test]
    fn run_without_changes_joins(mut run in runs(), frames in 2..80_u16) {
        run.payload = run.payload.max(8);
        let mut packet = Packet::new(&run);
        let mut template = template(&packet, &run);
        for nr in 1..frames {
            let frame = run.frame(nr, run.payload);
            let is_held = packet.gro_receive(&frame);
            prop_assert_eq!(joined(&mut template, &frame).is_some(), is_held, "frame {}", nr);
            if !is_held {
                break;
            }
        }
    }

    /// A frame joins only if all checksums are good, and any frame with good ones does.
    #[test]
    fn frames_with_bad_checksums_do_not_join(
        mut run in runs(),
        at in any::<usize>(),
        bits in any::<u8>(),
        good in 0..3_u32,
    ) {
        run.has_fixed_id = false;
        run.most_bytes = MOST_BYTES;
        run.payload = run.payload.max(8);
        let packet = Packet::new(&run);
        let mut template = template(&packet, &run).unwrap();
        let mut frame = run.frame(1, run.payload);
        summed(&mut frame, &run);
        // Anywhere in the payload, or in TCP's checksum.
        let at = at % (run.payload + 1);
        let at = match at.checked_sub(1) {
            Some(at) => run.header_bytes() + at,
            None => run.layout().transport_at + checksum_at(&run),
        };
        frame[at] ^= bits;
        let eth_proto = be16(&frame, 12);
        let packet = &frame[ETHERNET..];
        let verified = good_checksums(eth_proto, packet, packet.len(), good as usize, |covered| {
            suit_checksum(&packet[covered.at..][..covered.bytes], covered.pseudo)
        });
        let levels = if run.tunnel.is_some() { 2 } else { 1 };
        let joined = template.join(&frame, good, ones_sum);
        prop_assert_eq!(joined.is_ok(), verified.count.max(good as usize) >= levels);
    }
}

/// Returns the sum of bytes as `csum_partial()`.
fn ones_sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(u16::from_ne_bytes([word[0], *word.get(1).unwrap_or(&0)])));
    words.fold(0, |sum: u32, word| {
        let (sum, carries) = sum.overflowing_add(word);
        sum + u32::from(carries)
    })
}

/// Returns the place of the checksum in the header of what is inside.
fn checksum_at(run: &Run) -> usize {
    if run.is_tcp {
        16
    } else {
        6
    }
}

/// Writes the checksums of what is inside, and of the tunnel if it has one.
fn summed(frame: &mut [u8], run: &Run) {
    let layout = run.layout();
    write_checksum(
        frame,
        layout.network_at,
        layout.transport_at,
        checksum_at(run),
    );
    let has_checksum = run.tunnel.is_some_and(|tunnel| tunnel.has_checksum);
    if let (Some(outer_at), true) = (layout.outer_at, has_checksum) {
        let at = outer_at + if frame[outer_at] >> 4 == 4 { 20 } else { 40 };
        write_checksum(frame, outer_at, at, 6);
    }
}

fn write_checksum(frame: &mut [u8], network_at: usize, at: usize, checksum_at: usize) {
    let (addresses, protocol) = if frame[network_at] >> 4 == 4 {
        (network_at + 12..network_at + 20, frame[network_at + 9])
    } else {
        (network_at + 8..network_at + 40, frame[network_at + 6])
    };
    frame[at + checksum_at..][..2].fill(0);
    let length = (frame.len() - at) as u16;
    let pseudo = ones_sum(&frame[addresses]) as u64
        + u64::from(u16::to_be(protocol.into()))
        + u64::from(length.to_be());
    let mut sum = u64::from(ones_sum(&frame[at..])) + pseudo;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = match !(sum as u16) {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[at + checksum_at..][..2].copy_from_slice(&checksum.to_ne_bytes());
}

#[test]
fn a_frame_that_does_not_join_says_why() {
    let run = stream();
    let packet = Packet::new(&run);
    let held = packet.held(run.header_bytes());
    let template = self::template(&packet, &run).unwrap();
    let summed = |run: &Run, nr, payload| {
        let mut frame = run.frame(nr, payload);
        summed(&mut frame, run);
        frame
    };
    let why = |mut template: Template, frame: &[u8]| template.join(frame, 0, ones_sum).err();
    let next = summed(&run, 1, run.payload);
    assert_eq!(why(template, &next), None);

    let mut closed = template;
    closed.close();
    let mut filled = Template::default();
    assert!(filled.read(&Held {
        limit_bytes: held.bytes + held.frame_payload_bytes,
        ..held
    }));
    for full in [closed, filled] {
        assert_eq!(why(full, &next), Some(Alone::Full));
    }

    let mut pushed = next.clone();
    pushed[run.layout().transport_at + 13] |= 8;
    let gap = summed(&run, 2, run.payload);
    let short = summed(&run, 1, run.payload - 1);
    for other in [pushed, gap, short] {
        assert_eq!(why(template, &other), Some(Alone::Headers));
    }

    let mut damaged = next;
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(why(template, &damaged), Some(Alone::Checksum));
    let datagrams = Run {
        is_tcp: false,
        ..run
    };
    let template = self::template(&Packet::new(&datagrams), &datagrams).unwrap();
    let mut bare = summed(&datagrams, 1, run.payload);
    bare[run.layout().transport_at + 6..][..2].fill(0);
    assert_eq!(why(template, &bare), Some(Alone::Checksum));
}

#[test]
fn frames_are_fragments_as_long_as_there_is_room() {
    let run = stream();
    let packet = Packet::new(&run);
    let mut template = Template::default();
    assert!(template.read(&Held {
        room_fragments: 2,
        ..packet.held(run.header_bytes())
    }));
    assert!(!template.takes_copies(), "a segment");
    for has_room in [true, true, false] {
        assert_eq!(template.takes_fragments(), has_room);
        template.note_fragment();
    }
    template.note_member(17);
    assert!(template.takes_fragments());
    template.close();
    let next = run.frame(1, run.payload);
    assert!(joined(&mut Some(template), &next).is_none(), "closed");
    for (is_list, takes_fragments) in [(true, false), (false, true)] {
        let run = Run {
            is_tcp: false,
            is_list,
            ..run
        };
        let packet = Packet::new(&run);
        let mut template = self::template(&packet, &run).unwrap();
        assert_eq!(template.takes_fragments(), takes_fragments);
        assert!(template.takes_sums(false), "both are not summed");
        assert_eq!(template.takes_sums(true), !is_list);
        let held = packet.held(run.header_bytes());
        assert!(template.read(&Held {
            is_summed: true,
            ..held
        }));
        assert!(template.takes_sums(true), "both are summed");
        assert_eq!(template.takes_sums(false), !is_list);
        assert!(template.takes_copies(), "a datagram");
    }
}

/// Returns a stream in a tunnel.
fn stream() -> Run {
    Run {
        tunnel: Some(Tunnel {
            is_ipv6: false,
            has_checksum: true,
            is_atomic: false,
            option_words: None,
        }),
        is_ipv6: false,
        is_tcp: true,
        is_list: false,
        is_atomic: true,
        has_fixed_id: false,
        tcp_option_words: 3,
        has_echo: false,
        payload: 1_348,
        first_id: 65_530,
        first_sequence: u32::MAX - 4_000,
        most_bytes: MOST_BYTES,
        rule: IdentifierRule::Packet,
    }
}

#[test]
fn most_runs_of_the_test_are_joined() {
    let run = stream();
    let mut packet = Packet::new(&run);
    let mut template = template(&packet, &run);
    for nr in 1..48 {
        let frame = run.frame(nr, run.payload);
        assert!(joined(&mut template, &frame).is_some(), "frame {nr}");
        assert!(packet.gro_receive(&frame));
    }
    let frame = run.frame(48, run.payload);
    assert!(joined(&mut template, &frame).is_none(), "64 KB");
}

/// With a larger `gro_max_size`, a stream outside a tunnel is joined beyond 64 KB.
#[test]
fn stream_is_joined_up_to_the_limit_of_its_device() {
    for (tunnel, most_bytes, frames) in [
        (None, 16_384, 12),
        (None, 131_072, 97),
        (stream().tunnel, 131_072, 48),
    ] {
        let run = Run {
            tunnel,
            most_bytes,
            ..stream()
        };
        let mut packet = Packet::new(&run);
        let mut template = template(&packet, &run);
        for nr in 1..frames {
            let frame = run.frame(nr, run.payload);
            assert!(joined(&mut template, &frame).is_some(), "frame {nr}");
            assert!(packet.gro_receive(&frame));
        }
        let frame = run.frame(frames, run.payload);
        assert!(joined(&mut template, &frame).is_none(), "{most_bytes}");
        assert!(!packet.gro_receive(&frame));
    }
}
