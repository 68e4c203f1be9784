// SPDX-License-Identifier: GPL-2.0

//! The CPUs to which the interrupts of a NIC go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use mflow_algo::algo::knobs::cpulist::CpuSet;

/// The CPUs of each interrupt, by its number.
pub(super) type Affinities = BTreeMap<u32, BTreeSet<u32>>;

/// Interrupts whose names have one of these are not about what is received.
const OTHERS: &[&str] = &[
    "config", "output", "-tx", "control", "async", "admin", "mgmnt",
];

/// Returns the interrupts of a device by which it tells of what it has received; none of a virtual device.
pub(super) fn of(root: &Path, device: &str) -> Affinities {
    let folder = root.join("sys/class/net").join(device).join("device");
    // Those of a virtio device are its parent's.
    let numbers = ["msi_irqs", "../msi_irqs"].map(|below| numbers(&folder.join(below)));
    let numbers = numbers.into_iter().find(|numbers| !numbers.is_empty());
    let irq = |number: u32| {
        let folder = root.join("proc/irq").join(number.to_string());
        is_of_receiving(&folder).then(|| (number, cpus(&folder)))
    };
    numbers.into_iter().flatten().filter_map(irq).collect()
}

/// Returns whether an interrupt goes elsewhere than before.
pub(super) fn differ(before: &Affinities, after: &Affinities) -> bool {
    let moved = |(number, cpus): (&u32, &BTreeSet<u32>)| {
        let before = before.get(number);
        before.is_some_and(|before| before != cpus)
    };
    after.iter().any(moved)
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Looks at the folders in that of an interrupt: each is named after one who handles it.
fn is_of_receiving(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| !OTHERS.iter().any(|other| name.contains(other)))
}

fn cpus(folder: &Path) -> BTreeSet<u32> {
    let files = ["effective_affinity_list", "smp_affinity_list"];
    let texts = files
        .iter()
        .filter_map(|file| fs::read(folder.join(file)).ok());
    let mut sets = texts.filter_map(|text| CpuSet::parse(&text).ok());
    let set = sets.find(|set| !set.is_empty());
    set.iter().flat_map(CpuSet::iter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_of_receiving_are_found_below_a_device() {
        let root = std::env::temp_dir().join(format!("mflow-irqs-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("one")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        for number in [28, 29, 30] {
            write(
                &format!("sys/class/net/eth0/device/msi_irqs/{number}"),
                "msix\n",
            );
        }
        write("proc/irq/28/virtio0-config/x", "");
        write("proc/irq/29/virtio0-input.0/x", "");
        write("proc/irq/29/effective_affinity_list", "1\n");
        write("proc/irq/30/virtio0-output.0/x", "");
        let before = of(&root, "eth0");
        write("proc/irq/29/effective_affinity_list", "3\n");
        let after = of(&root, "eth0");
        let none = of(&root, "veth0");
        fs::remove_dir_all(&root).expect("there");
        assert_eq!(before, Affinities::from([(29, [1].into())]));
        assert!(differ(&before, &after) && !differ(&before, &before));
        assert!(none.is_empty());
    }
}
