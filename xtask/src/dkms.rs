// SPDX-License-Identifier: GPL-2.0

//! The module as a Debian package of its sources: DKMS builds it for each kernel without our hooks that a machine has.

pub(crate) mod fresh;
pub(crate) mod install;

use std::path::PathBuf;

use anyhow::Result;

use crate::debian::{require_filled, Package, VERSION};
use crate::kernel::inputs::{module_files, module_headers};
use crate::kernel::{stock_versions, STOCK_LACKS, STOCK_NEEDS, STOCK_VERSIONS};
use crate::paths;

const NAME: &str = "mflow";
const PACKAGE: &str = "mflow-dkms";

/// The files of the package that are no sources of the module: place, text, mode.
const FILES: &[(&str, &str, u32)] = &[
    (
        "usr/src/@NAME@-@VERSION@/dkms-build",
        include_str!("dkms/package/build.sh"),
        0o755,
    ),
    (
        "usr/lib/@PACKAGE@/install-for",
        include_str!("dkms/package/install-for.sh"),
        0o755,
    ),
    ("etc/kernel/postinst.d/@PACKAGE@", HOOK, 0o755),
    ("etc/kernel/header_postinst.d/@PACKAGE@", HOOK, 0o755),
    (
        "etc/kernel/postrm.d/@PACKAGE@",
        include_str!("dkms/package/hook-gone.sh"),
        0o755,
    ),
    (
        "DEBIAN/conffiles",
        "/etc/kernel/postinst.d/@PACKAGE@\n\
         /etc/kernel/header_postinst.d/@PACKAGE@\n\
         /etc/kernel/postrm.d/@PACKAGE@\n",
        0o644,
    ),
    (
        "DEBIAN/postinst",
        include_str!("dkms/package/postinst.sh"),
        0o755,
    ),
    ("DEBIAN/prerm", include_str!("dkms/package/prerm.sh"), 0o755),
    ("DEBIAN/control", CONTROL, 0o644),
    ("usr/src/@NAME@-@VERSION@/dkms.conf", CONF, 0o644),
];

/// The hook that packages of kernels run, and those of their headers.
const HOOK: &str = include_str!("dkms/package/hook.sh");

/// Debian 13's `rustc` is the oldest that will do; Debian 12's is too old, and its `rustc-web` is not.
const CONTROL: &str = "\
Package: @PACKAGE@
Version: @VERSION@
Architecture: amd64
Maintainer: The mflow authors <mflow@localhost>
Section: kernel
Priority: optional
Depends: dkms, make, gcc | c-compiler, openssl, rustc (>= 1.85) | rustc-web (>= 1.85) | rustup, rust-src (>= 1.85) | rust-web-src (>= 1.85) | rustup
Recommends: linux-headers-amd64 | linux-headers-cloud-amd64
Suggests: mflow-tools
Description: splits elephant flows of container overlays over several CPUs
 The kernel module mflow for Linux @VERSIONS@ as distributions
 ship it. DKMS builds it with the kernel's headers and the distribution's Rust
 compiler.
";

/// The configuration of DKMS. It takes only kernels that `build-module` takes, too. DKMS builds the module if it is asked for it,
/// and our hooks ask: with `AUTOINSTALL` a kernel for which that fails would stay half installed.
const CONF: &str = "\
# SPDX-License-Identifier: GPL-2.0
PACKAGE_NAME=\"@NAME@\"
PACKAGE_VERSION=\"@VERSION@\"
BUILT_MODULE_NAME[0]=\"@NAME@\"
DEST_MODULE_LOCATION[0]=\"/updates/dkms\"
AUTOINSTALL=\"\"
BUILD_EXCLUSIVE_ARCH=\"x86_64\"
BUILD_EXCLUSIVE_KERNEL=\"^(@SERIES@)\\.\"
BUILD_EXCLUSIVE_CONFIG=\"@CONFIG@\"
MAKE[0]=\"sh ./dkms-build ${kernel_source_dir}\"
CLEAN=\"true\"
";

/// Builds the package and returns its path.
pub(crate) fn build() -> Result<PathBuf> {
    let project = paths::project();
    let package = Package::new(PACKAGE)?;
    let sources = filled("usr/src/@NAME@-@VERSION@");
    let mut files = module_files(project)?;
    files.extend(module_headers(project)?);
    for (path, file) in files {
        package.write(&format!("{sources}/{path}"), &file.bytes, 0o644)?;
    }
    for (path, text, mode) in FILES {
        let text = filled(text);
        require_filled(path, &text)?;
        package.write(&filled(path), text.as_bytes(), *mode)?;
    }
    package.build()
}

/// Returns a text with the words that stand in it as `@WORD@`.
fn filled(text: &str) -> String {
    let patterns: Vec<String> = STOCK_VERSIONS
        .iter()
        .map(|version| format!("{version}.*"))
        .collect();
    let lines = |verb: &str, options: &[(&str, &str)]| -> String {
        let line = |(option, meaning): &(_, _)| format!("{verb} {option} \"{meaning}\"\n");
        options.iter().map(line).collect()
    };
    let options = lines("needs", STOCK_NEEDS) + &lines("lacks", STOCK_LACKS);
    let words = [
        ("@NAME@", NAME.to_owned()),
        ("@PACKAGE@", PACKAGE.to_owned()),
        ("@VERSION@", VERSION.to_owned()),
        ("@VERSIONS@", stock_versions()),
        ("@SERIES@", STOCK_VERSIONS.join("|").replace('.', "\\.")),
        ("@PATTERNS@", patterns.join(" | ")),
        ("@OPTIONS@", options.trim_end().to_owned()),
        ("@CONFIG@", config()),
    ];
    let fill = |text: String, (word, value): &(&str, String)| text.replace(word, value);
    words.iter().fold(text.to_owned(), fill)
}

/// Returns what a kernel's configuration has to have and must not have, as DKMS reads it.
fn config() -> String {
    let name = |option: &str| option.trim_end_matches("=y").to_owned();
    let needs = STOCK_NEEDS.iter().map(|(option, _)| name(option));
    let lacks = STOCK_LACKS
        .iter()
        .map(|(option, _)| format!("!{}", name(option)));
    needs.chain(lacks).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dkms_takes_what_build_module_takes() {
        let conf = filled(CONF);
        let line = |name: &str| {
            let start = format!("{name}=\"");
            let line = conf.lines().find_map(|line| line.strip_prefix(&start));
            line.and_then(|line| line.strip_suffix('"'))
                .unwrap()
                .to_owned()
        };
        let config = line("BUILD_EXCLUSIVE_CONFIG");
        let options: Vec<&str> = config.split(' ').collect();
        assert_eq!(options.len(), STOCK_NEEDS.len() + STOCK_LACKS.len());
        assert!(options.contains(&"CONFIG_NETFILTER_INGRESS"));
        assert!(options.contains(&"!CONFIG_CFI_CLANG"));
        assert!(options.contains(&"!CONFIG_PREEMPT_RT"));
        assert_eq!(line("BUILD_EXCLUSIVE_KERNEL"), r"^(6\.1|6\.12|7\.3)\.");
    }

    #[test]
    fn hooks_are_replaced_as_files_of_configuration_are() {
        let kept = FILES.iter().find(|(path, ..)| path.ends_with("conffiles"));
        let kept: Vec<&str> = kept.map(|(_, text, _)| text.lines().collect()).unwrap();
        let hooks = FILES.iter().filter(|(path, ..)| path.starts_with("etc/"));
        let hooks: Vec<String> = hooks.map(|(path, ..)| format!("/{path}")).collect();
        assert_eq!(kept, hooks);
    }

    #[test]
    fn no_word_is_left_to_be_filled_in() {
        for (path, text, _) in FILES {
            require_filled(path, &(filled(path) + &filled(text))).unwrap();
        }
        let build = filled(include_str!("dkms/package/build.sh"));
        assert!(build.contains("\n6.1.* | 6.12.* | 7.3.*) ;;\n"));
        assert!(build.contains("\nneeds CONFIG_INET=y \"IPv4\"\n"));
        assert!(build.contains("\nlacks CONFIG_PREEMPT_RT=y \"real-time preemption"));
    }
}
