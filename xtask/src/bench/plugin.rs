// SPDX-License-Identifier: GPL-2.0

//! Builds the counting plug-in, and sees whether there is a QEMU for it.

use std::path::PathBuf;

use anyhow::{ensure, Result};

use crate::paths;
use crate::setup::qemu::{self, Qemu, Wish};
use crate::setup::rust;
use crate::step::Step;
use crate::tools;
use crate::vm::Nic;

/// The plug-in's counters are per CPU, which QEMU's interface has since 9.1; the suite is the same as for safe threads.
const COUNTING: Wish = Wish {
    least: "9.1",
    ..qemu::SAFE_THREADS
};

/// The first QEMU that only takes plug-ins made for its own interface.
const NEW_INTERFACE: &str = "11.1";

/// Returns the plug-in for the QEMU that runs a guest with this NIC, built first if it has to be.
pub(super) fn build(nic: Nic) -> Result<PathBuf> {
    let wish = wish(nic);
    qemu::ensure(wish)?;
    ensure!(
        qemu::suits(wish),
        "counting instructions needs QEMU {} or newer; try: cargo xtask setup",
        wish.least
    );
    let is_new = tools::at_least(&qemu_version(nic), NEW_INTERFACE);
    let target_dir = paths::project().join(if is_new {
        "target/plugin-7"
    } else {
        "target/plugin"
    });
    Step::new("build the counting plug-in", "plugin-build").run(
        rust::command("cargo")?
            .current_dir(paths::project())
            .args(["build", "--release", "--locked", "--package"])
            .arg("mflow-insn-plugin")
            .args(is_new.then_some("--features=api-7"))
            .arg("--target-dir")
            .arg(&target_dir),
    )?;
    Ok(target_dir.join("release/libmflow_insn_plugin.so"))
}

/// Returns the version of the QEMU that counts.
pub(super) fn qemu_version(nic: Nic) -> String {
    Qemu::find(wish(nic)).map_or_else(|| "unknown".to_owned(), |qemu| qemu.version)
}

fn wish(nic: Nic) -> &'static Wish {
    match nic {
        Nic::Virtio => &COUNTING,
        Nic::Mlx5 | Nic::Mlx5Striding => &qemu::VFIO_USER,
    }
}
