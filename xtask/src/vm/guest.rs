// SPDX-License-Identifier: GPL-2.0

//! Builds the guest program: static, so that it runs as the first process of an otherwise empty system.

use std::path::PathBuf;

use anyhow::Result;

use crate::paths;
use crate::setup::rust;
use crate::step::Step;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Returns the guest program, built first if it has to be; it runs on the host as well.
pub(crate) fn build() -> Result<PathBuf> {
    // A folder of its own: the flags differ from those of every other build.
    let target_dir = paths::project().join("target/guest");
    Step::new("build the guest program", "guest-build").run(
        rust::command("cargo")?
            .current_dir(paths::project())
            .args(["build", "--release", "--locked", "--package", "mflow-guest"])
            .args(["--target", TARGET, "--target-dir"])
            .arg(&target_dir)
            .env(
                "RUSTFLAGS",
                "-C target-feature=+crt-static -C strip=symbols",
            ),
    )?;
    Ok(target_dir.join(TARGET).join("release/mflow-guest"))
}
