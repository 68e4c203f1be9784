// SPDX-License-Identifier: GPL-2.0

//! The search for memory that nothing points to any more. It comes after all other cases of a guest with one thread, where the
//! kernel's own leak detector is on.

use crate::cases::{Case, Run};
use crate::kmemleak;

pub(crate) fn cases() -> Vec<Case> {
    let case = Case::of_module(
        "leaks",
        "after the other cases of its guest and without the module, the leak detector finds nothing",
        Run::Checking,
        |_| kmemleak::look().map(|()| None),
    );
    vec![case.patching_code()]
}
