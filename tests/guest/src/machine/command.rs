// SPDX-License-Identifier: GPL-2.0

//! Programs of the distribution, run with an error that says all.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

pub(crate) const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// Returns whether the kernel's command line has this word.
pub(crate) fn was_booted_with(word: &str) -> Result<bool> {
    let words = fs::read_to_string("/proc/cmdline").context("/proc/cmdline")?;
    Ok(words.split_whitespace().any(|one| one == word))
}

/// Runs a command line (split at white space, no quoting) and returns its standard output.
pub(crate) fn run(line: &str) -> Result<String> {
    let output = prepare(line)?
        .output()
        .with_context(|| format!("cannot run: {line}"))?;
    finish(line, output)
}

/// Runs a command line with `input` on its standard input and returns its standard output.
pub(crate) fn run_with_input(line: &str, input: &str) -> Result<String> {
    let mut child = spawn(line, Stdio::piped(), Stdio::piped)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    finish(
        &format!("{line} <<END\n{}\nEND", input.trim()),
        child.wait_with_output()?,
    )
}

pub(crate) fn start(line: &str) -> Result<Child> {
    spawn(line, Stdio::null(), Stdio::null)
}

/// A program of the distribution that runs on one CPU until the end of the scope.
pub(crate) struct Program(Child);

impl Program {
    /// Starts it, in a namespace or in the caller's.
    pub(crate) fn start(namespace: Option<&str>, cpu: usize, line: &str) -> Result<Self> {
        start(&placed(namespace, cpu, line)).map(Self)
    }

    /// Starts it, and keeps what it prints for [`Program::finish`].
    pub(crate) fn start_heard(namespace: Option<&str>, cpu: usize, line: &str) -> Result<Self> {
        spawn(&placed(namespace, cpu, line), Stdio::null(), Stdio::piped).map(Self)
    }

    /// Fails with what it has printed if it has ended.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            let said = self.rest()?;
            bail!("a program has ended too early ({status}): {said}");
        }
        Ok(())
    }

    /// Waits until it ends well by itself, and returns what it has printed.
    pub(crate) fn finish(mut self) -> Result<String> {
        let said = self.rest()?;
        let status = self.0.wait()?;
        ensure!(status.success(), "a program ended with {status}: {said}");
        Ok(said)
    }

    /// Returns all that it prints, errors last.
    fn rest(&mut self) -> Result<String> {
        // Programs of few words: neither pipe fills up while the other is read.
        let mut said = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut said)?;
        }
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        Ok(said)
    }

    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _already_ended = self.0.kill();
        let _already_ended = self.0.wait();
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !condition()? {
        ensure!(
            begin.elapsed() < START,
            "waited {} s in vain until {what}",
            START.as_secs()
        );
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns the command line that runs another on one CPU, in a namespace or in the caller's.
fn placed(namespace: Option<&str>, cpu: usize, line: &str) -> String {
    within(namespace, &format!("taskset -c {cpu} {line}"))
}

/// Returns a command line that runs another one in the namespace of this name; in the first one if there is no name.
pub(crate) fn within<'a>(namespace: impl Into<Option<&'a str>>, line: &str) -> String {
    match namespace.into() {
        Some(name) => format!("ip netns exec {name} {line}"),
        None => line.to_owned(),
    }
}

fn spawn(line: &str, input: Stdio, said: fn() -> Stdio) -> Result<Child> {
    prepare(line)?
        .stdin(input)
        .stdout(said())
        .stderr(said())
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
