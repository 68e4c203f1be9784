// SPDX-License-Identifier: GPL-2.0

//! One core at its limit, and what is lost in front of it.

use crate::cpus::Cpu;
use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::Snapshot;

/// The share of softirqs from which a core is at its limit. With more, packets wait for it however evenly they come.
pub const LIMIT_PCT: f64 = 85.0;
/// The share from which it is at its limit if its polls do not get through, too.
const SQUEEZED_PCT: f64 = 70.0;
/// The share of idle time from which a core has room for a lane.
const SPARE_PCT: f64 = 50.0;
/// A core whose softirqs are about something else takes fewer packets per second.
const LEAST_PPS: f64 = 1_000.0;
/// A poll that ends early now and then is of no account.
const SQUEEZED_PER_S: f64 = 10.0;

/// Returns the core whose softirqs are the limit, if there is one: the busiest.
pub fn limit(snapshot: &Snapshot) -> Option<&Cpu> {
    let threaded = snapshot.busy_nics().iter().any(|nic| nic.is_threaded);
    let share = |cpu: &Cpu| softirq_pct(cpu, threaded);
    let at_limit = |cpu: &&Cpu| {
        let is_squeezed = snapshot.per_s(cpu.squeezed_polls) >= SQUEEZED_PER_S;
        let least = if is_squeezed { SQUEEZED_PCT } else { LIMIT_PCT };
        share(cpu) >= least && snapshot.per_s(cpu.received_pkts) >= LEAST_PPS
    };
    let cpus = snapshot.cpus.iter().filter(at_limit);
    cpus.max_by(|a, b| share(a).total_cmp(&share(b)))
}

/// Returns the time that packets cost a core. Threads that poll count as programs.
fn softirq_pct(cpu: &Cpu, threaded: bool) -> f64 {
    if threaded && cpu.received_pkts > 0 {
        cpu.softirq_pct + cpu.program_pct
    } else {
        cpu.softirq_pct
    }
}

/// Returns the cores that have time for lanes.
pub fn spare(snapshot: &Snapshot) -> Vec<u32> {
    let cpus = snapshot.cpus.iter();
    let cpus = cpus.filter(|cpu| cpu.idle_pct >= SPARE_PCT);
    cpus.map(|cpu| cpu.number).collect()
}

/// Finds NICs that drop packets because nobody fetches them in time.
pub fn nic_drops(snapshot: &Snapshot) -> Vec<Finding> {
    let nics = snapshot.nics().into_iter().filter(|nic| nic.rx_missed > 0);
    let finding = |nic: &crate::diagnose::snapshot::Device| {
        let name = &nic.name;
        Finding::new(
            "nic_drops",
            format!("{name} has dropped {} packets as no core fetched them in time.", nic.rx_missed),
            format!("ethtool -g {name}, and a larger ring: ethtool -G {name} rx NUMBER; if one core is the limit, that one first"),
        )
    };
    nics.map(finding).collect()
}

/// Finds cores whose backlog has no room.
pub fn backlog_drops(snapshot: &Snapshot) -> Vec<Finding> {
    let cpus = snapshot.cpus.iter().filter(|cpu| cpu.backlog_drops > 0);
    let finding = |cpu: &Cpu| {
        Finding::new(
            "backlog_drops",
            format!("CPU {} has dropped {} packets that other cores or devices gave it, as its backlog was full.", cpu.number, cpu.backlog_drops),
            "sysctl -w net.core.netdev_max_backlog=10000, and fewer flows for that CPU (rps_cpus)",
        )
    };
    cpus.map(finding).collect()
}

/// Finds cores that end polls early though they have time left.
pub fn squeezed(snapshot: &Snapshot) -> Vec<Finding> {
    let limit = limit(snapshot).map(|cpu| cpu.number);
    let cpus = snapshot.cpus.iter().filter(|cpu| {
        let often = snapshot.per_s(cpu.squeezed_polls) >= SQUEEZED_PER_S;
        often && Some(cpu.number) != limit && cpu.idle_pct >= SPARE_PCT
    });
    let finding = |cpu: &Cpu| {
        Finding::new(
            "squeezed_polls",
            format!("CPU {} has ended {} polls with packets left, though it has time: packets come in bursts.", cpu.number, cpu.squeezed_polls),
            "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=8000",
        )
    };
    cpus.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::snapshot::Device;

    fn cpu(number: u32, softirq_pct: f64, received_pkts: u64) -> Cpu {
        Cpu {
            number,
            softirq_pct,
            idle_pct: 100.0 - softirq_pct,
            received_pkts,
            ..Cpu::default()
        }
    }

    fn host(cpus: Vec<Cpu>) -> Snapshot {
        Snapshot {
            seconds: 1.0,
            cpus,
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_core_is_the_limit_if_it_does_nothing_but_packets() {
        let number = |host: &Snapshot| limit(host).map(|cpu| cpu.number);
        let host_at = |pct| host(vec![cpu(0, 20.0, 5_000), cpu(1, pct, 100_000)]);
        assert_eq!(number(&host_at(LIMIT_PCT)), Some(1));
        assert_eq!(number(&host_at(LIMIT_PCT - 0.1)), None);
        let mut squeezed = host_at(SQUEEZED_PCT);
        squeezed.cpus[1].squeezed_polls = 10;
        assert_eq!(number(&squeezed), Some(1));
        squeezed.cpus[1].squeezed_polls = 9;
        assert_eq!(number(&squeezed), None);
        // Softirqs of timers or disks are no limit of flows.
        assert_eq!(number(&host(vec![cpu(1, 99.0, 900)])), None);
        // Of several, the busiest.
        assert_eq!(
            number(&host(vec![cpu(1, 90.0, 9_000), cpu(2, 95.0, 9_000)])),
            Some(2)
        );
    }

    #[test]
    fn threads_that_poll_count_as_packets() {
        let mut host = host(vec![Cpu {
            program_pct: 97.0,
            ..cpu(1, 0.0, 100_000)
        }]);
        assert!(limit(&host).is_none());
        host.devices.push(Device {
            is_nic: true,
            is_up: true,
            is_threaded: true,
            rx_pkts: 100_000,
            ..Device::default()
        });
        assert!(limit(&host).is_some());
    }

    #[test]
    fn drops_are_found_where_they_happen() {
        let mut host = host(vec![cpu(0, 5.0, 9), cpu(1, 95.0, 100_000)]);
        assert!(nic_drops(&host).is_empty() && backlog_drops(&host).is_empty());
        host.cpus[1].backlog_drops = 7;
        host.devices.push(Device {
            name: "eth0".to_owned(),
            is_nic: true,
            is_up: true,
            rx_missed: 12,
            ..Device::default()
        });
        assert!(backlog_drops(&host)[0]
            .says
            .starts_with("CPU 1 has dropped 7"));
        assert!(nic_drops(&host)[0].says.starts_with("eth0 has dropped 12"));
    }

    #[test]
    fn polls_that_end_early_are_a_cause_of_their_own_only_where_there_is_time() {
        let mut host = host(vec![cpu(0, 30.0, 50_000)]);
        host.cpus[0].squeezed_polls = 50;
        assert_eq!(squeezed(&host).len(), 1);
        host.cpus[0].idle_pct = 10.0;
        assert!(squeezed(&host).is_empty());
        assert!(spare(&host).is_empty());
    }
}
