// SPDX-License-Identifier: GPL-2.0

//! The lock-free parts under loom, which tries every interleaving within bounds.

use anyhow::Result;

use super::{cargo, Ctx, Outcome};
use crate::paths;
use crate::setup::rust;

/// Runs the layer.
pub(crate) fn run(ctx: &Ctx) -> Result<Outcome> {
    let mut command = rust::command("cargo")?;
    command
        .current_dir(paths::project())
        .env("RUSTFLAGS", "--cfg loom")
        // Other flags, other objects: in the same folder the two builds would throw each other's away.
        .env("CARGO_TARGET_DIR", paths::project().join("target/loom"))
        // How often a thread may be stopped against its will; most errors need two or fewer.
        .env("LOOM_MAX_PREEMPTIONS", if ctx.full { "3" } else { "2" })
        .args([
            "test",
            "--package",
            "mflow-algo",
            "--release",
            "--locked",
            "--no-fail-fast",
            "--test",
            "loom",
        ]);
    cargo::run("loom", command)
}
