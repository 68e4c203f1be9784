// SPDX-License-Identifier: GPL-2.0

//! The pinned maps of an instance, and what their errors mean.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{bail, Context as _, Result};
use aya::maps::{Map, MapData, MapError};

/// Opens a map of an instance.
pub(crate) fn open(folder: &Path, name: &str) -> Result<Map> {
    let path = folder.join(name);
    let data =
        MapData::from_pin(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Map::from_map_data(data)?)
}

/// Returns whether a map has refused because there is no such entry.
pub(crate) fn is_not_there(error: &MapError) -> bool {
    match error {
        MapError::KeyNotFound | MapError::ElementNotFound => true,
        MapError::SyscallError(error) => error.io_error.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

/// Says of a map that is full that it is, and how many entries it has.
pub(crate) fn or_full(
    written: Result<(), MapError>,
    what: &'static str,
    most: usize,
) -> Result<()> {
    match written {
        Err(error) if is_full(&error) => {
            bail!("there are {most} {what} already, and no more are allowed")
        }
        written => Ok(written?),
    }
}

/// Returns whether a map has refused because it is full.
pub(crate) fn is_full(error: &MapError) -> bool {
    // A trie says the one, all others the other.
    const FULL: [i32; 2] = [libc::ENOSPC, libc::E2BIG];
    let MapError::SyscallError(error) = error else {
        return false;
    };
    let code = error.io_error.raw_os_error();
    code.is_some_and(|code| FULL.contains(&code))
}
