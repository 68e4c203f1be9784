// SPDX-License-Identifier: GPL-2.0

//! Unit and property tests of every crate, on the host.

use anyhow::Result;

use super::{cargo, Ctx, Outcome};
use crate::paths;
use crate::setup::rust;

/// Runs the layer.
pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut command = rust::command("cargo")?;
    command.current_dir(paths::project()).args([
        "test",
        "--workspace",
        "--locked",
        "--no-fail-fast",
    ]);
    if ctx.full {
        // Those marked as too long for every day.
        command.args(["--", "--include-ignored"]);
    }
    cargo::run("unit", command)
}
