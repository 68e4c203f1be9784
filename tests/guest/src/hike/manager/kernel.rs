// SPDX-License-Identifier: GPL-2.0

//! SRv6 routes of the kernel, H.Encaps and local SIDs, that the daemon makes as a part of its transactions, while packets take
//! them.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::HOPS_TABLE;

use super::daemon::{Daemon, Place};
use crate::hike::loss::numbered_datagrams::{under_traffic, Look};
use crate::hike::network::{
    mac, sids, text, Network, DST_V4, DST_V6, EGRESS, INGRESS, LEFT, RIGHT, SRC, TUNNEL_SOURCE,
    WAY1,
};
use crate::hike::peers::kernel::{by_kernel, frame, Shape, Wire, HOP_LIMIT, MARK};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::{netns, topology};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "manager/kernel-routes",
            proves: "the kernel's routes and local SIDs are part of a transaction: hiked is killed or fails at each step, no packet is lost, and there is the old or the new route, and nothing of both",
            run: |_| transactions(),
        },
        Case {
            name: "manager/kernel-others",
            proves: "routes of others are never touched; what others do to ours is told and mended; what the kernel refuses undoes all",
            run: |_| others(),
        },
        Case {
            name: "manager/link-local-hops",
            proves: "End.X forwards to a link-local next hop, for which hiked keeps a route of the kernel in a table of its own; what others do to that is told and mended",
            run: |_| hops(),
        },
    ]
}

/// The looks of packets that the kernel has put on one of two paths. The kernel copies the flow label, which the sender has been
/// told not to write.
const ONE: Look = look(2);
const OTHER: Look = look(3);

const fn look(sids: u8) -> Look {
    Look {
        label: 0,
        sids,
        source: 1,
        coloured: false,
    }
}

/// Returns a configuration with every behaviour that needs no VRF.
fn configuration(look: Look) -> String {
    let listed = |v6| {
        let sids = sids(look.sids.into(), v6).into_iter();
        let sids: Vec<String> = sids.map(|sid| format!("\"{sid}\"")).collect();
        sids.join(", ")
    };
    let (v6, v4, table) = (listed(true), listed(false), 1_000 + u32::from(look.sids));
    format!(
        r#"
[kernel-routes]
way = {{ destination = "{DST_V6}", device = "{RIGHT}", sids = [{v6}] }}
four = {{ destination = "{DST_V4}", device = "{RIGHT}", sids = [{v4}], mode = "reduced", via = "10.9.1.2", metric = 7 }}
elsewhere = {{ destination = "2001:db8:{table}::/48", device = "{RIGHT}", sids = ["fc00::1"], table = {table}, via = "fd00:1::2" }}
end = {{ destination = "fc00:a::/64", device = "{RIGHT}", action = "End" }}
psp = {{ destination = "fc00:b::/64", device = "{RIGHT}", action = "End", flavours = ["psp"] }}
x = {{ destination = "fc00:c::/64", device = "{RIGHT}", action = "End.X", next-hop = "fd00:1::2" }}
t = {{ destination = "fc00:d::/64", device = "{RIGHT}", action = "End.T", lookup-table = {table} }}
dx6 = {{ destination = "fc00:e::/64", device = "{RIGHT}", action = "End.DX6", next-hop = "fd00:1::2" }}
dx4 = {{ destination = "fc00:f::/64", device = "{RIGHT}", action = "End.DX4", next-hop = "10.9.1.2" }}
dt6 = {{ destination = "fc00:10::/64", device = "{RIGHT}", action = "End.DT6", lookup-table = {table} }}
"#
    )
}

/// The numbers of routes in that configuration: of IPv4, and of IPv6.
const ROUTES: [usize; 2] = [1, 9];

/// Returns the kernel's routes in `node`, of IPv4 and of IPv6: ours, or all others that do not expire.
fn routes(node: &str, ours: bool) -> Result<[Vec<String>; 2]> {
    let list = |family: &str| -> Result<Vec<String>> {
        let said = netns::run(node, &format!("ip {family} -d route show table all"))?;
        let lines = said.lines().map(str::trim);
        let lines = lines.filter(|line| line.contains("proto 72") == ours);
        // What the kernel learns of hosts comes and goes.
        let lines = lines.filter(|line| ours || !line.contains("expires"));
        Ok(lines.map(str::to_owned).collect())
    };
    Ok([list("-4")?, list("-6")?])
}

/// Fails unless the kernel has exactly this configuration, and no other routes with our protocol number.
fn is(daemon: &Daemon<'_>, look: Look) -> Result<()> {
    let differences = daemon.diff(&configuration(look))?;
    ensure!(differences.is_empty(), "it differs: {differences:?}");
    let ours = routes(INGRESS, true)?;
    ensure!(
        [ours[0].len(), ours[1].len()] == ROUTES,
        "the kernel has {ours:?}"
    );
    Ok(())
}

/// The steps of a transaction, and whether it has been committed by then.
const STEPS: [(&str, bool); 6] = [
    ("made", false),
    ("monitored", false),
    ("routed", false),
    ("committed", true),
    ("counted", true),
    ("settled", true),
];

fn transactions() -> Result<()> {
    let _network = Network::up()?;
    netns::within(SRC, || topology::sysctl("net/ipv6/auto_flowlabels", "0"))?;
    let place = Place::new(INGRESS);
    let first = place.start()?;
    first.apply(&configuration(ONE))?;
    is(&first, ONE)?;
    first.stop()?;
    under_traffic(&[ONE, OTHER], |seen| {
        seen.only(ONE)?;
        let mut now = ONE;
        for (step, commits) in STEPS {
            let to = if now == ONE { OTHER } else { ONE };
            let what = format!("at {step}");
            if !commits {
                let daemon = place.start_with(&format!("{step}=1*return->off"))?;
                let said = daemon.apply_refused(&configuration(to))?;
                ensure!(said.contains("made to fail"), "it says `{said}`");
                is(&daemon, now).with_context(|| what.clone())?;
                daemon.stop()?;
            }
            let once = match step {
                "counted" | "settled" => "1*off->",
                _ => "",
            };
            let daemon = place.start_with(&format!("{step}={once}return(kill)"))?;
            ensure!(daemon.apply(&configuration(to)).is_err(), "it was applied");
            daemon.killed()?;
            now = if commits { to } else { now };
            let daemon = place.start()?;
            is(&daemon, now).with_context(|| what.clone())?;
            seen.only(now).with_context(|| what)?;
            daemon.stop()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn hops() -> Result<()> {
    let _network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let wire = Wire::open()?;
    let hop = "fe80::22";
    let neighbour = text(mac(2, 2));
    let known = format!("neighbour replace {hop} lladdr {neighbour} dev {RIGHT}");
    topology::ip_in(WAY1, &known)?;
    let place = Place::new(WAY1);
    let daemon = place.start()?;
    let wanted = format!(
        r#"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]

[chains]
next = "end-x"

[behaviours]
one = {{ action = "End.X", next-hop = "{hop}", device = "{RIGHT}" }}
same = {{ action = "End.X", next-hop = "{hop}", device = "{RIGHT}", flavours = ["psp"] }}

[classes]
"fc00:1::/32" = {{ chain = "next", behaviour = "one" }}
"#
    );
    daemon.apply(&wanted)?;
    let carried = |times: u64| -> Result<()> {
        ensure!(daemon.diff(&wanted)?.is_empty(), "it differs");
        let shape = Shape {
            v6: true,
            mode: Mode::Encaps,
            sids: 3,
        };
        let packet = frame(shape, 0, HOP_LIMIT)?;
        // The first waypoint's socket sees nothing of what HIKE takes in the driver.
        by_kernel(shape, |()| {
            wire.src.send(&packet)?;
            wire.dst.receive(&MARK).map(drop)
        })?;
        let forwarded = daemon.counted("forwarded")?;
        ensure!(forwarded == times, "{forwarded} of {times} are forwarded");
        Ok(())
    };
    carried(1)?;
    let [_, ours] = routes(WAY1, true)?;
    ensure!(
        ours.len() == 1 && ours[0].contains(&format!("via {hop} dev {RIGHT} table {HOPS_TABLE}")),
        "the kernel has {ours:?}"
    );
    netns::run(WAY1, &format!("ip -6 route flush table {HOPS_TABLE}"))?;
    let found = daemon.diff(&wanted)?;
    let found: Vec<[&str; 2]> = found
        .iter()
        .map(|one| [one[0].as_str(), one[1].as_str()])
        .collect();
    let kind = "behaviour";
    ensure!(
        found == [[kind, "one"], [kind, "same"]],
        "it says {found:?}"
    );
    daemon.apply(&wanted)?;
    carried(2)?;
    // The kernel forgets routes of a device that is down, and neighbours.
    topology::ip_in(WAY1, &format!("link set {RIGHT} down"))?;
    wait_until("the route is gone", || {
        Ok(!daemon.diff(&wanted)?.is_empty())
    })?;
    topology::ip_in(WAY1, &format!("link set {RIGHT} up\n{known}"))?;
    wait_until("the route is there again", || {
        Ok(daemon.diff(&wanted)?.is_empty())
    })?;
    daemon.stop()?;
    drop(place);
    let ours = routes(WAY1, true)?;
    ensure!(ours.iter().all(Vec::is_empty), "it has left {ours:?}");
    Ok(())
}

fn others() -> Result<()> {
    let _network = Network::up()?;
    let before = routes(EGRESS, false)?;
    let place = Place::new(EGRESS);
    let daemon = place.start()?;
    let of = |text: &str| {
        format!("[kernel-routes]\na = {{ destination = \"fc00:8::/64\", device = \"{RIGHT}\", action = \"End\" }}\n{text}\n")
    };
    // A SID that the node has already, from somebody else.
    let taken = format!("b = {{ destination = \"fc00:3::6\", device = \"{RIGHT}\", action = \"End.DX6\", next-hop = \"{DST_V6}\" }}");
    let nothing = |of: &str| -> Result<()> {
        let ours = routes(EGRESS, true)?;
        ensure!(ours.iter().all(Vec::is_empty), "{of} has left {ours:?}");
        ensure!(
            routes(EGRESS, false)? == before,
            "{of}: others' routes are others"
        );
        Ok(())
    };
    daemon.refuses(
        &of(&taken),
        "hike: kernel-route b: fc00:3::6 has a route that is not ours in table 254 with metric 1024; remove that, or take another metric",
    )?;
    nothing("a route that others have")?;
    let vrf = format!("b = {{ destination = \"fc00:9::/64\", device = \"{RIGHT}\", action = \"End.DT46\", vrf-table = 77 }}");
    let said = daemon.apply_refused(&of(&vrf))?;
    ensure!(
        said.starts_with("hike: kernel-route b: the kernel refuses it: ")
            && said.ends_with("; it needs a VRF's device of this table, and net.vrf.strict_mode"),
        "it says `{said}`"
    );
    nothing("a VRF that is not there")?;
    let missing = "b = { destination = \"fc00:9::/64\", device = \"eth77\", action = \"End\" }";
    let said = daemon.apply_refused(&of(missing))?;
    let expected = "hike: kernel-route b: there is no device eth77; there are ";
    ensure!(said.starts_with(expected), "it says `{said}`");
    nothing("a device that is not there")?;
    // With another metric it is another route, and the kernel goes on with the first.
    let wanted = of(&taken.replace("device", "metric = 2000, device"));
    daemon.apply(&wanted)?;
    ensure!(daemon.diff(&wanted)?.is_empty(), "it differs at once");
    let shown = daemon.show("show kernel-routes")?;
    ensure!(
        shown.contains("a = { action = \"End\", destination = \"fc00:8::/64\"")
            && shown.lines().count() == 3,
        "it shows {shown}"
    );
    topology::ip_in(
        EGRESS,
        &format!(
            "route del fc00:8::/64 proto 72
             route add fc00:7::/64 dev {RIGHT} proto 72"
        ),
    )?;
    let found = daemon.diff(&wanted)?;
    let found: Vec<[&str; 2]> = found
        .iter()
        .map(|one| [one[0].as_str(), one[1].as_str()])
        .collect();
    let kind = "kernel-route";
    ensure!(
        found == [[kind, "(nameless 1)"], [kind, "a"]],
        "it says {found:?}"
    );
    daemon.apply(&wanted)?;
    let left = daemon.diff(&wanted)?;
    ensure!(left.is_empty(), "{left:?} is left");
    daemon.stop()?;
    drop(place);
    nothing("hiked --remove")
}
