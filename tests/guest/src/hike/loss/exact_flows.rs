// SPDX-License-Identifier: GPL-2.0

//! Classes of exact flows come and go, and those of destinations beside them.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{ensure, Context as _, Result};
use aya::programs::{TestRun as _, TestRunOptions};
use etherparse::PacketBuilder;
use mflow_hike::{Class, Destination, Engine, ExactFlow, Hike};

use crate::hike::{instance, Case, TEST_RUN_MAC};

const SOURCE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const PORTS: (u16, u16) = (1_000, 53);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "tables/exact-flows",
        proves: "a flow has its own class, whatever its destination has; without it, packets have that of the destination again",
        run: |_| exact_flows(),
    }]
}

fn exact_flows() -> Result<()> {
    let mut hike = instance(Engine::Compiled)?;
    let mut class = |text: &str| -> Result<Class> {
        Ok(Class {
            chain: hike.add_chain(&text.parse()?)?,
            path: None,
            lanes: None,
        })
    };
    let (by_ports, by_label) = (class("drop")?, class("fw-table")?);
    let (of_destination, of_all) = (class("fw-kernel")?, class("fw-table")?);
    let ports = ExactFlow::Ports {
        source: SOURCE.into(),
        destination: DESTINATION.into(),
        protocol: 17,
        ports: PORTS,
    };
    let label = ExactFlow::Label {
        source: SOURCE,
        destination: DESTINATION,
        label: 7,
    };
    let to = Destination::Address(IpAddr::V6(DESTINATION));
    // What becomes of the flow by ports, of the one by label, and of another one.
    let seen = |hike: &mut Hike| -> Result<[&'static str; 3]> {
        Ok([
            reason(hike, 7, PORTS)?,
            reason(hike, 7, (1, 2))?,
            reason(hike, 8, (1, 2))?,
        ])
    };
    let expect = |hike: &mut Hike, expected: [&str; 3], when: &str| {
        let seen = seen(hike)?;
        ensure!(seen == expected, "{when}: {seen:?}, and not {expected:?}");
        Ok(())
    };
    let hike = &mut hike;
    expect(hike, ["no-class"; 3], "nothing")?;
    hike.set_flow_class(&ports, by_ports)?;
    expect(hike, ["by-program", "no-class", "no-class"], "a flow alone")?;
    hike.set_class(Destination::Default, of_all)?;
    let rest = "fw-no-route";
    expect(hike, ["by-program", rest, rest], "with a default")?;
    hike.set_class(to, of_destination)?;
    let rest = "by-chain";
    expect(hike, ["by-program", rest, rest], "with a destination")?;
    hike.set_flow_class(&label, by_label)?;
    let mut expected = ["by-program", "fw-no-route", rest];
    expect(hike, expected, "two flows")?;
    hike.remove_flow_class(&ports)?;
    expected[0] = expected[1];
    expect(hike, expected, "one removed")?;
    hike.remove_class(to)?;
    hike.set_flow_class(&label, by_ports)?;
    expect(
        hike,
        ["by-program", "by-program", "fw-no-route"],
        "without the destination",
    )?;
    let refused = hike
        .remove_chain(by_ports.chain)
        .map_err(|error| error.to_string());
    ensure!(
        refused
            == Err(format!(
                "the class of {label} takes this chain; change that first"
            )),
        "{refused:?}"
    );
    hike.remove_flow_class(&label)?;
    expect(hike, ["fw-no-route"; 3], "with the default alone")?;
    hike.remove_class(Destination::Default)?;
    expect(hike, ["no-class"; 3], "nothing again")
}

/// Runs one packet; returns what has become of it.
fn reason(hike: &mut Hike, label: u32, ports: (u16, u16)) -> Result<&'static str> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], TEST_RUN_MAC)
        .ipv6(SOURCE.octets(), DESTINATION.octets(), 64)
        .udp(ports.0, ports.1)
        .write(&mut frame, &[])?;
    frame[14..18].copy_from_slice(&(6 << 28 | label).to_be_bytes());
    let before = hike.reasons()?;
    hike.dispatcher()?.test_run(TestRunOptions {
        data_in: Some(&frame),
        ..TestRunOptions::default()
    })?;
    let after = hike.reasons()?;
    let mut grown = after
        .iter()
        .zip(&before)
        .filter(|(after, before)| after.1 > before.1);
    let ((reason, _), _) = grown.next().context("the packet was not counted")?;
    Ok(reason.name)
}
