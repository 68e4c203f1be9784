// SPDX-License-Identifier: GPL-2.0

//! The scripts on nodes do what they are for, with commands that note what they are asked, and folders that stand for those of a host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::support::path;

/// The longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node: folders, and a script that runs with these.
struct Node {
    folder: TempDir,
    child: Option<Child>,
}

impl Node {
    /// Makes a node whose command of this name does what the text says, after it has noted its words.
    fn new(program: &str, does: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Self {
            folder,
            child: None,
        };
        for name in [
            "bin",
            "run/mflow/devices",
            "sys/module",
            "sys/class/net",
            "metrics",
        ] {
            fs::create_dir_all(node.at(name)).expect("a folder");
        }
        let command = node.at(&format!("bin/{program}"));
        let notes = node.at("notes");
        let text = format!("#!/bin/sh\necho \"$@\" >> {}\n{does}\n", notes.display());
        fs::write(&command, text).expect("written");
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).expect("allowed");
        node.write("notes", "");
        node
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn start(&mut self, script: &str, metrics: &str) {
        let search = format!(
            "{}:{}",
            self.at("bin").display(),
            std::env::var("PATH").expect("a search path")
        );
        let child = Command::new("sh")
            .arg(path("image/node").join(script))
            .arg("/etc/conf")
            .arg(self.at("metrics").join(metrics))
            .env("PATH", search)
            .env("RUN", self.at("run"))
            .env("SYS", self.at("sys"))
            .env("PERIOD_S", "0.05")
            .env("PATIENCE_S", "2")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("started"));
    }

    /// Returns the words that the command was asked, but for metrics.
    fn asked(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.at("notes")).expect("notes");
        let asked = notes.lines().filter(|line| !line.starts_with("metrics"));
        asked.map(str::to_owned).collect()
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}: {:?}", self.asked());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the number of times that metrics were asked for.
    fn rounds(&self) -> usize {
        let notes = fs::read_to_string(self.at("notes")).expect("notes");
        notes
            .lines()
            .filter(|line| line.starts_with("metrics"))
            .count()
    }

    /// Waits until all that was begun is done, and a round more.
    fn wait_for_rounds(&self) {
        let before = self.rounds();
        self.wait("rounds", |node| node.rounds() >= before + 3);
    }

    /// Waits until the script has ended, and returns its status.
    fn ended(&mut self) -> Option<i32> {
        let begin = Instant::now();
        let child = self.child.as_mut().expect("started");
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                self.child = None;
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ready(&self) -> bool {
        self.at("run/ready").exists()
    }

    /// Loads a module, which is another one than that before.
    fn load(&self) {
        let folder = self.at("sys/module/mflow");
        let other = self.at("sys/module/kept");
        if folder.exists() {
            // Its number is taken while the folder is there.
            fs::rename(&folder, &other).expect("renamed");
        }
        fs::create_dir(&folder).expect("made");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }
}

#[test]
fn a_node_applies_its_file_when_the_module_comes_and_when_it_comes_again() {
    let mut node = Node::new("mflow", "");
    node.write("run/ready", "of a pod before");
    node.start("mflow-node.sh", "mflow.prom");
    node.wait("metrics without the module", |node| node.rounds() > 0);
    assert!(!node.is_ready());
    assert!(node.asked().is_empty());
    node.load();
    node.wait("the file is applied", Node::is_ready);
    node.wait_for_rounds();
    assert_eq!(node.asked(), ["apply /etc/conf"]);
    node.load();
    node.wait("the file is applied again", |node| node.asked().len() == 2);
    fs::rename(node.at("sys/module/mflow"), node.at("sys/module/gone")).expect("renamed");
    node.wait("it is not ready without the module", |node| {
        !node.is_ready()
    });
    assert_eq!(node.asked(), ["apply /etc/conf", "apply /etc/conf"]);
}

#[test]
fn devices_of_the_file_that_come_later_are_opted_in_once() {
    // It is refused at first, as while a change is not confirmed.
    let does =
        "[ $1 != set ] || { [ -e \"$RUN/../allowed\" ] && echo taken $3 >> \"$RUN/../notes\"; }";
    let mut node = Node::new("mflow", does);
    node.write("run/mflow/devices/eth0", "");
    node.write("run/mflow/devices/eth1", "");
    node.write("sys/class/net/eth0/ifindex", "2\n");
    node.write("sys/class/net/other/ifindex", "3\n");
    node.load();
    node.start("mflow-node.sh", "mflow.prom");
    node.wait("the file is applied", Node::is_ready);
    node.write("sys/class/net/eth1/ifindex", "4\n");
    node.wait("it is tried again", |node| {
        let refused = node
            .asked()
            .iter()
            .filter(|one| *one == "set devices +eth1")
            .count();
        refused >= 2
    });
    node.write("allowed", "");
    let taken = |node: &Node, device: &str| {
        let asked = node.asked().into_iter();
        asked
            .filter(|one| *one == format!("taken +{device}"))
            .count()
    };
    node.wait("it is opted in", |node| taken(node, "eth1") > 0);
    node.wait_for_rounds();
    assert_eq!((taken(&node, "eth0"), taken(&node, "eth1")), (0, 1));
    // The same name, and another device.
    node.write("sys/class/net/eth0/ifindex", "9\n");
    node.wait("the other one is opted in", |node| taken(node, "eth0") > 0);
    assert!(!node.asked().iter().any(|one| one.contains("other")));
}

#[test]
fn what_was_not_confirmed_goes_back_with_the_next_pod() {
    let mut node = Node::new("mflow", "");
    let record = "{\"name\":\"17-a0\",\"load\":5,\"old\":[[\"enabled\",\"0\"]]}";
    node.write("run/mflow/unconfirmed.json", record);
    node.load();
    node.start("mflow-node.sh", "mflow.prom");
    node.wait("the file is applied", Node::is_ready);
    assert_eq!(node.asked(), ["go-back 17-a0", "apply /etc/conf"]);
}

#[test]
fn a_file_that_is_refused_ends_the_pod_and_a_module_that_goes_does_not() {
    let mut node = Node::new("mflow", "[ $1 != apply ] || exit 2");
    node.load();
    node.start("mflow-node.sh", "mflow.prom");
    assert_eq!(node.ended(), Some(2));
    assert!(!node.is_ready());
    let mut node = Node::new("mflow", "[ $1 != apply ] || exit 3");
    node.load();
    node.start("mflow-node.sh", "mflow.prom");
    node.wait("it tries again", |node| node.asked().len() > 2);
    assert!(!node.is_ready());
}

#[test]
fn hike_waits_for_its_daemon_and_writes_metrics_as_a_whole() {
    let does = "case $1 in\nstatus) [ -e \"$RUN/daemon\" ] ;;\nmetrics) echo hike_revision 1; [ ! -e \"$RUN/broken\" ] ;;\nesac";
    let mut node = Node::new("hike", does);
    node.write("run/ready", "of a pod before");
    node.start("hike-node.sh", "hike.prom");
    node.wait("it asks", |node| !node.asked().is_empty());
    assert!(!node.is_ready());
    node.write("run/daemon", "");
    let metrics = node.at("metrics/hike.prom");
    node.wait("there are metrics", |_| metrics.exists());
    assert!(node.is_ready());
    assert!(node.asked().contains(&"apply /etc/conf".to_owned()));
    assert_eq!(
        fs::read_to_string(&metrics).expect("there"),
        "hike_revision 1\n"
    );
    // The output of a command that fails is no file of metrics.
    node.write("run/broken", "");
    node.wait_for_rounds();
    fs::remove_file(&metrics).expect("there");
    node.wait_for_rounds();
    assert!(!metrics.exists());
}

#[test]
fn hike_ends_if_its_daemon_does_not_come_or_refuses_the_file() {
    let mut node = Node::new("hike", "exit 2");
    node.start("hike-node.sh", "hike.prom");
    assert_eq!(node.ended(), Some(1));
    let mut node = Node::new("hike", "[ $1 != apply ] || exit 2");
    node.start("hike-node.sh", "hike.prom");
    assert_eq!(node.ended(), Some(2));
    assert!(!node.is_ready());
}
