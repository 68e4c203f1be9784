// SPDX-License-Identifier: GPL-2.0

//! Docker: ports that it publishes, its resolver, and its Swarm. Rules have the form in which Docker writes them. In `real_docker`
//! Docker itself writes them.

mod ingress;
mod published;
mod real_docker;

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = published::cases();
    cases.extend(ingress::cases());
    cases.extend(real_docker::cases());
    cases
}
