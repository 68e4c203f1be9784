// SPDX-License-Identifier: GPL-2.0

//! Fails before an hour is spent on what cannot be written then.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Fails if a file cannot be written; leaves what is in it.
pub(super) fn file(path: &Path) -> Result<()> {
    let existed = path.exists();
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| {
            format!(
                "cannot write {}; give a file in a folder that you may write to",
                path.display()
            )
        })?;
    if !existed {
        // An empty file is no result.
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Fails if files cannot be made in a folder, which is made first if it has to be.
pub(super) fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .and_then(|()| tempfile::tempfile_in(path))
        .with_context(|| {
            format!(
                "cannot write plots into {}; give a folder that you may write to",
                path.display()
            )
        })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (dir.path().join("old.json"), dir.path().join("new/new.json"));
        fs::write(&old, "[]").expect("written");
        file(&old).expect("writable");
        file(&new).expect("writable");
        folder(&dir.path().join("plots")).expect("writable");
        assert_eq!(fs::read_to_string(&old).expect("there"), "[]");
        assert!(!new.exists());
        let left = fs::read_dir(dir.path().join("plots")).expect("made");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn what_cannot_be_written_is_one_sentence() {
        let dir = tempfile::tempdir().expect("a folder");
        let taken = dir.path().join("taken");
        fs::write(&taken, "a file").expect("written");
        // A folder is no file, a file is no folder; root may write everywhere else.
        let error = file(dir.path()).expect_err("a folder").to_string();
        assert!(error.starts_with("cannot write ") && error.lines().count() == 1);
        let error = file(&taken.join("x.json")).expect_err("no folder");
        assert!(error.to_string().starts_with("cannot create the folder "));
        let error = folder(&taken).expect_err("a file").to_string();
        assert!(
            error.starts_with("cannot write plots into ") && error.contains("give a folder"),
            "{error}"
        );
    }
}
