// SPDX-License-Identifier: GPL-2.0

//! The compilers that build the kernel, and `make` with all it must know.

use std::path::Path;
use std::process::Command;

use anyhow::{ensure, Context as _, Result};

use crate::paths;
use crate::setup::llvm::Llvm;
use crate::setup::rust;
use crate::tools;

/// Variables that would change a kernel build behind our back.
const UNWANTED: &str = "ARCH CARGO_ENCODED_RUSTFLAGS CC CFLAGS CROSS_COMPILE KBUILD_OUTPUT KCFLAGS LDFLAGS MAKEFLAGS MFLAGS \
                        RUSTFLAGS";

#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    llvm: Llvm,
    rust: String,
}

impl Toolchain {
    pub(crate) fn find() -> Result<Self> {
        Ok(Self {
            llvm: Llvm::installed().context(
                "no complete set of clang, lld and llvm is installed; run `cargo xtask setup`",
            )?,
            rust: rust::pinned_toolchain()?,
        })
    }

    /// Returns the versions as text, to tell whether a build is still good.
    pub(crate) fn identity(&self) -> Result<String> {
        let clang = format!("clang-{}", self.llvm.version);
        let clang = tools::output(tools::command(&clang).arg("--version"))?;
        let rustc = tools::output(rust::command("rustc")?.arg("--version"))?;
        Ok(format!("{clang}{rustc}{}", rust::BINDGEN_VERSION))
    }

    pub(crate) fn make(&self, dir: &Path, jobs: usize) -> Command {
        let mut make = make(&self.rust, dir, jobs);
        make.env("LIBCLANG_PATH", self.llvm.library_dir())
            .arg(format!("LLVM={}", self.llvm.make_suffix()));
        make
    }
}

/// Returns `make` for a kernel that names its C compiler itself.
pub(crate) fn plain_make(dir: &Path, jobs: usize) -> Result<Command> {
    plain_make_of(&paths::search_path(), dir, jobs)
}

fn plain_make_of(path: &str, dir: &Path, jobs: usize) -> Result<Command> {
    let found = tools::find_in(path, "make").is_some();
    ensure!(found, "make is not installed; try: apt install make");
    Ok(make(&rust::pinned_toolchain()?, dir, jobs))
}

fn make(rust: &str, dir: &Path, jobs: usize) -> Command {
    let mut make = tools::command("make");
    for name in UNWANTED.split_whitespace() {
        make.env_remove(name);
    }
    make.env("RUSTUP_TOOLCHAIN", rust)
        .arg("-C")
        .arg(dir)
        .arg(format!("-j{jobs}"));
    make
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_make_is_one_sentence_with_its_package() {
        let empty = tempfile::tempdir().expect("a folder");
        for path in ["", &empty.path().to_string_lossy()] {
            let error = plain_make_of(path, empty.path(), 1).expect_err("there is no make");
            let said = format!("{error:#}");
            assert_eq!(said, "make is not installed; try: apt install make");
        }
    }
}
