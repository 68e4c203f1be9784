// SPDX-License-Identifier: GPL-2.0

//! The package as a user installs it: with apt, which brings the distribution's Rust compiler, on a system with the
//! distribution's kernel, for which DKMS builds the module. Then kernels come for which the module cannot be built, and the
//! package is removed again. All of this happens on this system in a mount namespace, with a layer in memory over all folders
//! that packages write to. Nothing of it stays but the packages that apt has downloaded, in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};
use tempfile::TempDir;

use super::{NAME, PACKAGE};
use crate::kernel::distribution::Distribution;
use crate::paths;
use crate::step::Step;
use crate::tools;

/// The result of an installation.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The module that DKMS has put among those of the kernel; its folder goes with this.
    pub(crate) module: PathBuf,
    /// The owner of the key that DKMS has signed it with.
    pub(crate) signer: String,
    _dir: TempDir,
}

/// Returns why this machine cannot have such a layer, if so.
pub(crate) fn refusal() -> Option<&'static str> {
    if !tools::is_root() {
        return Some("it takes root");
    }
    let mut trial = tools::command("unshare");
    trial.args(["--mount", "sh", "-ec", TRIAL]);
    match tools::output(&mut trial) {
        Ok(_) => None,
        Err(_) => Some("this machine allows no mounts with a layer in memory (overlay, tmpfs)"),
    }
}

/// Installs the package for this kernel and no other, and removes it. What fails leaves nothing, either.
pub(crate) fn install(package: &Path, kernel: &Distribution) -> Result<Installed> {
    let dir = tempfile::tempdir()?;
    let (layer, out) = (dir.path().join("layer"), dir.path().join("out"));
    fs::create_dir(&layer)?;
    fs::create_dir(&out)?;
    let downloads = paths::cache_dir("apt/packages")?;
    fs::create_dir_all(downloads.join("partial"))?;
    let mut script = tools::command("unshare");
    script
        // As a service calls apt; we may run in somebody's shell, and below cargo.
        .env("PATH", PATH)
        .env_remove("HOME")
        .env_remove("RUSTUP_TOOLCHAIN")
        .args(["--mount", "sh", "-euc", SCRIPT, NAME, PACKAGE])
        .args([&layer, &out, &downloads])
        .arg(package)
        .arg(&kernel.home)
        .arg(&kernel.modules)
        .arg(&kernel.release)
        .args(&kernel.compilers);
    Step::new("install the package for DKMS", "dkms-install")
        .hint("the first `error` in the log tells; DKMS's own log is in it if the compiler failed")
        .run(&mut script)?;
    let signer = fs::read_to_string(out.join("signer"))?.trim().to_owned();
    fs::remove_file(out.join("signer"))?;
    let mut built = fs::read_dir(&out)?;
    let built = built.next().context("DKMS has built no module")??;
    let module = built.path();
    ensure!(
        !signer.is_empty(),
        "DKMS has not signed {}, and kernels with secure boot refuse it then",
        module.display()
    );
    Ok(Installed {
        module,
        signer,
        _dir: dir,
    })
}

/// The folders in which services look for programs: none of rustup's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A layer over a folder, in a namespace of its own.
const TRIAL: &str = "\
mount -t tmpfs mflow /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay mflow -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
";

/// `$0` is the module's name. The mounts end with the namespace.
const SCRIPT: &str = include_str!("install.sh");
