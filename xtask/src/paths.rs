// SPDX-License-Identifier: GPL-2.0

//! The paths of the project, and of the cache folder that holds everything we download or build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};

/// Returns the top-level folder of the project.
pub fn project() -> &'static Path {
    static PROJECT: OnceLock<PathBuf> = OnceLock::new();
    PROJECT.get_or_init(|| {
        // Set by `cargo run`; the value at compile time serves a binary that is started directly.
        let own = env::var_os("CARGO_MANIFEST_DIR")
            .map(PathBuf::from)
            .and_then(|dir| {
                Some(
                    dir.ancestors()
                        .find(|dir| dir.ends_with("xtask"))?
                        .to_owned(),
                )
            })
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        own.parent().map_or_else(|| own.clone(), Path::to_path_buf)
    })
}

/// Returns the cache folder: `$XDG_CACHE_HOME/mflow`, else `~/.cache/mflow`.
pub(crate) fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
            .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .unwrap_or_else(|| PathBuf::from("/var/cache"))
            .join("mflow")
    })
}

/// Returns a sub-folder of the cache, which exists afterwards.
pub(crate) fn cache_dir(name: &str) -> Result<PathBuf> {
    let dir = cache().join(name);
    fs::create_dir_all(&dir).with_context(|| {
        format!(
            "cannot create {}; set XDG_CACHE_HOME to a folder you may write to",
            dir.display()
        )
    })?;
    Ok(dir)
}

pub(crate) fn logs() -> Result<PathBuf> {
    cache_dir("logs")
}

/// Returns the folder of the programs installed by `cargo install --root` (they are in its `bin`).
pub(crate) fn tools() -> PathBuf {
    cache().join("tools")
}

/// Returns `PATH` with our own tools first.
pub(crate) fn search_path() -> String {
    let old = env::var("PATH").unwrap_or_default();
    format!("{}:{old}:/usr/sbin:/sbin", tools().join("bin").display())
}
