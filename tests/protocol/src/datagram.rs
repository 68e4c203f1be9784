// SPDX-License-Identifier: GPL-2.0

//! A numbered, checksummed datagram.
//!
//! ```text
//!   byte  0      2       4        8            16             24
//!         flow   length  CRC-32   sequence     time of send   filling ...
//!         u16    u16     u32      u64          u64, ns        depends on the sequence
//! ```
//!
//! The CRC covers every byte but its own four, so a datagram put together from pieces of two is found out. The time is
//! only there from 24 bytes on; the smallest datagram is the bare 16-byte head.

/// The smallest datagram.
pub const MIN_BYTES: usize = 16;
/// The largest datagram that UDP over IPv4 carries.
pub const MAX_BYTES: usize = 65_507;

const TIME: usize = MIN_BYTES;
const FILLING: usize = TIME + 8;
/// The filling of consecutive datagrams starts at a different place of the pattern.
const PATTERN_STEPS: usize = 251;

/// The bytes that fill datagrams: long enough for the largest one from any start.
pub struct Pattern(Vec<u8>);

impl Default for Pattern {
    /// Returns the pattern; all are equal.
    fn default() -> Self {
        // A linear congruential generator: no short period that a misplaced piece could hide in.
        let mut state = 0x2545_f491_u32;
        let bytes = (0..MAX_BYTES + PATTERN_STEPS).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        Self(bytes.collect())
    }
}

impl Pattern {
    fn filling(&self, sequence: u64, length: usize) -> &[u8] {
        let start = (sequence % PATTERN_STEPS as u64) as usize;
        &self.0[start..start + length]
    }
}

/// The header of a good datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The flow it belongs to.
    pub flow: u16,
    /// Its number within the flow, from 0.
    pub sequence: u64,
    /// The time at which it was sent, in nanoseconds of the sender's clock; `None` if it is too short to carry that.
    pub sent_ns: Option<u64>,
}

/// Writes a datagram that fills `buffer`.
pub fn encode(pattern: &Pattern, head: Head, buffer: &mut [u8]) {
    let length = buffer.len();
    assert!((MIN_BYTES..=MAX_BYTES).contains(&length));
    buffer[0..2].copy_from_slice(&head.flow.to_be_bytes());
    buffer[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    buffer[8..16].copy_from_slice(&head.sequence.to_be_bytes());
    if length >= FILLING {
        buffer[TIME..FILLING].copy_from_slice(&head.sent_ns.unwrap_or(0).to_be_bytes());
        buffer[FILLING..].copy_from_slice(pattern.filling(head.sequence, length - FILLING));
    } else {
        buffer[TIME..].fill(0);
    }
    let crc = checksum(buffer);
    buffer[4..8].copy_from_slice(&crc.to_be_bytes());
}

/// Returns what the datagram says, or `None` if one bit of it is not as it was sent.
pub fn decode(bytes: &[u8]) -> Option<Head> {
    let head = decode_head(bytes)?;
    (u32::from_be_bytes(array(bytes, 4)) == checksum(bytes)).then_some(head)
}

/// Returns what the datagram says, or `None` if its length is not as it was sent. Its other bytes are not verified.
pub fn decode_head(bytes: &[u8]) -> Option<Head> {
    if bytes.len() < MIN_BYTES || usize::from(u16::from_be_bytes(array(bytes, 2))) != bytes.len() {
        return None;
    }
    Some(Head {
        flow: u16::from_be_bytes(array(bytes, 0)),
        sequence: u64::from_be_bytes(array(bytes, 8)),
        sent_ns: (bytes.len() >= FILLING).then(|| u64::from_be_bytes(array(bytes, TIME))),
    })
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..4]);
    hasher.update(&bytes[8..]);
    hasher.finalize()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(sequence: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0xff; length];
        let head = Head {
            flow: 3,
            sequence,
            sent_ns: Some(7),
        };
        encode(&Pattern::default(), head, &mut buffer);
        buffer
    }

    #[test]
    fn survives_the_way() {
        for length in [16, 17, 23, 24, 25, 1422, MAX_BYTES] {
            let head = decode(&datagram(1 << 40, length)).expect("good datagram");
            assert_eq!((head.flow, head.sequence), (3, 1 << 40));
            assert_eq!(head.sent_ns, (length >= 24).then_some(7));
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = datagram(5, 64);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn pieces_of_two_datagrams_are_found() {
        let (one, two) = (datagram(5, 3000), datagram(6, 3000));
        assert_eq!(decode(&[&one[..1424], &two[1424..]].concat()), None);
        assert_eq!(decode(&one[..2999]), None);
    }
}
