// SPDX-License-Identifier: GPL-2.0

//! Docker for a guest, of the packages of one release of Debian, whatever this machine has. They are unpacked into the cache:
//! installed, they would start a daemon on this machine, which changes the packet filter.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::kernel::distribution::fresh;
use crate::paths;
use crate::setup::archive::Archive;
use crate::tools;

/// The release: Debian 13.
const CODENAME: &str = "trixie";
/// The packages that the programs are in. Their libraries are in packages that these depend on.
const PACKAGES: &[&str] = &["containerd", "docker-cli", "docker.io", "runc", "tini"];
/// The programs, of all that the packages have, and their packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("usr/bin/containerd", "containerd"),
    ("usr/bin/containerd-shim-runc-v2", "containerd"),
    ("usr/bin/docker", "docker-cli"),
    ("usr/bin/docker-init", "docker.io and tini"),
    ("usr/sbin/docker-proxy", "docker.io"),
    ("usr/sbin/dockerd", "docker.io"),
    ("usr/sbin/runc", "runc"),
];
/// The folder of libraries, and the dynamic linker as programs name it.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LINKER: &str = "usr/lib64/ld-linux-x86-64.so.2";
/// Programs of this machine that Docker, or who uses it, runs; and the packages that have them.
pub(super) const RUNS: &[(&str, &str)] = &[
    ("ip6tables-nft", "iptables"),
    ("iptables-nft", "iptables"),
    ("tar", "tar"),
];
/// The names by which Docker runs some of them, whatever they stand for on this machine.
pub(super) const LINKS: &[(&str, &str)] = &[
    ("/usr/sbin/ip6tables", "ip6tables-nft"),
    ("/usr/sbin/iptables", "iptables-nft"),
];
/// The memory of a guest with it, in MiB: the programs are in memory twice while the guest boots, and images and containers are, too.
pub(crate) const MEMORY_MIB: u32 = 2048;
/// A file in the folder with the packages that were unpacked, written once all are there.
const DONE: &str = "packages";

/// Docker, unpacked.
#[derive(Clone, Debug)]
pub(crate) struct Docker {
    home: PathBuf,
}

/// Returns Docker, downloaded and unpacked if it is not there; or why it cannot be had.
pub(crate) fn reach() -> Result<Docker, String> {
    let missing: BTreeSet<_> = RUNS
        .iter()
        .filter(|(program, _)| tools::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        let missing = Vec::from_iter(missing).join(" ");
        return Err(format!(
            "programs that Docker runs are not there; try: apt-get install {missing}"
        ));
    }
    let packages = PACKAGES.join(", ");
    unpacked()
        .map_err(|error| format!("the packages {packages} of {CODENAME} cannot be had: {error:#}"))
}

fn unpacked() -> Result<Docker> {
    let cache = paths::cache_dir("docker")?;
    // Guests that are made at the same time want the same packages.
    let _lock = tools::lock(&cache, "download of Docker")?;
    let archive = Archive::of(CODENAME)?;
    if archive.is_old() {
        // Without a network what is there will do.
        let _ = archive.update();
    }
    let home = cache.join("packages");
    unpack(&archive, &home).or_else(|_| {
        // There are no lists, or old ones name package files that are no longer on the mirror.
        archive.update()?;
        unpack(&archive, &home)
    })?;
    let home = fs::canonicalize(home)?;
    Ok(Docker { home })
}

/// Unpacks the packages into a folder, unless they are there.
fn unpack(archive: &Archive, home: &Path) -> Result<()> {
    let packages = packages(archive)?;
    if fs::read_to_string(home.join(DONE)).is_ok_and(|text| text == packages.join("\n")) {
        return Ok(());
    }
    fresh(home, |work| archive.unpack(&packages, work))?;
    Ok(fs::write(home.join(DONE), packages.join("\n"))?)
}

/// Returns the packages and those with their libraries, with versions.
fn packages(archive: &Archive) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    let mut open: Vec<String> = PACKAGES.iter().map(|name| (*name).to_owned()).collect();
    while let Some(name) = open.pop() {
        if names.insert(name.clone()) {
            let depends = archive.depends(&name)?.into_iter();
            open.extend(depends.filter(|name| name.starts_with("lib")));
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    let versions = archive.versions(&names)?.into_iter();
    let packages = names.iter().zip(versions);
    Ok(packages
        .map(|(name, version)| format!("{name}={version}"))
        .collect())
}

impl Docker {
    /// Returns the folder below which all is.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the programs and all libraries, as paths of this machine. The release's C library is among them. In the guest it takes
    /// the place of this machine's, which is not newer: programs run with a newer one than theirs.
    pub(super) fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let mut files = BTreeSet::from([self.home.join(LINKER)]);
        for (program, package) in PROGRAMS {
            let file = self.home.join(program);
            fs::metadata(&file).with_context(|| {
                format!("the package {package} of {CODENAME} has no /{program}")
            })?;
            files.insert(file);
        }
        let libraries = self.home.join(LIBRARIES);
        for entry in fs::read_dir(&libraries)
            .with_context(|| format!("cannot list {}", libraries.display()))?
        {
            let file = entry?.path();
            if fs::metadata(&file)?.is_file() {
                files.insert(file);
            }
        }
        Ok(files)
    }
}
