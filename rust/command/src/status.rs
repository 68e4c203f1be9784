// SPDX-License-Identifier: GPL-2.0

//! The state of the module, on one screen.

use std::collections::BTreeMap;
use std::path::Path;

use mflow_algo::algo::knobs::Knob;
use rustix::system::uname;
use schemars::JsonSchema;
use serde::Serialize;

use crate::module::text::{FlowList, Stats, Version, Way, Why};
use crate::module::{self, Module, Unreachable};
use crate::output::{count, facts};

/// Packets that did not arrive.
const DROPPED: &[&str] = &["dropped_dead_socket", "dropped_stage_full"];
/// Batches that were not waited for any longer.
const GIVEN_UP: &[&str] = &["deadline_batches", "overflow_batches"];

/// The state of the module. Null stands for what can't be known now.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// True if the module is loaded.
    pub loaded: bool,
    /// The running kernel's release.
    pub kernel: String,
    /// The sentence that says why something is not known, and what to do then.
    pub note: Option<String>,
    /// The module's version, and its way into the kernel's stack.
    pub version: Option<Version>,
    /// True if flows are split.
    pub enabled: Option<bool>,
    /// The knob `mode`.
    pub mode: Option<String>,
    /// The opted-in devices.
    pub devices: Option<Vec<String>>,
    /// The knob `cpus`, which may be `auto`.
    pub cpus: Option<String>,
    /// The CPUs that are lanes now, as a list such as `2-5`.
    pub lanes: Option<String>,
    /// The fast flows.
    pub flows: Option<Flows>,
    /// The packets since the module was loaded, or since `reset`.
    pub packets: Option<Packets>,
}

/// The number of fast flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Flows {
    /// The reason why no flow at all is split; null if some can be.
    pub none_split: Option<Why>,
    /// Flows whose packets go into batches.
    pub split: u64,
    /// Flows that are on the way to that, or back.
    pub changing: u64,
    /// Flows that stay on the ordinary path, by the reason.
    pub whole: BTreeMap<String, u64>,
    /// Flows for which there was no room in the list.
    pub left_out: u64,
}

/// Counts of packets and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Packets {
    /// Packets delivered in their turn.
    pub merged_pkts: u64,
    /// Packets delivered after their turn.
    pub late_pkts: u64,
    /// Batches that were not waited for any longer.
    pub given_up_batches: u64,
    /// Packets that the module dropped.
    pub dropped_pkts: u64,
    /// Packets that wait for their turn now.
    pub parked_pkts: u64,
}

/// All that the module says when it is asked once.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The number by which a module is told from one that is loaded later; nothing if none was there all the time.
    pub load: Option<u64>,
    /// The state.
    pub status: Status,
    /// The fast flows, if they are known.
    pub flows: Option<FlowList>,
    /// The counters and gauges, if they are known.
    pub stats: Option<Stats>,
}

impl Reading {
    /// Asks the module below `root`, or says why it can't be asked.
    pub fn take(root: &Path) -> Self {
        let load = module::load(root);
        let mut status = Status::unknown();
        let (flows, stats) = match module::open(root) {
            Ok(module) => status.ask(&*module),
            Err(error) => {
                status.note_error(&error);
                (None, None)
            }
        };
        Self {
            load: load.filter(|_| load == module::load(root)),
            status,
            flows,
            stats,
        }
    }
}

impl Status {
    /// Asks the module below `root`, or says why it can't be asked.
    pub fn read(root: &Path) -> Self {
        Reading::take(root).status
    }

    fn unknown() -> Self {
        Self {
            loaded: true,
            kernel: uname().release().to_string_lossy().into_owned(),
            note: None,
            version: None,
            enabled: None,
            mode: None,
            devices: None,
            cpus: None,
            lanes: None,
            flows: None,
            packets: None,
        }
    }

    fn ask(&mut self, module: &dyn Module) -> (Option<FlowList>, Option<Stats>) {
        self.version = self.known(module.version());
        let enabled = self.known(module.knob(Knob::Enabled));
        self.mode = self.known(module.knob(Knob::Mode));
        self.devices = self.known(module.devices());
        self.cpus = self.known(module.knob(Knob::Cpus));
        self.lanes = self.known(module.lanes());
        let flows = self.known(module.flows());
        // Where knobs can't be read, the list of flows tells, too.
        self.enabled = match (enabled, &flows) {
            (Some(value), _) => Some(value == "1"),
            (None, Some(list)) => {
                let why = list.none_split.as_ref();
                Some(why.is_none_or(|why| why.reason != "not_enabled"))
            }
            (None, None) => None,
        };
        self.flows = flows.as_ref().map(Flows::of);
        let stats = self.known(module.stats());
        self.packets = stats.as_ref().map(Packets::of);
        (flows, stats)
    }

    /// Returns what is known, and notes why it is not.
    fn known<T>(&mut self, answer: Result<T, Unreachable>) -> Option<T> {
        answer.map_err(|error| self.note_error(&error)).ok()
    }

    fn note_error(&mut self, error: &Unreachable) {
        self.loaded &= !error.is_not_loaded();
        // The first one says enough.
        self.note.get_or_insert_with(|| error.to_string());
    }

    /// Returns the lines for people.
    pub fn to_text(&self) -> String {
        if !self.loaded {
            return self.note.clone().unwrap_or_default();
        }
        let mut rows = vec![("module", self.module())];
        if let Some(without) = self.version.as_ref().and_then(|one| one.without.as_ref()) {
            rows.push(("without", without.clone()));
        }
        rows.push(("splitting", self.splitting()));
        rows.push(("devices", self.device_words()));
        rows.push(("lanes", self.lane_words()));
        if let Some(flows) = &self.flows {
            rows.push(("flows", flows.to_string()));
        }
        if let Some(packets) = &self.packets {
            let Packets {
                merged_pkts,
                late_pkts,
                given_up_batches,
                dropped_pkts,
                parked_pkts,
            } = *packets;
            let waiting = count(parked_pkts, "packet");
            rows.push((
                "delivered",
                format!(
                    "{} in turn, {waiting} wait now",
                    count(merged_pkts, "packet")
                ),
            ));
            let given_up = count(given_up_batches, "batch");
            rows.push((
                "late",
                format!("{}, {given_up} given up", count(late_pkts, "packet")),
            ));
            rows.push(("dropped", count(dropped_pkts, "packet")));
        }
        if let Some(note) = &self.note {
            rows.push(("note", note.clone()));
        }
        facts(rows)
    }

    /// Returns the words for the module and the kernel.
    pub fn module(&self) -> String {
        let kernel = &self.kernel;
        match &self.version {
            Some(Version { version, way, .. }) => {
                let way = match way {
                    Way::Patched => "patched, through our hooks",
                    Way::Stock => "stock, without our hooks",
                };
                format!("loaded, version {version} ({way}), kernel {kernel}")
            }
            None => format!("loaded, kernel {kernel}"),
        }
    }

    /// Returns the words for whether flows are split.
    pub fn splitting(&self) -> String {
        match (self.enabled, &self.mode) {
            (None, _) => "unknown".to_owned(),
            (Some(false), _) => "off (mflow set enabled 1)".to_owned(),
            (Some(true), None) => "on".to_owned(),
            (Some(true), Some(mode)) => format!("on, mode {mode}"),
        }
    }

    /// Returns the words for the opted-in devices.
    pub fn device_words(&self) -> String {
        let words = self.devices.as_ref().map(|names| list(names));
        words.unwrap_or_else(|| "unknown".to_owned())
    }

    /// Returns the words for the lanes.
    pub fn lane_words(&self) -> String {
        let lanes = match self.lanes.as_deref() {
            None => return "unknown".to_owned(),
            Some("") => "none",
            Some(lanes) => lanes,
        };
        match self.cpus.as_deref() {
            Some("auto") => format!("{lanes} (chosen by the module: cpus is auto)"),
            _ => lanes.to_owned(),
        }
    }
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none (mflow set devices +NIC)".to_owned(),
        _ => names.join(", "),
    }
}

impl Flows {
    /// Counts the flows of a list.
    pub fn of(list: &FlowList) -> Self {
        let mut flows = Self {
            none_split: list.none_split.clone(),
            split: 0,
            changing: u64::from(list.changing),
            whole: BTreeMap::new(),
            left_out: u64::from(list.left_out),
        };
        for flow in &list.flows {
            match (flow.state.as_str(), flow.reason()) {
                ("split", _) => flows.split += 1,
                ("whole", Some(reason)) => *flows.whole.entry(reason.to_owned()).or_default() += 1,
                _ => flows.changing += 1,
            }
        }
        flows
    }
}

impl std::fmt::Display for Flows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(Why { reason, words }) = &self.none_split {
            return write!(f, "none is split: {words} ({reason})");
        }
        write!(f, "{} split", self.split)?;
        if self.changing > 0 {
            write!(f, ", {} changing", self.changing)?;
        }
        let whole: u64 = self.whole.values().sum();
        write!(f, ", {whole} fast but whole")?;
        for (place, (reason, number)) in self.whole.iter().enumerate() {
            let before = if place == 0 { ": " } else { ", " };
            write!(f, "{before}{number} {reason}")?;
        }
        if self.left_out > 0 {
            write!(f, ", {} not listed", self.left_out)?;
        }
        Ok(())
    }
}

impl Packets {
    /// Takes the counts out of `stats`.
    pub fn of(stats: &Stats) -> Self {
        Self {
            merged_pkts: stats.sum(&["merged_pkts"]),
            late_pkts: stats.sum(&["late_pkts"]),
            given_up_batches: stats.sum(GIVEN_UP),
            dropped_pkts: stats.sum(DROPPED),
            parked_pkts: stats.sum(&["parked_pkts"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use mflow_algo::algo::counters::Counter;

    use super::*;

    fn status() -> Status {
        let flows = "device eth0 queue 0 proto udp from 192.0.2.1:50001 to 192.0.2.2:4789 cpu 1 pps 32780 state split slot 0 lanes 2-5 batch_pkts 256 gain 2.00 parked_pkts 0 late_pkts 0 given_up_batches 0\n\
                     device eth0 queue 0 proto udp from 192.0.2.1:50002 to 192.0.2.2:4789 cpu 1 pps 20780 state whole reason path_queues again_in_ms 996 # it queues\n\
                     device eth0 queue 0 proto udp from 192.0.2.1:50003 to 192.0.2.2:4789 cpu 1 pps 20780 state probing slot 1 reason asked # it waits\n";
        let stats = "merged_pkts 1000\nlate_pkts 1\ndeadline_batches 2\noverflow_batches 3\ndropped_dead_socket 4\ndropped_stage_full 5\nparked_pkts 6\n";
        Status {
            loaded: true,
            kernel: "6.12.48".to_owned(),
            note: None,
            version: Some(Version::parse("0.2.0 abi 7 stock\nwithout: much\n").expect("one")),
            enabled: Some(true),
            mode: Some("mflow".to_owned()),
            devices: Some(vec!["eth0".to_owned()]),
            cpus: Some("auto".to_owned()),
            lanes: Some("2-5".to_owned()),
            flows: Some(Flows::of(&FlowList::parse(flows).expect("flows"))),
            packets: Some(Packets::of(&Stats::parse(stats).expect("stats"))),
        }
    }

    #[test]
    fn the_state_is_one_screen() {
        let expected = "\
module     loaded, version 0.2.0 (stock, without our hooks), kernel 6.12.48
without    much
splitting  on, mode mflow
devices    eth0
lanes      2-5 (chosen by the module: cpus is auto)
flows      1 split, 1 changing, 1 fast but whole: 1 path_queues
delivered  1000 packets in turn, 6 packets wait now
late       1 packet, 5 batches given up
dropped    9 packets";
        assert_eq!(status().to_text(), expected);
    }

    #[test]
    fn what_is_not_known_is_said_with_the_reason() {
        let mut status = status();
        status.enabled = None;
        status.mode = None;
        let _unknown = status.known::<()>(Err(Unreachable::LockedDown("enabled")));
        let text = status.to_text();
        assert!(status.loaded);
        assert!(text.contains("splitting  unknown"), "{text}");
        assert!(
            text.contains("note       enabled can be neither read"),
            "{text}"
        );
    }

    #[test]
    fn without_the_module_there_is_the_way_to_load_it() {
        let status = Status::read(Path::new("/nonexistent"));
        assert!(!status.loaded && status.version.is_none());
        assert!(status.to_text().contains("is not loaded"));
    }

    #[test]
    fn the_counts_are_lines_of_stats() {
        let known = |name: &&str| Counter::ALL.iter().any(|one| one.name() == *name);
        assert!(DROPPED.iter().chain(GIVEN_UP).all(known));
        let dropping = Counter::ALL.iter().map(|one| one.name());
        let dropping = dropping.filter(|name| name.starts_with("dropped_"));
        assert_eq!(dropping.collect::<Vec<_>>(), DROPPED);
    }
}
