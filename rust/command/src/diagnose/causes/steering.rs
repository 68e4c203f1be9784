// SPDX-License-Identifier: GPL-2.0

//! Interrupts, and packets that are steered to other CPUs.

use crate::diagnose::finding::Finding;
use crate::diagnose::snapshot::Snapshot;

fn list(cpus: impl IntoIterator<Item = u32>) -> String {
    let cpus: Vec<String> = cpus.into_iter().map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

/// Finds RPS at a device whose flows are split, or at the end of a tunnel behind it: it queues packets, and flows stay whole.
pub fn rps_under_splitting(snapshot: &Snapshot) -> Vec<Finding> {
    let any_split = snapshot.loaded().is_some_and(|loaded| loaded.enabled);
    let mut found = Vec::new();
    for device in snapshot
        .devices
        .iter()
        .filter(|one| !one.rps_cpus.is_empty())
    {
        let is_split = snapshot.splitting(&device.name).is_some();
        if any_split && device.is_up && (is_split || device.is_tunnel()) {
            let (name, cpus) = (&device.name, list(device.rps_cpus.iter().copied()));
            found.push(Finding::new(
                "rps_under_splitting",
                format!("RPS sends packets of {name} to CPUs {cpus}, and so is in the way of flows that mflow splits."),
                format!("for queue in /sys/class/net/{name}/queues/rx-*/rps_cpus; do echo 0 > $queue; done"),
            ));
        }
    }
    found
}

/// Finds interrupts that go to a lane's CPU.
pub fn interrupt_on_lane(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in snapshot.busy_nics() {
        // Lanes that the module chooses leave such a CPU by themselves.
        let chosen = |loaded: &&crate::diagnose::snapshot::Loaded| loaded.auto_cpus == Some(false);
        let Some(loaded) = snapshot.splitting(&nic.name).filter(chosen) else {
            continue;
        };
        let both: Vec<u32> = nic
            .interrupt_cpus
            .intersection(&loaded.lanes)
            .copied()
            .collect();
        // With as many queues as CPUs, interrupts are everywhere.
        if !both.is_empty() && nic.rx_queues == 1 {
            let (name, both) = (&nic.name, list(both));
            found.push(Finding::new(
                "interrupt_on_lane",
                format!("Interrupts of {name} go to CPU {both}, which is a lane, too: it has both to do."),
                "mflow set cpus auto",
            ));
        }
    }
    found
}

/// Finds interrupts that moved while splitting is on with lanes that stay.
pub fn interrupts_move(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for nic in snapshot
        .busy_nics()
        .into_iter()
        .filter(|nic| nic.interrupts_moved)
    {
        let name = &nic.name;
        let follows = |loaded: &crate::diagnose::snapshot::Loaded| loaded.auto_cpus == Some(true);
        if snapshot.splitting(name).is_some_and(follows) {
            continue;
        }
        let who = if snapshot.irqbalance {
            ", as irqbalance does"
        } else {
            ""
        };
        found.push(Finding::new(
            "interrupts_move",
            format!("Something moves the interrupts of {name} from CPU to CPU{who}: each time caches are cold, and packets may change places."),
            if snapshot.irqbalance {
                "a policy script of irqbalance that answers ban=true for them; for lanes that follow: mflow set cpus auto"
            } else {
                "find who writes /proc/irq/*/smp_affinity; for lanes that follow: mflow set cpus auto"
            },
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::diagnose::sample::{loaded, nic, splitting};
    use crate::diagnose::snapshot::Module;
    use crate::module::text::Way;

    fn host() -> Snapshot {
        let mut nic = nic("eth0");
        nic.interrupt_cpus = BTreeSet::from([1]);
        Snapshot {
            seconds: 1.0,
            devices: vec![nic],
            module: splitting(&["eth0"], Way::Stock),
            ..Snapshot::default()
        }
    }

    #[test]
    fn rps_is_in_the_way_of_split_flows_alone() {
        let mut host = host();
        assert!(rps_under_splitting(&host).is_empty());
        host.devices[0].rps_cpus = BTreeSet::from([2, 3]);
        assert!(rps_under_splitting(&host)[0].says.contains("CPUs 2,3"));
        host.module = Module::NotLoaded;
        assert!(rps_under_splitting(&host).is_empty());
        host.module = splitting(&["eth1"], Way::Stock);
        assert!(rps_under_splitting(&host).is_empty());
        host.devices[0].kind = "vxlan".to_owned();
        assert_eq!(rps_under_splitting(&host).len(), 1);
    }

    #[test]
    fn an_interrupt_on_a_lane_is_found_unless_lanes_follow() {
        let mut host = host();
        assert!(interrupt_on_lane(&host).is_empty());
        host.devices[0].interrupt_cpus.insert(2);
        assert!(interrupt_on_lane(&host)[0].says.contains("CPU 2,"));
        let mut auto = loaded(&["eth0"], Way::Stock);
        auto.auto_cpus = Some(true);
        host.module = Module::Loaded(Box::new(auto));
        assert!(interrupt_on_lane(&host).is_empty());
    }

    #[test]
    fn interrupts_that_move_have_a_suspect() {
        let mut host = host();
        assert!(interrupts_move(&host).is_empty());
        host.devices[0].interrupts_moved = true;
        assert!(!interrupts_move(&host)[0].says.contains("irqbalance"));
        host.irqbalance = true;
        assert!(interrupts_move(&host)[0].says.contains("irqbalance"));
    }
}
