// SPDX-License-Identifier: GPL-2.0

//! Fetches a QEMU from a newer suite of this machine's own mirror, with everything down to the C library, and unpacks it
//! into the cache.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use anyhow::{ensure, Context as _, Result};

use super::{unpacked, Qemu, Wish};
use crate::paths;
use crate::setup::archive::Archive;
use crate::tools;

const PACKAGE: &str = "qemu-system-x86";

/// Documentation, which is not needed in the cache.
const SURPLUS: &[&str] = &["usr/share/doc", "usr/share/man", "usr/share/locale"];

/// Fetches what the wish asks for; the caller holds the lock.
pub(super) fn fetch(wish: &Wish) -> Result<Qemu> {
    let dir = paths::cache_dir("qemu")?;
    let work = dir.join("unpacking");
    remove(&work)?;
    fs::create_dir(&work)?;
    let result = fetch_into(wish, &work).and_then(|qemu| {
        let home = dir.join(&qemu.version);
        remove(&home)?;
        fs::rename(work.join("root"), &home)?;
        Ok(Qemu {
            root: Some(home),
            ..qemu
        })
    });
    remove(&work)?;
    result
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

fn fetch_into(wish: &Wish, work: &Path) -> Result<Qemu> {
    let archive = Archive::of_suite(wish.suite)?;
    archive.update()?;
    let root = work.join("root");
    archive.unpack_whole(&[PACKAGE.to_owned()], &root)?;
    SURPLUS.iter().try_for_each(|dir| remove(&root.join(dir)))?;
    let version = try_out(&root, work)?;
    let qemu = Qemu {
        version,
        root: Some(root),
    };
    ensure!(
        qemu.suits(wish),
        "{} has QEMU {}, which is older than {}",
        wish.suite,
        qemu.version,
        wish.least
    );
    Ok(qemu)
}

/// Starts a machine as far as its firmware; returns QEMU's version.
fn try_out(root: &Path, work: &Path) -> Result<String> {
    let orders = work.join("monitor");
    fs::write(&orders, "quit\n")?;
    let mut command = unpacked(root);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-machine", "pc", "-accel", "tcg", "-cpu", "max"])
        .args(["-netdev", "hubport,id=net,hubid=0"])
        .args(["-device", "virtio-net-pci,netdev=net"])
        .args(["-S", "-monitor", "stdio"])
        .stdin(Stdio::from(File::open(&orders)?));
    let text = tools::output(&mut command)?;
    tools::first_version(&text)
        .with_context(|| format!("the unpacked QEMU does not tell its version: {text}"))
}
