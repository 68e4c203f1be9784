// SPDX-License-Identifier: GPL-2.0

//! The kernel source as it came: a tarball, unpacked once into the cache, or a folder, used where it is.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{bail, Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::tree::Tree;
use crate::paths;
use crate::setup::KERNEL_TARBALL;
use crate::step::{self, Step};
use crate::tools;

/// The kernel our patches are made for.
const VERSION: &str = "6.12";

#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The folder in the cache for everything made of this source.
    pub(crate) home: PathBuf,
    pristine: PathBuf,
    /// True if the tree may have been edited: it is then compared before each build.
    pub(crate) may_change: bool,
}

impl Source {
    /// Finds the source, and unpacks it if it is a tarball that is new.
    pub(crate) fn prepare(place: Option<&Path>) -> Result<Self> {
        let place = place.unwrap_or(Path::new(KERNEL_TARBALL));
        let place = place.canonicalize().with_context(|| {
            format!("there is no kernel source at {}; `cargo xtask setup` installs it, or name another with --source", place.display())
        })?;
        if place.is_dir() {
            Self::folder(place)
        } else {
            Self::tarball(&place)
        }
    }

    fn folder(place: PathBuf) -> Result<Self> {
        let makefile = place.join("Makefile");
        let text = fs::read_to_string(&makefile).with_context(|| {
            format!(
                "{} is no kernel source: it has no Makefile",
                place.display()
            )
        })?;
        let version = accepted_version(&text, &place)?;
        if place.join(".config").exists() || place.join("include/config").exists() {
            bail!(
                "{0} has been built in: run `make -C {0} mrproper` first",
                place.display()
            );
        }
        let key = short_hash(place.to_string_lossy().as_bytes());
        Ok(Self {
            home: paths::cache_dir(&format!("kernel/{version}-{key}"))?,
            pristine: place,
            may_change: true,
        })
    }

    fn tarball(place: &Path) -> Result<Self> {
        let key = tarball_hash(place)?;
        let home = match find_home(&key)? {
            Some(home) => home,
            None => unpack(place, &key)?,
        };
        Ok(Self {
            pristine: home.join("pristine"),
            home,
            may_change: false,
        })
    }

    /// Returns the pristine and the work tree; the work tree exists afterwards, and follows a folder that was edited.
    pub(crate) fn tree(&self) -> Result<Tree> {
        let tree = Tree {
            pristine: self.pristine.clone(),
            work: self.home.join("linux"),
            manifest: self.home.join("linux.changed"),
        };
        let complete = self.home.join("linux.complete");
        if !self.may_change && complete.exists() {
            return Ok(tree);
        }
        // What differs on purpose is not to be touched: its time stamps count.
        let ours: String = tree
            .changed_files()
            .iter()
            .map(|path| format!("/{path}\n"))
            .collect();
        let exclude = self.home.join("linux.exclude");
        fs::write(&exclude, ours)?;
        let mut rsync = tools::command("rsync");
        rsync
            .args(["-a", "--delete", "--exclude=.git"])
            .arg("--exclude-from")
            .arg(&exclude);
        if !self.may_change {
            // Links cost no space; a changed file replaces its link.
            rsync.arg("--link-dest").arg(&tree.pristine);
        }
        rsync
            .arg(format!("{}/", tree.pristine.display()))
            .arg(&tree.work);
        Step::new("bring the work tree up to date", "kernel-tree")
            .hint(format!(
                "look for free space with `df -h {}`",
                paths::cache().display()
            ))
            .run(&mut rsync)?;
        fs::write(complete, "")?;
        Ok(tree)
    }
}

fn find_home(key: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(paths::cache_dir("kernel")?)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(&format!("-{key}")) && path.join("pristine").is_dir() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn unpack(place: &Path, key: &str) -> Result<PathBuf> {
    // Looking at the Makefile alone takes a moment; unpacking takes a minute.
    let mut peek = tools::command("tar");
    peek.args(["--extract", "--to-stdout", "--occurrence=1"])
        .args(["--wildcards", "--no-wildcards-match-slash", "--file"])
        .arg(place)
        .arg("*/Makefile");
    let makefile = tools::output(&mut peek).with_context(|| {
        format!(
            "{} is no kernel source: no Makefile in a single top-level folder",
            place.display()
        )
    })?;
    let version = accepted_version(&makefile, place)?;
    let home = paths::cache_dir(&format!("kernel/{version}-{key}"))?;
    let partial = home.join("unpacking");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir(&partial)?;
    Step::new(format!("unpack Linux {version}"), "kernel-unpack")
        .hint(format!(
            "look for free space with `df -h {}`",
            paths::cache().display()
        ))
        .run(
            tools::command("tar")
                .args(["--extract", "--strip-components=1"])
                .args(["--no-same-owner", "--file"])
                .arg(place)
                .arg("--directory")
                .arg(&partial),
        )?;
    fs::rename(&partial, home.join("pristine"))?;
    Ok(home)
}

/// Returns the version in a kernel's top-level Makefile if it is one we can patch.
fn accepted_version(makefile: &str, place: &Path) -> Result<String> {
    let value = |name: &str| {
        makefile.lines().find_map(|line| {
            let (left, right) = line.split_once('=')?;
            (left.trim() == name).then(|| right.trim().to_owned())
        })
    };
    let (Some(major), Some(minor)) = (value("VERSION"), value("PATCHLEVEL")) else {
        bail!(
            "{} is no kernel source: its Makefile has no VERSION",
            place.display()
        );
    };
    if format!("{major}.{minor}") != VERSION {
        bail!("{} is Linux {major}.{minor}, but the patches are made for {VERSION}: name a {VERSION} source with --source", place.display());
    }
    let rest = value("SUBLEVEL").unwrap_or_default();
    let extra = value("EXTRAVERSION").unwrap_or_default();
    Ok(format!("{major}.{minor}.{rest}{extra}"))
}

/// Returns the hash of a tarball, remembered by its path, size and time.
fn tarball_hash(place: &Path) -> Result<String> {
    let data = fs::metadata(place)?;
    let time = data.modified()?.duration_since(UNIX_EPOCH)?.as_nanos();
    let identity = format!("{} {} {time}", place.display(), data.len());
    let memory =
        paths::cache_dir("kernel")?.join(format!("tarball-{}", short_hash(identity.as_bytes())));
    if let Ok(hash) = fs::read_to_string(&memory) {
        return Ok(hash);
    }
    let hash = step::work("hash the kernel source", || {
        let mut hasher = Sha256::new();
        io::copy(&mut File::open(place)?, &mut hasher)?;
        Ok(hex(&hasher.finalize()))
    })?;
    let short = hash[..12].to_owned();
    fs::write(memory, &short)?;
    Ok(short)
}

/// Returns the first 12 hexadecimal digits of the SHA-256 of `bytes`.
pub(crate) fn short_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))[..12].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_version_is_taken() {
        let place = Path::new("/src/linux");
        let makefile =
            "# SPDX\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\nNAME = x\n";
        assert_eq!(accepted_version(makefile, place).unwrap(), "6.12.117");
        let candidate = makefile.replace("EXTRAVERSION =", "EXTRAVERSION = -rc1");
        assert_eq!(accepted_version(&candidate, place).unwrap(), "6.12.117-rc1");

        let error = accepted_version(&makefile.replace("12", "18"), place).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/src/linux is Linux 6.18, but the patches are made for 6.12: name a 6.12 source with --source"
        );
        assert!(accepted_version("all:\n\ttrue\n", place).is_err());
    }

    #[test]
    fn hashes_are_short_hexadecimal() {
        assert_eq!(short_hash(b"abc"), "ba7816bf8f01");
    }
}
