// SPDX-License-Identifier: GPL-2.0

//! The writes to the file `devices`, and the names that network devices can have.

use super::KnobError;
use core::fmt;

/// Bytes of a network device name with its closing NUL, the kernel's `IFNAMSIZ`.
pub const DEVICE_NAME_SIZE: usize = 16;

/// The sentence that says what a write to the `devices` file may contain.
pub const DEVICES_ALLOWED: &str =
    "devices: allowed +NAME to split the flows of a device and -NAME to stop, with NAME of 1 to 15 bytes";

/// A write to the `devices` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCommand {
    /// `+NAME`: split the flows of this device.
    Add(DeviceName),
    /// `-NAME`: stop splitting them.
    Remove(DeviceName),
}

impl DeviceCommand {
    /// Reads `+NAME` or `-NAME`, with white space around it ignored.
    pub fn parse(text: &[u8]) -> Result<Self, KnobError> {
        match text.trim_ascii().split_first() {
            Some((b'+', name)) => DeviceName::new(name).map(Self::Add),
            Some((b'-', name)) => DeviceName::new(name).map(Self::Remove),
            _ => Err(KnobError::Syntax),
        }
    }
}

/// A name that a network device can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceName {
    /// The name, then zeros, of which there is at least one.
    bytes: [u8; DEVICE_NAME_SIZE],
}

impl DeviceName {
    /// Checks a name by the rules of the kernel's `dev_valid_name()`.
    pub fn new(name: &[u8]) -> Result<Self, KnobError> {
        let too_long = name.len() >= DEVICE_NAME_SIZE;
        if too_long || matches!(name, b"" | b"." | b"..") || name.iter().any(is_forbidden) {
            return Err(KnobError::Syntax);
        }
        let mut bytes = [0; DEVICE_NAME_SIZE];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        Ok(Self { bytes })
    }

    /// Reads a list of names with commas between them, the form of the module parameter; an empty list has no name.
    pub fn list(text: &[u8]) -> impl Iterator<Item = Result<Self, KnobError>> + '_ {
        let text = text.trim_ascii();
        let nr_names = if text.is_empty() { 0 } else { usize::MAX };
        text.split(|byte| *byte == b',')
            .take(nr_names)
            .map(Self::new)
    }

    /// Returns the name without the NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    /// Returns the name as the kernel keeps it: NUL-terminated, in a field of fixed size.
    pub fn as_array(&self) -> &[u8; DEVICE_NAME_SIZE] {
        &self.bytes
    }
}

/// Returns whether a byte cannot be part of a device name. 0xa0 is white space to the kernel's `isspace()`.
fn is_forbidden(byte: &u8) -> bool {
    matches!(byte, 0 | b'/' | b':' | b' ' | b'\t'..=b'\r' | 0xa0)
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_bytes().escape_ascii(), f)
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceName({self})")
    }
}
