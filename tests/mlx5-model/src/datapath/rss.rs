// SPDX-License-Identifier: GPL-2.0

//! Spreading of received flows: the Toeplitz hash, and which fields go into it.

use super::packet::{Headers, TCP};
use crate::firmware::layout::{rx_hash_field_select, tirc};

/// Bytes of a Toeplitz key.
pub const KEY_BYTES: usize = 40;

/// The hashing of received frames: part of a TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashing {
    function: u64,
    symmetric: bool,
    key: [u8; KEY_BYTES],
    selected: u32,
}

const TOEPLITZ: u64 = 2;

const SOURCE_ADDRESS: u32 = 1;
const DESTINATION_ADDRESS: u32 = 2;
const SOURCE_PORT: u32 = 4;
const DESTINATION_PORT: u32 = 8;

/// A hash, and the codes by which a completion says what went into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// The value.
    pub value: u32,
    /// 1: IPv4, 2: IPv6.
    pub ip: u8,
    /// 1: TCP, 2: UDP, 0: no ports.
    pub transport: u8,
}

impl Hashing {
    /// Reads what a TIR's context says.
    pub fn of(context: &[u8]) -> Self {
        let mut key = [0; KEY_BYTES];
        let from = tirc::RX_HASH_TOEPLITZ_KEY.of(context);
        let bytes = from.len().min(KEY_BYTES);
        key[..bytes].copy_from_slice(&from[..bytes]);
        let selector = tirc::RX_HASH_FIELD_SELECTOR_OUTER.of(context);
        Self {
            function: tirc::RX_HASH_FN.get(context),
            symmetric: tirc::RX_HASH_SYMMETRIC.is_set(context),
            key,
            selected: rx_hash_field_select::SELECTED_FIELDS.get32(selector),
        }
    }

    /// Returns the hash of a frame; none if this TIR does not hash or the frame has nothing to hash.
    pub fn hash(&self, frame: &[u8], headers: &Headers) -> Hash {
        let Some(ip) = headers.ip.filter(|_| self.function == TOEPLITZ) else {
            return Hash::default();
        };
        let (from, to) = ip.addresses(frame);
        let ports = headers.ports.then(|| {
            (
                &frame[ip.payload..ip.payload + 2],
                &frame[ip.payload + 2..ip.payload + 4],
            )
        });
        let swap =
            self.symmetric && (from, ports.map(|ports| ports.0)) > (to, ports.map(|ports| ports.1));
        let order = |pair: (&'_ [u8], &'_ [u8])| -> [Vec<u8>; 2] {
            let (first, second) = if swap { (pair.1, pair.0) } else { pair };
            [first.to_vec(), second.to_vec()]
        };
        let mut input = Vec::with_capacity(36);
        let mut take = |bits: [u32; 2], pair: [Vec<u8>; 2]| {
            for (bit, bytes) in bits.iter().zip(pair) {
                if self.selected & bit != 0 {
                    input.extend(bytes);
                }
            }
        };
        take([SOURCE_ADDRESS, DESTINATION_ADDRESS], order((from, to)));
        let ported = self.selected & (SOURCE_PORT | DESTINATION_PORT) != 0;
        let ports = ports.filter(|_| ported);
        if let Some(ports) = ports {
            take([SOURCE_PORT, DESTINATION_PORT], order(ports));
        }
        Hash {
            value: toeplitz(&self.key, &input),
            ip: if ip.version == 4 { 1 } else { 2 },
            transport: match (ports, ip.protocol) {
                (None, _) => 0,
                (_, TCP) => 1,
                _ => 2,
            },
        }
    }
}

/// Returns the Toeplitz hash: for every bit of the input that is set, 32 bits of the key from there on are mixed in.
pub fn toeplitz(key: &[u8; KEY_BYTES], input: &[u8]) -> u32 {
    let mut window = u64::from_be_bytes([
        key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7],
    ]);
    let mut hash = 0;
    for (next, byte) in (8..).zip(input) {
        for bit in 0..8 {
            if byte & (0x80 >> bit) != 0 {
                // CAST: the upper half.
                hash ^= (window << bit >> 32) as u32;
            }
        }
        window = window << 8 | u64::from(key.get(next).copied().unwrap_or(0));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::datagram;

    /// The key of Microsoft's description of receive-side scaling, with which it gives examples.
    const KEY: [u8; KEY_BYTES] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn hashing(selected: u32, symmetric: bool) -> Hashing {
        Hashing {
            function: TOEPLITZ,
            symmetric,
            key: KEY,
            selected,
        }
    }

    #[test]
    fn published_examples() {
        // 66.9.149.187:2794 to 161.142.100.80:1766.
        let input = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        assert_eq!(toeplitz(&KEY, &input[..8]), 0x323e_8fc2);
        assert_eq!(toeplitz(&KEY, &input), 0x51cc_c178);
    }

    #[test]
    fn only_selected_fields_count() {
        let one = datagram(b"", [1000, 2000]);
        let other = datagram(b"", [1001, 2000]);
        let hash =
            |selected, frame: &[u8]| hashing(selected, false).hash(frame, &Headers::parse(frame));
        assert_eq!(hash(3, &one), hash(3, &other));
        assert_ne!(hash(15, &one).value, hash(15, &other).value);
        let codes = |hash: Hash| (hash.ip, hash.transport);
        assert_eq!(codes(hash(15, &one)), (1, 2));
        assert_eq!(codes(hash(3, &one)), (1, 0));
        // A part of a larger packet has no ports.
        let mut fragment = one.clone();
        fragment[20] = 0x20;
        assert_eq!(hash(15, &fragment), hash(3, &one));
    }

    #[test]
    fn symmetric_means_the_same_both_ways() {
        let there = datagram(b"", [1000, 2000]);
        let mut back = there.clone();
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        let hash =
            |symmetric, frame: &[u8]| hashing(15, symmetric).hash(frame, &Headers::parse(frame));
        assert_eq!(hash(true, &there), hash(true, &back));
        assert_ne!(hash(false, &there), hash(false, &back));
    }
}
