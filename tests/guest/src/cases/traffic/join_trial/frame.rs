// SPDX-License-Identifier: GPL-2.0

//! A frame, field by field, and its bytes.

use super::checksum::{self, seal_ipv4};

pub(super) const VXLAN_PORT: u16 = 4_789;
pub(super) const GENEVE_PORT: u16 = 6_081;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// The checksum of a header of UDP or TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Checksum {
    #[default]
    Good,
    /// None: zero.
    Zero,
    /// With these bits the other way.
    Bad(u16),
}

/// A header of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ip {
    pub(super) is_v6: bool,
    pub(super) class: u8,
    pub(super) hops: u8,
    /// Of IPv6.
    pub(super) label: u32,
    /// Of IPv4, as all that follows but the length.
    pub(super) identifier: u16,
    pub(super) fragment: u16,
    /// Words of options; with IPv6, two words of an extension header if there is one.
    pub(super) option_words: u8,
    /// The length says so much more than there is.
    pub(super) length_error: i16,
    /// Bits of the checksum that are the other way.
    pub(super) checksum_error: u16,
    /// The last byte of the source's address.
    pub(super) source: u8,
}

/// The tunnel around a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    pub(super) ip: Ip,
    pub(super) source_port: u16,
    pub(super) checksum: Checksum,
    pub(super) length_error: i16,
    /// Words of Geneve's options; VXLAN if there is none.
    pub(super) option_words: Option<u8>,
    pub(super) flags: u8,
    pub(super) network: u8,
}

/// The header of what is inside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transport {
    Udp {
        checksum: Checksum,
        length_error: i16,
    },
    Tcp {
        sequence: u32,
        acknowledgement: u32,
        /// The lower ones of 12 bits are the flags that all know.
        flags: u16,
        window: u16,
        urgent: u16,
        option_words: u8,
        option: u8,
        checksum: Checksum,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) vlan: Option<u16>,
    pub(super) tunnel: Option<Tunnel>,
    pub(super) inner_vlan: Option<u16>,
    pub(super) source_mac: u8,
    pub(super) ip: Ip,
    pub(super) source_port: u16,
    pub(super) transport: Transport,
    pub(super) payload: u16,
    pub(super) fill: u8,
    /// Bits of one byte of the headers that are the other way.
    pub(super) flip: Option<Flip>,
    /// Bytes behind it.
    pub(super) padding: u8,
    /// Bytes of the payload that are not there, at most all.
    pub(super) cut: u8,
}

/// Bits of a byte of the headers that are the other way, with checksums that suit the change or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flip {
    pub(super) at: u16,
    pub(super) bits: u8,
    pub(super) is_sealed: bool,
}

/// The places of headers.
#[derive(Clone, Copy, Debug)]
struct Layer {
    network_at: usize,
    transport_at: usize,
    is_v6: bool,
    protocol: u8,
}

impl Frame {
    /// Returns whether a NIC may say that its checksums are good.
    pub(super) fn is_good(&self) -> bool {
        let is_good = |checksum| !matches!(checksum, Checksum::Bad(_));
        let (Transport::Udp { checksum, .. } | Transport::Tcp { checksum, .. }) = self.transport;
        let tunnel = self.tunnel.as_ref();
        is_good(checksum)
            && tunnel.is_none_or(|tunnel| is_good(tunnel.checksum) && tunnel.length_error == 0)
            && self.flip.is_none()
            && (self.cut, self.padding) == (0, 0)
    }

    /// Returns whether all lengths are what they should be, no header has a wrong checksum, and the transport header has one.
    #[cfg(test)]
    pub(super) fn is_plain(&self) -> bool {
        let is_plain =
            |ip: &Ip| (ip.length_error, ip.checksum_error, ip.fragment & !0x4000) == (0, 0, 0);
        let transport = match self.transport {
            Transport::Udp {
                length_error,
                checksum,
            } => length_error == 0 && checksum == Checksum::Good,
            Transport::Tcp { checksum, .. } => checksum == Checksum::Good,
        };
        transport && is_plain(&self.ip) && self.tunnel.is_none_or(|tunnel| is_plain(&tunnel.ip))
    }

    /// Appends its bytes.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let begin = to.len();
        let mut outer = None;
        self.ethernet(
            to,
            1,
            self.vlan,
            self.tunnel.as_ref().map_or(&self.ip, |tunnel| &tunnel.ip),
        );
        if let Some(tunnel) = &self.tunnel {
            let layer = ip(to, begin, &tunnel.ip, UDP);
            let port = match tunnel.option_words {
                None => VXLAN_PORT,
                Some(_) => GENEVE_PORT,
            };
            udp(to, tunnel.source_port, port);
            match tunnel.option_words {
                None => to.extend([tunnel.flags, 0, 0, 0, 0, 0, tunnel.network, 0]),
                Some(words) => {
                    to.extend([words, tunnel.flags, 0x65, 0x58, 0, 0, tunnel.network, 0]);
                    to.resize(to.len() + usize::from(words) * 4, 5);
                }
            }
            outer = Some(layer);
            self.ethernet(to, self.source_mac, self.inner_vlan, &self.ip);
        }
        let protocol = match self.transport {
            Transport::Udp { .. } => UDP,
            Transport::Tcp { .. } => TCP,
        };
        let inner = ip(to, begin, &self.ip, protocol);
        self.transport(to);
        let headers = to.len() - begin;
        to.resize(to.len() + usize::from(self.payload), self.fill);
        self.lengths(&mut to[begin..], outer, inner);
        let flip = |frame: &mut [u8], is_sealed| {
            let flip = self.flip.filter(|flip| flip.is_sealed == is_sealed);
            if let Some(flip) = flip {
                frame[usize::from(flip.at) % headers] ^= flip.bits;
            }
        };
        let frame = &mut to[begin..];
        flip(frame, true);
        self.seal(frame, outer, inner);
        flip(frame, false);
        let cut = usize::from(self.cut.min(self.payload.try_into().unwrap_or(u8::MAX)));
        to.truncate(to.len() - cut);
        to.resize(to.len() + usize::from(self.padding), 0);
    }

    fn ethernet(&self, to: &mut Vec<u8>, source: u8, vlan: Option<u16>, ip: &Ip) {
        to.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, source]);
        if let Some(tag) = vlan {
            to.extend([0x81, 0]);
            to.extend(tag.to_be_bytes());
        }
        to.extend(if ip.is_v6 { [0x86, 0xdd] } else { [8, 0] });
    }

    fn transport(&self, to: &mut Vec<u8>) {
        match self.transport {
            Transport::Udp { .. } => udp(to, self.source_port, 5_001),
            Transport::Tcp {
                sequence,
                acknowledgement,
                flags,
                window,
                urgent,
                option_words,
                option,
                ..
            } => {
                to.extend(self.source_port.to_be_bytes());
                to.extend(5_001_u16.to_be_bytes());
                to.extend(sequence.to_be_bytes());
                to.extend(acknowledgement.to_be_bytes());
                let words = u16::from(5 + option_words);
                to.extend((words << 12 | flags & 0xfff).to_be_bytes());
                to.extend(window.to_be_bytes());
                to.extend([0, 0]);
                to.extend(urgent.to_be_bytes());
                for word in 0..option_words {
                    to.extend([1, 1, word, option]);
                }
            }
        }
    }

    /// Writes the lengths.
    fn lengths(&self, frame: &mut [u8], outer: Option<Layer>, inner: Layer) {
        let mut length = |layer: Layer, error: i16| {
            let (at, counted_from) = if layer.is_v6 {
                (layer.network_at + 4, layer.network_at + 40)
            } else {
                (layer.network_at + 2, layer.network_at)
            };
            let bytes = frame.len() - counted_from;
            put(frame, at, length_of(bytes, error));
        };
        if let (Some(layer), Some(tunnel)) = (outer, &self.tunnel) {
            length(layer, tunnel.ip.length_error);
        }
        length(inner, self.ip.length_error);
        if let (Some(layer), Some(tunnel)) = (outer, &self.tunnel) {
            let bytes = frame.len() - layer.transport_at;
            put(
                frame,
                layer.transport_at + 4,
                length_of(bytes, tunnel.length_error),
            );
        }
        if let Transport::Udp { length_error, .. } = self.transport {
            let bytes = frame.len() - inner.transport_at;
            put(
                frame,
                inner.transport_at + 4,
                length_of(bytes, length_error),
            );
        }
    }

    /// Writes the checksums, the inner ones first: the tunnel's covers them.
    fn seal(&self, frame: &mut [u8], outer: Option<Layer>, inner: Layer) {
        let (at, checksum) = match self.transport {
            Transport::Udp { checksum, .. } => (6, checksum),
            Transport::Tcp { checksum, .. } => (16, checksum),
        };
        inner.seal(
            frame,
            inner.transport_at + at,
            checksum,
            self.ip.checksum_error,
        );
        if let (Some(layer), Some(tunnel)) = (outer, &self.tunnel) {
            let at = layer.transport_at + 6;
            layer.seal(frame, at, tunnel.checksum, tunnel.ip.checksum_error);
        }
    }
}

impl Layer {
    fn seal(&self, frame: &mut [u8], at: usize, checksum: Checksum, ip_error: u16) {
        let sealed = match checksum {
            Checksum::Zero => 0,
            Checksum::Good | Checksum::Bad(_) => {
                let addresses = if self.is_v6 {
                    self.network_at + 8..self.network_at + 40
                } else {
                    self.network_at + 12..self.network_at + 20
                };
                let covered = &frame[self.transport_at..];
                let sum = checksum::sum(&frame[addresses])
                    + u64::from(self.protocol)
                    // CAST: within a frame.
                    + covered.len() as u64
                    + checksum::sum(covered);
                match checksum::complement(sum) {
                    0 => 0xffff,
                    sealed => sealed,
                }
            }
        };
        let error = match checksum {
            Checksum::Bad(error) => error,
            _ => 0,
        };
        put(frame, at, sealed ^ error);
        if !self.is_v6 {
            seal_ipv4(&mut frame[self.network_at..self.transport_at]);
            frame[self.network_at + 11] ^= (ip_error & 0xff) as u8;
        }
    }
}

/// Appends a network header with its options, and returns the places.
fn ip(to: &mut Vec<u8>, begin: usize, ip: &Ip, protocol: u8) -> Layer {
    let network_at = to.len() - begin;
    if ip.is_v6 {
        let first = 6 << 28 | u32::from(ip.class) << 20 | ip.label & 0xf_ffff;
        to.extend(first.to_be_bytes());
        let next = if ip.option_words > 0 { 0 } else { protocol };
        to.extend([0, 0, next, ip.hops]);
        let mut addresses = [0xfd; 32];
        addresses[15] = ip.source;
        to.extend(addresses);
        if ip.option_words > 0 {
            to.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        to.extend([0x45 + ip.option_words, ip.class, 0, 0]);
        to.extend(ip.identifier.to_be_bytes());
        to.extend(ip.fragment.to_be_bytes());
        to.extend([ip.hops, protocol, 0, 0, 10, 0, 1, ip.source, 10, 0, 1, 200]);
        to.resize(to.len() + usize::from(ip.option_words) * 4, 1);
    }
    Layer {
        network_at,
        transport_at: to.len() - begin,
        is_v6: ip.is_v6,
        protocol,
    }
}

fn udp(to: &mut Vec<u8>, source: u16, destination: u16) {
    to.extend(source.to_be_bytes());
    to.extend(destination.to_be_bytes());
    to.extend([0; 4]);
}

fn length_of(bytes: usize, error: i16) -> u16 {
    u16::try_from(bytes)
        .unwrap_or(u16::MAX)
        .wrapping_add_signed(error)
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
