// SPDX-License-Identifier: GPL-2.0

//! Network namespaces by name, as `ip netns` keeps them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};

use crate::machine::{command, threads};

fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

pub(crate) fn open(name: &str) -> Result<File> {
    let path = path(name);
    File::open(&path).with_context(|| format!("no network namespace {}", path.display()))
}

/// Moves the calling thread (and no other) into a namespace for good.
pub(crate) fn enter(name: &str) -> Result<()> {
    setns(open(name)?, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("cannot enter the network namespace {name}"))
}

pub(crate) fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Makes a namespace, unless it is there.
pub(crate) fn add(name: &str) -> Result<()> {
    if exists(name) {
        return Ok(());
    }
    if !Path::new("/run/netns").exists() {
        // It makes the folder a mount that others are told of, so that what was started in a namespace keeps none of them.
        return command::run(&format!("ip netns add {name}")).map(drop);
    }
    File::create_new(path(name))?;
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let (own, none) = ("/proc/thread-self/ns/net", None::<&str>);
        mount(Some(own), &path(name), none, MsFlags::MS_BIND, none)
    };
    let made = thread::scope(|scope| threads::result(scope.spawn(|| Ok(make()?)).join()));
    made.with_context(|| format!("cannot make the network namespace {name}"))
}

/// Gives the namespace of a process a name.
pub(crate) fn name(process: u32, name: &str) -> Result<()> {
    File::create_new(path(name))?;
    let (own, none) = (format!("/proc/{process}/ns/net"), None::<&str>);
    mount(
        Some(own.as_str()),
        &path(name),
        none,
        MsFlags::MS_BIND,
        none,
    )
    .with_context(|| format!("cannot call the network namespace of process {process} {name}"))
}

/// Takes a namespace's name away; it goes with the last that uses it.
pub(crate) fn delete(name: &str) -> Result<()> {
    let path = path(name);
    umount2(&path, MntFlags::MNT_DETACH)?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Runs a command in the namespace of this name; in the first one if there is no name.
pub(crate) fn run<'a>(namespace: impl Into<Option<&'a str>>, line: &str) -> Result<String> {
    command::run(&command::within(namespace, line))
}

/// Returns what `work` returns when it runs inside a namespace.
pub(crate) fn within<T: Send>(name: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            enter(name)?;
            work()
        });
        threads::result(inside.join())
    })
}
