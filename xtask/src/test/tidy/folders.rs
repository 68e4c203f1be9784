// SPDX-License-Identifier: GPL-2.0

//! The number of files that lie side by side in a folder: few enough to be read at one glance.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Result};

const MOST_FILES: usize = 15;

/// Folders that may have more, with the reason.
const EXCEPTED: &[&str] = &[
    // The patches are a series: each has its number, and they are read in that order.
    "c-shims/patches",
];

/// Endings of the files that kbuild leaves beside the sources of a module out of the tree.
const BUILT: &[&str] = &[".o", ".ko", ".mod", ".mod.c", ".order", ".symvers"];

/// Fails with each folder that has more files than fit together.
pub(super) fn check(project: &Path, files: &[PathBuf]) -> Result<()> {
    let paths = files
        .iter()
        .filter_map(|file| file.strip_prefix(project).ok());
    let full: Vec<String> = full(paths)
        .into_iter()
        .map(|(folder, count)| format!("{}: {count}", folder.display()))
        .collect();
    ensure!(
        full.is_empty(),
        "a folder has {MOST_FILES} files at most; put some of these into folders, each of which is one idea:\n  {}",
        full.join("\n  ")
    );
    Ok(())
}

/// Returns the folders with too many of these files, and how many each has.
fn full<'a>(files: impl Iterator<Item = &'a Path>) -> BTreeMap<&'a Path, usize> {
    let is_built = |file: &Path| {
        let name = file.to_string_lossy();
        BUILT.iter().any(|ending| name.ends_with(ending))
    };
    let mut counts = BTreeMap::new();
    for folder in files.filter(|file| !is_built(file)).map(Path::parent) {
        *counts.entry(folder.unwrap_or(Path::new(""))).or_default() += 1;
    }
    counts.retain(|folder, count| {
        *count > MOST_FILES && !EXCEPTED.iter().any(|one| Path::new(one) == *folder)
    });
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the full folders if `folder` has this many sources, and others have some files, too.
    fn full_with(folder: &str, sources: usize) -> Vec<(String, usize)> {
        let mut files = vec![
            PathBuf::from("README.md"),
            PathBuf::from("a/inner/mod.rs"),
            PathBuf::from("a/built.o"),
            PathBuf::from("a/built.mod.c"),
        ];
        files.extend((0..sources).map(|number| Path::new(folder).join(format!("{number}.rs"))));
        full(files.iter().map(PathBuf::as_path))
            .into_iter()
            .map(|(folder, count)| (folder.display().to_string(), count))
            .collect()
    }

    #[test]
    fn sources_of_one_folder_are_counted() {
        assert!(full_with("a", MOST_FILES).is_empty());
        let expected = [("a".to_owned(), MOST_FILES + 1)];
        assert_eq!(full_with("a", MOST_FILES + 1), expected);
    }

    #[test]
    fn the_series_may_be_long() {
        assert!(full_with("c-shims/patches", 2 * MOST_FILES).is_empty());
        let inner = "c-shims/patches/inner";
        assert_eq!(full_with(inner, 2 * MOST_FILES).len(), 1);
    }
}
