// SPDX-License-Identifier: GPL-2.0

//! Counts of local SIDs: RFC 8986, 6.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use serde_json::{json, Value};

use super::daemon::{Daemon, Place};
use crate::hike::network::{Network, EGRESS, INGRESS, LEFT, RIGHT, TUNNEL_SOURCE};
use crate::hike::peers::kernel::{by_kernel, frame, Shape, Wire, ETHERNET_BYTES, HOP_LIMIT};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::topology;

/// Packets that are sent each time.
const PACKETS: u64 = 5;
const SIDS: u16 = 3;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "manager/sids",
        proves: "each local SID counts the packets and bytes that its behaviour was done to, also where SIDs have one behaviour; the counts survive transactions, failed ones too, and restarts",
        run: |_| counts(),
    }]
}

/// Returns a configuration whose SIDs have one behaviour, and with these classes beside.
fn configuration(classes: &str) -> String {
    format!(
        r#"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]

[chains]
local = "dec"

[behaviours]
exit = {{ action = "End.DT46" }}

[classes]
"fc00:3::4" = {{ chain = "local", behaviour = "exit" }}
"fc00:3::6" = {{ chain = "local", behaviour = "exit" }}
{classes}
"#
    )
}

/// Sends packets to the SID of one version.
fn send(wire: &Wire, v6: bool) -> Result<u64> {
    let shape = Shape {
        v6,
        mode: Mode::Encaps,
        sids: SIDS,
    };
    let inner = frame(shape, 0, HOP_LIMIT)?;
    by_kernel(shape, |()| {
        for _ in 0..PACKETS {
            wire.carry(&inner)?;
        }
        Ok(())
    })?;
    let outer_bytes = 40 + 8 + 16 * u64::from(SIDS);
    // CAST: some dozens.
    Ok(PACKETS * (outer_bytes + (inner.len() - ETHERNET_BYTES) as u64))
}

/// Waits until exactly this is counted: packets and bytes of each SID.
fn is(daemon: &Daemon<'_>, counts: &[(&str, [u64; 2])]) -> Result<()> {
    let expected: Vec<Value> = counts
        .iter()
        .map(|(sid, [packets, bytes])| {
            json!({ "destination": sid, "behaviour": "exit", "packets": packets, "bytes": bytes })
        })
        .collect();
    let mut seen = Value::Null;
    wait_until("packets are counted", || {
        seen = daemon.ask("sids")?;
        Ok(seen == Value::from(expected.clone()))
    })
    .with_context(|| format!("counted are {seen}, and not {expected:?}"))
}

fn counts() -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let wire = Wire::open()?;
    let place = Place::new(EGRESS);
    let daemon = place.start()?;
    daemon.apply(&configuration(""))?;
    let (four, six, none) = ("fc00:3::4", "fc00:3::6", [0, 0]);
    is(&daemon, &[(four, none), (six, none)])?;
    let bytes = send(&wire, true)?;
    is(&daemon, &[(four, none), (six, [PACKETS, bytes])])?;
    // One more SID in front of both: the places in the tables are others.
    let more = "\"fc00:3::1\" = { chain = \"local\", behaviour = \"exit\" }";
    daemon.apply(&configuration(more))?;
    let bytes4 = send(&wire, false)?;
    let both = [(four, [PACKETS, bytes4]), (six, [PACKETS, bytes])];
    let [first, second] = both;
    is(&daemon, &[("fc00:3::1", none), first, second])?;
    daemon.apply(&configuration(""))?;
    is(&daemon, &both)?;
    let metrics = daemon.show("metrics")?;
    for line in [
        format!("hike_sid_packets_total{{sid=\"{six}\",behaviour=\"exit\"}} {PACKETS}"),
        format!("hike_sid_bytes_total{{sid=\"{six}\",behaviour=\"exit\"}} {bytes}"),
    ] {
        ensure!(
            metrics.lines().any(|one| one == line),
            "no {line}: {metrics}"
        );
    }
    daemon.kill()?;
    // A transaction that fails leaves counts as they are, too.
    for step in ["filled", "switched"] {
        let daemon = place.start_with(&format!("{step}=1*return->off"))?;
        let said = daemon.apply_refused(&configuration(more))?;
        ensure!(said.contains("made to fail"), "it says `{said}`");
        is(&daemon, &both)?;
        daemon.stop()?;
    }
    let daemon = place.start()?;
    is(&daemon, &both)?;
    let bytes = bytes + send(&wire, true)?;
    is(&daemon, &[first, (six, [2 * PACKETS, bytes])])?;
    // One that has gone begins again.
    let without = configuration("").replace("\"fc00:3::4\" = {", "\"fc00:3::5\" = {");
    daemon.apply(&without)?;
    is(&daemon, &[("fc00:3::5", none), (six, [2 * PACKETS, bytes])])?;
    daemon.apply(&configuration(""))?;
    is(&daemon, &[(four, none), (six, [2 * PACKETS, bytes])])?;
    daemon.stop()
}
