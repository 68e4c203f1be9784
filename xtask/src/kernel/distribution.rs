// SPDX-License-Identifier: GPL-2.0

//! The distribution's own kernel as its packages have it: image, modules, headers. They are unpacked into the cache, and nothing
//! is installed but the compiler that the headers ask for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::setup::apt;
use crate::step::{self, Step};
use crate::tools;

/// What names of packages with headers begin with: of the series that modules without our hooks are made for.
const HEADERS: &str = "linux-headers-6.12.";
/// And end with: the smallest configuration there is.
const FLAVOUR: &str = "-cloud-amd64";
/// A file in the unpacked folder once all is there, with what was unpacked.
const DONE: &str = "packages";

/// An unpacked kernel of the distribution.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// The bootable image, as shipped.
    pub image: PathBuf,
    /// `.../lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// What `uname -r` says.
    pub release: String,
    /// Where its packages were unpacked.
    pub(crate) home: PathBuf,
    /// What a module is built with.
    pub(crate) headers: PathBuf,
}

/// Returns the newest kernel that apt offers; downloads and unpacks what is not there.
pub(crate) fn ensure() -> Result<Distribution> {
    let release = newest(&offered()?)
        .with_context(|| format!("apt offers no package {HEADERS}*{FLAVOUR}"))?;
    let home = paths::cache_dir("distribution")?.join(&release);
    let packages = packages(&release)?;
    if fs::read_to_string(home.join(DONE)).is_ok_and(|text| text == packages.join("\n")) {
        return Distribution::of(&home, release);
    }
    let work = home.with_extension("unpacking");
    for dir in [&home, &work] {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
    }
    fs::create_dir_all(&work)?;
    download(&packages, &work)?;
    step::work("unpack the distribution's kernel", || unpack(&work))?;
    fs::rename(&work, &home)?;
    own_common_headers(&home, &release)?;
    fs::write(home.join(DONE), packages.join("\n"))?;
    Distribution::of(&home, release)
}

/// Returns the names of all packages with headers, from a list that is made anew if it has none.
fn offered() -> Result<String> {
    let list = || tools::output(tools::command("apt-cache").args(["pkgnames", HEADERS]));
    let names = list()?;
    if newest(&names).is_some() {
        return Ok(names);
    }
    apt::update()?;
    list()
}

/// Returns the release with the highest version among these packages with headers.
fn newest(names: &str) -> Option<String> {
    let releases = names.lines().filter_map(|name| {
        let release = name.strip_prefix("linux-headers-")?;
        (name.starts_with(HEADERS) && name.ends_with(FLAVOUR)).then_some(release)
    });
    let version = |release: &&str| -> Vec<u32> {
        let digits = release.split(|c: char| !c.is_ascii_digit());
        digits.map_while(|part| part.parse().ok()).collect()
    };
    releases.max_by_key(version).map(str::to_owned)
}

/// Returns the packages of a kernel, and has its compiler installed.
fn packages(release: &str) -> Result<Vec<String>> {
    let headers = format!("linux-headers-{release}");
    let text = tools::output(tools::command("apt-cache").args(["depends", &headers]))?;
    let needed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .collect();
    let compilers = needed.iter().filter(|name| name.starts_with("gcc-"));
    apt::ensure_installed(&compilers.map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
    let parts = needed
        .iter()
        .filter(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"));
    let parts = parts.map(|name| (*name).to_owned());
    let mut packages: Vec<String> = [format!("linux-image-{release}"), headers]
        .into_iter()
        .chain(parts)
        .collect();
    for package in &mut packages {
        let policy = tools::output(tools::command("apt-cache").args(["policy", package]))?;
        let version = policy
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "))
            .with_context(|| format!("apt offers no package {package}"))?;
        *package = format!("{package}={version}");
    }
    Ok(packages)
}

fn download(packages: &[String], to: &Path) -> Result<()> {
    let download = || {
        Step::new(
            "download the distribution's kernel",
            "distribution-download",
        )
        .hint("check the network and /etc/apt/sources.list")
        .run(
            tools::command("apt-get")
                .args(["--quiet", "-o", "APT::Sandbox::User=", "download"])
                .args(packages)
                .current_dir(to),
        )
        .map(drop)
    };
    download().or_else(|_| {
        // An old list names package files that are no longer on the mirror.
        apt::update()?;
        download()
    })
}

fn unpack(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let package = entry?.path();
        if package.extension().is_some_and(|end| end == "deb") {
            tools::output(tools::command("dpkg-deb").arg("-x").arg(&package).arg(dir))?;
            fs::remove_file(&package)?;
        }
    }
    Ok(())
}

fn headers(home: &Path, release: &str) -> PathBuf {
    home.join(format!("usr/src/linux-headers-{release}"))
}

/// Has the headers look for their common part where it was unpacked, and not where it would be installed.
fn own_common_headers(home: &Path, release: &str) -> Result<()> {
    const INSTALLED: &str = "include /usr/src/";
    let path = headers(home, release).join("Makefile");
    let text = fs::read_to_string(&path)?;
    ensure!(
        text.contains(INSTALLED),
        "{} does not name its common part",
        path.display()
    );
    let own = format!("include {}/", home.join("usr/src").display());
    fs::write(&path, text.replace(INSTALLED, &own))?;
    Ok(())
}

impl Distribution {
    fn of(home: &Path, release: String) -> Result<Self> {
        // Where / and /usr are one, packages have all below /usr.
        let modules = ["usr/lib/modules", "lib/modules"]
            .iter()
            .map(|folder| home.join(folder).join(&release))
            .find(|modules| modules.is_dir())
            .with_context(|| format!("linux-image-{release} has no modules"))?;
        Ok(Self {
            image: home.join(format!("boot/vmlinuz-{release}")),
            modules,
            headers: headers(home, &release),
            home: home.to_path_buf(),
            release,
        })
    }

    /// Puts a module among the kernel's own, where `modprobe` finds it, in the place of one that was put there before. Returns
    /// its place.
    pub(crate) fn add(&self, module: &Path) -> Result<PathBuf> {
        let extra = self.modules.join("extra");
        if extra.exists() {
            // It may be compressed, and this one not.
            fs::remove_dir_all(&extra)?;
        }
        fs::create_dir_all(&extra)?;
        let place = extra.join(module.file_name().context("a module has a name")?);
        fs::copy(module, &place)?;
        // Of .../lib/modules/RELEASE.
        let base = self.modules.ancestors().nth(3).context("a folder")?;
        let mut depmod = tools::command("depmod");
        tools::output(depmod.arg("--basedir").arg(base).arg(&self.release))?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_is_the_newest() {
        let names = "linux-headers-6.12.9+bpo-cloud-amd64\nlinux-headers-6.12.117+deb12-cloud-amd64\n\
                     linux-headers-6.12.118+deb12-amd64\nlinux-headers-6.12.38+deb12-cloud-amd64\nlinux-headers-6.12.200+deb12-common\n";
        assert_eq!(newest(names).as_deref(), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest("linux-headers-6.1.0-9-cloud-amd64\n"), None);
    }
}
