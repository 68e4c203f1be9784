// SPDX-License-Identifier: GPL-2.0

//! The module under test as an operator sees it: `modprobe`, and the files in debugfs.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{bail, Context as _, Result};
use mflow_protocol::guest::{BUILD, NO_DEBUGFS, SEED};

use crate::machine::{command, cpu};

pub(crate) const DEBUGFS: &str = "/sys/kernel/debug/mflow";

/// A rate that no flow of a test has, as `min_flow_pps`: all flows stay whole.
pub(crate) const FASTER_THAN_ANY_PPS: u32 = 10_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) device: &'static str,
    /// The number of lane CPUs to use: with the layout `lane+stage`, two for each lane.
    pub(crate) lanes: usize,
    pub(crate) batch_pkts: u32,
    pub(crate) merge_timeout_us: u32,
    pub(crate) min_flow_pps: u32,
    pub(crate) scaling: &'static str,
    pub(crate) build: &'static str,
    pub(crate) layout: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) stages: &'static str,
    pub(crate) load_threshold_pct: u32,
}

/// The module's treatment of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Split flows.
    #[default]
    Mflow,
    /// Move flows from CPU to CPU, from behind the NIC's GRO.
    FalconDev,
    /// Move flows from CPU to CPU, from before the NIC's GRO.
    FalconFunc,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Mflow, Self::FalconDev, Self::FalconFunc];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mflow => "mflow",
            Self::FalconDev => "falcon-dev",
            Self::FalconFunc => "falcon-func",
        }
    }

    /// Returns the one that cases run in which do not choose it.
    pub(crate) fn usual() -> Self {
        Self::ALL[MODE.load(Ordering::Relaxed)]
    }
}

// The place of the mode that cases run in which do not choose it.
static MODE: AtomicUsize = AtomicUsize::new(0);
// Whether lanes build packets by default; else the module chooses.
static LANES_BUILD: AtomicBool = AtomicBool::new(false);

/// A deadline that no virtual CPU misses, however busy the host: what arrives out of order then is the module's doing.
pub(crate) const STRICT_TIMEOUT_US: u32 = 1_000_000;

// Whether flows are slow, as on a checking kernel: several in a socket have a few dozen packets a second each, on a busy machine.
static FLOWS_ARE_SLOW: AtomicBool = AtomicBool::new(false);

/// Far below every rate the cases offer, but on a checking kernel.
const MIN_FLOW_PPS: u32 = 100;
/// Below the rate of every load, also on the checking kernel in one thread, or where a program is asked about each packet.
const LEAST_FLOW_PPS: u32 = 20;

impl Default for Knobs {
    fn default() -> Self {
        Self {
            device: "eth0",
            lanes: 2,
            batch_pkts: 256,
            merge_timeout_us: STRICT_TIMEOUT_US,
            min_flow_pps: match FLOWS_ARE_SLOW.load(Ordering::Relaxed) {
                true => LEAST_FLOW_PPS,
                false => MIN_FLOW_PPS,
            },
            scaling: "path",
            build: match (LANES_BUILD.load(Ordering::Relaxed), Mode::usual()) {
                (false, _) => "auto",
                (true, Mode::Mflow) => "lane",
                // What goes through stages is built by the NIC's core.
                (true, Mode::FalconDev | Mode::FalconFunc) => "nic",
            },
            layout: "lane",
            mode: Mode::usual().name(),
            stages: "nic+tunnel+veth",
            load_threshold_pct: 0,
        }
    }
}

/// Chooses the mode of all cases that do not do so themselves.
pub(crate) fn set_mode(mode: Mode) {
    // CAST: the place in `ALL`.
    MODE.store(mode as usize, Ordering::Relaxed);
}

/// Makes slow flows split in all cases that do not choose a rate themselves.
pub(crate) fn split_slow_flows() {
    FLOWS_ARE_SLOW.store(true, Ordering::Relaxed);
}

/// Chooses which core builds packets in this case, unless it does so itself: as the host says, or by lot.
pub(crate) fn choose_build(case: &str) {
    let lanes_build = match std::env::var(BUILD) {
        Ok(build) => build == "lane",
        Err(_) => {
            let seed = std::env::var(SEED).unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            (seed, case).hash(&mut hasher);
            hasher.finish() % 2 == 1
        }
    };
    LANES_BUILD.store(lanes_build, Ordering::Relaxed);
}

impl Knobs {
    pub(crate) fn of(lanes: usize, batch_pkts: u32) -> Self {
        Self {
            lanes,
            batch_pkts,
            ..Self::default()
        }
    }

    /// Returns the CPUs that carry packets. Those before them build, where each lane has two.
    pub(crate) fn carrying(&self) -> &'static [usize] {
        let nr_building = match self.layout {
            "lane+stage" => self.lanes / 2,
            _ => 0,
        };
        &cpu::LANES[nr_building..self.lanes]
    }

    /// Returns these, with which a flow is tried however slow its path is.
    pub(crate) fn eager(self) -> Self {
        Self {
            min_flow_pps: LEAST_FLOW_PPS,
            ..self
        }
    }

    fn parameters(&self, enabled: &str) -> String {
        format!(
            "cpus={} batch_pkts={} merge_timeout_us={} min_flow_pps={} scaling={} build={} layout={} mode={} stages={} load_threshold_pct={} devices={} enabled={enabled}",
            cpu::lane_list(self.lanes),
            self.batch_pkts,
            self.merge_timeout_us,
            self.min_flow_pps,
            self.scaling,
            self.build,
            self.layout,
            self.mode,
            self.stages,
            self.load_threshold_pct,
            self.device
        )
    }
}

/// Loads the module with these knobs and checks that it took them.
pub(crate) fn load(knobs: &Knobs) -> Result<()> {
    load_as(knobs, "1")
}

/// Does the same, and splits nothing until `enabled` is written.
pub(crate) fn load_idle(knobs: &Knobs) -> Result<()> {
    load_as(knobs, "0")
}

/// Loads the module with these knobs, and checks nothing.
pub(crate) fn modprobe(knobs: &Knobs, enabled: &str) -> Result<()> {
    command::run(&format!("modprobe mflow {}", knobs.parameters(enabled))).map(drop)
}

fn load_as(knobs: &Knobs, enabled: &str) -> Result<()> {
    modprobe(knobs, enabled)?;
    for (name, expected) in [
        ("enabled", enabled.to_owned()),
        ("cpus", cpu::lane_list(knobs.lanes)),
        ("batch_pkts", knobs.batch_pkts.to_string()),
        ("merge_timeout_us", knobs.merge_timeout_us.to_string()),
        ("min_flow_pps", knobs.min_flow_pps.to_string()),
        ("scaling", knobs.scaling.to_owned()),
        ("build", knobs.build.to_owned()),
        ("layout", knobs.layout.to_owned()),
        ("mode", knobs.mode.to_owned()),
        ("stages", knobs.stages.to_owned()),
        ("load_threshold_pct", knobs.load_threshold_pct.to_string()),
        ("devices", knobs.device.to_owned()),
    ] {
        let found = read(name)?;
        if found.trim() != expected {
            bail!("loaded with {name}={expected}, but {DEBUGFS}/{name} says {found:?}");
        }
    }
    Ok(())
}

/// Unloads the module; `Ok` if it is not loaded.
pub(crate) fn unload() -> Result<()> {
    if loaded() {
        command::run("rmmod mflow")?;
    }
    Ok(())
}

pub(crate) fn loaded() -> bool {
    Path::new("/sys/module/mflow").exists()
}

pub(crate) fn available() -> bool {
    command::run("modinfo mflow").is_ok()
}

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DEBUGFS).join(name)
}

pub(crate) fn read(name: &str) -> Result<String> {
    let path = path(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns whether the loaded module goes through our patches, and not through what an unpatched kernel offers.
pub(crate) fn is_patched() -> Result<bool> {
    let version = read("version")?;
    match version
        .lines()
        .next()
        .and_then(|line| line.split(' ').next_back())
    {
        Some("patched") => Ok(true),
        Some("stock") => Ok(false),
        _ => bail!("version names no way into the stack: {version:?}"),
    }
}

/// Returns a file for people, or why there is none.
fn text_of(name: &str) -> String {
    read(name).unwrap_or_else(|error| format!("{error:#}\n"))
}

/// Writes a knob; the error is the kernel's.
pub(crate) fn try_write(name: &str, value: &str) -> io::Result<()> {
    fs::write(path(name), value)
}

/// Writes a knob that must take the value.
pub(crate) fn write(name: &str, value: &str) -> Result<()> {
    try_write(name, value)
        .with_context(|| format!("cannot write {value:?} to {}", path(name).display()))
}

/// Returns how many times a flow has begun to be split; 0 without the module.
pub(crate) fn flows_split() -> Result<u64> {
    Stats::read_if_loaded()?.map_or(Ok(0), |stats| stats.get("flows_split"))
}

/// Waits until flows have begun to be split this many times since [`flows_split`] was `before`; in the modes of FALCON, until
/// packets go from CPU to CPU.
pub(crate) fn wait_split_since(before: u64, flows: u64) -> Result<()> {
    match Mode::usual() {
        Mode::Mflow => command::wait_until("all flows are split", || {
            Ok(flows_split()? >= before + flows)
        })
        .with_context(reasons),
        Mode::FalconDev | Mode::FalconFunc => {
            let staged = staged_pkts()?;
            command::wait_until("packets go through stages", || Ok(staged_pkts()? > staged))
        }
    }
}

/// Returns the flows and the counters, which say why a flow is not split.
pub(crate) fn reasons() -> String {
    ["flows", "stats"].map(text_of).concat()
}

/// Returns how many packets have begun to go from CPU to CPU; 0 without the module.
pub(crate) fn staged_pkts() -> Result<u64> {
    Stats::read_if_loaded()?.map_or(Ok(0), |stats| stats.get("stage_nic_pkts"))
}

/// Returns what was added to the module's counters since `before`; nothing without the module, then or now.
pub(crate) fn added_since(before: Option<&Stats>) -> Result<BTreeMap<String, i64>> {
    Ok(match (before, Stats::read_if_loaded()?) {
        (Some(before), Some(now)) => now.since(before),
        _ => BTreeMap::new(),
    })
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stats(BTreeMap<String, u64>);

impl Stats {
    pub(crate) fn read() -> Result<Self> {
        let text = read("stats")?;
        let mut stats = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line
                .split_once(char::is_whitespace)
                .with_context(|| format!("stats: not `name value`: {line:?}"))?;
            let value = value
                .trim()
                .parse()
                .with_context(|| format!("stats: no number: {line:?}"))?;
            stats.insert(name.to_owned(), value);
        }
        Ok(Self(stats))
    }

    /// Returns them if the module is loaded, and the kernel has files for it.
    pub(crate) fn read_if_loaded() -> Result<Option<Self>> {
        if !loaded() || command::was_booted_with(NO_DEBUGFS)? {
            return Ok(None);
        }
        Self::read().map(Some)
    }

    pub(crate) fn get(&self, name: &str) -> Result<u64> {
        self.0
            .get(name)
            .copied()
            .with_context(|| format!("{DEBUGFS}/stats has no line {name}"))
    }

    /// Returns the names of all counters that are not 0; a depth of stack is no counter.
    pub(crate) fn nonzero(&self) -> Vec<String> {
        let nonzero = self
            .0
            .iter()
            .filter(|(name, &value)| value != 0 && !name.ends_with("_bytes"));
        nonzero.map(|(name, _)| name.clone()).collect()
    }

    /// Returns what was added since `earlier`; gauges may have fallen.
    pub(crate) fn since(&self, earlier: &Self) -> BTreeMap<String, i64> {
        let added = self.0.iter().map(|(name, &now)| {
            let before = earlier.0.get(name).copied().unwrap_or(0);
            (name.clone(), now.wrapping_sub(before) as i64)
        });
        added.collect()
    }
}
