// SPDX-License-Identifier: GPL-2.0

//! Cargo's folders. Programs come into the checkout's `target`; what they are made of stays in the cache, as most of it is made of
//! libraries, which are the same for all checkouts.
//!
//! Cargo gives a crate of the project the same place in each checkout, and takes what it finds there for new if no source is younger.
//! So the cache's folder is one checkout's at a time. The next one has its own crates built again, and while another checkout builds
//! there, a checkout builds in its `target` alone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use walkdir::WalkDir;

use crate::paths;
use crate::setup::rust;
use crate::tools;

/// The cache's folder of builds is emptied when it has become larger than this: each version of a library stays there.
const MOST_BYTES: u64 = 12 << 30;
/// The file in the folder that names the checkout whose crates are there.
const OWNER: &str = "checkout";
/// The folders in which cargo notes from what it has built a crate.
const NOTES: &str = ".fingerprint";
/// Notes are in `target/miri/miri/x86_64-unknown-linux-gnu/debug` at the deepest.
const NOTES_DEPTH: usize = 6;

/// Returns a command of cargo in the project. Its programs come into `target`, or a folder in `target`: a kind of build whose flags
/// differ has one of its own.
pub fn cargo(target: &str) -> Result<Command> {
    static ENTERED: OnceLock<Arc<Option<File>>> = OnceLock::new();
    let (builds, project) = (paths::cache_dir("builds")?, paths::project());
    let entered = tools::once(&ENTERED, || {
        enter(&builds, project, MOST_BYTES).map(Arc::new)
    })?;
    let mut command = rust::command("cargo")?;
    command
        .current_dir(project)
        .env("CARGO_TARGET_DIR", project.join(target));
    if entered.is_some() {
        command.env("CARGO_BUILD_BUILD_DIR", builds.join(target));
    }
    Ok(command)
}

/// Makes the folder the checkout's until the file is dropped; nothing if another checkout uses it. A folder that is too large, and
/// that nobody uses, is emptied before.
fn enter(builds: &Path, project: &Path, most_bytes: u64) -> Result<Option<File>> {
    let path = builds.with_extension("lock");
    let lock = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if bytes(builds) > most_bytes && lock.try_lock().is_ok() {
        fs::remove_dir_all(builds).with_context(|| format!("cannot empty {}", builds.display()))?;
        fs::create_dir(builds)?;
    }
    // An exclusive lock becomes a shared one.
    lock.lock_shared()?;
    if !is_owner(builds, project) {
        if lock.try_lock().is_err() {
            return Ok(None);
        }
        forget_crates(builds, project)?;
        fs::write(builds.join(OWNER), project.as_os_str().as_bytes())?;
        lock.lock_shared()?;
    }
    // In between, another may have done the same.
    Ok(is_owner(builds, project).then_some(lock))
}

fn is_owner(builds: &Path, project: &Path) -> bool {
    fs::read(builds.join(OWNER)).is_ok_and(|owner| owner == project.as_os_str().as_bytes())
}

/// Makes cargo build the project's own crates again.
fn forget_crates(builds: &Path, project: &Path) -> Result<()> {
    let lock = project.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| lock.display().to_string())?;
    let crates = own_crates(&lock);
    let folders = WalkDir::new(builds).max_depth(NOTES_DEPTH).into_iter();
    let folders = folders
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path);
    for notes in folders.filter(|path| path.file_name() == Some(OsStr::new(NOTES))) {
        for entry in fs::read_dir(&notes)? {
            let path = entry?.path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            // Behind the name there is a hash.
            let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
            if crates.contains(&name) {
                fs::remove_dir_all(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Returns the names of those crates in Cargo.lock that come from nowhere else.
fn own_crates(lock: &str) -> Vec<&str> {
    let packages = lock.split("[[package]]").skip(1);
    let own = packages.filter(|package| !package.contains("\nsource = "));
    own.filter_map(|package| {
        let (_, rest) = package.split_once("name = \"")?;
        Some(rest.split_once('"')?.0)
    })
    .collect()
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
    use std::path::PathBuf;
    use std::thread;
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::*;

    /// The time for which children that other tests start may have a file open that is closed here: until they run their program.
    const CHILDREN: Duration = Duration::from_secs(10);

    const LOCK: &str = "\
[[package]]
name = \"ours\"
version = \"0.1.0\"

[[package]]
name = \"theirs\"
version = \"1.0.0\"
source = \"registry\"
";

    struct Cache {
        dir: TempDir,
        builds: PathBuf,
    }

    impl Cache {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let builds = dir.path().join("builds");
            let cache = Self { dir, builds };
            for name in ["ours-1", "theirs-1", "ours-more-1"] {
                fs::create_dir_all(cache.notes(name)).unwrap();
            }
            fs::write(cache.builds.join("object"), [0; 4096]).unwrap();
            cache
        }

        fn notes(&self, name: &str) -> PathBuf {
            self.builds.join("target/debug").join(NOTES).join(name)
        }

        fn enter(&self, checkout: &str, most_bytes: u64) -> Option<File> {
            let project = self.dir.path().join(checkout);
            fs::create_dir_all(&project).unwrap();
            fs::write(project.join("Cargo.lock"), LOCK).unwrap();
            enter(&self.builds, &project, most_bytes).unwrap()
        }
    }

    /// Waits until this is so.
    fn becomes(is_so: impl Fn() -> bool) -> bool {
        let begin = Instant::now();
        while !is_so() {
            if begin.elapsed() > CHILDREN {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    #[test]
    fn a_folder_that_is_too_large_is_emptied_once() {
        let cache = Cache::new();
        drop(cache.enter("one", 1 << 20));
        assert!(cache.builds.join("object").exists());
        assert!(becomes(|| {
            drop(cache.enter("one", 1024));
            !cache.builds.join("object").exists()
        }));
    }

    #[test]
    fn a_folder_that_another_uses_is_kept() {
        let cache = Cache::new();
        let _user = cache.enter("one", 1 << 20).unwrap();
        drop(cache.enter("one", 1024).unwrap());
        assert!(cache.builds.join("object").exists());
    }

    #[test]
    fn each_checkout_builds_its_own_crates() {
        let cache = Cache::new();
        let user = cache.enter("one", 1 << 20).unwrap();
        assert!(!cache.notes("ours-1").exists());
        assert!(cache.notes("theirs-1").exists() && cache.notes("ours-more-1").exists());
        fs::create_dir(cache.notes("ours-1")).unwrap();
        assert!(cache.enter("other", 1 << 20).is_none());
        assert!(cache.enter("one", 1 << 20).is_some());
        assert!(cache.notes("ours-1").exists());
        drop(user);
        assert!(becomes(|| cache.enter("other", 1 << 20).is_some()));
        assert!(!cache.notes("ours-1").exists());
    }
}
