// SPDX-License-Identifier: GPL-2.0

//! A kernel's modules with another `mflow.ko` among them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

use crate::tools;

/// The file name of our module, and the folder of modules that are no part of a kernel.
const MODULE: &str = "mflow.ko";
const EXTRA: &str = "extra";

/// Copies `.../lib/modules/RELEASE` into a folder, with this module in the place of any other `mflow.ko`. Returns the copy's place.
pub(crate) fn copy_with(module: &Path, modules: &Path, home: &Path) -> Result<PathBuf> {
    let release = modules.file_name().context("a folder has a name")?;
    if home.exists() {
        fs::remove_dir_all(home)?;
    }
    let copy = home.join("lib/modules").join(release);
    let is_taken = |name: &std::ffi::OsStr| name != EXTRA && name != MODULE;
    let entries = WalkDir::new(modules).into_iter();
    for entry in entries.filter_entry(|entry| entry.depth() == 0 || is_taken(entry.file_name())) {
        let entry = entry?;
        let place = copy.join(entry.path().strip_prefix(modules)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&place)?;
        } else if entry.file_type().is_file() {
            fs::copy(entry.path(), &place)?;
        }
    }
    fs::create_dir_all(copy.join(EXTRA))?;
    fs::copy(module, copy.join(EXTRA).join(MODULE))?;
    let mut depmod = tools::command("depmod");
    tools::output(depmod.arg("--basedir").arg(home).arg(release))?;
    Ok(copy)
}
