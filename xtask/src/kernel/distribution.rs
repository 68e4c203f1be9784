// SPDX-License-Identifier: GPL-2.0

//! Kernels of distributions as their packages have them: image, modules, headers. They are unpacked into the cache, and nothing
//! is installed but the C compiler that the headers of this machine's own ask for.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::setup::apt;
use crate::setup::archive::Archive;
use crate::tools;

/// The beginning of the names of packages with headers.
const HEADERS: &str = "linux-headers-";
/// The end of these names, which stands for the smallest configuration there is.
const FLAVOUR: &str = "-cloud-amd64";
/// A file in the folder with the packages that were unpacked, written once all are there.
const DONE: &str = "packages";

/// A kernel that a release of Debian ships.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// The kernel's name on the command line and in results.
    pub(crate) name: &'static str,
    /// The release's codename; none: whatever this machine has.
    codename: Option<&'static str>,
    /// The first two numbers of its version: one of [`STOCK_VERSIONS`](super::STOCK_VERSIONS).
    series: &'static str,
    /// The release's packages of a Rust compiler that the module can be built with, and of its sources; none: the pinned one.
    rust: &'static [&'static str],
}

/// The packages of Debian 12, whose `rustc` is too old, and of Debian 13, whose `rustc` is the oldest that will do.
const RUST_12: &[&str] = &["rustc-web", "rust-web-src"];
const RUST_13: &[&str] = &["rustc", "rust-src"];

/// The one that apt offers here.
const OWN: Shipped = Shipped {
    name: "own",
    codename: None,
    series: "6.12",
    rust: &[],
};

/// Those that users of other releases have.
pub(crate) const OTHERS: &[Shipped] = &[
    Shipped {
        name: "debian-12",
        codename: Some("bookworm"),
        series: "6.1",
        rust: RUST_12,
    },
    Shipped {
        name: "debian-13",
        codename: Some("trixie"),
        series: "6.12",
        rust: RUST_13,
    },
    // Built with Rust.
    Shipped {
        name: "backports",
        codename: Some("trixie"),
        series: "7.3",
        rust: RUST_13,
    },
];

impl Shipped {
    /// Returns the first two numbers of its version.
    pub(crate) fn version(&self) -> [u32; 2] {
        let mut numbers = self.series.split('.').map_while(|part| part.parse().ok());
        [(); 2].map(|()| numbers.next().unwrap_or(0))
    }
}

/// An unpacked kernel of the distribution.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// The bootable image, as shipped.
    pub image: PathBuf,
    /// `.../lib/modules/RELEASE`.
    pub modules: PathBuf,
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The folder with its unpacked packages.
    pub(crate) home: PathBuf,
    /// The headers that modules are built with.
    pub(crate) headers: PathBuf,
    /// The folder with its unpacked compilers and all that they need: the C compiler if this machine's apt does not offer that
    /// version, and the release's Rust compiler.
    pub(crate) compilers: Option<PathBuf>,
}

/// Returns the names of all kernels that can be had: the one that apt offers here, and those of other releases.
pub fn names() -> impl Iterator<Item = &'static str> {
    [&OWN].into_iter().chain(OTHERS).map(|shipped| shipped.name)
}

/// Returns the newest kernel of that name; downloads and unpacks what is not there.
pub(crate) fn named(name: &str) -> Result<Distribution> {
    let mut all = [&OWN].into_iter().chain(OTHERS);
    let shipped = all.find(|shipped| shipped.name == name);
    let shipped = shipped.with_context(|| {
        let names: Vec<_> = names().collect();
        format!("there is no kernel {name}; there are: {}", names.join(", "))
    })?;
    reach(shipped)?.map_err(anyhow::Error::msg)
}

/// Returns the newest kernel that apt offers; downloads and unpacks what is not there.
pub(crate) fn ensure() -> Result<Distribution> {
    unpacked(&OWN, &Archive::default())
}

/// Returns why there is no such kernel to be had from here, or the newest of it.
pub(crate) fn reach(shipped: &Shipped) -> Result<Result<Distribution, String>> {
    let Some(codename) = shipped.codename else {
        return ensure().map(Ok);
    };
    let archive = Archive::of(codename).and_then(|archive| {
        offered(shipped, &archive)?;
        Ok(archive)
    });
    match archive {
        Ok(archive) => unpacked(shipped, &archive).map(Ok),
        Err(error) => Ok(Err(format!("{error:#}"))),
    }
}

fn unpacked(shipped: &Shipped, archive: &Archive) -> Result<Distribution> {
    unpacked_as_listed(shipped, archive).or_else(|_| {
        // Old lists name package files that are no longer on the mirror.
        archive.update()?;
        unpacked_as_listed(shipped, archive)
    })
}

fn unpacked_as_listed(shipped: &Shipped, archive: &Archive) -> Result<Distribution> {
    // Layers that run at the same time want the same ones.
    let _lock = tools::lock(&paths::cache_dir("distribution")?, "download of kernels")?;
    let release = offered(shipped, archive)?;
    let home = paths::cache_dir("distribution")?.join(&release);
    let depends = archive.depends(&format!("{HEADERS}{release}"))?;
    let compilers = compilers(shipped, &depends, archive)?;
    let packages = packages(&release, &depends, archive)?;
    if fs::read_to_string(home.join(DONE)).is_ok_and(|text| text == packages.join("\n")) {
        return Distribution::of(&home, release, compilers);
    }
    fresh(&home, |work| archive.unpack(&packages, work))?;
    own_common_headers(&home, &release)?;
    fs::write(home.join(DONE), packages.join("\n"))?;
    Distribution::of(&home, release, compilers)
}

/// Replaces a folder with a new one that `fill` has filled.
pub(crate) fn fresh(home: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let work = home.with_extension("unpacking");
    for dir in [home, &work] {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
    }
    fs::create_dir_all(&work)?;
    fill(&work)?;
    fs::rename(&work, home)?;
    Ok(())
}

/// Returns the newest release of a kernel, from a list that is made again if it has none.
fn offered(shipped: &Shipped, archive: &Archive) -> Result<String> {
    let begin = format!("{HEADERS}{}.", shipped.series);
    if archive.is_old() {
        // Without a network what is there will do.
        let _ = archive.update();
    }
    let newest = || -> Result<Option<String>> {
        let names = archive.names(&begin)?;
        // A kernel that was signed comes hours after its headers.
        let is_whole = |release: &&str| {
            let packages = [image(release), format!("{HEADERS}{release}")];
            archive.versions(&packages).is_ok()
        };
        let release = newest_first(&names, &begin).into_iter().find(is_whole);
        Ok(release.map(str::to_owned))
    };
    if let Some(release) = newest()? {
        return Ok(release);
    }
    archive.update()?;
    newest()?.with_context(|| format!("apt offers no package {begin}*{FLAVOUR} with its kernel"))
}

fn image(release: &str) -> String {
    format!("linux-image-{release}")
}

/// Returns the releases of these packages with headers, those with the highest version first.
fn newest_first<'a>(names: &'a str, begin: &str) -> Vec<&'a str> {
    let releases = names.lines().filter_map(|name| {
        let release = name.strip_prefix(HEADERS)?;
        (name.starts_with(begin) && name.ends_with(FLAVOUR)).then_some(release)
    });
    let version = |release: &&str| -> Vec<u32> {
        let digits = release.split(|c: char| !c.is_ascii_digit());
        digits.map_while(|part| part.parse().ok()).collect()
    };
    let mut releases: Vec<_> = releases.collect();
    releases.sort_by_key(|release| Reverse(version(release)));
    releases
}

/// Returns the packages of a kernel, with their versions.
fn packages(release: &str, depends: &[String], archive: &Archive) -> Result<Vec<String>> {
    let image = image(release);
    let mut parts = archive.depends(&image)?;
    parts.extend_from_slice(depends);
    let of_kernel = ["binary", "modules", "base", "headers", "kbuild"];
    parts.retain(|name| {
        of_kernel.iter().any(|part| {
            let rest = name.strip_prefix(&format!("linux-{part}-"));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    });
    parts.extend([image, format!("{HEADERS}{release}")]);
    parts.sort();
    parts.dedup();
    let versions = archive.versions(&parts)?.into_iter();
    Ok(parts
        .iter()
        .zip(versions)
        .map(|(package, version)| format!("{package}={version}"))
        .collect())
}

/// Installs the C compiler that headers depend on. If apt here does not offer its version, unpacks it with all that it needs, as
/// it does the release's Rust compiler, and returns their folder.
fn compilers(shipped: &Shipped, depends: &[String], archive: &Archive) -> Result<Option<PathBuf>> {
    let mut names = vec![compiler_name(depends).context("the headers name no compiler")?];
    if Archive::default().versions(&names).is_ok() {
        apt::ensure_installed(&names)?;
        names.clear();
    }
    names.extend(shipped.rust.iter().map(|name| (*name).to_owned()));
    if names.is_empty() {
        return Ok(None);
    }
    let versions = archive.versions(&names)?.join(" ");
    let folder = format!("{}-{}", shipped.codename.unwrap_or("own"), names.join("-"));
    let home = paths::cache_dir("distribution")?.join(folder);
    if !fs::read_to_string(home.join(DONE)).is_ok_and(|text| text == versions) {
        fresh(&home, |work| archive.unpack_whole(&names, work))?;
        fs::write(home.join(DONE), versions)?;
    }
    Ok(Some(home))
}

/// Returns the package of the C compiler among these: `gcc-14`, or what names it, as `linux-compiler-gcc-12-x86`.
fn compiler_name(depends: &[String]) -> Option<String> {
    depends.iter().find_map(|name| {
        let (_, version) = name.split_once("gcc-")?;
        let digits = version.split(|c: char| !c.is_ascii_digit()).next()?;
        (!digits.is_empty()).then(|| format!("gcc-{digits}"))
    })
}

fn headers(home: &Path, release: &str) -> PathBuf {
    home.join(format!("usr/src/linux-headers-{release}"))
}

/// Makes the headers look for themselves and their common part where they were unpacked, and not where they would be installed.
fn own_common_headers(home: &Path, release: &str) -> Result<()> {
    const INSTALLED: &str = "/usr/src/";
    let path = headers(home, release).join("Makefile");
    let text = fs::read_to_string(&path)?;
    ensure!(
        text.contains(INSTALLED),
        "{} does not name its common part",
        path.display()
    );
    let own = format!("{}/", home.join("usr/src").display());
    fs::write(&path, text.replace(INSTALLED, &own))?;
    Ok(())
}

impl Distribution {
    fn of(home: &Path, release: String, compilers: Option<PathBuf>) -> Result<Self> {
        // Where / and /usr are one, packages have all below /usr.
        let modules = ["usr/lib/modules", "lib/modules"]
            .iter()
            .map(|folder| home.join(folder).join(&release))
            .find(|modules| modules.is_dir())
            .with_context(|| format!("linux-image-{release} has no modules"))?;
        // Since 7.0 the image is among them.
        let images = [
            home.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        let image = images.into_iter().find(|image| image.exists());
        Ok(Self {
            image: image.with_context(|| format!("linux-image-{release} has no image"))?,
            modules,
            compilers,
            headers: headers(home, &release),
            home: home.to_path_buf(),
            release,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_is_the_newest() {
        let names = "linux-headers-6.12.9+bpo-cloud-amd64\nlinux-headers-6.12.117+deb12-cloud-amd64\n\
                     linux-headers-6.12.118+deb12-amd64\nlinux-headers-6.12.38+deb12-cloud-amd64\nlinux-headers-6.12.200+deb12-common\n";
        assert_eq!(
            newest_first(names, "linux-headers-6.12."),
            [
                "6.12.117+deb12-cloud-amd64",
                "6.12.38+deb12-cloud-amd64",
                "6.12.9+bpo-cloud-amd64"
            ]
        );
        assert!(newest_first(names, "linux-headers-6.1.").is_empty());
    }

    #[test]
    fn each_version_is_shipped_and_each_shipped_is_taken() {
        let shipped = OTHERS.iter().map(|shipped| shipped.series);
        assert_eq!(Vec::from_iter(shipped), super::super::STOCK_VERSIONS);
        assert!(super::super::STOCK_VERSIONS.contains(&OWN.series));
    }

    #[test]
    fn headers_name_their_compiler() {
        for (name, compiler) in [
            ("gcc-14", Some("gcc-14")),
            ("gcc-14-for-host", Some("gcc-14")),
            ("linux-compiler-gcc-12-x86", Some("gcc-12")),
            ("linux-kbuild-6.1", None),
        ] {
            assert_eq!(compiler_name(&[name.to_owned()]).as_deref(), compiler);
        }
    }
}
