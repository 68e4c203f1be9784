// SPDX-License-Identifier: GPL-2.0

//! The packages on a Debian that was just installed, as the first page says it: README.md's own lines, as they stand, in a shell of
//! that system. Then apt brings kernels for which the module cannot be built, and the packages go again. The system is a folder, and no machine: its kernel's
//! name is that of the newest headers, and nothing is booted. The folder is made once, in the cache, by mmdebstrap; each installation
//! has a copy of it, which goes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

use super::NAME;
use crate::kernel::distribution::fresh;
use crate::kernel::modules;
use crate::paths;
use crate::setup::archive::{self, Archive};
use crate::step::Step;
use crate::tools;

/// The releases that can be tried.
pub(crate) const RELEASES: &[Release] = &[
    Release {
        version: 12,
        codename: "bookworm",
        compiler: "rustc-web",
    },
    Release {
        version: 13,
        codename: "trixie",
        compiler: "rustc",
    },
];
/// The beginning of the lines that install the packages.
const COMMAND: &str = "apt install ";
/// The program that makes such a system.
const MMDEBSTRAP: &str = "mmdebstrap";
/// A file in the folder with the system, written once it is whole.
const DONE: &str = "mflow-sources";

/// A release of Debian.
#[derive(Debug)]
pub(crate) struct Release {
    version: u32,
    codename: &'static str,
    /// The package of the compiler that the module is built with there.
    compiler: &'static str,
}

impl Release {
    /// Returns the name of the case about it.
    pub(crate) fn case(&self) -> String {
        format!("readme/debian-{}", self.version)
    }
}

/// The result of an installation.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The kernel for which DKMS has built the module.
    pub(crate) release: String,
    pub(crate) module: PathBuf,
}

/// Returns why this machine cannot have such a system, if so.
pub(crate) fn refusal(release: &Release) -> Option<String> {
    if !tools::is_root() {
        return Some("it takes root".to_owned());
    }
    let mut trial = tools::command("unshare");
    if tools::output(trial.args(["--mount", "mount", "-t", "proc", "mflow", "/mnt"])).is_err() {
        return Some("this machine allows no mounts".to_owned());
    }
    archive::lines_of(release.codename)
        .err()
        .map(|error| format!("{error:#}"))
}

/// Installs the packages, mflow-tools and mflow-dkms, for the newest kernel for clouds by the commands of README.md.
pub(crate) fn install(release: &Release, packages: &[PathBuf; 2]) -> Result<Installed> {
    let _lock = tools::lock(&paths::cache_dir("fresh")?, "installation of Debian")?;
    let system = system(release)?;
    let work = paths::cache_dir("fresh")?.join("work");
    let installed = install_in(release, &work, &system, packages);
    // Also after a failure.
    remove(&work)?;
    installed
}

fn install_in(
    debian: &Release,
    work: &Path,
    system: &Path,
    packages: &[PathBuf; 2],
) -> Result<Installed> {
    remove(work)?;
    fs::create_dir_all(work)?;
    let page = paths::project().join("README.md");
    let commands = work.join("commands");
    fs::write(&commands, commands_of(&fs::read_to_string(page)?)?)?;
    let downloads = paths::cache_dir("fresh/packages")?.join(debian.codename);
    fs::create_dir_all(downloads.join("partial"))?;
    let mut script = tools::command("unshare");
    script
        .args(["--mount", "sh", "-euc", SCRIPT, NAME])
        .args([system, work, &downloads, &commands])
        .arg(debian.compiler)
        .args(packages);
    let what = format!("install the packages on a fresh Debian {}", debian.version);
    Step::new(what, "fresh-install")
        .hint("the first `error` in the log tells; DKMS's own log is in it if the compiler failed")
        .run(&mut script)?;
    let release = fs::read_to_string(work.join("release"))?.trim().to_owned();
    let built = fs::read_dir(work.join("out"))?.next();
    let built = built.context("DKMS has built no module")??.path();
    let module = modules::folder("fresh")?.join(built.file_name().context("a file")?);
    fs::copy(&built, &module)?;
    Ok(Installed { release, module })
}

/// Returns the lines of a page that install the packages.
fn commands_of(page: &str) -> Result<String> {
    let lines = page.lines().filter(|line| line.starts_with(COMMAND));
    let lines: Vec<_> = lines.collect();
    ensure!(!lines.is_empty(), "README.md has no line `{COMMAND}...`");
    Ok(lines.join("\n") + "\n")
}

/// Returns the folder with the system, which is made if it is not there.
fn system(release: &Release) -> Result<PathBuf> {
    let lines = archive::lines_of(release.codename)?;
    let home = paths::cache_dir("fresh")?.join(release.codename);
    let sources = lines.join("\n");
    if fs::read_to_string(home.join(DONE)).is_ok_and(|text| text == sources) {
        return Ok(home);
    }
    // As apt on this machine reaches the archive.
    let reach = paths::cache_dir("fresh")?.join("acquire.conf");
    let options = tools::output(tools::command("apt-config").args(["dump", "Acquire"]))?;
    fs::write(&reach, options)?;
    fresh(&home, |dir| {
        let mut make = tools::command("unshare");
        make.arg("--mount").arg(mmdebstrap()?);
        make.args(["--mode=root", "--variant=apt", "--architectures=amd64"])
            .arg(format!("--aptopt={}", reach.display()))
            .arg(release.codename)
            .arg(dir)
            .args(&lines);
        let what = format!("make a fresh Debian {}", release.version);
        Step::new(what, "fresh-system")
            .hint("check the network and apt's sources: their archive has to have that release")
            .run(&mut make)?;
        Ok(())
    })?;
    fs::write(home.join(DONE), sources)?;
    Ok(home)
}

/// Returns the program that makes such a system: this machine's, or that of a package in the cache.
fn mmdebstrap() -> Result<PathBuf> {
    if let Some(path) = tools::find(MMDEBSTRAP) {
        return Ok(path);
    }
    let home = paths::cache_dir("fresh")?.join(MMDEBSTRAP);
    let program = home.join("usr/bin").join(MMDEBSTRAP);
    if !program.exists() {
        fresh(&home, |dir| {
            Archive::default().unpack(&[MMDEBSTRAP.to_owned()], dir)
        })?;
    }
    Ok(program)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// `$0` is the module's name. The mounts end with the namespace.
const SCRIPT: &str = include_str!("fresh.sh");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_installs_headers_and_then_the_packages() {
        let page = paths::project().join("README.md");
        let commands = commands_of(&fs::read_to_string(page).expect("the page")).expect("lines");
        let [headers, packages] = commands.lines().collect::<Vec<_>>()[..] else {
            panic!("{commands}");
        };
        assert!(headers.contains("linux-headers-$(uname -r)"));
        assert!(packages.contains("$(cargo xtask build-module --dkms-deb | tail -2)"));
        assert!(commands_of("```\napt purge mflow-dkms\n```").is_err());
    }
}
