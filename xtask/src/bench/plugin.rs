// SPDX-License-Identifier: GPL-2.0

//! Builds the counting plug-in, and sees whether there is a QEMU for it.

use std::path::PathBuf;

use anyhow::{ensure, Result};

use crate::paths;
use crate::setup::qemu::{self, Qemu, Wish};
use crate::setup::rust;
use crate::step::Step;

/// The plug-in's counters are per CPU, which QEMU's interface has since 9.1; the suite is the same as for safe threads.
const COUNTING: Wish = Wish {
    least: "9.1",
    ..qemu::SAFE_THREADS
};

/// Returns the plug-in, built first if it has to be.
pub(super) fn build() -> Result<PathBuf> {
    qemu::ensure(&COUNTING)?;
    ensure!(
        qemu::suits(&COUNTING),
        "counting instructions needs QEMU {} or newer; try: cargo xtask setup",
        COUNTING.least
    );
    let target_dir = paths::project().join("target/plugin");
    Step::new("build the counting plug-in", "plugin-build").run(
        rust::command("cargo")?
            .current_dir(paths::project())
            .args(["build", "--release", "--locked", "--package"])
            .args(["mflow-insn-plugin", "--target-dir"])
            .arg(&target_dir),
    )?;
    Ok(target_dir.join("release/libmflow_insn_plugin.so"))
}

/// Returns the version of the QEMU that counts.
pub(super) fn qemu_version() -> String {
    Qemu::find(&COUNTING).map_or_else(|| "unknown".to_owned(), |qemu| qemu.version)
}
