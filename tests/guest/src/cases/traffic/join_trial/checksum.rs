// SPDX-License-Identifier: GPL-2.0

//! Checksums of the Internet protocols.

/// Returns the sum of bytes in words of 16 bits, which has not been folded.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(4);
    let rest = chunks.remainder();
    let mut sum = chunks.fold(0, |sum, chunk| {
        sum + u64::from(u32::from_be_bytes(chunk.try_into().unwrap_or_default()))
    });
    for (at, byte) in rest.iter().enumerate() {
        sum += u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    sum
}

/// Returns the checksum of what has this sum.
pub(super) fn complement(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: folded.
    !(sum as u16)
}

/// Writes the checksum of a header of IPv4.
pub(super) fn seal_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sealed = complement(sum(header));
    header[10..12].copy_from_slice(&sealed.to_be_bytes());
}
