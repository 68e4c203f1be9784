// SPDX-License-Identifier: GPL-2.0

//! Looks at every prerequisite: one line each, with the command that provides it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use walkdir::WalkDir;

use crate::kernel;
use crate::paths;
use crate::setup::llvm::Llvm;
use crate::setup::packages::{Need, PACKAGES};
use crate::setup::qemu::{self, Qemu};
use crate::setup::{apt, herd, promtool, rust};
use crate::tools;

/// Sources, three kernels with their objects, and the project's own build.
const DISK_GIB: u64 = 12;

/// The unit of `stat` for a file's space on the disk.
const BLOCK_BYTES: u64 = 512;

/// A guest with 1 GiB beside a linking compiler.
const MEMORY_GIB: f64 = 3.5;

struct Prerequisite {
    presence: Presence,
    name: String,
    found: String,
    remedy: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Ok,
    /// It is not needed, or is just a fact worth knowing.
    Note,
    Missing,
}

fn ok(name: &str, found: impl Into<String>) -> Prerequisite {
    Prerequisite::new(Presence::Ok, name, found)
}

fn note(name: &str, found: impl Into<String>) -> Prerequisite {
    Prerequisite::new(Presence::Note, name, found)
}

fn missing(name: &str, found: impl Into<String>) -> Prerequisite {
    Prerequisite::new(Presence::Missing, name, found)
}

impl Prerequisite {
    fn new(presence: Presence, name: &str, found: impl Into<String>) -> Self {
        Self {
            presence,
            name: name.to_owned(),
            found: found.into(),
            remedy: String::new(),
        }
    }

    fn remedy(mut self, command: impl Into<String>) -> Self {
        self.remedy = command.into();
        self
    }

    fn print(&self) {
        let mark = match self.presence {
            Presence::Ok => "ok     ",
            Presence::Note => "note   ",
            Presence::Missing => "MISSING",
        };
        print!("{mark}  {:<18} {}", self.name, self.found);
        if !self.remedy.is_empty() {
            print!("  ->  {}", self.remedy);
        }
        println!();
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let mut lines = vec![system()];
    lines.extend(PACKAGES.iter().map(package));
    lines.extend(compilers()?);
    lines.extend([
        bindgen(),
        miri(),
        herd7(),
        promtool(),
        disk(),
        memory(),
        emulator(),
        kvm(),
        lockdown(),
        cache(),
    ]);
    lines.iter().for_each(Prerequisite::print);

    let absent = lines
        .iter()
        .filter(|line| line.presence == Presence::Missing)
        .count();
    if absent > 0 {
        println!("\n{absent} missing; `cargo xtask setup` installs all it can");
        return Ok(ExitCode::FAILURE);
    }
    println!("\nnothing is missing");
    Ok(ExitCode::SUCCESS)
}

fn system() -> Prerequisite {
    let name = fs::read_to_string("/etc/os-release")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
            Some(line.trim_matches('"').to_owned())
        })
        .unwrap_or_else(|| "unknown system".to_owned());
    let found = format!("{name}, {}", std::env::consts::ARCH);
    if std::env::consts::ARCH != "x86_64" {
        return missing("system", found).remedy("use an x86-64 machine");
    }
    ok("system", found)
}

fn package(package: &crate::setup::packages::Package) -> Prerequisite {
    let name = package.name;
    if let Some(place) = package.probe.found() {
        return ok(name, place);
    }
    let remedy = format!("apt-get install {name}");
    let use_of_it = match package.need {
        Need::Kernel | Need::Vm => return missing(name, package.why).remedy(remedy),
        Need::Checks => "skipped without it",
        Need::Deb => "only for `build-kernel --deb`, which installs it",
        Need::Applications => "only for `bench --suite paper`, which installs it",
    };
    note(name, format!("absent: {} ({use_of_it})", package.why)).remedy(remedy)
}

fn compilers() -> Result<Vec<Prerequisite>> {
    let mut lines = Vec::new();
    match Llvm::installed() {
        Some(llvm) => {
            let have = tools::version(&format!("clang-{}", llvm.version)).unwrap_or_default();
            lines.push(versioned(
                "clang, lld, llvm",
                &have,
                kernel::min_tool_version("llvm"),
                "cargo xtask setup",
            ));
        }
        None => {
            let command = apt::command_line(&apt::llvm_packages());
            lines.push(
                missing("clang, lld, llvm", "no complete set of one version").remedy(command),
            );
        }
    }
    let toolchain = rust::pinned_toolchain()?;
    let install = format!("rustup toolchain install {toolchain}");
    match tools::output(rust::command("rustc")?.arg("--version")) {
        Ok(text) => {
            let have = text.split(' ').nth(1).unwrap_or_default();
            lines.push(versioned(
                "rustc",
                have,
                kernel::min_tool_version("rustc"),
                &install,
            ));
            let lost = rust::missing_components()?;
            lines.push(if lost.is_empty() {
                ok("Rust components", "rust-src, rustfmt, clippy")
            } else {
                let command = format!(
                    "rustup component add --toolchain {toolchain} {}",
                    lost.join(" ")
                );
                missing("Rust components", lost.join(", ")).remedy(command)
            });
        }
        Err(_) => lines.push(missing("rustc", format!("no {toolchain}")).remedy(install)),
    }
    Ok(lines)
}

/// Checks a tool with a lower limit: the kernel tree's own, once it is unpacked.
fn versioned(name: &str, have: &str, least: Option<String>, remedy: &str) -> Prerequisite {
    match least {
        Some(least) if !tools::at_least(have, &least) => {
            missing(name, format!("{have}, the kernel needs {least}")).remedy(remedy)
        }
        Some(least) => ok(name, format!("{have} (the kernel needs {least})")),
        None => ok(name, have),
    }
}

fn bindgen() -> Prerequisite {
    if rust::bindgen_is_there() {
        return versioned(
            "bindgen",
            rust::BINDGEN_VERSION,
            kernel::min_tool_version("bindgen"),
            "cargo xtask setup",
        );
    }
    let command = format!(
        "cargo install --locked --root {} bindgen-cli --version {}",
        paths::tools().display(),
        rust::BINDGEN_VERSION
    );
    missing("bindgen", "not in the cache").remedy(command)
}

fn miri() -> Prerequisite {
    if rust::nightly_has_miri() {
        return ok("miri", "in the nightly toolchain");
    }
    note("miri", "absent: `test miri` is skipped")
        .remedy("rustup toolchain install nightly --profile minimal --component miri,rust-src")
}

fn herd7() -> Prerequisite {
    if let Some(found) = herd::found() {
        return ok(herd::PACKAGE, found);
    }
    note(herd::PACKAGE, "absent: `test litmus` is skipped").remedy("cargo xtask setup")
}

fn promtool() -> Prerequisite {
    if promtool::command().is_some() {
        return ok("promtool", "there");
    }
    note("promtool", "absent: `test tidy` skips rules of Prometheus").remedy("cargo xtask setup")
}

fn disk() -> Prerequisite {
    // The cache may not exist yet: its nearest parent that does is on the same disk.
    let place = paths::cache()
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"));
    let free = free_gib(place);
    // What is already there need not fit again.
    let used = if paths::cache().join("kernel").exists() {
        used_gib()
    } else {
        0
    };
    let Some(free) = free else {
        return note("disk space", "cannot be told");
    };
    let found = format!(
        "{free} GiB free, {used} GiB used, at {}",
        paths::cache().display()
    );
    if free + used < DISK_GIB {
        return missing("disk space", found)
            .remedy(format!("free {DISK_GIB} GiB there, or set XDG_CACHE_HOME"));
    }
    ok("disk space", found)
}

fn free_gib(place: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(place).ok()?;
    Some((disk.f_bavail * disk.f_frsize) >> 30)
}

fn used_gib() -> u64 {
    let files = WalkDir::new(paths::cache()).into_iter().flatten();
    // The work trees are links to the sources as they came: each file counts once.
    let sizes: BTreeMap<(u64, u64), u64> = files
        .filter_map(|file| file.metadata().ok())
        .map(|data| ((data.dev(), data.ino()), data.blocks() * BLOCK_BYTES))
        .collect();
    sizes.values().sum::<u64>() >> 30
}

fn memory() -> Prerequisite {
    let kib = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<u32>().ok()
    });
    let Some(kib) = kib else {
        return note("cores and memory", "cannot be told");
    };
    let gib = f64::from(kib) / f64::from(1 << 20);
    let found = format!("{} cores, {gib:.1} GiB", tools::cores());
    if gib < MEMORY_GIB {
        return missing("cores and memory", found).remedy("give this machine 4 GiB of memory");
    }
    ok("cores and memory", found)
}

fn emulator() -> Prerequisite {
    let wish = &qemu::SAFER_THREADS;
    let Some(found) = Qemu::find(wish) else {
        return missing("QEMU", "none").remedy("cargo xtask setup");
    };
    let text = format!("{}, {}", found.version, found.place());
    if found.suits(wish) {
        return ok("QEMU", text);
    }
    let text = format!(
        "{text}: before {} guests are slow, or can die of `Oops: int3`",
        wish.least
    );
    note("QEMU", text).remedy("cargo xtask setup")
}

fn kvm() -> Prerequisite {
    let device = Path::new("/dev/kvm");
    if !device.exists() {
        return note("/dev/kvm", "absent; not needed: guests run under TCG");
    }
    let usable = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .is_ok();
    let found = if usable {
        "usable"
    } else {
        "there, but not for this user"
    };
    note(
        "/dev/kvm",
        format!("{found}; guests run under TCG unless `--accel kvm` is given"),
    )
}

fn lockdown() -> Prerequisite {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = text
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    match mode {
        None | Some("none") => note("kernel lockdown", "off"),
        Some(mode) => note("kernel lockdown",
            format!("{mode}: on this machine debugfs refuses writes; the command mflow sets values by netlink"),
        ),
    }
}

fn cache() -> Prerequisite {
    note("cache", paths::cache().display().to_string())
}
