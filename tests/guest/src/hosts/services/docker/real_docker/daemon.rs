// SPDX-License-Identifier: GPL-2.0

//! Docker's daemon on one host. All hosts are on one kernel, so each has namespaces of its own, and folders.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::mount::{mount, MsFlags};
use nix::sched::{setns, unshare, CloneFlags};
use nix::unistd::sethostname;

use super::control_group::{self, Group};
use crate::machine::{command, threads};
use crate::network::netlink::Netlink;
use crate::network::netns;

/// The folder with all that the daemons write.
const FOLDER: &str = "/run/hosts";
/// Folders that daemons write to whatever they are told.
const OWN_FOLDERS: [&str; 2] = ["/run/docker", "/etc/docker"];
/// The beginning of the names that the network driver gives these namespaces.
const OVERLAY: &str = "1-";
/// The folder of what is there while the daemon runs.
const RUNTIME: &str = "exec";
/// The devices that Docker leaves behind.
const DEVICES: [&str; 2] = ["docker0", "docker_gwbridge"];
/// The time that the daemon may take to begin, and a command to end: emulated CPUs need a quarter of a minute on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// The CPUs of the daemons and of all that they start: those that have no part in the packets' way.
const CPUS: &str = "4-5";
/// The number of lines of a daemon's log that an error shows.
const LAST_LINES: usize = 20;

/// A host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: &'static str,
    /// Its network namespace, unless it is the first one.
    pub(super) namespace: Option<&'static str>,
    pub(super) address: Ipv4Addr,
}

/// A daemon, and all that it has started.
pub(super) struct Daemon {
    pub(super) node: Node,
    group: Group,
    process: Option<Child>,
}

impl Node {
    fn folder(self) -> PathBuf {
        PathBuf::from(FOLDER).join(self.name)
    }

    fn log(self) -> PathBuf {
        self.folder().join("log")
    }

    /// Returns the last lines of the daemon's log.
    pub(super) fn last_words(self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<_> = log.lines().collect();
        let first = lines.len().saturating_sub(LAST_LINES);
        format!(
            "the daemon of {} says:\n{}",
            self.name,
            lines[first..].join("\n")
        )
    }

    /// Starts the daemon in namespaces of its own. The calling thread stays in them.
    fn launch(self, containers: &str) -> Result<Child> {
        if let Some(namespace) = self.namespace {
            netns::enter(namespace)?;
        }
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)
            .context("cannot make namespaces")?;
        sethostname(self.name)?;
        let none = None::<&str>;
        // Names of network namespaces that come and go outside do so here.
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
        if self.namespace.is_some() {
            // Devices of the own namespace are in it.
            mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
            control_group::mount_top()?;
        }
        for folder in OWN_FOLDERS {
            mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), none)
                .with_context(|| format!("cannot mount a file system on {folder}"))?;
        }
        let log = File::create(self.log())?;
        let below = |name: &str| self.folder().join(name);
        let mut daemon = Command::new("taskset");
        daemon
            .args(["--cpu-list", CPUS, "dockerd"])
            .arg("--data-root")
            .arg(below("data"))
            .arg("--exec-root")
            .arg(below(RUNTIME))
            .arg("--pidfile")
            .arg(below("pid"))
            .args(["--host", &self.socket()])
            .args(["--cgroup-parent", containers])
            .args(["--exec-opt", "native.cgroupdriver=cgroupfs"])
            .args(["--storage-driver", "vfs"])
            // The guest's root is the kernel's first file system, which cannot be swapped for another.
            .env("DOCKER_RAMDISK", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        daemon.spawn().context("cannot run dockerd")
    }

    fn socket(self) -> String {
        format!("unix://{}", self.folder().join("socket").display())
    }
}

impl Daemon {
    /// Starts the daemon of a host, and waits until it answers.
    pub(super) fn start(node: Node) -> Result<Self> {
        fs::create_dir_all(node.folder())?;
        for folder in OWN_FOLDERS {
            fs::create_dir_all(folder)?;
        }
        let group = Group::make(node.name)?;
        let containers = group.of_containers();
        let launched =
            thread::scope(|scope| threads::result(scope.spawn(|| node.launch(&containers)).join()));
        let process = launched.with_context(|| format!("on the host {}", node.name))?;
        let number = process.id();
        let mut daemon = Self {
            node,
            group,
            process: Some(process),
        };
        daemon.group.take(number)?;
        daemon.wait_ready()?;
        Ok(daemon)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut must_run = || -> Result<()> {
            let ended = self.process.as_mut().map(Child::try_wait).transpose()?;
            ensure!(ended.flatten().is_none(), "dockerd has ended");
            Ok(())
        };
        let socket = self.node.folder().join("socket");
        let begun = threads::until_ok(PATIENCE, || {
            must_run()?;
            ensure!(socket.exists(), "dockerd does not listen");
            Ok(())
        });
        begun.with_context(|| self.node.last_words())?;
        self.docker("version").map(drop)
    }

    /// Runs a command of Docker's there, and returns what it prints.
    pub(super) fn docker(&self, line: &str) -> Result<String> {
        let (limit_s, socket) = (PATIENCE.as_secs(), self.node.socket());
        let said = command::run(&format!("timeout {limit_s} docker --host {socket} {line}"));
        let said = said.with_context(|| self.node.last_words())?;
        Ok(said.trim().to_owned())
    }

    /// Returns what Docker says of an object, in the form of a template.
    pub(super) fn inspect(&self, object: &str, template: &str) -> Result<String> {
        self.docker(&format!("inspect --format {template} {object}"))
    }

    /// Does this in the namespace of each overlay network there, which has the network's bridge and tunnel.
    pub(super) fn within_overlays(&self, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
        let process = self.process.as_ref().context("the daemon has ended")?;
        let (process, own) = (process.id(), self.node.folder());
        // In its own mount namespace.
        let folder = format!("/proc/{process}/root{}/{RUNTIME}/netns", own.display());
        let names = fs::read_dir(&folder).with_context(|| format!("cannot list {folder}"))?;
        let mut found = false;
        for entry in names {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(OVERLAY) {
                continue;
            }
            found = true;
            let namespace = File::open(entry.path())?;
            thread::scope(|scope| {
                let inside = scope.spawn(|| {
                    setns(namespace, CloneFlags::CLONE_NEWNET)?;
                    work()
                });
                threads::result(inside.join())
            })?;
        }
        ensure!(found, "{folder} has no overlay network");
        Ok(())
    }

    /// Ends the daemon and all that it has started, and removes all that it has left behind but its rules.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        self.group.end()?;
        process.wait()?;
        let devices = Netlink::open(self.node.namespace)?;
        for device in DEVICES {
            if devices.exists(device) {
                devices.delete(device)?;
            }
        }
        let folder = self.node.folder();
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!(
                "Docker's daemon on {} does not end: {error:#}",
                self.node.name
            );
        }
    }
}
