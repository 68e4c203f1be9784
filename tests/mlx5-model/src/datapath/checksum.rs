// SPDX-License-Identifier: GPL-2.0

//! The Internet checksum.

/// Adds 16-bit words to a ones' complement sum; an odd last byte counts as if a zero followed it.
pub fn add(sum: u32, bytes: &[u8]) -> u32 {
    let mut wide = u64::from(sum);
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        wide += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        wide += u64::from(*last) << 8;
    }
    while wide > 0xffff {
        wide = (wide & 0xffff) + (wide >> 16);
    }
    // CAST: folded to 16 bits.
    wide as u32
}

/// Returns the sum of bytes, not inverted, as the card reports it for a received frame.
pub fn sum(bytes: &[u8]) -> u16 {
    // CAST: add() folds to 16 bits.
    add(0, bytes) as u16
}

/// Returns the checksum that belongs into a header.
pub fn finish(sum: u32) -> u16 {
    // CAST: add() folds to 16 bits.
    !(add(sum, &[]) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(finish(add(0, &bytes)), !0xddf2);
        assert_eq!(sum(&[0x12]), 0x1200);
    }
}
