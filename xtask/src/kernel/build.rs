// SPDX-License-Identifier: GPL-2.0

//! Configures and builds one kernel in its own folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::config::{Config, Fragment};
use super::source::short_hash;
use super::toolchain::Toolchain;
use super::Kernel;
use crate::step::Step;

#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// The smallest kernel there is (`make tinyconfig`).
    Tiny,
    File(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Plan<'a> {
    /// A short name for titles and logs.
    pub(crate) name: String,
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) work_tree: PathBuf,
    /// Changes with the option files of the work tree.
    pub(crate) kconfig_key: String,
    pub(crate) build_dir: PathBuf,
    pub(crate) base: Base,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) jobs: usize,
}

#[derive(Debug, Deserialize, Serialize)]
struct Stamp {
    inputs: String,
    release: String,
}

impl Plan<'_> {
    /// Returns the kernel if it was built from these inputs already.
    pub(crate) fn finished(&self, inputs: &str) -> Option<Kernel> {
        let text = fs::read_to_string(self.stamp()).ok()?;
        let stamp: Stamp = serde_json::from_str(&text).ok()?;
        let kernel = self.kernel(&stamp.release);
        (stamp.inputs == inputs && kernel.image.exists() && kernel.modules.exists())
            .then_some(kernel)
    }

    pub(crate) fn build(&self, inputs: &str) -> Result<Kernel> {
        let fresh = !self.build_dir.join("vmlinux").exists();
        let mut step = self.step("build").hint(format!(
            "the first `error` in the log tells; to start over: rm -r {}",
            self.build_dir.display()
        ));
        if fresh {
            step = step.count_lines();
        }
        step.run(self.make().args(["bzImage", "modules"]))?;

        let install = self.build_dir.join("install");
        if install.exists() {
            fs::remove_dir_all(&install)?;
        }
        self.step("modules")
            .hint(format!(
                "look for free space with `df -h {}`",
                self.build_dir.display()
            ))
            .run(
                self.make()
                    .arg(format!("INSTALL_MOD_PATH={}", install.display()))
                    .args(["INSTALL_MOD_STRIP=1", "modules_install"]),
            )?;
        let release = self.release()?;
        let stamp = Stamp {
            inputs: inputs.to_owned(),
            release: release.clone(),
        };
        fs::write(self.stamp(), serde_json::to_string_pretty(&stamp)?)?;
        Ok(self.kernel(&release))
    }

    /// Makes `.config`; fails with a list if an option that was asked for does not come out.
    ///
    /// Does nothing if the last time was with the same options and tools, unless `always`.
    pub(crate) fn configure(&self, always: bool) -> Result<()> {
        let key = short_hash(format!("{}{}", self.kconfig_key, self.identity()?).as_bytes());
        let memory = self.build_dir.join("mflow-config.key");
        let config = self.build_dir.join(".config");
        if !always && config.exists() && fs::read_to_string(&memory).is_ok_and(|old| old == key) {
            return Ok(());
        }
        fs::create_dir_all(&self.build_dir)?;
        // It is made beside the real one: an unchanged configuration must keep its time stamp.
        let next = self.build_dir.join(".config.next");
        let wanted = Config::merge(&self.fragments)?;
        let make = || {
            let mut make = self.make();
            make.env("KCONFIG_CONFIG", &next);
            make
        };
        match &self.base {
            Base::Tiny => {
                self.step("config")
                    .hint("run `cargo xtask doctor`")
                    .run(make().arg("tinyconfig"))?;
            }
            Base::File(file) => {
                fs::copy(file, &next).with_context(|| format!("cannot copy {}", file.display()))?;
            }
        }
        self.step("rust check")
            .hint("run `cargo xtask doctor`: the kernel finds no Rust it can use")
            .run(make().arg("rustavailable"))?;
        let mut text = fs::read_to_string(&next)?;
        text.push_str(&wanted.text());
        fs::write(&next, text)?;
        self.step("olddefconfig")
            .hint("run `cargo xtask doctor`")
            .run(make().arg("olddefconfig"))?;

        let result = fs::read_to_string(&next)?;
        let lost = wanted.not_effective_in(&Config::of_kernel(&result));
        if !lost.is_empty() {
            bail!(
                "these options did not take effect; something they depend on is off, or this kernel does not know them:\n  {}\nread {} for what became of them",
                lost.join("\n  "),
                next.display()
            );
        }
        if fs::read_to_string(&config).ok().as_deref() != Some(&result) {
            fs::write(&config, result)?;
        }
        fs::write(memory, key)?;
        Ok(())
    }

    /// Returns the value of everything that is part of this plan and not of the work tree.
    pub(crate) fn identity(&self) -> Result<String> {
        let base = match &self.base {
            Base::Tiny => String::new(),
            Base::File(file) => short_hash(
                &fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
            ),
        };
        let config = Config::merge(&self.fragments)?.text();
        Ok(format!("{base}\n{config}\n{}", self.toolchain.identity()?))
    }

    pub(crate) fn make(&self) -> Command {
        let mut make = self.toolchain.make(&self.work_tree, self.jobs);
        make.arg(format!("O={}", self.build_dir.display()));
        make
    }

    pub(crate) fn step(&self, what: &str) -> Step {
        let log = format!("kernel-{}-{}", self.name, what.replace(' ', "-"));
        Step::new(format!("kernel {}: {what}", self.name), log)
    }

    pub(crate) fn release(&self) -> Result<String> {
        let path = self.build_dir.join("include/config/kernel.release");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    fn kernel(&self, release: &str) -> Kernel {
        Kernel {
            image: self.build_dir.join("arch/x86/boot/bzImage"),
            modules: self.build_dir.join("install/lib/modules").join(release),
            release: release.to_owned(),
            build_dir: self.build_dir.clone(),
        }
    }

    fn stamp(&self) -> PathBuf {
        stamp_of(&self.build_dir)
    }
}

fn stamp_of(build_dir: &Path) -> PathBuf {
    build_dir.join("mflow-stamp.json")
}
