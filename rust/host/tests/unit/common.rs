// SPDX-License-Identifier: GPL-2.0

//! Parts that the tests share.

use proptest::test_runner::Config;

/// Returns the settings of a property test: `cases` inputs natively, few under Miri, which is a thousand times slower.
pub(crate) fn cases(cases: u32) -> Config {
    Config {
        cases: if cfg!(miri) {
            cases.div_ceil(64)
        } else {
            cases
        },
        // A failing input is printed in full, and Miri has no files.
        failure_persistence: None,
        ..Config::default()
    }
}
