// SPDX-License-Identifier: GPL-2.0

//! Builds the counting plug-in, and sees whether there is a QEMU for it.

use std::path::PathBuf;

use anyhow::{bail, Result};

use crate::paths;
use crate::setup::qemu::{self, Qemu, Wish};
use crate::setup::rust;
use crate::step::Step;
use crate::tools;

/// The plug-in's counters are per CPU, which QEMU's interface has since 9.1; the suite is the same as for safe threads.
pub(super) const COUNTING: Wish = Wish {
    least: "9.1",
    ..qemu::SAFE_THREADS
};

/// Returns the plug-in, built first if it has to be.
pub(super) fn build() -> Result<PathBuf> {
    qemu::ensure(&COUNTING)?;
    check(Qemu::find(&COUNTING).map(|qemu| qemu.version).as_deref())?;
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

/// Fails if a QEMU of this version cannot count.
fn check(version: Option<&str>) -> Result<()> {
    let least = COUNTING.least;
    match version {
        Some(version) if tools::at_least(version, least) => Ok(()),
        Some(version) => bail!(
            "counting instructions needs QEMU {least} or newer, and this is {version}; try: cargo xtask setup"
        ),
        None => bail!("counting instructions needs QEMU {least} or newer; try: cargo xtask setup"),
    }
}

/// Returns the version of the QEMU that counts.
pub(super) fn qemu_version() -> String {
    Qemu::find(&COUNTING).map_or_else(|| "unknown".to_owned(), |qemu| qemu.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_qemu_is_refused_in_one_sentence() {
        assert!(check(Some("9.1.0")).is_ok());
        assert!(check(Some("10.0.13")).is_ok());
        for version in [None, Some("7.2.22"), Some("9.0.4")] {
            let error = check(version).expect_err("too old").to_string();
            assert!(error.contains("QEMU 9.1 or newer") && error.contains("cargo xtask setup"));
            assert_eq!(error.lines().count(), 1);
        }
    }
}
