// SPDX-License-Identifier: GPL-2.0

//! Network namespaces by name, as `ip netns` keeps them.

use std::fs::File;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result};
use nix::sched::{setns, CloneFlags};

use crate::{command, threads};

/// Moves the calling thread (and no other) into a namespace for good.
pub(crate) fn enter(name: &str) -> Result<()> {
    let path = format!("/run/netns/{name}");
    let handle = File::open(&path).with_context(|| format!("no network namespace {path}"))?;
    setns(handle, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("cannot enter the network namespace {name}"))
}

pub(crate) fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}

pub(crate) fn add(name: &str) -> Result<()> {
    if !exists(name) {
        command::run(&format!("ip netns add {name}"))?;
    }
    Ok(())
}

pub(crate) fn run(name: &str, line: &str) -> Result<String> {
    command::run(&format!("ip netns exec {name} {line}"))
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
