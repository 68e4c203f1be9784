// SPDX-License-Identifier: GPL-2.0

//! Debian packages of the project: folders with their files, of which `dpkg-deb` makes packages. The same files make the same package,
//! byte by byte, as all times in it are those of the sources.

pub(crate) mod tools;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{ensure, Context as _, Result};
use tempfile::TempDir;

use crate::kernel::modules;
use crate::paths;
use crate::tools::{command, output};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The variable in which the time of the sources is given, in seconds since 1970 (reproducible-builds.org).
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// A package that is being made; its folder goes with this.
pub(crate) struct Package {
    name: &'static str,
    dir: TempDir,
}

impl Package {
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        fs::create_dir(dir.path().join(name))?;
        Ok(Self { name, dir })
    }

    /// Returns the folder that stands for `/`.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join(self.name)
    }

    /// Writes a file at a path below the root, with the folders that it is in.
    pub(crate) fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let root = self.root();
        let path = root.join(path);
        let folder = path.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder)?;
        let folders = folder.ancestors();
        for folder in folders.take_while(|folder| folder.starts_with(&root)) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Packs a file as policy wants it for pages and logs of changes; its name ends with `.gz` then.
    pub(crate) fn compress(&self, path: &str) -> Result<()> {
        let path = self.root().join(path);
        output(command("gzip").args(["-9", "--no-name"]).arg(path)).map(drop)
    }

    /// Makes the package, with the documents that policy wants in each, and returns its path.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let documents = format!("usr/share/doc/{}", self.name);
        let copyright = format!("{documents}/copyright");
        self.write(&copyright, include_bytes!("debian/copyright"), 0o644)?;
        let changes = format!("{documents}/changelog");
        self.write(&changes, changelog()?.as_bytes(), 0o644)?;
        self.compress(&changes)?;
        let excuses = format!("usr/share/lintian/overrides/{}", self.name);
        self.write(&excuses, include_bytes!("debian/overrides"), 0o644)?;
        let name = format!("{}_{VERSION}_amd64.deb", self.name);
        let deb = modules::folder("deb")?.join(name);
        let mut dpkg = command("dpkg-deb");
        dpkg.env(EPOCH, epoch()?.to_string())
            .args(["--root-owner-group", "--build"])
            .arg(self.root())
            .arg(&deb);
        output(&mut dpkg)?;
        Ok(deb)
    }
}

/// Returns the list of changes.
fn changelog() -> Result<String> {
    let time = format!("--date=@{}", epoch()?);
    let date = output(command("date").args(["--utc", "--rfc-email", &time]))?;
    Ok(format!(
        "mflow ({VERSION}) unstable; urgency=medium\n\n  * rust/CHANGELOG.md of the sources has what changed for users.\n\n \
         -- The mflow authors <mflow@localhost>  {}\n",
        date.trim()
    ))
}

/// Returns the time of the sources: what is given, or else that of the commit. Without a history it is the beginning of 1970.
fn epoch() -> Result<u64> {
    if let Ok(given) = env::var(EPOCH) {
        let seconds = given.trim().parse();
        return seconds.with_context(|| format!("{EPOCH} is to be seconds since 1970: {given}"));
    }
    let mut git = command("git");
    git.current_dir(paths::project());
    let time = output(git.args(["log", "-1", "--format=%ct"]));
    let time = time.ok().and_then(|text| text.trim().parse().ok());
    Ok(time.unwrap_or_default())
}

/// Fails unless all words that stand in a text as `@WORD@` were filled in.
pub(crate) fn require_filled(path: &str, text: &str) -> Result<()> {
    let is_word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    let mut words = text.split('@').skip(1);
    let left = words.find(is_word);
    ensure!(left.is_none(), "{path}: nothing is filled in for {left:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a package of one file.
    fn made() -> Vec<u8> {
        let package = Package::new("mflow-trial").unwrap();
        let control = "Package: mflow-trial\nVersion: 1\nArchitecture: amd64\n\
                       Maintainer: The mflow authors <mflow@localhost>\nDescription: a trial\n";
        package
            .write("DEBIAN/control", control.as_bytes(), 0o644)
            .unwrap();
        package
            .write("usr/share/man/man1/page.1", b"text", 0o644)
            .unwrap();
        package.compress("usr/share/man/man1/page.1").unwrap();
        let deb = package.build().unwrap();
        let bytes = fs::read(&deb).unwrap();
        fs::remove_file(deb).unwrap();
        bytes
    }

    #[test]
    fn a_package_is_the_same_each_time() {
        let first = made();
        // The clock of archives has seconds.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        assert!(first == made(), "two packages differ");
    }

    #[test]
    fn words_that_were_not_filled_in_are_found() {
        require_filled("a", "mflow-device@.service mflow@localhost").unwrap();
        require_filled("a", "Version: @VERSION@").unwrap_err();
    }
}
