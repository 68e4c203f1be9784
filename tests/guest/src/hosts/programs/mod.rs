// SPDX-License-Identifier: GPL-2.0

//! BPF programs on a packet's way to the container, as network plugins have them instead of rules and bridges.

mod assigning;
mod code;
mod rewriting;
mod sockets;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rewriting::cases();
    cases.extend(assigning::cases());
    cases.extend(sockets::cases());
    cases
}
