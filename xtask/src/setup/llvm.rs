// SPDX-License-Identifier: GPL-2.0

//! The version of clang, lld and the LLVM tools that builds the kernel.

use std::path::{Path, PathBuf};

use crate::tools;

/// The version we test with.
const PREFERRED: u32 = 19;

/// The oldest one that is taken when the preferred one cannot be had.
const OLDEST: u32 = 17;

/// One installed version of the whole set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Llvm {
    pub(crate) version: u32,
}

impl Llvm {
    /// Returns the set the kernel is built with: the preferred version, else the newest complete one.
    pub(crate) fn installed() -> Option<Self> {
        candidates()
            .map(|version| Self { version })
            .find(|llvm| llvm.missing_packages().is_empty())
    }

    /// Returns what `make LLVM=` takes.
    pub(crate) fn make_suffix(self) -> String {
        format!("-{}", self.version)
    }

    /// Returns the folder with libclang, which bindgen loads.
    pub(crate) fn library_dir(self) -> PathBuf {
        Path::new("/usr/lib")
            .join(format!("llvm-{}", self.version))
            .join("lib")
    }

    pub(crate) fn missing_packages(self) -> Vec<String> {
        let version = self.version;
        let tool = |name: &str| tools::find(&format!("{name}-{version}")).is_some();
        let mut missing = Vec::new();
        if !tool("clang") {
            missing.push(format!("clang-{version}"));
        }
        if !tool("ld.lld") {
            missing.push(format!("lld-{version}"));
        }
        if !(tool("llvm-ar") && tool("llvm-nm") && tool("llvm-objcopy")) {
            missing.push(format!("llvm-{version}"));
        }
        if !self.library_dir().join("libclang.so").exists() {
            missing.push(format!("libclang-{version}-dev"));
        }
        missing
    }
}

fn candidates() -> impl Iterator<Item = u32> {
    std::iter::once(PREFERRED).chain((OLDEST..=PREFERRED + 20).rev())
}

/// Returns the version to install out of the package names that start with `clang-`.
pub(crate) fn choose(names: &str) -> Option<u32> {
    let offered: Vec<u32> = names
        .lines()
        .filter_map(|name| name.trim().strip_prefix("clang-")?.parse().ok())
        .collect();
    candidates().find(|version| offered.contains(version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    #[test]
    fn bpf_programs_are_compiled_by_the_same_clang() {
        let path = paths::project().join("rust/hike/build.rs");
        let build = std::fs::read_to_string(path).unwrap();
        for line in [
            format!("const PREFERRED: u32 = {PREFERRED};"),
            format!("const OLDEST: u32 = {OLDEST};"),
            format!("const NEWEST: u32 = {};", PREFERRED + 20),
        ] {
            assert!(build.contains(&line), "{line}");
        }
    }

    #[test]
    fn preferred_version_wins_over_newer_ones_and_the_newest_is_the_fallback() {
        for (names, version) in [
            ("clang-21\nclang-19\nclang-19-doc\nclang-14\n", Some(19)),
            ("clang-17\nclang-18\nclang-tools-18\nclang-14\n", Some(18)),
            ("clang-13\nclang-14\nclang-tidy\n", None),
        ] {
            assert_eq!(choose(names), version, "{names}");
        }
    }
}
