// SPDX-License-Identifier: GPL-2.0

//! The state of a host that must be as it was, once a sequence is over.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::step::Effect;
use crate::machine::{proc_net, threads};
use crate::mflow::{self, Stats};
use crate::network::topology::CLIENT;
use crate::traffic::scale::MOST_JOINED_PKTS;
use crate::traffic::tcp_counters::{noise, Counters};

/// The time that sockets and namespaces may take to go.
const END: Duration = Duration::from_secs(30);
/// The number of times in a row that all must be the same.
const SETTLED_LOOKS: usize = 20;
const LOOK: Duration = Duration::from_millis(50);

/// The counters of TCP, over both ends, that grow when segments come out of order or are dropped.
const NOT_NOTICED: [&str; 4] = [
    "TCPOFOQueue",
    "TCPBacklogDrop",
    "TCPRcvQDrop",
    "InCsumErrors",
];

/// The namespaces, sockets and devices of a host without the overlay and the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest(BTreeMap<String, String>);

impl Rest {
    /// Reads it when nothing changes any more: what was used last is freed after a grace period.
    pub(super) fn settled() -> Result<Self> {
        let (mut rest, mut same) = (Self::read()?, 0);
        while same < SETTLED_LOOKS {
            thread::sleep(LOOK);
            let now = Self::read()?;
            same = if now == rest { same + 1 } else { 0 };
            rest = now;
        }
        Ok(rest)
    }

    fn read() -> Result<Self> {
        let mut found = BTreeMap::new();
        found.insert("namespaces".to_owned(), names("/run/netns")?);
        found.insert("devices".to_owned(), names("/sys/class/net")?);
        for namespace in [None, Some(CLIENT)] {
            let place = namespace.unwrap_or("the first namespace");
            for file in ["sockstat", "sockstat6"] {
                for line in proc_net::read(namespace, file)?.lines() {
                    let (protocol, counts) = line.split_once(':').context(file)?;
                    found.insert(format!("{protocol} sockets in {place}"), counted(counts));
                }
            }
            let devices = proc_net::read(namespace, "dev")?;
            let devices = devices.lines().filter_map(|line| line.split_once(':'));
            let devices: Vec<&str> = devices.map(|(name, _)| name.trim()).collect();
            found.insert(format!("devices in {place}"), devices.join(" "));
        }
        Ok(Self(found))
    }

    /// Fails unless all is again as it is here.
    pub(super) fn require_again(&self) -> Result<()> {
        threads::until_ok(END, || {
            let now = Self::read()?;
            let changed = self
                .0
                .iter()
                .filter(|&(what, was)| now.0.get(what) != Some(was));
            let changed: Vec<String> = changed
                .map(|(what, was)| format!("{what}: {:?}, and were {was:?}", now.0.get(what)))
                .collect();
            ensure!(changed.is_empty(), "left behind: {}", changed.join("; "));
            Ok(())
        })
    }
}

/// Leaves out what the kernel keeps for a while: memory in caches, and connections that have ended.
fn counted(counts: &str) -> String {
    let words: Vec<&str> = counts.split_whitespace().collect();
    let pairs = words
        .chunks(2)
        .filter(|pair| !["mem", "tw"].contains(&pair[0]));
    pairs
        .map(|pair| pair.join(" "))
        .collect::<Vec<_>>()
        .join(" ")
}

fn names(folder: &str) -> Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).context(folder.to_owned())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join(" "))
}

/// Fails unless each packet that was split was delivered, late or dropped for a reason; if `all`, no packet had a chance to
/// get lost on the way.
pub(super) fn require_accounted(effect: Effect, all: bool) -> Result<()> {
    let stats = Stats::read()?;
    if effect.resets_counters || effect.holds {
        // What was on the way then was counted before or afterwards, or split by a module that has gone.
        return Ok(());
    }
    let sum = |names: &[&str]| -> Result<u64> { names.iter().map(|name| stats.get(name)).sum() };
    let split = sum(&["lane_pkts", "inline_pkts"])?;
    // Each split begins with a fence, which goes along the ordinary path.
    let fences = stats.get("flows_split")?;
    let ended = sum(&[
        "merged_pkts",
        "late_pkts",
        "unknown_tags",
        "dropped_dead_socket",
    ])?;
    ensure!(
        ended <= split + fences * MOST_JOINED_PKTS,
        "{split} packets were split behind {fences} fences, and {ended} came to their end"
    );
    ensure!(
        !all || ended == split + fences,
        "{split} packets were split behind {fences} fences, and {ended} came to their end, with nothing to drop any"
    );
    Ok(())
}

/// Fails if TCP saw a segment out of order, or dropped one, where no step allows that.
///
/// Segments that TCP sends again because an emulated CPU was away are in order.
pub(super) fn require_quiet_tcp(effect: Effect, before: &Counters) -> Result<()> {
    if effect.loses || effect.gives_up || effect.reorders_pkts > 0 || effect.tracks {
        return Ok(());
    }
    let added = Counters::read()?.since(before);
    for name in NOT_NOTICED {
        let count = noise(&added, name);
        ensure!(
            count == 0,
            "{name} grew by {count}, and no step allows that"
        );
    }
    Ok(())
}

/// Unloads the module, which nothing may refer to any more.
pub(super) fn require_unloads() -> Result<()> {
    mflow::unload().context("something still refers to the module")
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_the_kernel_keeps_is_left_out() {
        let line = " inuse 3 orphan 0 tw 7 alloc 4 mem 2";
        assert_eq!(super::counted(line), "inuse 3 orphan 0 alloc 4");
    }
}
