// SPDX-License-Identifier: GPL-2.0

//! Small helpers to find and ask other programs.

use std::env;
use std::fs::File;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{bail, Context as _, Result};

use crate::paths;
use crate::step;

/// Returns a command that finds our own tools first and speaks plain English.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("PATH", paths::search_path())
        .env("LC_ALL", "C.UTF-8");
    command
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    find_in(&paths::search_path(), program)
}

/// Returns where a program is in the folders of a search path.
pub(crate) fn find_in(path: &str, program: &str) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Returns what a short command prints; fails with its error output if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let line = step::shell_line(command);
    let output = command
        .output()
        .with_context(|| format!("cannot run: {line}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!(
            "command failed ({}): {line}\n{}",
            output.status,
            text.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the first version number (`1.2` or `1.2.3`) that `program --version` prints.
pub(crate) fn version(program: &str) -> Option<String> {
    let text = output(command(program).arg("--version")).ok()?;
    first_version(&text)
}

pub(crate) fn first_version(text: &str) -> Option<String> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .map(|word| word.trim_matches('.'))
        .find(|word| word.contains('.'))
        .map(str::to_owned)
}

/// Returns whether version `have` is `least` or newer.
pub fn at_least(have: &str, least: &str) -> bool {
    let numbers =
        |text: &str| -> Vec<u64> { text.split('.').map_while(|n| n.parse().ok()).collect() };
    numbers(have) >= numbers(least)
}

/// Returns the value that `make` returned when it first succeeded in this process.
pub(crate) fn once<T: Clone>(made: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<T> {
    if let Some(made) = made.get() {
        return Ok(made.clone());
    }
    let new = make()?;
    Ok(made.get_or_init(|| new).clone())
}

/// Keeps others, in this process and in others, from working in a folder of the cache until the file is dropped.
pub(crate) fn lock(folder: &Path, work: &str) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another {work} to end ({})", path.display());
        file.lock()?;
    }
    Ok(file)
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

/// Waits for a thread; if it has panicked, so does the caller.
pub(crate) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs `run` for all `items` at the same time, and returns the results in their order.
pub(crate) fn together<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let run = &run;
        let runs: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || run(item)))
            .collect();
        runs.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_folder_is_locked_until_the_file_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path(), "test").unwrap();
        let (entered, enters) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _second = lock(dir.path(), "test").unwrap();
                entered.send(()).unwrap();
            });
            assert!(enters.recv_timeout(Duration::from_millis(100)).is_err());
            drop(first);
            enters.recv().unwrap();
        });
    }

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let clang = "Debian clang version 19.1.7 (3~deb12u1)\nTarget: x86_64-pc-linux-gnu";
        let flex = "flex 2.6.4";
        let kmod = "kmod version 30";
        assert_eq!(first_version(clang).as_deref(), Some("19.1.7"));
        assert_eq!(first_version(flex).as_deref(), Some("2.6.4"));
        assert_eq!(first_version(kmod), None);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(at_least("1.95.0", "1.78.0"));
        assert!(at_least("1.100", "1.99.9"));
        assert!(!at_least("0.9.0", "0.65.1"));
    }
}
