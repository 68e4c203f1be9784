// SPDX-License-Identifier: GPL-2.0

//! Counters and states of the module as metrics: OpenMetrics text, or the older text of Prometheus, which node_exporter reads from
//! files. HELP is what the module's own code says of each counter.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use anyhow::{Context as _, Result};
use mflow_algo::algo::counters::Counter as Named;
use mflow_algo::algo::report::reason::Reason;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::described::meaning;
use crate::module::text::{FlowList, OfCpus, Stats, Version};
use crate::status::Flows;

/// The lines of `stats` that are no counters of the algorithm, and say what is so now.
pub const GAUGES: &[(&str, &str)] = &[
    ("parked_pkts", "Packets that are parked now"),
    ("parked_bytes", "Memory of the packets that are parked now"),
    (
        "ring_bytes",
        "Memory of the packets that wait for lanes now",
    ),
    (
        "returned_bytes",
        "Memory of read datagrams that wait until a lane's CPU frees them",
    ),
    (
        "stack_max_bytes",
        "Deepest stack from a lane's poll to the merge point",
    ),
    (
        "stages_onward",
        "1 if flows go through the stages of FALCON's modes now",
    ),
    (
        "gro_on_nic",
        "1 if the NIC's core does GRO, in FALCON's modes",
    ),
];

/// Those that only grow.
pub const COUNTERS: &[(&str, &str)] = &[
    (
        "freed_pkts",
        "Datagrams that a CPU freed for readers on others",
    ),
    (
        "freed_for_lanes_pkts",
        "Of freed_pkts, those that the lanes of their own CPU had no time for",
    ),
];

/// The gauges of each CPU: names in `stats`, name of the metric, help.
const GAUGES_OF_CPUS: &[(OfCpus, &str, &str)] = &[
    (
        OfCpus::LANE_RING_BYTES,
        "lane_cpu_ring_bytes",
        "Memory of the packets that wait for each lane's CPU now; where each lane has two, all is told of the one that carries",
    ),
    (
        OfCpus::STAGE_LOADED,
        "stage_cpu_loaded",
        "1 if the CPU is no first choice for a stage, in FALCON's modes",
    ),
];

/// All that metrics are made of.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The module's version, and its way into the stack.
    pub version: &'a Version,
    /// The running kernel's release.
    pub kernel: &'a str,
    /// True if flows are split.
    pub enabled: bool,
    /// The counters and gauges.
    pub stats: &'a Stats,
    /// The fast flows.
    pub flows: &'a FlowList,
}

type Label = [(&'static str, String); 1];
type U64Gauge = Gauge<u64, AtomicU64>;

/// Returns whether a line of `stats` has a description.
pub fn is_known(name: &str) -> bool {
    let in_list = |list: &[(&str, &str)]| list.iter().any(|(known, _)| *known == name);
    Named::ALL.iter().any(|counter| counter.name() == name)
        || in_list(GAUGES)
        || in_list(COUNTERS)
        || OfCpus::ALL.iter().any(|names| names.cpu_in(name).is_some())
}

/// Returns OpenMetrics text; `None` stands for a module that is not loaded. Lines of `stats` that this command does not know are left out.
pub fn open_metrics(measured: Option<&Measured<'_>>) -> Result<String> {
    let mut registry = Registry::with_prefix("mflow");
    register_gauge(
        &mut registry,
        "loaded",
        "1 if the module is loaded",
        u64::from(measured.is_some()),
    );
    if let Some(measured) = measured {
        register(&mut registry, measured);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn register(registry: &mut Registry, measured: &Measured<'_>) {
    let Measured {
        version,
        kernel,
        enabled,
        stats,
        flows,
    } = *measured;
    let way = format!("{:?}", version.way).to_lowercase();
    let labels = [
        ("version", version.version.clone()),
        ("way", way),
        ("kernel", kernel.to_owned()),
    ];
    registry.register(
        "module",
        "The loaded module and the running kernel",
        Info::new(labels),
    );
    register_gauge(
        registry,
        "enabled",
        "1 if flows are split",
        u64::from(enabled),
    );
    for counter in Named::ALL {
        if let Some(value) = stats.get(counter.name()) {
            register_counter(
                registry,
                counter.name(),
                meaning(*counter).trim_end_matches('.'),
                value,
            );
        }
    }
    for (name, help) in COUNTERS {
        if let Some(value) = stats.get(name) {
            register_counter(registry, name, help, value);
        }
    }
    for (name, help) in GAUGES {
        if let Some(value) = stats.get(name) {
            register_gauge(registry, name, help, value);
        }
    }
    let lanes = Family::<Label, Counter>::default();
    for (cpu, value) in stats.by_cpu(OfCpus::LANE_PKTS) {
        lanes
            .get_or_create(&[("cpu", cpu.to_string())])
            .inc_by(value);
    }
    registry.register(
        "lane_cpu_pkts",
        "Packets carried by each lane's CPU, or built by the first of its two",
        lanes,
    );
    for (names, name, help) in GAUGES_OF_CPUS {
        let gauges = Family::<Label, U64Gauge>::default();
        for (cpu, value) in stats.by_cpu(*names) {
            gauges.get_or_create(&[("cpu", cpu.to_string())]).set(value);
        }
        registry.register(*name, *help, gauges);
    }
    register_flows(registry, &Flows::of(flows));
}

fn register_flows(registry: &mut Registry, flows: &Flows) {
    let Flows {
        split,
        changing,
        whole,
        left_out,
        ..
    } = flows;
    register_gauge(
        registry,
        "flows_now_split",
        "Flows that are split now",
        *split,
    );
    register_gauge(
        registry,
        "flows_now_changing",
        "Flows that are about to be split, or whole again",
        *changing,
    );
    register_gauge(
        registry,
        "flows_not_listed",
        "Fast flows for which there was no room in the list",
        *left_out,
    );
    let by_reason = Family::<Label, U64Gauge>::default();
    for reason in Reason::ALL {
        // All are there, so that an alert has a value to look at.
        let name = reason.name();
        let number = whole.get(name).copied().unwrap_or(0);
        by_reason
            .get_or_create(&[("reason", name.to_owned())])
            .set(number);
    }
    registry.register(
        "flows_now_whole",
        "Fast flows that are whole now, by the reason",
        by_reason,
    );
}

fn register_counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64, AtomicU64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn register_gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = U64Gauge::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

/// Returns OpenMetrics text as the older text of Prometheus, in which a family has the name of its samples.
pub fn to_prometheus(text: &str) -> String {
    let mut older = String::new();
    // HELP comes before TYPE, which says what the name ends with.
    let mut help = None;
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", _, text] => help = Some(text),
            ["#", "TYPE", name, kind] => {
                let (end, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    other => ("", other),
                };
                if let Some(help) = help.take() {
                    // Writing to a text does not fail.
                    let _ = writeln!(older, "# HELP {name}{end} {help}");
                }
                let _ = writeln!(older, "# TYPE {name}{end} {kind}");
            }
            ["#", ..] => {}
            _ => {
                let _ = writeln!(older, "{line}");
            }
        }
    }
    older
}

/// Writes a file that others read as a whole, before or after: what is written aside gets its name at the end.
pub fn write_aside(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().context("the file needs a name")?;
    // The collector reads names that end with `.prom` only.
    let aside = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let aside = path.with_file_name(aside);
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    });
    written
        .inspect_err(|_| {
            let _never_made = fs::remove_file(&aside);
        })
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn text() -> String {
        let mut stats: String = Named::ALL
            .iter()
            .zip(5..)
            .map(|(counter, value)| format!("{} {value}\n", counter.name()))
            .collect();
        stats += "parked_pkts 3\nfreed_pkts 4\nlane_cpu2_pkts 100\nlane_cpu3_pkts 101\nlane_cpu3_ring_bytes 102\nstage_cpu4_loaded 1\nnew_in_a_later_version 9\n";
        let flows = "device eth0 queue - proto - from - to - cpu 1 pps - state whole reason path_queues # it queues\n";
        let measured = Measured {
            version: &Version::parse("0.2.0 abi 7 stock\n").expect("one"),
            kernel: "6.12.48+deb13",
            enabled: true,
            stats: &Stats::parse(&stats).expect("stats"),
            flows: &FlowList::parse(flows).expect("flows"),
        };
        open_metrics(Some(&measured)).expect("text")
    }

    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in {text}"
        );
    }

    #[test]
    fn every_counter_is_there_with_the_words_of_the_code() {
        let text = text();
        for (counter, value) in Named::ALL.iter().zip(5..) {
            let name = counter.name();
            has(&text, &format!("# TYPE mflow_{name} counter"));
            has(&text, &format!("mflow_{name}_total {value}"));
            has(&text, &format!("# HELP mflow_{name} {}", meaning(*counter)));
        }
        for line in [
            "mflow_loaded 1",
            "mflow_enabled 1",
            "mflow_module_info{version=\"0.2.0\",way=\"stock\",kernel=\"6.12.48+deb13\"} 1",
            "mflow_parked_pkts 3",
            "mflow_freed_pkts_total 4",
            "mflow_lane_cpu_pkts_total{cpu=\"3\"} 101",
            "mflow_lane_cpu_ring_bytes{cpu=\"3\"} 102",
            "mflow_stage_cpu_loaded{cpu=\"4\"} 1",
            "mflow_flows_now_whole{reason=\"path_queues\"} 1",
            "mflow_flows_now_whole{reason=\"no_slot\"} 0",
            "mflow_flows_now_split 0",
        ] {
            has(&text, line);
        }
        assert!(!text.contains("new_in_a_later_version"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_older_text_has_a_type_for_each_sample() {
        let older = to_prometheus(&text());
        let mut types = BTreeMap::new();
        for line in older.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "TYPE", name, kind] => {
                    assert_eq!(types.insert(name, kind), None, "{name} comes twice");
                }
                ["#", "HELP", ..] => {}
                ["#", ..] => panic!("{line}"),
                _ => {
                    let name = line.split(['{', ' ']).next().expect("a name");
                    let kind = types
                        .get(name)
                        .unwrap_or_else(|| panic!("{line} has no type"));
                    assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
                }
            }
        }
        assert!(types.len() > Named::ALL.len());
        has(&older, "# TYPE mflow_late_pkts_total counter");
        has(&older, "# TYPE mflow_module_info gauge");
    }

    #[test]
    fn without_the_module_there_is_one_sample() {
        let older = to_prometheus(&open_metrics(None).expect("text"));
        let samples: Vec<_> = older
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        assert_eq!(samples, ["mflow_loaded 0"]);
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = std::env::temp_dir().join(format!("mflow-metrics-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("mflow.prom");
        for text in ["one\n", "two\n"] {
            write_aside(&path, text).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        let names: Vec<_> = fs::read_dir(&folder).expect("there").flatten().collect();
        assert_eq!(names.len(), 1);
        // A folder can't be replaced by a file.
        write_aside(&folder, "three\n").expect_err("it is a folder");
        fs::remove_dir_all(&folder).expect("there");
        assert!(!folder
            .with_file_name(format!(".{}", std::process::id()))
            .exists());
    }
}
