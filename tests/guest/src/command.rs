// SPDX-License-Identifier: GPL-2.0

//! Programs of the distribution, run with an error that says all.

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{bail, Context as _, Result};

/// Runs a command line (split at white space, no quoting) and returns its standard output.
pub(crate) fn run(line: &str) -> Result<String> {
    let output = prepare(line)?
        .output()
        .with_context(|| format!("cannot run: {line}"))?;
    finish(line, output)
}

/// Runs a command line with `input` on its standard input and returns its standard output.
pub(crate) fn run_with_input(line: &str, input: &str) -> Result<String> {
    let mut child = prepare(line)?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run: {line}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    finish(
        &format!("{line} <<END\n{}\nEND", input.trim()),
        child.wait_with_output()?,
    )
}

/// Starts a command line whose output nobody needs.
pub(crate) fn start(line: &str) -> Result<Child> {
    prepare(line)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run: {line}"))
}

fn prepare(line: &str) -> Result<Command> {
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else {
        bail!("empty command line");
    };
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

fn finish(line: &str, output: Output) -> Result<String> {
    if !output.status.success() {
        bail!(
            "command failed ({}): {line}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
