// SPDX-License-Identifier: GPL-2.0

//! Text into a buffer of fixed size.

use core::fmt;

/// A buffer that is written like a file; what does not fit is left out.
#[derive(Debug)]
pub struct Text<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Text<'a> {
    /// Returns an empty text in this buffer.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Returns how many bytes have been written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the text that has been written.
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.get(..self.len).unwrap_or(&[])
    }

    /// Writes all of a line and leaves `spare` bytes free behind it, or writes nothing. Returns whether it did.
    #[must_use]
    pub fn write_line(&mut self, line: impl fmt::Display, spare: usize) -> bool {
        self.write_whole(format_args!("{line}\n"), spare)
    }

    /// Writes all of a sentence, with a semicolon between it and one before, or writes nothing. Returns whether it did.
    #[must_use]
    pub fn write_sentence(&mut self, sentence: impl fmt::Display) -> bool {
        let between = if self.is_empty() { "" } else { "; " };
        self.write_whole(format_args!("{between}{sentence}"), 0)
    }

    fn write_whole(&mut self, text: fmt::Arguments<'_>, spare: usize) -> bool {
        let before = self.len;
        let is_whole = fmt::write(self, text).is_ok();
        if !is_whole || self.buffer.len() - self.len < spare {
            self.len = before;
            return false;
        }
        true
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.buffer.get_mut(self.len..).unwrap_or(&mut []);
        let place = room.get_mut(..text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
