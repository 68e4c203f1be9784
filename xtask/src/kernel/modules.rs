// SPDX-License-Identifier: GPL-2.0

//! The folders of a checkout's `mflow.ko`, and a kernel's modules with this one among them.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

use super::distribution::fresh;
use super::source::short_hash;
use crate::paths;
use crate::tools;

/// The file name of our module, and the folder of modules that are no part of a kernel.
const MODULE: &str = "mflow.ko";
const EXTRA: &str = "extra";

/// The file in a copy that names what it was made of.
const MADE_OF: &str = "made-of";

/// Returns a folder of the cache for what is made of this checkout's module; other checkouts have others.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    paths::cache_dir(&folder_of(paths::project(), name))
}

fn folder_of(project: &Path, name: &str) -> String {
    format!(
        "module/{}/{name}",
        short_hash(project.as_os_str().as_bytes())
    )
}

/// Keeps others, in this process and in others, from building and copying this checkout's module until the file is dropped.
pub(crate) fn lock() -> Result<File> {
    tools::lock(&folder("")?, "build of the module")
}

/// Copies `.../lib/modules/RELEASE` into a folder, with this module in the place of any other `mflow.ko`, unless that has been done
/// already: guests may be reading the copy. Returns the copy's place.
pub(crate) fn copy_with(module: &Path, modules: &Path, home: &Path) -> Result<PathBuf> {
    let release = modules.file_name().context("a folder has a name")?;
    let copy = home.join("lib/modules").join(release);
    let made = fs::metadata(modules)?.modified()?;
    let module_hash = short_hash(&fs::read(module)?);
    let made_of = format!("{module_hash} {} {made:?}", modules.display());
    if !fs::read_to_string(home.join(MADE_OF)).is_ok_and(|text| text == made_of) {
        fresh(home, |work| copy_into(work, module, modules))?;
        fs::write(home.join(MADE_OF), made_of)?;
    }
    Ok(copy)
}

fn copy_into(home: &Path, module: &Path, modules: &Path) -> Result<()> {
    let release = modules.file_name().context("a folder has a name")?;
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
    // DKMS may have compressed it.
    let name = module.file_name().context("a module has a name")?;
    fs::copy(module, copy.join(EXTRA).join(name))?;
    let mut depmod = tools::command("depmod");
    tools::output(depmod.arg("--basedir").arg(home).arg(release))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_has_folders_of_its_own() {
        let folder = |project: &str| folder_of(Path::new(project), "copies");
        assert_ne!(folder("/one"), folder("/two"));
        assert_eq!(folder("/one"), folder("/one"));
    }

    #[test]
    fn a_copy_is_made_again_for_another_module_alone() {
        let dir = tempfile::tempdir().unwrap();
        let modules = dir.path().join("6.12.1");
        fs::create_dir_all(modules.join(EXTRA)).unwrap();
        fs::write(modules.join("other.ko"), "").unwrap();
        fs::write(modules.join(EXTRA).join(MODULE), "another layer's").unwrap();
        let (module, home) = (dir.path().join(MODULE), dir.path().join("home"));
        let copied = |text: &str| {
            fs::write(&module, text).unwrap();
            let copy = copy_with(&module, &modules, &home).unwrap();
            let read = fs::read_to_string(copy.join(EXTRA).join(MODULE)).unwrap();
            (read, copy.join("other.ko").exists(), copy)
        };
        let (read, has_other, copy) = copied("one");
        assert_eq!((read.as_str(), has_other), ("one", true));
        // A guest that reads the copy still finds all of it.
        fs::write(copy.join("read"), "").unwrap();
        assert_eq!(copied("one").0, "one");
        assert!(copy.join("read").exists());
        assert_eq!(copied("two").0, "two");
        assert!(!copy.join("read").exists());
    }
}
