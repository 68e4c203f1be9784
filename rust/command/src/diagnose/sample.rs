// SPDX-License-Identifier: GPL-2.0

//! Parts of hosts for the tests of causes.

use super::snapshot::{Device, Loaded, Module};
use crate::module::text::{FlowList, Stats, Version, Way};

/// Returns a busy NIC.
pub(crate) fn nic(name: &str) -> Device {
    Device {
        name: name.to_owned(),
        is_nic: true,
        is_up: true,
        mtu: 1500,
        rx_queues: 1,
        rx_pkts: 100_000,
        ..Device::default()
    }
}

/// Returns a module that splits flows of these devices on CPUs 2 and 3.
pub(crate) fn loaded(devices: &[&str], way: Way) -> Loaded {
    Loaded {
        version: Version {
            version: "0.2.0".to_owned(),
            abi: 7,
            way,
            without: None,
        },
        enabled: true,
        auto_cpus: Some(false),
        lanes: [2, 3].into(),
        devices: Some(devices.iter().map(|&name| name.to_owned()).collect()),
        flows: FlowList::default(),
        counted: Stats::default(),
    }
}

/// Returns it as a host has it.
pub(crate) fn splitting(devices: &[&str], way: Way) -> Module {
    Module::Loaded(Box::new(loaded(devices, way)))
}
