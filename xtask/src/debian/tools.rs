// SPDX-License-Identifier: GPL-2.0

//! The command `mflow` as a Debian package, with its pages and completions, and the units of systemd that apply `/etc/mflow.conf`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context as _, Result};

use super::{require_filled, Package, VERSION};
use crate::builds;
use crate::paths;
use crate::setup::rust;
use crate::step::Step;
use crate::tools::{command, output};

const NAME: &str = "mflow-tools";
/// Cargo's folder for it: its flags are no others'.
const FOLDER: &str = "target/package";

/// The files that are there as they are, or with words filled in: place, text, mode.
const FILES: &[(&str, &str, u32)] = &[
    ("etc/mflow.conf", include_str!("tools/mflow.conf"), 0o644),
    (
        "usr/lib/systemd/system/mflow.service",
        include_str!("tools/mflow.service"),
        0o644,
    ),
    (
        "usr/lib/systemd/system/mflow-device@.service",
        include_str!("tools/mflow-device@.service"),
        0o644,
    ),
    (
        "usr/lib/udev/rules.d/90-mflow.rules",
        include_str!("tools/90-mflow.rules"),
        0o644,
    ),
    (
        "usr/share/mflow-tools/order.bt",
        include_str!("tools/order.bt"),
        0o644,
    ),
    (
        "usr/share/mflow-tools/merge-latency.bt",
        include_str!("tools/merge-latency.bt"),
        0o644,
    ),
    (
        "usr/share/mflow-tools/lane-balance.bt",
        include_str!("tools/lane-balance.bt"),
        0o644,
    ),
    ("DEBIAN/conffiles", "/etc/mflow.conf\n", 0o644),
    ("DEBIAN/postinst", include_str!("tools/postinst.sh"), 0o755),
    ("DEBIAN/prerm", include_str!("tools/prerm.sh"), 0o755),
    ("DEBIAN/postrm", include_str!("tools/postrm.sh"), 0o755),
    ("DEBIAN/control", CONTROL, 0o644),
];

/// The module is recommended alone: a kernel with our patches has its own.
const CONTROL: &str = "\
Package: mflow-tools
Version: @VERSION@
Architecture: amd64
Maintainer: The mflow authors <mflow@localhost>
Section: net
Priority: optional
Depends: kmod, @LIBRARIES@
Recommends: mflow-dkms
Suggests: bpftrace
Description: command and service for the kernel module mflow
 The module mflow splits elephant flows of container overlays over several
 CPUs. The command mflow shows what it does, sets its knobs, and says what
 limits a flow on this host, which needs no module. The service mflow loads
 the module and applies /etc/mflow.conf. It is not enabled by the package.
";

const PAGES: &str = "usr/share/man/man1";

/// The scripts that complete command lines, by the shell's name.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/mflow"),
    ("zsh", "usr/share/zsh/vendor-completions/_mflow"),
    ("fish", "usr/share/fish/vendor_completions.d/mflow.fish"),
];

/// Builds the package and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let program = program()?;
    let package = Package::new(NAME)?;
    let libraries = libraries(&output(command("objdump").arg("-p").arg(&program))?)?;
    for (path, text, mode) in FILES {
        let text = text
            .replace("@VERSION@", VERSION)
            .replace("@LIBRARIES@", &libraries);
        require_filled(path, &text)?;
        package.write(path, text.as_bytes(), *mode)?;
    }
    package.write("usr/bin/mflow", &fs::read(&program)?, 0o755)?;
    let run = || command(&program.to_string_lossy());
    for (shell, path) in COMPLETIONS {
        let script = output(run().args(["completion", shell]))?;
        package.write(path, script.as_bytes(), 0o644)?;
    }
    let pages = tempfile::tempdir()?;
    output(run().arg("man").arg(pages.path()))?;
    for page in fs::read_dir(&pages)? {
        let page = page?.path();
        let name = page.file_name().context("a page has a name")?;
        let path = format!("{PAGES}/{}", name.to_string_lossy());
        package.write(&path, &fs::read(&page)?, 0o644)?;
        package.compress(&path)?;
    }
    package.build()
}

/// Builds the command, without the paths of this machine, so that other checkouts make the same of it.
fn program() -> Result<PathBuf> {
    let sysroot = output(rust::command("rustc")?.args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let mut flags = String::new();
    for (from, to) in [
        (Some(paths::project().to_owned()), "/usr/src/mflow"),
        (Some(paths::cache().to_owned()), "/usr/src/cache"),
        (cargo_home, "/usr/src/cargo"),
        (Some(library), "/rustc"),
    ] {
        if let Some(from) = from {
            // The separator of flags, of which paths have none.
            flags += &format!("--remap-path-prefix={}={to}\u{1f}", from.display());
        }
    }
    Step::new("build the command mflow", "command-build").run(
        builds::cargo(FOLDER)?
            .args(["build", "--release", "--locked"])
            .arg("--package=mflow-command")
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.trim_end_matches('\u{1f}'))
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            // A user waits for it, and the command is quick anyway.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
    )?;
    let program = paths::project().join(FOLDER).join("release/mflow");
    ensure!(program.exists(), "cargo has made no {}", program.display());
    Ok(program)
}

/// Returns the packages of the libraries that a program needs, of what `objdump -p` says of it. The C library has to be as new as
/// the newest of the program's symbols; the loader goes on without weak ones.
fn libraries(text: &str) -> Result<String> {
    let (mut newest, mut packages) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["NEEDED", "libc.so.6" | "libm.so.6" | "ld-linux-x86-64.so.2"] => {}
            ["NEEDED", "libgcc_s.so.1"] => packages.push("libgcc-s1".to_owned()),
            ["NEEDED", other] => {
                bail!("the command needs {other}, and no package is known that has it")
            }
            [_, flags, _, symbol] if flags != WEAK => {
                let version = symbol.strip_prefix("GLIBC_");
                newest.extend(version.and_then(numbers));
            }
            _ => {}
        }
    }
    let newest = newest.iter().max();
    let newest = newest.context("the command needs no C library: is it linked statically?")?;
    let newest: Vec<String> = newest.iter().map(u32::to_string).collect();
    packages.insert(0, format!("libc6 (>= {})", newest.join(".")));
    Ok(packages.join(", "))
}

/// `VER_FLG_WEAK` as `objdump` prints it.
const WEAK: &str = "0x02";

/// Returns the numbers of a version; nothing for others, as `ABI_DT_RELR`.
fn numbers(version: &str) -> Option<Vec<u32>> {
    let numbers = version.split('.').map(|number| number.parse().ok());
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> &'static str {
        let found = FILES.iter().find(|(path, ..)| path.ends_with(name));
        found.map(|(_, text, _)| *text).unwrap()
    }

    #[test]
    fn libraries_are_those_that_the_program_needs() {
        let text = "  NEEDED               libgcc_s.so.1\n  NEEDED               libc.so.6\n\
                    \nVersion References:\n  required from libc.so.6:\n\
                    \x20   0x0d696914 0x00 16 GLIBC_2.4\n\
                    \x20   0x069691b4 0x00 05 GLIBC_2.34\n\
                    \x20   0x069691b9 0x02 04 GLIBC_2.39\n\
                    \x20   0x0fd0e42c 0x00 03 GLIBC_ABI_DT_RELR\n";
        let found = libraries(text).unwrap();
        assert_eq!(found, "libc6 (>= 2.34), libgcc-s1");
        libraries("  NEEDED libssl.so.3\n").unwrap_err();
        libraries("").unwrap_err();
    }

    #[test]
    fn an_upgrade_stops_and_starts_nothing() {
        let lines = file("postinst").lines();
        let lines = lines.filter(|line| !line.starts_with('#'));
        let commands: Vec<&str> = lines.collect();
        let commands = commands.join("\n");
        for word in [
            " start ", " stop ", "restart", "invoke", "modprobe", "rmmod",
        ] {
            assert!(!commands.contains(word), "{word}");
        }
        let prerm = file("prerm");
        let ends = prerm.find("[ \"$1\" = remove ] || exit 0").unwrap();
        assert!(prerm.find(" stop ").unwrap() > ends);
    }

    #[test]
    fn the_rule_looks_where_the_command_notes_devices() {
        let written = include_str!("../../../rust/command/src/file.rs");
        let rule = file("90-mflow.rules");
        let (_, rest) = rule.split_once("TEST==\"/").unwrap();
        let folder = rest.split_once("/$name\"").unwrap().0;
        assert!(written.contains(&format!("= \"{folder}\";")));
        let folder = folder.strip_prefix("run/").unwrap();
        let unit = file("mflow.service");
        assert!(unit.contains(&format!("RuntimeDirectory={folder}\n")));
    }
}
