// SPDX-License-Identifier: GPL-2.0

//! BPF programs on a packet's way to the container, as network plugins have them instead of rules and bridges.

mod af_xdp;
mod rewriting;
mod socket_assignment;
mod tc_program;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = rewriting::cases();
    cases.extend(socket_assignment::cases());
    cases.extend(af_xdp::cases());
    cases
}
