// SPDX-License-Identifier: GPL-2.0

//! The daemon's access list and classes of flows: what they do to packets, what they count, and how changes by others are mended.

use std::net::{Ipv6Addr, UdpSocket};

use anyhow::{ensure, Result};
use aya::maps::{Array, HashMap, Map, MapData};
use serde_json::Value;

use super::daemon::{Daemon, Place};
use crate::hike::network::{Network, DST_V6, INGRESS, LEFT, SRC, SRC_V6};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::netns;

/// The flow with a class of its own comes from this port.
const FLOW_PORT: u16 = 7_001;
const OTHER_PORT: u16 = 7_002;
/// The port for which packets are denied.
const DENIED_PORT: u16 = 9_002;
const OPEN_PORT: u16 = 9_003;
/// Datagrams of each kind.
const DATAGRAMS: u64 = 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/rules-and-flows",
        proves: "packets meet the rules and the classes of flows that hiked was given; counts of a list go on as long as it stays; others' changes are told and mended",
        run: |_| rules_and_flows(),
    }]
}

fn configuration(spare: &str) -> String {
    format!(
        r#"
devices = ["{LEFT}"]
rules = [
  {{ action = "deny", destination = "{DST_V6}", protocol = 17, destination-ports = "{DENIED_PORT}-{DENIED_PORT}" }},
  {{ action = "allow", source = "{SRC_V6}/128" }},
]

[chains]
guarded = "acl,lanes,fw-kernel"
none = "drop"
spare = "{spare}"

[classes]
"{DST_V6}" = {{ chain = "guarded", lanes = "split" }}

[flows.mine]
source = "{SRC_V6}"
destination = "{DST_V6}"
protocol = 17
source-port = {FLOW_PORT}
destination-port = {OPEN_PORT}
class = {{ chain = "none" }}
"#
    )
}

fn rules_and_flows() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let wanted = configuration("drop");
    let revision = daemon.apply(&wanted)?;
    ensure!(daemon.diff(&wanted)?.is_empty(), "it differs at once");
    send(&daemon, 1)?;
    // The list stays, and so do its counts, when something else changes.
    let changed = configuration("fw-kernel");
    let next = daemon.apply(&changed)?;
    ensure!(next == revision + 1, "revision {next}");
    send(&daemon, 2)?;
    // Another list counts again.
    let list = changed.replace(
        "{ action = \"allow\"",
        "{ action = \"allow\", protocol = 17",
    );
    daemon.apply(&list)?;
    let counts = counts(&daemon)?;
    ensure!(counts == [0, 0], "another list begins with {counts:?}");
    mended(&place, &daemon, &list)?;
    let shown = daemon.show("show")?;
    ensure!(
        daemon.diff(&shown)?.is_empty(),
        "it shows something else: {shown}"
    );
    let rules = daemon.show("show rules")?;
    ensure!(
        rules.starts_with("rules = [\n  {") && rules.lines().count() == 4,
        "the rules are {rules}"
    );
    refusals(&daemon, &list)?;
    daemon.stop()
}

/// Sends [`DATAGRAMS`] of each kind, and waits until `times` that number have been counted in all.
fn send(daemon: &Daemon<'_>, times: u64) -> Result<()> {
    netns::within(SRC, || {
        for (from, to) in [
            (FLOW_PORT, OPEN_PORT),
            (OTHER_PORT, OPEN_PORT),
            (OTHER_PORT, DENIED_PORT),
        ] {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, from))?;
            for _ in 0..DATAGRAMS {
                socket.send_to(&[0; 16], (DST_V6, to))?;
            }
        }
        Ok(())
    })?;
    let each = times * DATAGRAMS;
    wait_until("all are counted", || {
        Ok(daemon.counted("denied")? >= each
            && daemon.counted("by-program")? >= each
            && daemon.counted("by-chain")? >= each)
    })?;
    let counts = counts(daemon)?;
    let reasons = [
        daemon.counted("denied")?,
        daemon.counted("by-program")?,
        daemon.counted("by-chain")?,
    ];
    ensure!(
        counts == [each, each] && reasons == [each; 3],
        "of {each} datagrams of each kind, rules have decided on {counts:?}, and reasons count {reasons:?}"
    );
    let metrics = daemon.show("metrics")?;
    let line = format!("\nhike_rule_packets_total{{rule=\"1\",action=\"deny\"}} {each}\n");
    ensure!(metrics.contains(&line), "the metrics are {metrics}");
    Ok(())
}

fn counts(daemon: &Daemon<'_>) -> Result<Vec<u64>> {
    let rules = daemon.ask("rules")?;
    let rules = rules.as_array().into_iter().flatten();
    Ok(rules.filter_map(|rule| rule["packets"].as_u64()).collect())
}

/// Removes the flow from its table, and has packets meet no rules, as others could. The daemon has to tell that, and to mend it.
fn mended(place: &Place, daemon: &Daemon<'_>, wanted: &str) -> Result<()> {
    let revision = daemon.apply(wanted)?;
    let open = |name: &str| -> Result<Map> {
        let pin = place.pins.join(format!("{revision}/{name}"));
        Ok(Map::from_map_data(MapData::from_pin(pin)?)?)
    };
    let mut flows: HashMap<MapData, [u8; 48], u64> = open("exact_flows")?.try_into()?;
    let keys: Vec<[u8; 48]> = flows.keys().collect::<Result<_, _>>()?;
    ensure!(keys.len() == 1, "there are {} flows", keys.len());
    flows.remove(&keys[0])?;
    let mut bank: Array<MapData, u32> = open("rule_bank")?.try_into()?;
    bank.set(0, 0, 0)?;
    let found = daemon.diff(wanted)?;
    let kinds: Vec<[&str; 2]> = found
        .iter()
        .map(|one| [one[0].as_str(), one[1].as_str()])
        .collect();
    ensure!(
        kinds == [["rule", "1"], ["rule", "2"], ["flow", "mine"]],
        "it says {found:?}"
    );
    let mended = daemon.apply(wanted)?;
    ensure!(mended == revision + 1, "revision {mended}");
    let left = daemon.diff(wanted)?;
    ensure!(left.is_empty(), "{left:?} is left");
    Ok(())
}

/// Checks that configurations that cannot work are refused, each with one sentence.
fn refusals(daemon: &Daemon<'_>, good: &str) -> Result<()> {
    daemon.refuses(
        &good.replace("\"allow\"", "\"deny\", source-ports = 70000"),
        "hike: FILE:5: rule 2: source-ports is 70000: 0 to 65535 are allowed",
    )?;
    daemon.refuses(
        &good.replace("guarded = \"acl,lanes,", "guarded = \"acl,"),
        "hike: FILE:14: class fd00:4::2: the chain guarded has no lanes, which hands that on; add it to the chain, or leave lanes out",
    )?;
    daemon.refuses(
        &good.replace("chain = \"none\"", "chain = \"nobody\""),
        "hike: FILE:16: flow mine: there is no chain `nobody`; there are guarded, none, spare",
    )?;
    let said: Value = daemon.ask("show flows")?;
    ensure!(
        said["mine"]["source-port"] == FLOW_PORT,
        "the flows are {said}"
    );
    Ok(())
}
