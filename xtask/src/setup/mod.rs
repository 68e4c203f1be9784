// SPDX-License-Identifier: GPL-2.0

//! Installs what is missing, and nothing else.

pub(crate) mod apt;
pub(crate) mod archive;
mod failures;
pub(crate) mod herd;
pub(crate) mod llvm;
pub(crate) mod packages;
pub(crate) mod promtool;
pub mod qemu;
pub mod rust;

use std::process::ExitCode;

use anyhow::Result;

pub use self::packages::Need;

/// The kernel source of the distribution package `linux-source-6.12`.
pub(crate) const KERNEL_TARBALL: &str = "/usr/src/linux-source-6.12.tar.xz";

/// The folder with the distribution's kernel configurations (package `linux-config-6.12`).
pub(crate) const DISTRIBUTION_CONFIGS: &str = "/usr/src/linux-config-6.12";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Also install what `build-kernel --deb` needs.
    #[arg(long)]
    deb: bool,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let mut needs = vec![Need::Kernel, Need::Vm, Need::Checks];
    if options.deb {
        needs.push(Need::Deb);
    }
    qemu::forget_failures();
    herd::forget_failure();
    promtool::forget_failure();
    ensure(&needs)?;
    if let Some(why) = qemu::obtain(&qemu::VFIO_USER)? {
        println!(
            "note: `test mlx5` will be skipped: no QEMU {} or newer: {why}",
            qemu::VFIO_USER.least
        );
    }
    if let Some(why) = herd::obtain()? {
        println!(
            "note: `test litmus` will be skipped: no {}: {why}",
            herd::PACKAGE
        );
    }
    if let Some(why) = promtool::obtain()? {
        println!(
            "note: `test tidy` will skip rules of Prometheus: no {}: {why}",
            promtool::PACKAGE
        );
    }
    if let Some(problem) = rust::miri_problem() {
        println!("note: `test miri` will be skipped: {problem}");
    }
    println!("everything is installed; `cargo xtask doctor` shows the details");
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing for these needs; quick when nothing is.
pub fn ensure(needs: &[Need]) -> Result<()> {
    apt::ensure(needs)?;
    if needs.contains(&Need::Kernel) {
        rust::ensure_components()?;
        rust::ensure_bindgen()?;
    }
    if needs.contains(&Need::Checks) {
        rust::ensure_components()?;
    }
    if needs.contains(&Need::Vm) {
        qemu::ensure(&qemu::SAFER_THREADS)?;
    }
    Ok(())
}
