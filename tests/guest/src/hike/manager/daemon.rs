// SPDX-License-Identifier: GPL-2.0

//! `hiked` in a node, and `hike` as its client: the programs that users have, with points at which they can be killed.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{bail, ensure, Context as _, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use serde_json::Value;

use crate::hike::PINS;
use crate::machine::command::wait_until;
use crate::network::netns;

/// The pins, the socket and the file that one daemon after the other uses. Each finds the state that the one before it has left.
/// At the end of the scope, nothing is left.
pub(crate) struct Place {
    node: &'static str,
    pub(crate) pins: PathBuf,
    socket: PathBuf,
    file: PathBuf,
}

impl Place {
    pub(crate) fn new(node: &'static str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Nothing else depends on it.
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        Self {
            node,
            pins: Path::new(PINS).join(format!("manager{number}")),
            socket: format!("/run/hiked{number}.sock").into(),
            file: format!("/run/hike{number}.toml").into(),
        }
    }

    /// Makes a place with pins and a file of its own, whose socket is that of this one.
    pub(crate) fn beside(&self) -> Self {
        let mut other = Self::new(self.node);
        other.socket.clone_from(&self.socket);
        other
    }

    /// Returns where a daemon listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts a daemon, and waits until it listens.
    pub(crate) fn start(&self) -> Result<Daemon<'_>> {
        self.start_with("")
    }

    /// Starts a daemon with these fail points, and waits until it listens.
    pub(crate) fn start_with(&self, fail_points: &str) -> Result<Daemon<'_>> {
        self.start_as(&[], fail_points)
    }

    /// Starts a daemon with these options and fail points, and waits until it listens.
    pub(crate) fn start_as(&self, words: &[&str], fail_points: &str) -> Result<Daemon<'_>> {
        let child = self.daemon(words, fail_points)?;
        let mut daemon = Daemon { place: self, child };
        wait_until("hiked listens", || {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("hiked has ended with {status}");
            }
            Ok(UnixStream::connect(&self.socket).is_ok())
        })?;
        Ok(daemon)
    }

    /// Starts a daemon, which has to end by itself with an error, and returns what it says.
    pub(crate) fn start_refused(&self) -> Result<String> {
        let child = self.daemon_saying(&[], "", Stdio::piped())?;
        let mut daemon = Daemon { place: self, child };
        wait_until("hiked ends", || Ok(daemon.child.try_wait()?.is_some()))?;
        let mut said = String::new();
        let mut errors = daemon.child.stderr.take().context("no errors")?;
        errors.read_to_string(&mut said)?;
        ensure!(!daemon.child.wait()?.success(), "hiked has ended well");
        Ok(said.trim_end().to_owned())
    }

    fn daemon(&self, words: &[&str], fail_points: &str) -> Result<Child> {
        self.daemon_saying(words, fail_points, Stdio::inherit())
    }

    fn daemon_saying(&self, words: &[&str], fail_points: &str, to: Stdio) -> Result<Child> {
        netns::within(self.node, || {
            let mut command = Command::new("hiked");
            command.arg("--pins").arg(&self.pins);
            command.arg("--socket").arg(&self.socket);
            command.arg("--file").arg(&self.file);
            command.args(words).env("FAILPOINTS", fail_points);
            command.stderr(to);
            command.spawn().context("cannot run hiked")
        })
    }

    /// Writes the file that a daemon applies if it finds nothing in the kernel.
    pub(crate) fn write_file(&self, text: &str) -> Result<()> {
        Ok(fs::write(&self.file, text)?)
    }

    /// Runs `hike`, and returns its output, even if it fails.
    fn hike(&self, words: &str) -> Result<Output> {
        let mut command = Command::new("hike");
        command.arg("--socket").arg(&self.socket);
        command.args(words.split_whitespace());
        command.output().context("cannot run hike")
    }

    /// Starts `hike`, whose output and errors are read as it runs.
    pub(crate) fn start_hike(&self, words: &str) -> Result<Child> {
        let mut command = Command::new("hike");
        command.arg("--socket").arg(&self.socket);
        command.args(words.split_whitespace());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot run hike")
    }

    /// Returns the numbers of the generations that are pinned.
    pub(crate) fn generations(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.pins)? {
            let name = entry?.file_name();
            found.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        Ok(found)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The next case finds out if something is left.
        let _ended = self.daemon(&["--remove"], "").map(|mut child| child.wait());
        let _gone = fs::remove_dir(self.pins.join("links"));
        let _gone = fs::remove_dir(&self.pins);
        let _gone = fs::remove_file(&self.file);
    }
}

/// A daemon that runs; it is killed at the end of the scope.
pub(crate) struct Daemon<'a> {
    place: &'a Place,
    child: Child,
}

impl Daemon<'_> {
    /// Runs `hike --json`, which has to succeed, and returns what it prints.
    pub(crate) fn ask(&self, words: &str) -> Result<Value> {
        let output = self.place.hike(&format!("--json {words}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "hike {words}: {said}");
        serde_json::from_slice(&output.stdout).with_context(|| format!("hike {words}"))
    }

    /// Runs `hike`, which has to succeed, and returns what a person sees.
    pub(crate) fn show(&self, words: &str) -> Result<String> {
        let output = self.place.hike(words)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "hike {words}: {said}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs `hike`, which has to fail, and returns the one line that it says.
    pub(crate) fn refused(&self, words: &str) -> Result<String> {
        let output = self.place.hike(words)?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(2) && said.lines().count() == 1,
            "hike {words} has ended with {} and said: {said}",
            output.status
        );
        Ok(said.trim_end().to_owned())
    }

    /// Applies a configuration; returns the revision that it leads to.
    pub(crate) fn apply(&self, text: &str) -> Result<u64> {
        let answer = self.applied(text)?;
        answer["revision"].as_u64().context("no revision")
    }

    /// Applies a configuration; returns what is answered.
    pub(crate) fn applied(&self, text: &str) -> Result<Value> {
        let file = self.write(text)?;
        self.ask(&format!("apply {file}"))
    }

    /// Returns the one line with which a configuration is refused.
    pub(crate) fn apply_refused(&self, text: &str) -> Result<String> {
        let file = self.write(text)?;
        let said = self.refused(&format!("apply {file}"))?;
        Ok(said.replace(&file, "FILE"))
    }

    /// Fails unless the configuration is refused with exactly this line.
    pub(crate) fn refuses(&self, text: &str, expected: &str) -> Result<()> {
        let said = self.apply_refused(text)?;
        ensure!(said == expected, "it says `{said}`, and not `{expected}`");
        Ok(())
    }

    /// Returns the differences between the kernel's state and a configuration: kind, name, before and after of each object.
    pub(crate) fn diff(&self, text: &str) -> Result<Vec<[String; 4]>> {
        let file = self.write(text)?;
        let output = self.place.hike(&format!("--json diff {file}"))?;
        let answer: Value = serde_json::from_slice(&output.stdout).context("hike diff")?;
        let differences = answer["differences"].as_array().context("no list")?;
        let status = i32::from(!differences.is_empty());
        ensure!(output.status.code() == Some(status), "it ends otherwise");
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let each = differences.iter();
        let each = each.map(|one| ["kind", "name", "before", "after"].map(|of| word(&one[of])));
        Ok(each.collect())
    }

    fn write(&self, text: &str) -> Result<String> {
        let file = self.place.file.with_extension("new");
        fs::write(&file, text)?;
        Ok(file.display().to_string())
    }

    /// Returns the number of packets that were counted for a reason.
    pub(crate) fn counted(&self, reason: &str) -> Result<u64> {
        let counters = self.ask("counters --all")?;
        let mut counters = counters.as_array().into_iter().flatten();
        let counter = counters.find(|one| one["reason"] == reason);
        let packets = counter.and_then(|one| one["packets"].as_u64());
        packets.with_context(|| format!("hike counts no {reason}"))
    }

    /// Starts another daemon at the same place, waits until it ends, and returns whether it ends with an error.
    pub(crate) fn place_is_taken(&self) -> Result<bool> {
        let mut other = self.place.daemon(&[], "")?;
        wait_until("a second hiked ends", || Ok(other.try_wait()?.is_some()))?;
        Ok(!other.wait()?.success())
    }

    /// Asks the daemon to end, and waits until it has ended without an error.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "hiked has ended with {status}");
        Ok(())
    }

    /// Kills the daemon.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the daemon has killed itself.
    pub(crate) fn killed(mut self) -> Result<()> {
        let mut status = None;
        wait_until("hiked is killed", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        let signal = status.and_then(|status| status.signal());
        ensure!(
            signal == Some(Signal::SIGKILL as i32),
            "hiked has ended with {status:?}"
        );
        Ok(())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // CAST: numbers of processes are small.
        kill(Pid::from_raw(self.child.id() as i32), signal)?;
        Ok(())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _already_ended = self.child.wait();
    }
}
