// SPDX-License-Identifier: GPL-2.0

//! `bench` and `sim`: commands of the laboratory, a crate of its own, so that nothing else waits for its compilation.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::paths;
use crate::setup::rust;

/// The arguments that follow `bench` or `sim` on the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Options of the command; --help lists them
    #[arg(
        value_name = "OPTIONS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Becomes the laboratory's program, built first if it has to be; returns only if cargo cannot be run.
pub(crate) fn run(command: &str, options: Arguments) -> Result<ExitCode> {
    let error = rust::command("cargo")?
        .args(["run", "--quiet", "--locked", "--release"])
        .args(["--package", "mflow-lab"])
        .arg("--manifest-path")
        .arg(paths::project().join("Cargo.toml"))
        .args(["--", command])
        .args(options.arguments)
        .exec();
    Err(error).context("cannot run cargo")
}
