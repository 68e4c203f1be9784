// SPDX-License-Identifier: GPL-2.0

//! Installs distribution packages, or says how to.

use std::process::Command;

use anyhow::{bail, Result};

use super::llvm::{self, Llvm};
use super::packages::{Need, PACKAGES};
use crate::step::Step;
use crate::tools;

/// Installs what is missing for these needs; as another user than root it prints the command and fails.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let mut missing = missing(needs)?;
    if missing.is_empty() {
        return Ok(());
    }
    if tools::find("apt-get").is_none() {
        bail!(
            "these packages are missing, and this is no Debian system: install what matches {}",
            missing.join(" ")
        );
    }
    if !tools::is_root() {
        missing.retain(|name| !is_optional(name));
        if missing.is_empty() {
            return Ok(());
        }
        bail!(
            "packages are missing; run this as root, then try again:\n  {}",
            command_line(&missing)
        );
    }
    let mut updated = false;
    if missing.iter().any(|name| !is_offered(name)) {
        update()?;
        updated = true;
        // A fuller package list may offer a compiler version that suits better.
        missing = self::missing(needs)?;
        drop_what_can_be_left_out(&mut missing)?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let install = install(&missing);
    if install.is_err() && !updated {
        // An old list names package files that are no longer on the mirror.
        update()?;
        return self::install(&missing);
    }
    install
}

pub(crate) fn command_line(packages: &[String]) -> String {
    format!(
        "apt-get update && apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    )
}

fn missing(needs: &[Need]) -> Result<Vec<String>> {
    let mut missing: Vec<String> = PACKAGES
        .iter()
        .filter(|package| needs.contains(&package.need) && package.probe.found().is_none())
        .map(|package| package.name.to_owned())
        .collect();
    if needs.contains(&Need::Kernel) && Llvm::installed().is_none() {
        missing.extend(llvm_packages());
    }
    Ok(missing)
}

/// Returns the compiler packages to install: of the version this system offers.
pub(crate) fn llvm_packages() -> Vec<String> {
    let names =
        tools::output(tools::command("apt-cache").args(["pkgnames", "clang-"])).unwrap_or_default();
    let version = llvm::choose(&names).unwrap_or(19);
    Llvm { version }.missing_packages()
}

fn drop_what_can_be_left_out(missing: &mut Vec<String>) -> Result<()> {
    for name in missing.clone() {
        if is_offered(&name) {
            continue;
        }
        if !is_optional(&name) {
            bail!("apt offers no package {name}; Debian 12 (with its security updates) and 13 have it: check /etc/apt/sources.list");
        }
        missing.retain(|other| *other != name);
    }
    Ok(())
}

/// Checks that need an absent package are skipped and say so.
fn is_optional(name: &str) -> bool {
    PACKAGES
        .iter()
        .any(|package| package.name == name && package.need == Need::Checks)
}

fn is_offered(name: &str) -> bool {
    tools::output(tools::command("apt-cache").args(["policy", name])).is_ok_and(|text| {
        text.lines()
            .any(|line| line.trim().starts_with("Candidate:") && !line.contains("(none)"))
    })
}

/// Installs those of these packages that are not there.
pub(crate) fn ensure_installed(packages: &[String]) -> Result<()> {
    let is_missing = |name: &&String| {
        let mut query = tools::command("dpkg-query");
        let status = tools::output(query.args(["-W", "-f", "${Status}", name]));
        !status.is_ok_and(|status| status.ends_with(" installed"))
    };
    let missing: Vec<String> = packages.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !tools::is_root() {
        bail!(
            "packages are missing; run this as root, then try again:\n  {}",
            command_line(&missing)
        );
    }
    install(&missing)
}

pub(crate) fn update() -> Result<()> {
    Step::new("update package lists", "apt-update")
        .hint("check the network and /etc/apt/sources.list")
        .run(apt_get().arg("update"))?;
    Ok(())
}

fn install(packages: &[String]) -> Result<()> {
    Step::new(
        format!("install {} packages", packages.len()),
        "apt-install",
    )
    .hint("run `dpkg --configure -a && apt-get -f install`, then try again")
    .run(
        apt_get()
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages),
    )?;
    Ok(())
}

fn apt_get() -> Command {
    let mut command = tools::command("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
