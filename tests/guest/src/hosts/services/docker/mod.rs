// SPDX-License-Identifier: GPL-2.0

//! Docker: ports that it publishes, its resolver, and its Swarm. Rules have the form in which Docker writes them. In `engine` Docker
//! itself writes them.

mod engine;
mod ingress;
mod published;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = published::cases();
    cases.extend(ingress::cases());
    cases.extend(engine::cases());
    cases
}
