// SPDX-License-Identifier: GPL-2.0

//! tcpdump is started and stopped while traffic flows: its copies of packets must not disturb the originals.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::cases::{Case, Run};
use crate::machine::cpu;
use crate::mflow::Knobs;
use crate::network::tcpdump;
use crate::network::topology::CONTAINER;
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live, Load};

/// The CPU that tcpdump runs on: a lane is not spared.
const CPU: usize = cpu::LANES[3];

/// Every device a packet of the flow passes on the server, and the namespace it is in.
const DEVICES: &[(Option<&str>, &str)] = &[
    (None, "eth0"),
    (None, "vxlan0"),
    (None, "br0"),
    (None, "veth0"),
    (Some(CONTAINER), "eth0"),
];

pub(crate) fn datagrams() -> Vec<Case> {
    cases::<Datagrams>("vxlan0")
}

pub(crate) fn streams() -> Vec<Case> {
    // tcpdump clones inner packets here, and outer ones in the short run with datagrams.
    cases::<Streams>("veth0")
}

/// Returns a case for each device; that of `short` is in the short run, too.
fn cases<L: Load>(short: &'static str) -> Vec<Case> {
    let case = |&(namespace, device): &(Option<&'static str>, &'static str)| {
        let place = namespace.unwrap_or("host");
        Case::of_traffic(
            format!("{}capture/{place}-{device}", L::GROUP),
            format!(
                "tcpdump on {device} ({place}) comes and goes{}",
                L::UNNOTICED
            ),
            Run::always_if(device == short),
            move |rig| {
                // The first capture in the system switches time stamps on, which patches the kernel's code in the
                // background: that shall not happen under load.
                let _time_stamps = tcpdump::start(None, "lo", CPU)?;
                thread::sleep(Duration::from_millis(500));
                rig.strict(&rig.plan::<L>(), &Knobs::default(), |live| {
                    come_and_go(namespace, device, live)
                })
            },
        )
    };
    DEVICES.iter().map(case).collect()
}

fn come_and_go(namespace: Option<&str>, device: &str, live: &impl Live) -> Result<()> {
    for _ in 0..3 {
        let mut capture = tcpdump::start(namespace, device, CPU)?;
        live.flow_for(Duration::from_millis(400))?;
        capture.must_run()?;
        drop(capture);
        live.flow_for(Duration::from_millis(100))?;
    }
    Ok(())
}
