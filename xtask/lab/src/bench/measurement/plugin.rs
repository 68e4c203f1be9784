// SPDX-License-Identifier: GPL-2.0

//! Builds the counting plug-in, and sees whether there is a QEMU for it.

use std::path::PathBuf;

use anyhow::{bail, Result};

use xtask::builds;
use xtask::paths;
use xtask::setup::qemu::{self, Qemu, Wish};
use xtask::step::Step;
use xtask::tools;
use xtask::vm::Nic;

/// The plug-in's counters are per CPU, which QEMU's interface has since 9.1; the suite is the same.
pub(crate) const COUNTING: Wish = Wish {
    least: "9.1",
    ..qemu::SAFER_THREADS
};

/// The first QEMU that only takes plug-ins made for its own interface.
const NEW_INTERFACE: &str = "11.1";

/// Returns the plug-in for the QEMU that runs a guest with this NIC, built first if it has to be.
pub(crate) fn build(nic: Nic) -> Result<PathBuf> {
    let wish = wish(nic);
    qemu::ensure(wish)?;
    let qemu = Qemu::find(wish).map(|qemu| qemu.version);
    check(qemu.as_deref(), wish.least)?;
    let is_new = tools::at_least(&qemu_version(nic), NEW_INTERFACE);
    let folder = if is_new {
        "target/plugin-7"
    } else {
        "target/plugin"
    };
    Step::new("build the counting plug-in", "plugin-build").run(
        builds::cargo(folder)?
            .args(["build", "--release", "--locked", "--package"])
            .arg("mflow-insn-plugin")
            .args(is_new.then_some("--features=api-7")),
    )?;
    Ok(paths::project()
        .join(folder)
        .join("release/libmflow_insn_plugin.so"))
}

/// Fails if a QEMU of this version cannot count.
fn check(version: Option<&str>, least: &str) -> Result<()> {
    match version {
        Some(version) if tools::at_least(version, least) => Ok(()),
        Some(version) => bail!(
            "counting instructions needs QEMU {least} or newer, and this is {version}; try: cargo xtask setup"
        ),
        None => bail!("counting instructions needs QEMU {least} or newer; try: cargo xtask setup"),
    }
}

/// Returns the version of the QEMU that counts.
pub(crate) fn qemu_version(nic: Nic) -> String {
    Qemu::find(wish(nic)).map_or_else(|| "unknown".to_owned(), |qemu| qemu.version)
}

fn wish(nic: Nic) -> &'static Wish {
    match nic {
        Nic::Virtio | Nic::VirtioSmall => &COUNTING,
        Nic::Mlx5 | Nic::Mlx5Striding => &qemu::VFIO_USER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_qemu_is_refused_in_one_sentence() {
        assert!(check(Some("9.1.0"), COUNTING.least).is_ok());
        assert!(check(Some("10.0.13"), COUNTING.least).is_ok());
        for version in [None, Some("7.2.22"), Some("9.0.4")] {
            let error = check(version, COUNTING.least)
                .expect_err("too old")
                .to_string();
            assert!(error.contains("QEMU 9.1 or newer") && error.contains("cargo xtask setup"));
            assert_eq!(error.lines().count(), 1);
        }
    }
}
