// SPDX-License-Identifier: GPL-2.0

//! The store of generations: a folder on a BPF file system, which lives as long as the programs do.
//!
//! ```text
//!   /sys/fs/bpf/hike/
//!   ├── 7/            a generation: its maps, its entry, and a note with its configuration
//!   ├── links/4       the link of the device with index 4; of one at tcx: 4-tcx
//!   └── current       a symbolic link to 7: the generation that counts
//! ```
//!
//! `current` is replaced by a rename, and that is what commits a transaction.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{symlink, DirBuilderExt as _};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};

const LINKS: &str = "links";
const CURRENT: &str = "current";
/// The symbolic link that is renamed to `current`.
const NEXT: &str = "next";

/// The folder, locked for this process.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    links: PathBuf,
    /// Held as long as it is open.
    _lock: File,
}

impl Store {
    /// Opens the folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self> {
        make(folder)?;
        let lock = File::open(folder)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another hiked has {}; stop that first", folder.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", folder.display()));
            }
        }
        let links = folder.join(LINKS);
        make(&links)?;
        Ok(Self {
            folder: folder.to_owned(),
            links,
            _lock: lock,
        })
    }

    /// Returns the folder of the devices' links.
    pub fn links(&self) -> &Path {
        &self.links
    }

    /// Returns the folder of a generation.
    pub fn generation(&self, revision: u64) -> PathBuf {
        self.folder.join(revision.to_string())
    }

    /// Returns the generation that counts, if one does.
    pub fn current(&self) -> Result<Option<u64>> {
        let place = self.folder.join(CURRENT);
        let target = match fs::read_link(&place) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", place.display()));
            }
        };
        let revision = target.to_str().and_then(|name| name.parse().ok());
        let wrong = || format!("{} leads to {}", place.display(), target.display());
        Ok(Some(revision.with_context(wrong)?))
    }

    /// Makes a generation the one that counts, or none.
    pub fn set_current(&self, revision: Option<u64>) -> Result<()> {
        let (current, next) = (self.folder.join(CURRENT), self.folder.join(NEXT));
        let commit = || match revision {
            Some(revision) => {
                gone(fs::remove_file(&next))?;
                symlink(revision.to_string(), &next)?;
                fs::rename(&next, &current)
            }
            None => gone(fs::remove_file(&current)),
        };
        commit().with_context(|| format!("cannot replace {}", current.display()))
    }

    /// Returns all generations that are there, whole or not, the oldest one first.
    pub fn generations(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            found.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }
}

fn make(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| {
                format!(
                    "cannot make {}: it must be on a mounted BPF file system; try: mount -t bpf bpf /sys/fs/bpf",
                    folder.display()
                )
            })
        }
        _ => Ok(()),
    }
}

fn gone(removed: std::io::Result<()>) -> std::io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_replaced_and_the_folder_is_one_process_alone() {
        let folder = std::env::temp_dir().join(format!("mflow-hiked-{}", std::process::id()));
        let store = Store::open(&folder).expect("new");
        assert_eq!(store.current().expect("readable"), None);
        for revision in [7, 12] {
            store.set_current(Some(revision)).expect("good");
            assert_eq!(store.current().expect("readable"), Some(revision));
        }
        for revision in [12, 7] {
            fs::create_dir(store.generation(revision)).expect("new");
        }
        assert_eq!(store.generations().expect("readable"), [7, 12]);
        // A process that was killed may have left the other name.
        symlink("3", folder.join(NEXT)).expect("new");
        store.set_current(Some(13)).expect("good");
        assert_eq!(store.current().expect("readable"), Some(13));
        store.set_current(None).expect("good");
        assert_eq!(store.current().expect("readable"), None);
        let second = Store::open(&folder).map(drop);
        fs::remove_dir_all(&folder).expect("there");
        let text = second.expect_err("locked").to_string();
        assert!(text.starts_with("another hiked has "), "{text}");
    }
}
