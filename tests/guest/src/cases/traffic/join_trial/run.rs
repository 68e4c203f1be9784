// SPDX-License-Identifier: GPL-2.0

//! Drawn runs: frames of one flow or a few, most of which continue the one before.

use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use super::drawn::{Drawn, DrawnRun, Handling};
use super::frame::{Checksum, Flip, Frame, Ip, Transport, Tunnel};

/// More flows than a lane knows packets of.
const MOST_FLOWS: u8 = 12;
/// The ports of two flows differ in both bytes, so no flipped byte makes one the other: a frame's tag would then not be that of its bytes.
const PORTS_APART: u16 = 0x103;
/// The frames that a lane's poll takes.
pub(super) const MOST_FRAMES: usize = 64;
/// The length below which GRO keeps packets by default.
const DEFAULT_MOST_BYTES: u32 = 65_536;
/// Those of longer runs. Above the default it is that of streams outside a tunnel alone.
const MOST_BYTES: [u32; 4] = [DEFAULT_MOST_BYTES, 16_384, 32_768, 131_072];
/// Don't-fragment.
const DF: u16 = 0x4000;
const ACK: u16 = 0x10;
const ECE: u16 = 0x40;

/// A flow of a run.
#[derive(Clone, Copy)]
struct Flow {
    first: Frame,
    handling: Handling,
    is_atomic: bool,
    has_fixed_identifier: bool,
    is_outer_atomic: bool,
    nr: u16,
}

pub(super) struct Draw {
    pub(super) random: Xoshiro256PlusPlus,
}

impl Draw {
    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    fn below(&mut self, end: u16) -> u16 {
        self.random.random_range(0..end)
    }

    /// Draws a run.
    pub(super) fn run(&mut self, run: &mut DrawnRun) {
        let frames = &mut run.frames;
        frames.clear();
        let count = match self.below(512) {
            // As much as one packet can have.
            0 => MOST_FRAMES,
            1..5 => usize::from(8 + self.below(24)),
            _ => usize::from(2 + self.below(3)),
        };
        run.most_bytes = [self.most_bytes(count), self.most_bytes(count)];
        let is_long = count > 32 || count >= 8 && self.one_in(2);
        let flow = self.flow(is_long);
        let mut flows = [flow; MOST_FLOWS as usize];
        let others = match self.below(32) {
            0 => 1 + usize::from(self.below(u16::from(MOST_FLOWS) - 1)),
            1..3 => 1,
            _ => 0,
        };
        let is_apart = self.random.random::<bool>();
        for (nr, other) in (1..).zip(&mut flows[1..=others]) {
            let ports = nr * PORTS_APART;
            other.first.source_port += ports;
            // In an outer flow of its own, and so with a tag of its own, or not.
            if is_apart {
                other.handling.flow = u32::from(nr);
                if let Some(tunnel) = &mut other.first.tunnel {
                    tunnel.source_port += ports;
                }
            }
        }
        // In one run of two all is as it should be for most of it.
        let rarely = if self.random.random::<bool>() { 3 } else { 12 };
        while frames.len() < count {
            let flow = &mut flows[self.random.random_range(0..=others)];
            let now = *flow;
            flow.nr += 1;
            let mut drawn = Drawn {
                frame: now.frame(now.nr),
                handling: now.handling,
            };
            if self.one_in(rarely) {
                self.change(&now, &mut drawn);
                if self.one_in(8) {
                    self.change(&now, &mut drawn);
                }
            }
            if !drawn.frame.is_good() && drawn.handling.has_verified() {
                drawn.handling.sums = 0;
            }
            frames.push(drawn);
        }
    }

    /// Draws the length below which GRO keeps the packets of a run of so many frames.
    fn most_bytes(&mut self, frames: usize) -> u32 {
        match frames {
            8.. => MOST_BYTES[usize::from(self.below(4))],
            // As much as a few frames have.
            _ if self.one_in(16) => u32::from(100 + self.below(400)),
            _ => DEFAULT_MOST_BYTES,
        }
    }

    fn ip(&mut self, is_v6: bool) -> Ip {
        Ip {
            is_v6,
            class: if self.one_in(4) { 2 } else { 0 },
            hops: 64,
            label: if self.one_in(2) { 0x12345 } else { 0 },
            identifier: self.random.random(),
            fragment: if self.random.random() { DF } else { 0 },
            source: 1,
            ..Ip::default()
        }
    }

    fn tunnel(&mut self) -> Tunnel {
        let is_v6 = self.one_in(3);
        let option_words = if self.one_in(3) {
            Some(self.random.random_range(0..4))
        } else {
            None
        };
        Tunnel {
            ip: self.ip(is_v6),
            source_port: 50_000 + self.below(1_000),
            checksum: if self.random.random() {
                Checksum::Good
            } else {
                Checksum::Zero
            },
            length_error: 0,
            option_words,
            flags: if option_words.is_some() { 0 } else { 8 },
            network: 42,
        }
    }

    fn flow(&mut self, is_long: bool) -> Flow {
        let is_tcp = self.random.random();
        let is_v6 = self.one_in(3);
        let tunnel = if self.one_in(3) {
            None
        } else {
            Some(self.tunnel())
        };
        let transport = if is_tcp {
            Transport::Tcp {
                // Some wrap.
                sequence: if self.one_in(8) {
                    u32::MAX - u32::from(self.below(3_000))
                } else {
                    self.random.random()
                },
                acknowledgement: 7,
                flags: ACK | if self.one_in(8) { ECE } else { 0 },
                window: 501,
                urgent: 0,
                option_words: [0, 0, 3, 3, 3, 5, 10][self.random.random_range(0..7)],
                option: 1,
                checksum: Checksum::Good,
            }
        } else {
            Transport::Udp {
                checksum: Checksum::Good,
                length_error: 0,
            }
        };
        let payload = match self.below(32) {
            0 => 1_300 + self.below(100),
            1..4 => 1 + self.below(8),
            4..8 => 8 * (1 + self.below(20)),
            _ if is_long => 1_000 + self.below(400),
            _ => 16 + self.below(50),
        };
        let sums = match (self.below(8), tunnel.is_some()) {
            (0, _) => Handling::SUMMED,
            (1, _) => 1,
            (2, true) => 2,
            _ => 0,
        };
        let mut flags = match self.below(8) {
            0 | 1 => Handling::COPIED,
            2 | 3 => Handling::PULLED,
            _ => 0,
        };
        if self.one_in(4) {
            flags |= Handling::POOLED;
        }
        let is_atomic = self.random.random();
        Flow {
            first: Frame {
                vlan: self.one_in(64).then_some(5),
                tunnel,
                inner_vlan: self.one_in(64).then_some(6),
                source_mac: 3,
                ip: self.ip(is_v6),
                source_port: 40_000,
                transport,
                payload,
                fill: 1,
                flip: None,
                padding: 0,
                cut: 0,
            },
            handling: Handling {
                flags,
                sums,
                flow: 0,
            },
            is_atomic,
            has_fixed_identifier: is_atomic && self.one_in(3),
            is_outer_atomic: self.random.random(),
            nr: 0,
        }
    }

    /// Makes a frame another one than the run has at its place.
    fn change(&mut self, flow: &Flow, drawn: &mut Drawn) {
        let Drawn { frame, handling } = drawn;
        match self.below(25) {
            0..4 => {
                frame.flip = Some(Flip {
                    at: self.random.random(),
                    bits: self.random.random_range(1..=255),
                    is_sealed: self.random.random(),
                });
            }
            4..8 => self.change_transport(frame),
            8..11 => {
                let is_outer = self.random.random();
                match &mut frame.tunnel {
                    Some(tunnel) if is_outer => self.change_ip(&mut tunnel.ip),
                    _ => self.change_ip(&mut frame.ip),
                }
            }
            11..13 => self.change_tunnel(frame),
            13..15 => {
                // Out of order, or a duplicate.
                let nr = flow.nr.saturating_add(self.below(4)).saturating_sub(2);
                let tunnel = frame.tunnel;
                *frame = flow.frame(nr);
                if let (Some(tunnel), Some(now)) = (tunnel, &mut frame.tunnel) {
                    now.ip.identifier = tunnel.ip.identifier;
                }
            }
            15 => frame.payload = self.below(80),
            16 => frame.payload = frame.payload.saturating_sub(1 + self.below(3)),
            17 => frame.payload += 1 + self.below(3),
            18 => frame.padding = self.random.random_range(1..20),
            19 => frame.cut = self.random.random_range(1..20),
            20 => handling.flags ^= Handling::BUILT,
            21 => {
                handling.flags &= Handling::POOLED;
                handling.flags |=
                    [0, Handling::COPIED, Handling::PULLED][usize::from(self.below(3))];
            }
            // GRO does not join it with frames whose pages are of another kind, but puts it into a list with them.
            22 => handling.flags ^= Handling::POOLED,
            23 => handling.sums = [0, 1, Handling::SUMMED][usize::from(self.below(3))],
            _ => {
                frame.vlan = match self.below(3) {
                    0 => Some(7),
                    _ => None,
                };
                frame.inner_vlan = match self.below(3) {
                    0 => Some(8),
                    _ => None,
                };
            }
        }
    }

    fn change_ip(&mut self, ip: &mut Ip) {
        match self.below(12) {
            0 => ip.class ^= 1 << self.below(8),
            1 => ip.class ^= 3,
            2 => ip.hops = ip.hops.wrapping_sub(1),
            3 => ip.label ^= 1 << self.below(20),
            4 => ip.identifier = self.random.random(),
            5 => ip.identifier = ip.identifier.wrapping_add(self.below(4)).wrapping_sub(2),
            6 => ip.fragment ^= DF,
            7 => ip.fragment ^= [0x2000, 0x8000, 1, 0x2001][usize::from(self.below(4))],
            8 => {
                ip.option_words = if ip.is_v6 {
                    2
                } else {
                    1 + (self.below(2) as u8)
                }
            }
            9 => ip.length_error = self.random.random_range(-9..9),
            10 => ip.checksum_error = 1 << self.below(8),
            _ => ip.source ^= 1,
        }
    }

    fn checksum(&mut self) -> Checksum {
        match self.below(3) {
            0 => Checksum::Zero,
            _ => Checksum::Bad(1 << self.below(16)),
        }
    }

    fn change_tunnel(&mut self, frame: &mut Frame) {
        let Some(tunnel) = &mut frame.tunnel else {
            return self.change_transport(frame);
        };
        match self.below(8) {
            0 => {
                tunnel.checksum = match tunnel.checksum {
                    Checksum::Zero => Checksum::Good,
                    _ => Checksum::Zero,
                }
            }
            1 | 2 => tunnel.checksum = Checksum::Bad(1 << self.below(16)),
            3 => tunnel.length_error = self.random.random_range(-9..9),
            4 => tunnel.flags ^= 1 << self.below(8),
            5 => tunnel.network ^= 1,
            6 => tunnel.source_port ^= 1,
            _ => {
                tunnel.option_words = match tunnel.option_words {
                    Some(words) if words > 0 => Some(words - 1),
                    Some(_) => None,
                    None => Some(0),
                }
            }
        }
    }

    fn change_transport(&mut self, frame: &mut Frame) {
        match &mut frame.transport {
            Transport::Udp {
                checksum,
                length_error,
            } => match self.below(3) {
                0 => *length_error = self.random.random_range(-9..9),
                _ => *checksum = self.checksum(),
            },
            Transport::Tcp {
                sequence,
                acknowledgement,
                flags,
                window,
                urgent,
                option_words,
                option,
                checksum,
            } => match self.below(12) {
                0..5 => *flags ^= 1 << self.below(9),
                5 => {
                    *flags ^= 0x20;
                    *urgent = self.below(9);
                }
                6 => *acknowledgement ^= 1 << self.below(32),
                7 => *window ^= 1 << self.below(16),
                8 => match self.below(2) {
                    0 => *option_words = (*option_words + 1) % 11,
                    _ => *option ^= 3,
                },
                9 => *urgent = self.random.random(),
                10 => {
                    *sequence = sequence
                        .wrapping_add(u32::from(self.below(9)))
                        .wrapping_sub(4)
                }
                _ => *checksum = self.checksum(),
            },
        }
    }
}

impl Flow {
    /// Returns the frame of the flow with this number.
    fn frame(&self, nr: u16) -> Frame {
        let mut frame = self.first;
        let goes_on = |identifier: &mut u16| *identifier = identifier.wrapping_add(nr);
        frame.ip.fragment = if self.is_atomic { DF } else { 0 };
        if !self.has_fixed_identifier {
            goes_on(&mut frame.ip.identifier);
        }
        if let Some(tunnel) = &mut frame.tunnel {
            tunnel.ip.fragment = if self.is_outer_atomic { DF } else { 0 };
            if !(self.is_outer_atomic && self.has_fixed_identifier) {
                goes_on(&mut tunnel.ip.identifier);
            }
        }
        if let Transport::Tcp { sequence, .. } = &mut frame.transport {
            let sent = u32::from(nr) * u32::from(frame.payload);
            *sequence = sequence.wrapping_add(sent);
        }
        // CAST: any byte will do.
        frame.fill = (nr as u8).wrapping_add(1);
        frame
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::SeedableRng as _;

    use super::*;

    /// Demands that a frame, from Ethernet's header on, has good lengths and checksums, and returns what is behind its headers.
    fn payload_of_good(frame: &[u8], has_checksum: bool) -> Vec<u8> {
        let headers = PacketHeaders::from_ethernet_slice(frame).expect("a frame");
        let payload = headers.payload.slice().to_vec();
        let (Some(net), Some(transport)) = (headers.net, headers.transport) else {
            panic!("no headers");
        };
        match (net, transport) {
            (NetHeaders::Ipv4(ip, _), transport) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                match transport {
                    TransportHeader::Tcp(tcp) => {
                        let checksum = tcp.calc_checksum_ipv4(&ip, &payload);
                        assert_eq!(tcp.checksum, checksum.expect("fits"));
                    }
                    TransportHeader::Udp(udp) if has_checksum => {
                        let checksum = udp.calc_checksum_ipv4(&ip, &payload);
                        assert_eq!(udp.checksum, checksum.expect("fits"));
                    }
                    TransportHeader::Udp(udp) => assert_eq!(udp.checksum, 0),
                    _ => panic!("another protocol"),
                }
            }
            (NetHeaders::Ipv6(ip, _), transport) => match transport {
                TransportHeader::Tcp(tcp) => {
                    let checksum = tcp.calc_checksum_ipv6(&ip, &payload);
                    assert_eq!(tcp.checksum, checksum.expect("fits"));
                }
                TransportHeader::Udp(udp) if has_checksum => {
                    let checksum = udp.calc_checksum_ipv6(&ip, &payload);
                    assert_eq!(udp.checksum, checksum.expect("fits"));
                }
                TransportHeader::Udp(udp) => assert_eq!(udp.checksum, 0),
                _ => panic!("another protocol"),
            },
            _ => panic!("another network"),
        }
        payload
    }

    #[test]
    fn drawn_frames_are_good_unless_they_are_to_be_others() {
        let random = Xoshiro256PlusPlus::seed_from_u64(7);
        let (mut draw, mut run, mut seen) = (Draw { random }, DrawnRun::default(), [0; 2]);
        for _ in 0..2_000 {
            draw.run(&mut run);
            let frame = &run.frames[0].frame;
            let has_options = frame.ip.option_words > 0
                || frame
                    .tunnel
                    .is_some_and(|tunnel| tunnel.ip.option_words > 0);
            let is_changed = frame.fill != 1 || frame.source_mac != 3 || has_options;
            let mut bytes = Vec::new();
            frame.write(&mut bytes);
            if !frame.is_good() || is_changed || !frame.is_plain() {
                continue;
            }
            seen[usize::from(frame.tunnel.is_some())] += 1;
            let mut inner = bytes;
            if let Some(tunnel) = frame.tunnel {
                let payload = payload_of_good(&inner, tunnel.checksum == Checksum::Good);
                let bytes = 8 + usize::from(tunnel.option_words.unwrap_or(0)) * 4;
                inner = payload[bytes..].to_vec();
            }
            let payload = payload_of_good(&inner, true);
            assert_eq!(payload, vec![frame.fill; frame.payload.into()]);
        }
        assert!(seen.iter().all(|seen| *seen > 300), "{seen:?}");
    }
}
