// SPDX-License-Identifier: GPL-2.0

//! After all other cases: memory that nothing points to any more, found by the kernel's own leak detector.

use super::{Case, Run};
use crate::kmemleak;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "leaks",
        "after all cases and without the module, the leak detector finds nothing",
        Run::Checking,
        |_| kmemleak::look().map(|()| None),
    )]
}
