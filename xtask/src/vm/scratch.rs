// SPDX-License-Identifier: GPL-2.0

//! Folders for the files that a guest needs while it runs, and no longer.
//!
//! A folder goes with its guest. If the process was killed, its folder stays until the next guest removes it.

use std::path::Path;
use std::{env, fs, process};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// The beginning of the folders' names, before the number of the process.
const PREFIX: &str = "mflow-vm-";

/// Makes a folder; its path is short enough for sockets in it.
pub(super) fn folder() -> Result<TempDir> {
    let place = env::temp_dir();
    sweep(&place);
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", process::id()))
        .tempdir_in(&place)
        .with_context(|| format!("cannot make a folder in {}", place.display()))
}

/// Removes the folders of processes that are gone.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        let gone = |process: u32| !Path::new("/proc").join(process.to_string()).exists();
        if process.is_some_and(gone) {
            // It may be another user's, or have been removed meanwhile.
            let _best_effort = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_are_swept_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        // No process has the first number.
        let names = [
            "mflow-vm-4294967295-x",
            "mflow-vm-1-x",
            "mflow-vm-x",
            "other",
        ];
        for name in names {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        sweep(place.path());
        let left = names.map(|name| place.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
