// SPDX-License-Identifier: GPL-2.0

//! Devices that cannot be ports: what is sent to them from XDP would be lost, so a configuration with them is refused.

use anyhow::{ensure, Result};

use super::daemon::Place;
use crate::hike::network::{Network, INGRESS, LEFT, RIGHT};
use crate::hike::Case;
use crate::network::topology;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/ports",
        proves: "devices that send nothing for XDP are refused as ports, in one sentence with what to do instead, and what was there stays",
        run: |_| refused(),
    }]
}

fn configuration(port: &str) -> String {
    format!("devices = [\"{LEFT}\"]\nports = [\"{RIGHT}\", \"{port}\"]\n")
}

fn refused() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let good = format!("devices = [\"{LEFT}\"]\nports = [\"{RIGHT}\"]\n");
    daemon.apply(&good)?;
    topology::ip_in(
        INGRESS,
        &format!(
            "link add link {RIGHT} name tagged type vlan id 7
             link add quiet type veth peer name other-end
             link add nowhere type dummy
             link set tagged up
             link set quiet up
             link set nowhere up"
        ),
    )?;
    for (port, expected) in [
        (
            "tagged",
            "tagged is the device of a VLAN, which sends nothing for XDP; make right the port",
        ),
        (
            "quiet",
            "quiet sends nothing for XDP while its other end has neither GRO nor an XDP program",
        ),
        (
            "nowhere",
            "nowhere sends nothing for XDP, as its driver cannot; take another device",
        ),
    ] {
        let said = daemon.apply_refused(&configuration(port))?;
        ensure!(
            said.starts_with(&format!("hike: port {port}: ")) && said.contains(expected),
            "it says `{said}`"
        );
        let differs = daemon.diff(&good)?;
        ensure!(differs.is_empty(), "{differs:?} has changed");
    }
    daemon.stop()
}
