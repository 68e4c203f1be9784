// SPDX-License-Identifier: GPL-2.0

//! Access to the fields of commands, contexts and queue entries: big endian, counted in bits.
//!
//! Bits outside of a buffer read as zero and are not written, so a guest that sends too little does no harm.

/// The place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    bit: u32,
    width: u32,
}

impl Field {
    /// Returns the field that starts at `bit` and has `width` bits.
    pub const fn new(bit: u32, width: u32) -> Self {
        Self { bit, width }
    }

    /// Returns this field of a structure that is itself the field `outer` of another one.
    pub const fn after(self, outer: Self) -> Self {
        Self {
            bit: outer.bit + self.bit,
            width: self.width,
        }
    }

    /// Returns the bits `high` to `low` of this field, counted from its last one as C does.
    pub const fn bits(self, high: u32, low: u32) -> Self {
        assert!(low <= high && high < self.width);
        Self::new(self.bit + self.width - 1 - high, high - low + 1)
    }

    /// Returns the byte the field starts in.
    pub const fn byte(self) -> usize {
        // CAST: no structure has 4 Gbit.
        (self.bit / 8) as usize
    }

    /// Returns the byte at which the field's 32-bit word starts.
    pub const fn word(self) -> u64 {
        // CAST: widens.
        (self.bit / 32 * 4) as u64
    }

    /// Returns the field's 32-bit word with this value in it, cut to the field's width, and zeros around.
    pub const fn in_word(self, value: u32) -> u32 {
        value << (32 - self.width) >> (self.bit % 32)
    }

    /// Returns the value; of a field with more than 64 bits, nothing.
    pub fn get(self, buffer: &[u8]) -> u64 {
        if self.width > 64 {
            return 0;
        }
        let end = self.bit + self.width;
        let mut value: u128 = 0;
        for byte in self.bit / 8..end.div_ceil(8) {
            let here = buffer.get(byte as usize).copied().unwrap_or(0);
            value = value << 8 | u128::from(here);
        }
        let surplus = end.div_ceil(8) * 8 - end;
        // CAST: cut to the width, which is at most 64.
        (value >> surplus & ((1 << self.width) - 1)) as u64
    }

    /// Returns the value as far as it fits in 32 bits.
    pub fn get32(self, buffer: &[u8]) -> u32 {
        // CAST: cut to 32 bits.
        self.get(buffer) as u32
    }

    /// Returns the value as far as it fits in 16 bits.
    pub fn get16(self, buffer: &[u8]) -> u16 {
        // CAST: cut to 16 bits.
        self.get(buffer) as u16
    }

    /// Returns whether any bit is set.
    pub fn is_set(self, buffer: &[u8]) -> bool {
        self.get(buffer) != 0
    }

    /// Sets the value; of a field with more than 64 bits, the last 64.
    pub fn set(self, buffer: &mut [u8], value: u64) {
        let width = self.width.min(64);
        let end = self.bit + self.width;
        let surplus = end.div_ceil(8) * 8 - end;
        let mut mask = ((1_u128 << width) - 1) << surplus;
        let mut value = u128::from(value) << surplus & mask;
        for byte in ((end - width) / 8..end.div_ceil(8)).rev() {
            if let Some(byte) = buffer.get_mut(byte as usize) {
                // CAST: the last byte of what is left.
                *byte = *byte & !(mask as u8) | value as u8;
            }
            (mask, value) = (mask >> 8, value >> 8);
        }
    }

    /// Returns what begins at this field.
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        buffer.get(self.byte()..).unwrap_or_default()
    }

    /// Returns what begins at this field.
    pub fn of_mut(self, buffer: &mut [u8]) -> &mut [u8] {
        buffer.get_mut(self.byte()..).unwrap_or_default()
    }
}

/// Fails to compile, in a constant, if two of the fields have a bit in common.
pub(crate) const fn assert_disjoint(fields: &[Field]) {
    let mut one = 0;
    while one < fields.len() {
        let mut other = 0;
        while other < one {
            let (one, next) = (fields[one], fields[other]);
            assert!(one.bit + one.width <= next.bit || next.bit + next.width <= one.bit);
            other += 1;
        }
        one += 1;
    }
}

/// Returns the 16 bits at `at`.
pub fn be16(buffer: &[u8], at: usize) -> u16 {
    bytes(buffer, at).map_or(0, u16::from_be_bytes)
}

/// Returns the 32 bits at `at`.
pub fn be32(buffer: &[u8], at: usize) -> u32 {
    bytes(buffer, at).map_or(0, u32::from_be_bytes)
}

/// Returns the 64 bits at `at`.
pub fn be64(buffer: &[u8], at: usize) -> u64 {
    bytes(buffer, at).map_or(0, u64::from_be_bytes)
}

fn bytes<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Writes bytes where they fit.
pub fn put(buffer: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = at
        .checked_add(bytes.len())
        .and_then(|end| buffer.get_mut(at..end))
    {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cross_bytes() {
        let mut buffer = [0; 8];
        let field = Field::new(12, 9);
        field.set(&mut buffer, 0x1a5);
        assert_eq!(buffer, [0, 0x0d, 0x28, 0, 0, 0, 0, 0]);
        assert_eq!(field.get(&buffer), 0x1a5);
        field.set(&mut buffer, 0);
        assert_eq!(buffer, [0; 8]);
        Field::new(4, 32).bits(23, 15).set(&mut buffer, 0x1a5);
        assert_eq!(field.get16(&buffer), 0x1a5);
        assert_eq!(field.bits(8, 5).get(&buffer), 0xd);
        Field::new(0, 64).set(&mut buffer, u64::MAX);
        assert_eq!(Field::new(4, 60).get(&buffer), u64::MAX >> 4);
    }

    #[test]
    fn nothing_is_outside() {
        let mut buffer = [0xff; 2];
        let field = Field::new(8, 32);
        assert_eq!(field.get(&buffer), 0xff00_0000);
        field.set(&mut buffer, 0);
        assert_eq!(buffer, [0xff, 0]);
        assert_eq!(Field::new(64, 8).of(&buffer), &[] as &[u8]);
        assert_eq!(be32(&buffer, usize::MAX), 0);
        put(&mut buffer, usize::MAX, &[1]);
    }
}
