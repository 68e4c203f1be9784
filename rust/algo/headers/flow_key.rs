// SPDX-License-Identifier: GPL-2.0

//! Flow keys: which flow a packet belongs to, from the first bytes of its network header.
//!
//! A key is made for every packet that arrives on a device where mflow is on, so it has to be cheap: fixed-size reads, a
//! handful of branches that predict well, and two to four multiplications. The kernel's own dissector and siphash cost
//! about ten times as much.

/// Ethernet protocol number of IPv4, in host byte order.
pub const ETH_P_IP: u16 = 0x0800;
/// Ethernet protocol number of IPv6, in host byte order.
pub const ETH_P_IPV6: u16 = 0x86dd;

/// IP protocol number of TCP.
pub const IPPROTO_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const IPPROTO_UDP: u8 = 17;

pub(in crate::algo) const IPV4_HEADER_SIZE: usize = 20;
pub(in crate::algo) const UDP_HEADER_SIZE: usize = 8;
pub(in crate::algo) const TCP_HEADER_SIZE: usize = 20;
pub(in crate::algo) const TCP_FLAGS_AT: usize = 13;

/// The more-fragments flag and the fragment offset, in the word that holds them. Don't-fragment is not part of it.
const IPV4_FRAGMENT_MASK: u16 = 0x3fff;

/// The first bytes of an IPv4 header say whether it is a plain one, so they are compared as one word.
const START_SIZE: usize = 8;
/// The bits that say so: version, size of the header, and those of [`IPV4_FRAGMENT_MASK`].
const START_MASK: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
/// The value of these bits in nearly all packets: no options, and no fragment.
const PLAIN_START: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);

/// SYN: its socket does not merge, and nothing of its connection is under way that it could overtake. FIN and RST keep
/// their place behind the data.
pub(super) const TCP_SYN: u8 = 0x02;

/// The key of a flow. Bits 0 to 61 are a hash; two flows can have the same key. A packet's key is never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FlowKey(u64);

impl FlowKey {
    /// Set in every key, so that zero can stand for "no flow" in a table.
    const IN_USE: u64 = 1 << 63;
    /// Set for TCP, clear for UDP.
    const TCP: u64 = 1 << 62;

    /// The zero key, which no packet has.
    pub(in crate::algo) const NONE: Self = Self(0);

    /// Returns the key as a number, for use as an index or in an atomic.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Makes flow keys that an outsider cannot predict.
///
/// The hash is a seeded multiply-and-fold, far weaker than siphash. That is enough, because nothing but the spread of the
/// load depends on it: packets of one flow always have the same key, and flows that share a key are merely split and put
/// back in order as one. A sender who finds collisions gains no more than by sending a single flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    seeds: [u64; 2],
}

impl FlowHasher {
    /// Returns a hasher for a seed, which should be random and the same for all packets of a machine.
    pub const fn new(seed: u64) -> Self {
        Self {
            seeds: [seed, fold(seed ^ MIX_A, MIX_B)],
        }
    }

    /// Returns the key of the flow that a packet belongs to, or nothing when the packet must not be split.
    ///
    /// `eth_proto` is in host byte order. `packet` starts at the network header and holds what is contiguous of the packet;
    /// 64 bytes are enough, unless IPv4 options push the ports further away. Only UDP and TCP have a key. Fragments have
    /// none, as only the first one has ports, nor have IPv6 packets with extension headers and TCP's SYN segments.
    #[inline]
    pub fn key(&self, eth_proto: u16, packet: &[u8]) -> Option<FlowKey> {
        match eth_proto {
            ETH_P_IP => Some(self.ipv4(Ipv4Flow::of(packet)?)),
            ETH_P_IPV6 => self.ipv6(packet),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn ipv4(&self, flow: Ipv4Flow) -> FlowKey {
        self.finish(flow.addresses, flow.ports, flow.protocol)
    }

    #[inline]
    fn ipv6(&self, packet: &[u8]) -> Option<FlowKey> {
        let ([version, _, _, _, _, _, next_header, _], packet) = packet.split_first_chunk()?;
        let (source, packet) = packet.split_first_chunk()?;
        let (destination, l4) = packet.split_first_chunk()?;
        if version >> 4 != 6 {
            return None;
        }
        let ports = ports(*next_header, l4)?;
        let source = fold_u128(u128::from_ne_bytes(*source), self.seeds);
        let destination = fold_u128(u128::from_ne_bytes(*destination), [source, self.seeds[0]]);
        Some(self.finish(destination, ports, *next_header))
    }

    /// Returns the key by which `stage.rs` knows a flow; nothing for what is neither IPv4 nor IPv6. `packet` as for
    /// [`key`](Self::key). Where a packet has no ports that all of its flow have, the addresses are the key.
    #[inline]
    pub(crate) fn stage_key(&self, eth_proto: u16, packet: &[u8]) -> Option<u64> {
        let (addresses, protocol, l4) = match eth_proto {
            ETH_P_IP => {
                let [version_ihl, _, _, _, _, _, fragment @ .., _, protocol, _, _, _, _, _, _, _, _, _, _] =
                    packet.first_chunk::<IPV4_HEADER_SIZE>()?;
                let addresses = packet.get(12..)?.first_chunk()?;
                let whole = u16::from_be_bytes(*fragment) & IPV4_FRAGMENT_MASK == 0;
                let l4 = packet.get(usize::from(version_ihl & 0x0f) * 4..);
                (
                    u64::from_ne_bytes(*addresses),
                    *protocol,
                    l4.filter(|_| whole),
                )
            }
            ETH_P_IPV6 => {
                let ([_, _, _, _, _, _, next_header, _], packet) = packet.split_first_chunk()?;
                let (source, packet) = packet.split_first_chunk()?;
                let (destination, l4) = packet.split_first_chunk()?;
                let source = fold_u128(u128::from_ne_bytes(*source), self.seeds);
                let destination =
                    fold_u128(u128::from_ne_bytes(*destination), [source, self.seeds[0]]);
                (destination, *next_header, Some(l4))
            }
            _ => return None,
        };
        let ports = match (protocol, l4) {
            (IPPROTO_UDP | IPPROTO_TCP, Some(l4)) => l4
                .first_chunk()
                .map_or(0, |ports| u32::from_ne_bytes(*ports)),
            _ => 0,
        };
        Some(self.hash(addresses, ports))
    }

    #[inline(always)]
    fn hash(&self, addresses: u64, ports: u32) -> u64 {
        let [seed_a, seed_b] = self.seeds;
        fold(fold(addresses ^ seed_a, u64::from(ports) ^ seed_b), MIX_A)
    }

    #[inline(always)]
    fn finish(&self, addresses: u64, ports: u32, protocol: u8) -> FlowKey {
        let hash = self.hash(addresses, ports);
        let protocol_bit = if protocol == IPPROTO_TCP {
            FlowKey::TCP
        } else {
            0
        };
        FlowKey(hash & !FlowKey::TCP | protocol_bit | FlowKey::IN_USE)
    }
}

/// The fields from which the key of an IPv4 packet is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Flow {
    /// Both, in the byte order of the wire, as the ports: that of a hash does not matter, and this one costs nothing.
    addresses: u64,
    ports: u32,
    /// UDP's or TCP's number; 0 in [`NONE`](Self::NONE).
    protocol: u8,
}

impl Ipv4Flow {
    /// A flow of which no packet is. All its bytes are zero.
    pub(in crate::algo) const NONE: Self = Self {
        addresses: 0,
        ports: 0,
        protocol: 0,
    };

    /// Returns the fields of a packet of IPv4; nothing if it has no key. `packet` as for [`FlowHasher::key`].
    #[inline]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (start, rest) = packet.split_first_chunk()?;
        let [_, protocol, _, _, addresses @ ..] =
            rest.first_chunk::<{ IPV4_HEADER_SIZE - START_SIZE }>()?;
        let header_size = if u64::from_ne_bytes(*start) & START_MASK == PLAIN_START {
            IPV4_HEADER_SIZE
        } else {
            Self::unusual_header_size(*start)?
        };
        Some(Self {
            addresses: u64::from_ne_bytes(*addresses),
            ports: ports(*protocol, packet.get(header_size..)?)?,
            protocol: *protocol,
        })
    }

    /// Returns the size of a header that begins with `start`, unless it is bad or a fragment's.
    #[cold]
    fn unusual_header_size(start: [u8; START_SIZE]) -> Option<usize> {
        let [version_ihl, _, _, _, _, _, fragment_high, fragment_low] = start;
        let header_size = usize::from(version_ihl & 0x0f) * 4;
        let fragment = u16::from_be_bytes([fragment_high, fragment_low]) & IPV4_FRAGMENT_MASK;
        (version_ihl >> 4 == 4 && header_size >= IPV4_HEADER_SIZE && fragment == 0)
            .then_some(header_size)
    }

    /// Returns protocol, addresses and ports, source before destination, in the byte order of the wire.
    pub(crate) fn parts(&self) -> (u8, [[u8; 4]; 2], [[u8; 2]; 2]) {
        let [a, b, c, d, e, f, g, h] = self.addresses.to_ne_bytes();
        let [i, j, k, l] = self.ports.to_ne_bytes();
        (
            self.protocol,
            [[a, b, c, d], [e, f, g, h]],
            [[i, j], [k, l]],
        )
    }

    /// Returns one of so many places, a power of two. Flows that have one of their ports in common mostly get different ones.
    #[inline(always)]
    pub fn place(&self, places: usize) -> usize {
        let mixed = self.ports.wrapping_mul(MIX_A as u32 | 1);
        // CAST: below `places`. The upper bits of a product depend on all bits of both ports.
        ((u64::from(mixed) * places as u64) >> 32) as usize
    }
}

/// Odd numbers with an even mix of set and clear bits: digits of the golden ratio and of the square root of three.
pub(crate) const MIX_A: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_B: u64 = 0xbb67_ae85_84ca_a73b;

/// Multiplies into 128 bits and folds the halves together, so that every input bit reaches most output bits.
#[inline(always)]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    // CAST: a product of two 64-bit numbers fits into 128 bits; its halves are what is wanted.
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

#[inline(always)]
fn fold_u128(value: u128, [seed_a, seed_b]: [u64; 2]) -> u64 {
    // CAST: the two halves.
    fold(value as u64 ^ seed_a, (value >> 64) as u64 ^ seed_b)
}

/// Returns both ports of a UDP or TCP header, unless the header is cut off or the segment opens a connection.
#[inline(always)]
fn ports(protocol: u8, l4: &[u8]) -> Option<u32> {
    let ports = match protocol {
        IPPROTO_UDP => l4.first_chunk::<UDP_HEADER_SIZE>()?.first_chunk()?,
        IPPROTO_TCP => {
            let header = l4.first_chunk::<TCP_HEADER_SIZE>()?;
            if header[TCP_FLAGS_AT] & TCP_SYN != 0 {
                return None;
            }
            header.first_chunk()?
        }
        _ => return None,
    };
    Some(u32::from_ne_bytes(*ports))
}
