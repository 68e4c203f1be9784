// SPDX-License-Identifier: GPL-2.0

//! The control group of a host: all that Docker has started there, containers too, is in it, and ends with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::mount::{mount, MsFlags};

use crate::machine::threads;

/// The place of control groups of version 2.
const TOP: &str = "/sys/fs/cgroup";
/// The part of a group that has the daemon. The kernel puts limits on the other parts, so no process may be beside them.
const DAEMON: &str = "daemon";
/// The time that processes which were killed may take to end.
const END: Duration = Duration::from_secs(30);

/// A control group, by the name of its host.
pub(super) struct Group(PathBuf);

impl Group {
    /// Makes a group.
    pub(super) fn make(name: &str) -> Result<Self> {
        let group = Self(Path::new(TOP).join(format!("docker-{name}")));
        fs::create_dir_all(group.0.join(DAEMON))
            .with_context(|| format!("cannot make {}", group.0.display()))?;
        Ok(group)
    }

    /// Takes the daemon and all that it is going to start.
    pub(super) fn take(&self, daemon: u32) -> Result<()> {
        let path = self.0.join(DAEMON).join("cgroup.procs");
        fs::write(&path, daemon.to_string())
            .with_context(|| format!("cannot write {daemon} to {}", path.display()))
    }

    /// Returns the group in which containers are to be, as Docker calls it.
    pub(super) fn of_containers(&self) -> String {
        let below = self.0.strip_prefix(TOP).unwrap_or(&self.0);
        format!("/{}/containers", below.display())
    }

    /// Kills all processes, waits for their end, and removes the group.
    pub(super) fn end(&self) -> Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        fs::write(self.0.join("cgroup.kill"), "1").context("cannot kill a control group")?;
        threads::until_ok(END, || {
            let events = fs::read_to_string(self.0.join("cgroup.events"))?;
            ensure!(
                events.lines().any(|line| line == "populated 0"),
                "processes of {} have not ended",
                self.0.display()
            );
            Ok(())
        })?;
        remove(&self.0)
    }
}

/// Mounts all groups where the caller's mount namespace has none.
pub(super) fn mount_top() -> Result<()> {
    if Path::new(TOP).join("cgroup.procs").exists() {
        return Ok(());
    }
    let kind = Some("cgroup2");
    mount(kind, TOP, kind, MsFlags::empty(), None::<&str>)
        .with_context(|| format!("cannot mount control groups on {TOP}"))
}

/// Removes a group and those in it.
fn remove(group: &Path) -> Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))
}
