// SPDX-License-Identifier: GPL-2.0

//! Programs that go into the guest: our own, and the host's with the shared libraries they need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{bail, Context as _, Result};

use crate::builds;
use crate::paths;
use crate::step::Step;
use crate::tools;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const FOLDER: &str = "target/guest";
/// The workspace's profile for it.
const PROFILE: &str = "guest";

/// The programs that the guest program runs.
const NEEDED: &[&str] = &[
    "bash",
    "bridge",
    "devlink",
    "ethtool",
    "haproxy",
    "ip",
    "ip6tables-nft-restore",
    "ip6tables-nft-save",
    "iperf3",
    "ipset",
    "iptables-nft-restore",
    "iptables-nft-save",
    "ipvsadm",
    "modinfo",
    "modprobe",
    "nft",
    "ovs-dpctl",
    "ping",
    "rmmod",
    "setsid",
    "sockperf",
    "taskset",
    "tc",
    "tcpdump",
    "wg",
];

/// The extensions that `iptables` loads by the names of matches and targets.
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";

/// The programs that a person at the guest's shell expects, and that cases use if they are there.
const WELCOME: &[&str] = &[
    "awk", "cat", "chmod", "clear", "cp", "curl", "cut", "date", "dmesg", "du", "echo", "env",
    "false", "find", "free", "grep", "head", "hostname", "insmod", "kill", "less", "ln", "ls",
    "lsmod", "lspci", "mkdir", "mount", "mv", "nginx", "nproc", "nstat", "pgrep", "ps", "reset",
    "rm", "sed", "seq", "sh", "sleep", "sort", "ss", "strace", "stty", "sync", "sysctl", "tail",
    "tee", "timeout", "top", "tr", "true", "umount", "uname", "uniq", "vi", "watch", "wc", "xargs",
];

/// The programs of the project that run in a guest beside the guest program: the command for operators, and HIKE's daemon and its
/// command, with the features that tests need.
const OWN: &[&str] = &["mflow", "hiked", "hike"];
const OWN_PACKAGES: [&str; 2] = ["mflow-command", "mflow-hike-manager"];
const OWN_FEATURES: &str = "mflow-hike-manager/fail-points";

/// Returns the other programs of the project that run in a guest.
pub(crate) fn own_programs() -> Result<Vec<PathBuf>> {
    let guest = guest_program()?;
    Ok(OWN.iter().map(|name| guest.with_file_name(name)).collect())
}

/// Returns the guest program, built first if it has to be, as all others of the project's are; static, so that it runs as the first
/// process of an otherwise empty system, and on the host as well.
pub(crate) fn guest_program() -> Result<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    tools::once(&BUILT, || {
        Step::new("build the guest program", "guest-build").run(
            builds::cargo(FOLDER)?
                .args([
                    "build",
                    "--profile",
                    PROFILE,
                    "--locked",
                    "--target",
                    TARGET,
                ])
                .args(["--package", "mflow-guest"])
                .args(OWN_PACKAGES.map(|name| format!("--package={name}")))
                .args(["--features", OWN_FEATURES])
                .env("RUSTFLAGS", "-C target-feature=+crt-static"),
        )?;
        let programs = paths::project().join(FOLDER).join(TARGET).join(PROFILE);
        Ok(programs.join("mflow-guest"))
    })
}

/// Returns every program and library, as paths of the host.
pub(crate) fn files(more: &[&str]) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut missing = Vec::new();
    for &name in NEEDED.iter().chain(more) {
        match tools::find(name) {
            Some(path) => drop(files.insert(path)),
            None => missing.push(name),
        }
    }
    if !missing.is_empty() {
        bail!(
            "the guest needs these programs: {}; try: cargo xtask setup",
            missing.join(", ")
        );
    }
    files.extend(WELCOME.iter().filter_map(|name| tools::find(name)));
    for extension in
        fs::read_dir(EXTENSIONS).with_context(|| format!("cannot list {EXTENSIONS}"))?
    {
        files.insert(extension?.path());
    }
    let libraries = libraries(&files)?;
    files.extend(libraries);
    Ok(files)
}

/// Asks the dynamic linker; scripts and static programs have no libraries.
fn libraries(programs: &BTreeSet<PathBuf>) -> Result<BTreeSet<PathBuf>> {
    // It fails if one of many is static, but answers for the others.
    let output = tools::command("ldd").args(programs).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("a program of this host lacks a library: {}", line.trim());
    }
    Ok(parse(&text))
}

/// Reads the lines `libc.so.6 => /lib/libc.so.6 (0x...)` and `/lib64/ld-linux-x86-64.so.2 (0x...)`.
fn parse(text: &str) -> BTreeSet<PathBuf> {
    text.lines()
        .filter(|line| line.starts_with(char::is_whitespace))
        .filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.starts_with('/'))
                .map(PathBuf::from)
        })
        .collect()
}

/// Returns the terminal description of the host's terminal, if there is one.
pub(crate) fn terminfo() -> Option<PathBuf> {
    let name = std::env::var("TERM").ok()?;
    let initial = name.chars().next()?.to_string();
    ["/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo"]
        .iter()
        .map(|dir| Path::new(dir).join(&initial).join(&name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "/usr/bin/ip:\n\
                    \tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\
                    /usr/bin/watch:\n\tnot a dynamic executable\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libelf.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse(text), expected.iter().map(PathBuf::from).collect());
    }
}
