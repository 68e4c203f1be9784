// SPDX-License-Identifier: GPL-2.0

//! The Rust tools that we need: components of the pinned toolchain, bindgen, Miri.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{bail, Context as _, Result};

use crate::paths;
use crate::step::Step;
use crate::tools;

/// The version of bindgen the kernel is built with.
pub(crate) const BINDGEN_VERSION: &str = "0.73.2";

/// The components that the kernel (`rust-src`) and `test tidy` need.
const COMPONENTS: &[&str] = &["rust-src", "rustfmt", "clippy"];

/// Returns the toolchain named in `rust-toolchain.toml`.
pub(crate) fn pinned_toolchain() -> Result<String> {
    let path = paths::project().join("rust-toolchain.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("channel")?.split('"').nth(1))
        .map(str::to_owned)
        .with_context(|| format!("{} has no line `channel = \"...\"`", path.display()))
}

/// Returns a command that uses the pinned toolchain wherever it runs.
pub fn command(program: &str) -> Result<Command> {
    let mut command = tools::command(program);
    command.env("RUSTUP_TOOLCHAIN", pinned_toolchain()?);
    Ok(command)
}

/// Returns the folder of the standard library's source, which the kernel compiles `core` from.
pub(crate) fn library_source() -> Result<PathBuf> {
    let sysroot = tools::output(command("rustc")?.args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust/library"))
}

pub(crate) fn missing_components() -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for component in COMPONENTS {
        let there = match *component {
            "rust-src" => library_source()?.join("core/src/lib.rs").exists(),
            "clippy" => runs("cargo-clippy")?,
            program => runs(program)?,
        };
        if !there {
            missing.push(*component);
        }
    }
    Ok(missing)
}

/// Tells whether a component's program runs: its rustup proxy is there even when the component is not.
fn runs(program: &str) -> Result<bool> {
    Ok(tools::output(command(program)?.arg("--version")).is_ok())
}

pub(crate) fn ensure_components() -> Result<()> {
    let missing = missing_components()?;
    if missing.is_empty() {
        return Ok(());
    }
    let toolchain = pinned_toolchain()?;
    if tools::find("rustup").is_none() {
        bail!(
            "the Rust components {} are missing and there is no rustup to install them: install rustup, or rustc {toolchain} with these parts",
            missing.join(", ")
        );
    }
    let run = |verb: &str, missing: &[&str]| {
        Step::new(
            format!("{verb} Rust components {}", missing.join(", ")),
            format!("rustup-component-{verb}"),
        )
        .hint("check the network; `rustup component list` shows what this toolchain offers")
        .run(
            tools::command("rustup")
                .args(["component", verb, "--toolchain", &toolchain])
                .args(missing),
        )
    };
    run("add", &missing)?;

    // rustup goes by its own list, so a component whose files are gone is up to date for it.
    let broken = missing_components()?;
    if broken.is_empty() {
        return Ok(());
    }
    run("remove", &broken)?;
    run("add", &broken)?;
    let missing = missing_components()?;
    if !missing.is_empty() {
        bail!(
            "the Rust components {} are missing and stay so after rustup has added them: reinstall the toolchain with `rustup toolchain uninstall {toolchain}` and `rustup toolchain install {toolchain}`",
            missing.join(", ")
        );
    }
    Ok(())
}

pub(crate) fn bindgen_is_there() -> bool {
    let path = paths::tools().join("bin/bindgen");
    path.exists() && tools::version(&path.to_string_lossy()).as_deref() == Some(BINDGEN_VERSION)
}

pub(crate) fn ensure_bindgen() -> Result<()> {
    if bindgen_is_there() {
        return Ok(());
    }
    Step::new("install bindgen", "cargo-install-bindgen")
        .hint("check the network, then run the command by hand")
        .run(
            command("cargo")?
                .args(["install", "--locked", "--force", "bindgen-cli"])
                .args(["--version", BINDGEN_VERSION, "--root"])
                .arg(paths::tools()),
        )?;
    Ok(())
}

/// Returns why Miri cannot run here; nothing if it can.
pub(crate) fn miri_problem() -> Option<String> {
    if tools::find("rustup").is_none() {
        return Some("there is no rustup, which brings the nightly toolchain".to_owned());
    }
    if nightly_has_miri() {
        return None;
    }
    let install = Step::new("install nightly Rust with Miri", "rustup-nightly")
        .hint("only `test miri` needs it")
        .run(
            tools::command("rustup")
                .args(["toolchain", "install", "nightly", "--profile", "minimal"])
                .args(["--component", "miri", "--component", "rust-src"]),
        );
    match install {
        Ok(_) if nightly_has_miri() => None,
        Ok(_) => Some("the nightly toolchain came without Miri".to_owned()),
        Err(error) => Some(format!(
            "the nightly toolchain with Miri cannot be installed: {}",
            error.to_string().lines().next().unwrap_or_default()
        )),
    }
}

pub(crate) fn nightly_has_miri() -> bool {
    let mut list = tools::command("rustup");
    list.args(["component", "list", "--toolchain", "nightly", "--installed"]);
    tools::output(&mut list).is_ok_and(|text| text.contains("miri") && text.contains("rust-src"))
}
