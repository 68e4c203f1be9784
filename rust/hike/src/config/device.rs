// SPDX-License-Identifier: GPL-2.0

//! Names of devices.

use std::fmt;
use std::str::FromStr;

use anyhow::{ensure, Error, Result};

use super::fields::as_text;

/// The longest name there can be: IFNAMSIZ less the byte at its end.
const MOST_BYTES: usize = 15;

/// The name of a device, which need not be there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceName {
    /// Zeros behind the name.
    bytes: [u8; MOST_BYTES],
}

impl DeviceName {
    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let name = &self.bytes[..end.unwrap_or(MOST_BYTES)];
        // All of it is ASCII.
        std::str::from_utf8(name).unwrap_or_default()
    }

    /// Returns a number of the name: another one for another name, as good as certainly (FNV-1a).
    pub(crate) fn number(&self) -> u32 {
        let mixed = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        self.as_str().as_bytes().iter().fold(0x811c_9dc5, mixed)
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let good = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
        ensure!(
            (1..=MOST_BYTES).contains(&text.len()) && text.chars().all(good),
            "no device can have this name: 1 to {MOST_BYTES} characters without space, / and : are allowed"
        );
        let mut bytes = [0; MOST_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }
}

as_text!(DeviceName);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_printed() {
        for text in ["e", "eth0.100", "fifteen-letters"] {
            let name: DeviceName = text.parse().expect(text);
            assert_eq!((name.as_str(), name.to_string()), (text, text.to_owned()));
        }
        for text in ["", "sixteen-letters-", "a b", "a/b", "a:b", "\u{e9}"] {
            assert!(text.parse::<DeviceName>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_has_the_number_that_the_function_gives() {
        // Of the reference's test vectors.
        for (text, number) in [("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            let name: DeviceName = text.parse().expect(text);
            assert_eq!(name.number(), number);
        }
    }
}
