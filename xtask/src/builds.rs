// SPDX-License-Identifier: GPL-2.0

//! Cargo's folders. Programs come into the checkout's `target`; what they are made of stays in the cache, as most of it is made of
//! libraries, which are the same for all checkouts.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

use crate::paths;
use crate::setup::rust;
use crate::tools;

/// The cache's folder of builds is emptied when it has become larger than this: each checkout leaves its own crates there.
const MOST_BYTES: u64 = 12 << 30;

/// Returns a command of cargo in the project. Its programs come into `target`, or a folder in `target`: a kind of build whose flags
/// differ has one of its own.
pub fn cargo(target: &str) -> Result<Command> {
    static ENTERED: OnceLock<Arc<File>> = OnceLock::new();
    let builds = paths::cache_dir("builds")?;
    tools::once(&ENTERED, || enter(&builds, MOST_BYTES).map(Arc::new))?;
    let mut command = rust::command("cargo")?;
    command
        .current_dir(paths::project())
        .env("CARGO_TARGET_DIR", paths::project().join(target))
        .env("CARGO_BUILD_BUILD_DIR", builds.join(target));
    Ok(command)
}

/// Empties the folder if it is too large and nobody uses it, and keeps others from doing so until the file is dropped.
fn enter(builds: &Path, most_bytes: u64) -> Result<File> {
    let path = builds.with_extension("lock");
    let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if bytes(builds) > most_bytes && lock.try_lock().is_ok() {
        fs::remove_dir_all(builds).with_context(|| format!("cannot empty {}", builds.display()))?;
        fs::create_dir(builds)?;
    }
    // An exclusive lock becomes a shared one.
    lock.lock_shared()?;
    Ok(lock)
}

/// Returns how much space a folder takes. Cargo's folders have hard links, which count once.
fn bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = WalkDir::new(folder).into_iter().filter_map(Result::ok);
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.map(|file| file.len() / file.nlink().max(1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_too_large_is_emptied_once() {
        let dir = tempfile::tempdir().unwrap();
        let builds = dir.path().join("builds");
        fs::create_dir(&builds).unwrap();
        fs::write(builds.join("object"), [0; 4096]).unwrap();
        drop(enter(&builds, 1 << 20).unwrap());
        assert!(builds.join("object").exists());
        drop(enter(&builds, 1024).unwrap());
        assert!(!builds.join("object").exists());
    }

    #[test]
    fn a_folder_that_another_uses_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let builds = dir.path().join("builds");
        fs::create_dir(&builds).unwrap();
        fs::write(builds.join("object"), [0; 4096]).unwrap();
        let other = File::create(builds.with_extension("lock")).unwrap();
        other.lock_shared().unwrap();
        drop(enter(&builds, 1024).unwrap());
        assert!(builds.join("object").exists());
    }
}
