// SPDX-License-Identifier: GPL-2.0

//! Where every field of every command is, and the commands' numbers: made by the build script (see [`crate::ifc`]).

#![allow(
    missing_docs,
    dead_code,
    reason = "generated from the kernel's header, with the header's names"
)]

include!(concat!(env!("OUT_DIR"), "/layouts.rs"));

/// Returns the name of a command.
pub fn command_name(number: u16) -> Option<&'static str> {
    COMMANDS
        .iter()
        .find(|command| command.0 == number)
        .map(|command| command.1)
}
