// SPDX-License-Identifier: GPL-2.0

//! How a command ends.

/// What the first byte of a command's output says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// Done.
    Ok = 0x00,
    /// There is no such command.
    BadOperation = 0x02,
    /// A value is out of range.
    BadParameter = 0x03,
    /// No object has this number.
    BadResource = 0x05,
    /// There are too many of these objects.
    ExceedsLimit = 0x08,
    /// The object cannot go from its state to that one.
    BadResourceState = 0x09,
    /// The command is too short.
    BadInputLength = 0x50,
}
