// SPDX-License-Identifier: GPL-2.0

//! Lines in the kernel's log.

use crate::bindings;
use core::ffi::c_uint;
use core::fmt::{self, Write as _};

/// The level of a line: the numbers of `linux/kern_levels.h`.
#[derive(Clone, Copy)]
pub enum Level {
    /// Something does not work.
    Error = 3,
    /// Something may not.
    Warning = 4,
    /// All is well.
    Info = 6,
}

/// The longest line. What is beyond is left out.
const MOST_BYTES: usize = 240;

struct Line {
    text: [u8; MOST_BYTES],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (place, byte) in self.text.iter_mut().skip(self.len).zip(text.bytes()) {
            *place = byte;
            self.len += 1;
        }
        Ok(())
    }
}

/// Logs a line. Any context.
pub fn line(level: Level, args: fmt::Arguments<'_>) {
    let mut line = Line {
        text: [0; MOST_BYTES],
        len: 0,
    };
    // What does not fit is left out.
    let _ = line.write_fmt(args);
    // CAST: both are small.
    // SAFETY: C prints that many bytes.
    unsafe {
        bindings::mflow_print(
            level as c_uint,
            line.text.as_ptr().cast(),
            line.len as c_uint,
        )
    };
}

/// Logs an error.
#[macro_export]
macro_rules! pr_err {
    ($($arg:tt)*) => { $crate::print::line($crate::print::Level::Error, format_args!($($arg)*)) };
}

/// Logs a warning.
#[macro_export]
macro_rules! pr_warn {
    ($($arg:tt)*) => { $crate::print::line($crate::print::Level::Warning, format_args!($($arg)*)) };
}

/// Logs what is good to know.
#[macro_export]
macro_rules! pr_info {
    ($($arg:tt)*) => { $crate::print::line($crate::print::Level::Info, format_args!($($arg)*)) };
}
