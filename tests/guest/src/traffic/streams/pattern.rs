// SPDX-License-Identifier: GPL-2.0

//! A byte stream in which every byte tells where it belongs.
//!
//! The stream is a sequence of 8-byte words; each is its own number, spread over 64 bits in a way that can be undone. So a
//! byte that is lost, doubled or in another's place is found at once, and 15 bytes in a row say from where they are.

/// Spreads a number over its high bits; odd, so that it has an inverse.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const UNSPREAD: u64 = inverse(SPREAD);
const WORD: usize = 8;
/// The fewest bytes that say where they are from: a whole word is among them.
pub(crate) const TELLING: usize = 2 * WORD - 1;
/// Streams that are checked against each other begin this far apart.
const APART_BYTES: u64 = 1 << 36;
/// No stream goes on for longer: a word of another number is no word of ours.
const END_BYTES: u64 = 1 << 42;

const fn inverse(odd: u64) -> u64 {
    // Newton's method: each step doubles the number of right bits, which is 3 at first.
    let mut found = odd;
    let mut step = 0;
    while step < 5 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

fn word(number: u64) -> [u8; WORD] {
    let spread = number.wrapping_mul(SPREAD);
    (spread ^ (spread >> 32)).to_le_bytes()
}

fn number(word: [u8; WORD]) -> u64 {
    let mixed = u64::from_le_bytes(word);
    (mixed ^ (mixed >> 32)).wrapping_mul(UNSPREAD)
}

pub(crate) fn start(flow: u16) -> u64 {
    u64::from(flow) * APART_BYTES
}

pub(crate) fn fill(offset: u64, bytes: &mut [u8]) {
    // CAST: below 8.
    let skip = (offset % WORD as u64) as usize;
    let (head, body) = bytes.split_at_mut(bytes.len().min((WORD - skip) % WORD));
    let first = word(offset / WORD as u64);
    for (byte, value) in head.iter_mut().zip(&first[skip..]) {
        *byte = *value;
    }
    for (chunk, number) in body.chunks_mut(WORD).zip(offset.div_ceil(WORD as u64)..) {
        chunk.copy_from_slice(&word(number)[..chunk.len()]);
    }
}

/// Returns the index of the first byte that is not what the stream has from `offset` on.
pub(crate) fn mismatch(offset: u64, bytes: &[u8]) -> Option<usize> {
    // CAST: below 8.
    let skip = (offset % WORD as u64) as usize;
    let (head, body) = bytes.split_at(bytes.len().min((WORD - skip) % WORD));
    let first = word(offset / WORD as u64);
    let differ =
        |found: &[u8], expected: &[u8]| found.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(index) = differ(head, &first[skip..]) {
        return Some(index);
    }
    for (index, (chunk, number)) in body
        .chunks(WORD)
        .zip(offset.div_ceil(WORD as u64)..)
        .enumerate()
    {
        let expected = word(number);
        if *chunk != expected[..chunk.len()] {
            let within = differ(chunk, &expected).unwrap_or(0);
            return Some(head.len() + index * WORD + within);
        }
    }
    None
}

/// Returns where in the stream these bytes belong, if there are at least [`TELLING`] and they are of one place.
pub(crate) fn locate(bytes: &[u8]) -> Option<u64> {
    let sample = bytes.get(..TELLING)?;
    (0..WORD as u64).find_map(|skip| {
        // CAST: below 8.
        let whole = sample[skip as usize..].first_chunk::<WORD>()?;
        let offset = number(*whole)
            .checked_mul(WORD as u64)
            .filter(|&offset| offset < END_BYTES)?
            .checked_sub(skip)?;
        mismatch(offset, sample).is_none().then_some(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(offset, &mut bytes);
        bytes
    }

    #[test]
    fn pieces_fit_together() {
        let whole = stream(0, 200);
        for begin in 0..40 {
            for length in 0..40 {
                let piece = stream(begin as u64, length);
                assert_eq!(piece, whole[begin..begin + length]);
                assert_eq!(mismatch(begin as u64, &piece), None);
            }
        }
    }

    #[test]
    fn one_wrong_byte_is_found() {
        for begin in [0, 3, start(2) + 5] {
            for wrong in 0..50 {
                let mut bytes = stream(begin, 50);
                bytes[wrong] ^= 0x40;
                assert_eq!(mismatch(begin, &bytes), Some(wrong));
            }
        }
    }

    #[test]
    fn a_lost_a_doubled_and_a_swapped_piece_are_found() {
        let whole = stream(0, 4000);
        let lost = [&whole[..1398], &whole[2796..]].concat();
        let doubled = [&whole[..1398], &whole[..]].concat();
        let swapped = [&whole[..1398], &whole[2796..3999], &whole[1398..2796]].concat();
        for broken in [lost, doubled, swapped] {
            let at = mismatch(0, &broken);
            assert!(at.is_some_and(|at| (1398..1400).contains(&at)), "{at:?}");
        }
    }

    #[test]
    fn bytes_say_where_they_are_from() {
        for offset in (0..100).chain(start(7)..start(7) + 20) {
            assert_eq!(locate(&stream(offset, TELLING)), Some(offset));
            assert_eq!(locate(&stream(offset, TELLING - 1)), None);
        }
        assert_eq!(locate(&[0xa5; 64]), None);
    }
}
