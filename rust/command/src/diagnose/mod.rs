// SPDX-License-Identifier: GPL-2.0

//! The limit of a flow on this host, and the things that help.
//!
//! `read` takes a [`snapshot`], `causes` are functions of it alone, and [`Diagnosis::of`] makes sentences of all.

pub mod causes;
pub mod finding;
pub mod read;
#[cfg(test)]
pub(crate) mod sample;
pub mod snapshot;

use schemars::JsonSchema;
use serde::Serialize;

use self::causes::cores;
use self::finding::Finding;
use self::snapshot::{Module, Snapshot};
use crate::cpus::Cpu;

/// The share of programs from which a core is theirs.
const PROGRAM_PCT: f64 = 90.0;
/// A CPU that does less than this has no part in what is too slow.
const CALM_PCT: f64 = 70.0;

/// The place of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// One core, by its softirqs: what mflow is for.
    OneCore,
    /// Cores by their softirqs, and no other core has time.
    AllCores,
    /// Programs that do not read as fast as packets come.
    Reader,
    /// A core that a program has for itself.
    Program,
    /// The sender, or the network: this host has time.
    Elsewhere,
    /// Nothing is received that could be too slow.
    Idle,
}

/// All that is said of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Diagnosis {
    /// The place of the limit.
    pub limit: Limit,
    /// The sentence about it.
    pub says: String,
    /// True if there is nothing to do.
    pub healthy: bool,
    /// All that was found.
    pub findings: Vec<Finding>,
    /// The commands that switch mflow on sensibly; none where splitting gains nothing, or is on.
    pub switch_on: Vec<String>,
}

impl Diagnosis {
    /// Judges a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let found = causes::ALL.iter().flat_map(|cause| cause(snapshot));
        let findings: Vec<Finding> = found.collect();
        let (limit, says) = limit(snapshot);
        let switch_on = match limit {
            Limit::OneCore => switch_on(snapshot),
            _ => Vec::new(),
        };
        let is_limited_here = !matches!(limit, Limit::Elsewhere | Limit::Idle);
        // While splitting is on, a core that is busy may be as it should be.
        let is_split = limit == Limit::OneCore && switch_on.is_empty();
        Self {
            limit,
            says,
            healthy: findings.is_empty() && (!is_limited_here || is_split),
            findings,
            switch_on,
        }
    }

    /// Returns the lines for people.
    pub fn to_text(&self) -> String {
        let mut lines = vec![self.says.clone()];
        for Finding { says, advice, .. } in &self.findings {
            lines.push(format!("* {says}\n  try: {advice}"));
        }
        if !self.switch_on.is_empty() {
            lines.push(
                "These lines switch mflow on; a minute later it is off again unless the last one is typed:".to_owned(),
            );
            lines.extend(self.switch_on.iter().map(|line| format!("  {line}")));
        }
        if self.healthy {
            lines.push("Nothing to do.".to_owned());
        }
        lines.join("\n")
    }
}

/// Finds the limit, the first that applies.
fn limit(snapshot: &Snapshot) -> (Limit, String) {
    let spare = cores::spare(snapshot);
    if let Some(cpu) = cores::limit(snapshot) {
        return at_core(snapshot, cpu, &spare);
    }
    if let Some(network) = slow_reader(snapshot) {
        return (
            Limit::Reader,
            format!("No core is the limit, but a program does not read fast enough (where {network} runs): splitting gains nothing."),
        );
    }
    let receives = !snapshot.busy_nics().is_empty();
    let by_programs = |cpu: &&Cpu| cpu.program_pct >= PROGRAM_PCT;
    if let (true, Some(cpu)) = (receives, snapshot.cpus.iter().find(by_programs)) {
        return (
            Limit::Program,
            format!("CPU {} is busy with programs for {:.0} % of its time, and no core with packets: if the flow's reader is there, it is the limit.", cpu.number, cpu.program_pct),
        );
    }
    if !receives {
        return (
            Limit::Idle,
            "Hardly anything is received now: look again while the flow is there that is too slow."
                .to_owned(),
        );
    }
    let busiest = snapshot.cpus.iter().map(|cpu| cpu.softirq_pct);
    let busiest = busiest.fold(0.0, f64::max);
    let has_time = if busiest < CALM_PCT {
        "this host has time"
    } else {
        "this host has little time left"
    };
    (
        Limit::Elsewhere,
        format!("No core spends more than {busiest:.0} % of its time on packets: {has_time}, and the limit is the sender or the network."),
    )
}

fn at_core(snapshot: &Snapshot, cpu: &Cpu, spare: &[u32]) -> (Limit, String) {
    let Cpu { number, .. } = *cpu;
    let pct = cpu.softirq_pct.max(100.0 - cpu.idle_pct).min(100.0);
    let busy = format!("CPU {number} spends {pct:.0} % of its time on packets");
    if spare.is_empty() {
        return (
            Limit::AllCores,
            format!("{busy}, and no other core has time for a part of them: fewer programs, or more cores, help."),
        );
    }
    let others = format!("{} of {} CPUs have time", spare.len(), snapshot.cpus.len());
    let flows = match fast_flows_at(snapshot, number) {
        Some(0 | 1) | None => "If it is one flow, or the flows of one tunnel between two hosts, one core is its limit; if there are many, spread them first (RSS: ethtool -L and -X, or RPS).".to_owned(),
        Some(flows) => format!("{flows} fast flows share it: spread them first (RSS: ethtool -L and -X, or RPS); what is left of each, mflow can split."),
    };
    (Limit::OneCore, format!("{busy}, while {others}. {flows}"))
}

/// Returns how many fast flows a CPU dispatches, as far as the module tells.
fn fast_flows_at(snapshot: &Snapshot, cpu: u32) -> Option<usize> {
    let loaded = snapshot.loaded()?;
    if loaded.flows.none_split.is_some() {
        return None;
    }
    let flows = loaded.flows.flows.iter();
    Some(flows.filter(|flow| flow.cpu == cpu).count())
}

/// Returns the name of a program in the namespace whose sockets have lost most, if any has.
fn slow_reader(snapshot: &Snapshot) -> Option<&str> {
    const LOST: &[&str] = &[
        "UdpRcvbufErrors",
        "Udp6RcvbufErrors",
        "TcpExtPruneCalled",
        "TcpExtTCPRcvQDrop",
        "TcpExtTCPBacklogDrop",
    ];
    let networks = snapshot.networks.iter();
    let lost = networks.map(|network| (network.sum(LOST), network.program.as_str()));
    lost.max_by_key(|(count, _)| *count)
        .filter(|(count, _)| *count > 0)
        .map(|(_, program)| program)
}

/// Returns the commands that switch mflow on for the busy NICs.
fn switch_on(snapshot: &Snapshot) -> Vec<String> {
    let nics = snapshot.busy_nics();
    let most = nics.first().map_or(0, |nic| nic.rx_pkts);
    // A NIC with a small part of the packets is not the one whose core is the limit.
    let names = nics.iter().filter(|nic| nic.rx_pkts >= most / 4);
    let names: Vec<&str> = names.map(|nic| nic.name.as_str()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let loaded = match &snapshot.module {
        Module::NotLoaded => {
            return vec![
                format!("modprobe mflow cpus=auto devices={}", names.join(",")),
                "mflow set enabled 1 --confirm 60".to_owned(),
                "mflow flows && mflow confirm".to_owned(),
            ]
        }
        Module::Unreadable(_) => return Vec::new(),
        Module::Loaded(loaded) => loaded,
    };
    if names.iter().all(|name| snapshot.splitting(name).is_some()) && !loaded.lanes.is_empty() {
        return Vec::new();
    }
    let devices: String = names
        .iter()
        .map(|name| format!(" devices +{name}"))
        .collect();
    vec![
        format!("mflow set cpus auto{devices} enabled 1 --confirm 60"),
        "mflow flows".to_owned(),
        "mflow confirm".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::sample::{loaded, nic};
    use super::snapshot::Network;
    use super::*;
    use crate::module::text::{FlowList, Way};

    fn cpu(number: u32, softirq_pct: f64) -> Cpu {
        Cpu {
            number,
            softirq_pct,
            idle_pct: 100.0 - softirq_pct,
            received_pkts: 100_000,
            ..Cpu::default()
        }
    }

    /// A host whose NIC is busy, with a CPU that spends this share on packets.
    fn host(softirq_pct: f64) -> Snapshot {
        let mut nic = nic("eth0");
        let all = ["rx-gro", "rx-gro-list", "rx-checksum"];
        nic.features = Some(all.map(str::to_owned).into());
        Snapshot {
            seconds: 1.0,
            cpus: vec![cpu(0, 1.0), cpu(1, softirq_pct)],
            devices: vec![nic],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_healthy_host_has_nothing_to_do() {
        let diagnosis = Diagnosis::of(&host(30.0));
        assert!(
            diagnosis.healthy && diagnosis.limit == Limit::Elsewhere,
            "{diagnosis:?}"
        );
        assert!(diagnosis.to_text().ends_with("\nNothing to do."));
        let mut idle = host(1.0);
        idle.devices[0].rx_pkts = 10;
        assert_eq!(Diagnosis::of(&idle).limit, Limit::Idle);
        assert!(Diagnosis::of(&idle).healthy);
    }

    #[test]
    fn one_core_is_the_limit_and_three_lines_help() {
        let diagnosis = Diagnosis::of(&host(99.0));
        assert_eq!(diagnosis.limit, Limit::OneCore);
        assert!(!diagnosis.healthy && diagnosis.findings.is_empty());
        assert_eq!(diagnosis.switch_on.len(), 3);
        assert_eq!(
            diagnosis.switch_on[0],
            "modprobe mflow cpus=auto devices=eth0"
        );
        assert!(
            diagnosis.says.starts_with("CPU 1 spends 99 %"),
            "{}",
            diagnosis.says
        );
    }

    #[test]
    fn lines_are_for_the_module_as_it_is() {
        let mut host = host(99.0);
        let mut module = loaded(&[], Way::Patched);
        module.enabled = false;
        host.module = Module::Loaded(Box::new(module));
        let off = Diagnosis::of(&host);
        assert_eq!(
            off.switch_on[0],
            "mflow set cpus auto devices +eth0 enabled 1 --confirm 60"
        );
        // Where it is on, the busy core is the one that lanes leave work to.
        host.module = sample::splitting(&["eth0"], Way::Patched);
        let on = Diagnosis::of(&host);
        assert!(on.switch_on.is_empty() && on.healthy, "{on:?}");
    }

    #[test]
    fn many_flows_are_to_be_spread_first() {
        let mut host = host(99.0);
        let mut module = loaded(&["eth0"], Way::Patched);
        let flow = |port| {
            format!("device eth0 queue 0 proto udp from 192.0.2.1:{port} to 192.0.2.2:4789 cpu 1 pps 30000 state split slot 0 lanes 2 batch_pkts 256 gain 1.00 parked_pkts 0 late_pkts 0 given_up_batches 0\n")
        };
        module.flows = FlowList::parse(&[flow(1), flow(2), flow(3)].concat()).expect("flows");
        host.module = Module::Loaded(Box::new(module));
        assert!(Diagnosis::of(&host).says.contains("3 fast flows share it"));
    }

    #[test]
    fn without_a_core_that_has_time_splitting_gains_nothing() {
        let mut host = host(99.0);
        host.cpus[0].idle_pct = 10.0;
        let diagnosis = Diagnosis::of(&host);
        assert_eq!(diagnosis.limit, Limit::AllCores);
        assert!(diagnosis.switch_on.is_empty() && !diagnosis.healthy);
    }

    #[test]
    fn readers_and_programs_are_limits_of_their_own() {
        let mut reader = host(30.0);
        reader.networks.push(Network {
            program: "memcached".to_owned(),
            counted: [("UdpRcvbufErrors".to_owned(), 5)].into(),
        });
        let diagnosis = Diagnosis::of(&reader);
        assert_eq!(diagnosis.limit, Limit::Reader);
        assert_eq!(diagnosis.findings[0].cause, "socket_drops");
        let mut program = host(30.0);
        program.cpus[0].program_pct = 95.0;
        assert_eq!(Diagnosis::of(&program).limit, Limit::Program);
        // A core at its limit comes first.
        reader.cpus[1] = cpu(1, 99.0);
        assert_eq!(Diagnosis::of(&reader).limit, Limit::OneCore);
    }
}
