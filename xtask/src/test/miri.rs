// SPDX-License-Identifier: GPL-2.0

//! The algorithms under Miri, an interpreter that reports undefined behaviour.

use anyhow::Result;

use super::{cargo, Ctx, Outcome};
use crate::paths;
use crate::setup::rust;
use crate::tools;

/// Runs the layer.
pub(crate) fn run(_ctx: &Ctx) -> Result<Outcome> {
    if let Some(problem) = rust::miri_problem() {
        let mut outcome = Outcome::default();
        outcome.skip("miri", problem);
        return Ok(outcome);
    }
    let mut command = tools::command("cargo");
    command
        .current_dir(paths::project())
        .env("RUSTUP_TOOLCHAIN", "nightly")
        // Another compiler, other objects. The tests choose sizes for Miri themselves: it is a thousand times slower.
        .env("CARGO_TARGET_DIR", paths::project().join("target/miri"))
        .args([
            "miri",
            "test",
            "--package",
            "mflow-algo",
            "--locked",
            "--no-fail-fast",
        ]);
    cargo::run("miri", command)
}
