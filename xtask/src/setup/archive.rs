// SPDX-License-Identifier: GPL-2.0

//! The archives that apt gets packages from: those of this machine, or those of another release of Debian. For the latter, apt
//! has lists of its own in the cache. Its sources follow from the machine's: the same archive under another name. Nothing is
//! installed from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};

use super::apt;
use crate::paths;
use crate::step::{self, Step};
use crate::tools;

/// The keys that Debian's releases are signed with.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A file that is as old as the lists beside it.
const UPDATED: &str = "updated";
/// A kernel with security updates comes about as often.
const MOST_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// An archive, or several of one release.
#[derive(Clone, Debug, Default)]
pub(crate) struct Archive {
    /// Its folder in the cache; none: this machine's.
    dir: Option<PathBuf>,
}

impl Archive {
    /// Returns that of a release by its codename, with security updates and backports. Fails if the machine's sources name no archive
    /// of Debian.
    pub(crate) fn of(codename: &str) -> Result<Self> {
        let (targets, own) = own()?;
        Self::at(codename, &suites(&targets, &own, codename)?)
    }

    /// Returns that of a suite alone, such as testing's, which has no other beside it. Fails where [`Archive::of`] does.
    pub(crate) fn of_suite(suite: &str) -> Result<Self> {
        let (targets, own) = own()?;
        let suites = suites(&targets, &own, suite)?;
        Self::at(&format!("{suite}-alone"), &suites[..1])
    }

    fn at(name: &str, suites: &[(&str, String)]) -> Result<Self> {
        let sources = sources(suites);
        let dir = paths::cache_dir(&format!("apt/{name}"))?;
        for folder in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        fs::write(dir.join("release.sources"), sources)?;
        // No package is installed there.
        fs::write(dir.join("status"), "")?;
        Ok(Self { dir: Some(dir) })
    }

    /// Returns `apt-get` or `apt-cache` that knows this archive only.
    fn apt(&self, program: &str) -> Command {
        let mut command = tools::command(program);
        command.args(["--quiet", "-o", "APT::Sandbox::User="]);
        if let Some(dir) = &self.dir {
            let mut set = |option: &str, value: &Path| {
                command
                    .arg("-o")
                    .arg(format!("{option}={}", value.display()));
            };
            set("Dir::State", dir);
            set("Dir::State::status", &dir.join("status"));
            set("Dir::Cache", dir);
            // Of each call most is reading lists, if there is none.
            set("Dir::Cache::pkgcache", &dir.join("packages.bin"));
            set("Dir::Etc::SourceList", &dir.join("release.sources"));
            set("Dir::Etc::SourceParts", Path::new("/dev/null"));
            set("Dir::Etc::Preferences", Path::new("/dev/null"));
            set("Dir::Etc::PreferencesParts", Path::new("/dev/null"));
            // A mirror that cannot be reached must not hold us up.
            for option in ["Retries=1", "http::Timeout=15", "https::Timeout=15"] {
                command.args(["-o", &format!("Acquire::{option}")]);
            }
        }
        command
    }

    /// Makes the lists of packages again.
    pub(crate) fn update(&self) -> Result<()> {
        let Some(dir) = &self.dir else {
            return apt::update();
        };
        Step::new("update package lists of another release", "apt-update")
            .hint(
                "check the network and apt's sources: their archive has to have that release, too",
            )
            .run(self.apt("apt-get").args(["update", "--error-on=any"]))?;
        fs::write(dir.join(UPDATED), "")?;
        Ok(())
    }

    /// Returns whether its lists are so old that there may be newer packages. Nobody else updates the lists in the cache.
    pub(crate) fn is_old(&self) -> bool {
        let Some(dir) = &self.dir else {
            return false;
        };
        let made = fs::metadata(dir.join(UPDATED)).and_then(|file| file.modified());
        let age = made.ok().and_then(|made| made.elapsed().ok());
        age.is_some_and(|age| age > MOST_AGE)
    }

    /// Returns the names of all packages that begin like that.
    pub(crate) fn names(&self, begin: &str) -> Result<String> {
        tools::output(self.apt("apt-cache").args(["pkgnames", begin]))
    }

    /// Returns what a package depends on, without what could stand for it.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = tools::output(self.apt("apt-cache").args(["depends", package]))?;
        let names = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns the versions of packages that would be installed; fails if it does not have one of them.
    pub(crate) fn versions(&self, packages: &[String]) -> Result<Vec<String>> {
        let policy = tools::output(self.apt("apt-cache").arg("policy").args(packages))?;
        versions(&policy, packages)
    }

    /// Downloads packages into a folder and unpacks them there.
    pub(crate) fn unpack(&self, packages: &[String], dir: &Path) -> Result<()> {
        let mut apt = self.apt("apt-get");
        apt.arg("download").args(packages).current_dir(dir);
        download_step().run(&mut apt)?;
        step::work("unpack them", || unpack(dir, dir))
    }

    /// Does the same for packages and all that they depend on.
    pub(crate) fn unpack_whole(&self, packages: &[String], dir: &Path) -> Result<()> {
        let own = self.dir.as_ref();
        let archives = own
            .context("all of a package is there already")?
            .join("archives");
        let mut apt = self.apt("apt-get");
        apt.args(["install", "--download-only", "--yes"])
            .arg("--no-install-recommends")
            .args(packages);
        download_step().run(&mut apt)?;
        step::work("unpack them", || unpack(&archives, dir))
    }
}

/// Returns a release's archives as a system has them that was just installed, without backports: lines of apt's sources. Fails where
/// [`Archive::of`] does.
pub(crate) fn lines_of(codename: &str) -> Result<Vec<String>> {
    let (targets, own) = own()?;
    let mut suites = suites(&targets, &own, codename)?;
    suites.retain(|(_, suite)| !suite.ends_with(BACKPORTS));
    let line = |(site, suite)| format!("deb {site} {suite} main");
    Ok(suites.into_iter().map(line).collect())
}

/// Returns where this machine has its packages from, as lines `SITE RELEASE`, and the names of its release.
fn own() -> Result<(String, Vec<String>)> {
    // Without lists, too.
    let mut targets = tools::command("apt-get");
    targets.args(["indextargets", "--no-release-info"]);
    targets.args(["--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]);
    let targets = tools::output(&mut targets)?;
    let mut codename = tools::command("sh");
    codename.args(["-c", ". /etc/os-release && echo $VERSION_CODENAME"]);
    let codename = tools::output(&mut codename)?;
    let names = [codename.trim(), "stable", "oldstable", "oldoldstable"];
    Ok((targets, names.map(str::to_owned).into()))
}

fn download_step() -> Step {
    Step::new(
        "download packages of the distribution",
        "distribution-download",
    )
    .hint("check the network and apt's sources")
}

/// Reads the versions of packages in what `apt-cache policy` prints.
fn versions(policy: &str, packages: &[String]) -> Result<Vec<String>> {
    let version = |package: &String| {
        let mut lines = policy
            .lines()
            .skip_while(|line| line.strip_suffix(':') != Some(package));
        let version = lines.find_map(|line| line.trim().strip_prefix("Candidate: "));
        let version = version.filter(|version| *version != "(none)");
        version
            .map(str::to_owned)
            .with_context(|| format!("apt offers no package {package}"))
    };
    packages.iter().map(version).collect()
}

/// Unpacks all packages that are in a folder, and deletes them.
fn unpack(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let package = entry?.path();
        if package.extension().is_some_and(|end| end == "deb") {
            tools::output(tools::command("dpkg-deb").arg("-x").arg(&package).arg(to))?;
            fs::remove_file(&package)?;
        }
    }
    Ok(())
}

/// The end of the name of a release's backports.
const BACKPORTS: &str = "-backports";

/// Returns the archives of a release, each with its site, where the machine, of another release with these names, has its own from.
fn suites<'a>(targets: &'a str, own: &[String], codename: &str) -> Result<Vec<(&'a str, String)>> {
    let site = |end: &str| {
        let mut lines = targets.lines().filter_map(|line| line.split_once(' '));
        let is_own = |name: &str| own.iter().any(|own| *own == name);
        let found = lines.find(|(_, name)| name.strip_suffix(end).is_some_and(is_own));
        found.map(|(site, _)| site)
    };
    let Some(main) = site("") else {
        bail!(
            "apt's sources name no archive of {}, in which {codename} would be, too",
            own.join(" or ")
        );
    };
    let mut suites = vec![(main, codename.to_owned())];
    suites.push((main, format!("{codename}{BACKPORTS}")));
    if let Some(security) = site("-security") {
        suites.push((security, format!("{codename}-security")));
    }
    Ok(suites)
}

/// Returns archives as apt reads them.
fn sources(suites: &[(&str, String)]) -> String {
    let signed = if Path::new(KEYRING).exists() {
        format!("Signed-By: {KEYRING}\n")
    } else {
        String::new()
    };
    let stanza = |(site, suite): &(&str, String)| {
        format!(
            "Types: deb\nURIs: {site}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\n\
             Targets: Packages\n{signed}\n"
        )
    };
    suites.iter().map(stanza).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_would_be_installed() {
        let policy =
            "b:\n  Installed: 1\n  Candidate: 2\nc:\n  Candidate: (none)\na:\n  Candidate: 3\n";
        let of = |names: &[&str]| {
            versions(
                policy,
                &names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&["a", "b"]).unwrap(), ["3", "2"]);
        assert!(of(&["c"]).is_err() && of(&["d"]).is_err());
    }

    #[test]
    fn another_release_is_where_the_own_is() {
        let targets = "http://mirror/debian bookworm\nhttp://mirror/debian bookworm-updates\n\
                       http://safe/debian-security bookworm-security\nhttps://other/x nodistro\n";
        let own = ["bookworm", "oldstable"].map(str::to_owned);
        let text = sources(&suites(targets, &own, "trixie").unwrap());
        for (site, suite) in [
            ("http://mirror/debian", "trixie"),
            ("http://mirror/debian", "trixie-backports"),
            ("http://safe/debian-security", "trixie-security"),
        ] {
            assert!(text.contains(&format!("URIs: {site}\nSuites: {suite}\n")));
        }
        assert!(!text.contains("bookworm") && !text.contains("other"));
        // A source may name its release by what it is now.
        let by_age = targets.replace("bookworm", "oldstable");
        assert_eq!(text, sources(&suites(&by_age, &own, "trixie").unwrap()));
        assert!(suites(targets, &["sid".to_owned()], "trixie").is_err());
    }
}
