// SPDX-License-Identifier: GPL-2.0

//! The instruction by which a guest program marks the begin and the end of a window, in which its instructions are counted.
//!
//! `0f 1f 84 00` is a NOP with a memory operand that is not accessed; the four bytes after it are an offset that compilers
//! leave at 0 when they use it for padding. Ours is a number that no compiler pads with.

/// The bytes before the offset.
const OPCODE: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];
/// The offset of [`Mark::Begin`].
const BEGIN: u32 = 0x4d46_0001;
/// The offset of [`Mark::End`].
const END: u32 = 0x4d46_0002;

/// The meaning of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Count from here; a window that is open is forgotten.
    Begin,
    /// Write what was counted.
    End,
}

impl Mark {
    /// Returns what an instruction of these bytes says, if it is a mark.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let offset = bytes.strip_prefix(&OPCODE)?;
        match u32::from_le_bytes(offset.try_into().ok()?) {
            BEGIN => Some(Self::Begin),
            END => Some(Self::End),
            _ => None,
        }
    }

    /// Executes the mark's instruction. Without the plug-in that counts, it does nothing, on any processor.
    #[cfg(target_arch = "x86_64")]
    pub fn set(self) {
        use core::arch::asm;
        // SAFETY: the instruction is a NOP with a memory operand, which is not accessed.
        unsafe {
            match self {
                Self::Begin => asm!(".byte 0x0f, 0x1f, 0x84, 0x00", ".long {}", const BEGIN),
                Self::End => asm!(".byte 0x0f, 0x1f, 0x84, 0x00", ".long {}", const END),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_offsets_are_marks() {
        let begin = [0x0f, 0x1f, 0x84, 0, 1, 0, 0x46, 0x4d];
        assert_eq!(Mark::of(&begin), Some(Mark::Begin));
        let end = [0x0f, 0x1f, 0x84, 0, 2, 0, 0x46, 0x4d];
        assert_eq!(Mark::of(&end), Some(Mark::End));
        // Padding as compilers make it, another operand, a shorter and a longer instruction.
        assert_eq!(Mark::of(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), None);
        assert_eq!(Mark::of(&[0x0f, 0x1f, 0x44, 0, 1, 0, 0x46, 0x4d]), None);
        assert_eq!(Mark::of(&begin[..4]), None);
        assert_eq!(Mark::of(&[&begin[..], &[0]].concat()), None);
    }

    #[test]
    fn a_mark_does_nothing() {
        Mark::Begin.set();
        Mark::End.set();
    }
}
