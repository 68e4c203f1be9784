// SPDX-License-Identifier: GPL-2.0

//! Fetches a QEMU from a newer suite of this machine's own mirror, with everything down to the C library, and unpacks it
//! into the cache.
//!
//! apt does it, in folders of its own where nothing is installed: signatures are checked, and the system does not change.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::{mirror, unpacked, Qemu, Wish};
use crate::paths;
use crate::step::{self, Step};
use crate::tools;

const PACKAGE: &str = "qemu-system-x86";

/// Documentation, which is not needed in the cache.
const SURPLUS: &[&str] = &["usr/share/doc", "usr/share/man", "usr/share/locale"];

/// Settings of apt's that have nothing to do with how this machine reaches its mirror.
const NOT_TRANSPORT: &[&str] = &[
    "Acquire::Changelogs",
    "Acquire::CompressionTypes",
    "Acquire::GzipIndexes",
    "Acquire::IndexTargets",
    "Acquire::Languages",
];

struct PrivateApt {
    config: PathBuf,
    archives: PathBuf,
}

/// Fetches what the wish asks for; the caller holds the lock.
pub(super) fn fetch(wish: &Wish) -> Result<Qemu> {
    let dir = paths::cache_dir("qemu")?;
    let work = dir.join("unpacking");
    remove(&work)?;
    fs::create_dir(&work)?;
    let result = fetch_into(wish, &work).and_then(|qemu| {
        let home = dir.join(&qemu.version);
        remove(&home)?;
        fs::rename(work.join("root"), &home)?;
        Ok(Qemu {
            root: Some(home),
            ..qemu
        })
    });
    remove(&work)?;
    result
}

fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

fn fetch_into(wish: &Wish, work: &Path) -> Result<Qemu> {
    let apt = PrivateApt::create(&work.join("apt"), wish.suite)?;
    Step::new(
        format!("update package lists of {}", wish.suite),
        "qemu-update",
    )
    .run(apt.get().arg("update"))?;
    Step::new(format!("download QEMU of {}", wish.suite), "qemu-download").run(
        apt.get()
            .args(["--yes", "--download-only", "--no-install-recommends"])
            .args(["install", PACKAGE]),
    )?;
    let root = work.join("root");
    step::work("unpack QEMU", || {
        for entry in fs::read_dir(&apt.archives)? {
            let package = entry?.path();
            if package.extension().is_some_and(|end| end == "deb") {
                tools::output(
                    tools::command("dpkg-deb")
                        .arg("-x")
                        .arg(&package)
                        .arg(&root),
                )?;
            }
        }
        SURPLUS.iter().try_for_each(|dir| remove(&root.join(dir)))
    })?;
    let version = try_out(&root, work)?;
    let qemu = Qemu {
        version,
        root: Some(root),
    };
    anyhow::ensure!(
        qemu.suits(wish),
        "{} has QEMU {}, which is older than {}",
        wish.suite,
        qemu.version,
        wish.least
    );
    Ok(qemu)
}

/// Starts a machine as far as its firmware; returns QEMU's version.
fn try_out(root: &Path, work: &Path) -> Result<String> {
    let orders = work.join("monitor");
    fs::write(&orders, "quit\n")?;
    let mut command = unpacked(root);
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-machine", "pc", "-accel", "tcg", "-cpu", "max"])
        .args(["-netdev", "hubport,id=net,hubid=0"])
        .args(["-device", "virtio-net-pci,netdev=net"])
        .args(["-S", "-monitor", "stdio"])
        .stdin(Stdio::from(File::open(&orders)?));
    let text = tools::output(&mut command)?;
    tools::first_version(&text)
        .with_context(|| format!("the unpacked QEMU does not tell its version: {text}"))
}

impl PrivateApt {
    fn create(home: &Path, suite: &str) -> Result<Self> {
        let archives = home.join("cache/archives");
        for dir in [
            &home.join("empty"),
            &home.join("state/lists/partial"),
            &archives.join("partial"),
        ] {
            fs::create_dir_all(dir)?;
        }
        // For this apt nothing is installed, so that the C library is a dependency like any other.
        let status = home.join("status");
        fs::write(&status, "")?;
        let source = mirror::source_of(suite)?;
        let sources = home.join(format!("mirror.{}", source.extension));
        fs::write(&sources, source.text)?;
        let own = tools::output(tools::command("apt-config").arg("dump"))?;
        let config = home.join("apt.conf");
        let text = format!("{}{}", transport(&own), settings(home, &status, &sources));
        fs::write(&config, text)?;
        Ok(Self { config, archives })
    }

    fn get(&self) -> Command {
        let mut command = tools::command("apt-get");
        command.env("APT_CONFIG", &self.config).arg("--quiet");
        command
    }
}

/// Returns the settings by which this machine reaches its mirror, such as a proxy, out of all it has.
///
/// Hooks are not among them: they would act on the system.
fn transport(dump: &str) -> String {
    dump.lines()
        .filter(|line| line.starts_with("Acquire::"))
        .filter(|line| !NOT_TRANSPORT.iter().any(|name| line.starts_with(name)))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn settings(home: &Path, status: &Path, sources: &Path) -> String {
    let empty = home.join("empty");
    let paths: String = [
        ("Etc::main", Path::new("/dev/null")),
        ("Etc::parts", &empty),
        ("Etc::preferences", Path::new("/dev/null")),
        ("Etc::preferencesparts", &empty),
        ("Etc::sourcelist", sources),
        ("Etc::sourceparts", &empty),
        ("State", &home.join("state")),
        ("State::status", status),
        ("Cache", &home.join("cache")),
    ]
    .iter()
    .map(|(name, path)| format!("Dir::{name} \"{}\";\n", path.display()))
    .collect();
    // The user apt would change to cannot enter the cache; a mirror that cannot be reached must not hold us up.
    paths
        + r#"APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "15";
Acquire::https::Timeout "15";
"#
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_to_the_mirror_is_taken_over() {
        let dump = "\
APT::Update::Post-Invoke:: \"rm -f /var/cache/apt/*.bin\";
DPkg::Post-Invoke:: \"true\";
Dir::State \"var/lib/apt\";
Acquire::IndexTargets::deb::Packages::Optional \"0\";
Acquire::http::Proxy \"http://proxy.test:3128\";
Acquire::Check-Valid-Until \"false\";
";
        assert_eq!(
            transport(dump),
            "Acquire::http::Proxy \"http://proxy.test:3128\";\nAcquire::Check-Valid-Until \"false\";\n"
        );
    }

    #[test]
    fn settings_name_no_folder_of_the_system() {
        let home = Path::new("/c");
        let text = settings(home, &home.join("status"), &home.join("m.list"));
        for line in text.lines().filter(|line| line.starts_with("Dir::")) {
            assert!(
                line.contains(" \"/c/") || line.ends_with(" \"/dev/null\";"),
                "{line}"
            );
        }
    }
}
