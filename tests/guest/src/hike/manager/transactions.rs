// SPDX-License-Identifier: GPL-2.0

//! The daemon and its command: transactions under traffic, whatever becomes of the daemon.

use std::fs;

use anyhow::{ensure, Context as _, Result};
use aya::maps::{HashMap, Map, MapData, PerCpuHashMap};
use mflow_hike::Hook;
use nix::net::if_::if_nametoindex;

use super::daemon::{Daemon, Place};
use super::notes;
use crate::hike::loss::numbered_datagrams::{under_traffic, Look, Seen};
use crate::hike::network::{mac, sids, text, Network, DST_V6, INGRESS, LEFT, RIGHT, TUNNEL_SOURCE};
use crate::hike::{Case, Scale};
use crate::machine::command::wait_until;
use crate::network::{netns, topology};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "manager/apply",
            proves: "a configuration is replaced whole under traffic; one that cannot be is refused in one sentence, and changes nothing",
            run: |_| apply(),
        },
        Case {
            name: "manager/killed",
            proves: "hiked is killed at each step of a transaction: no packet is lost or takes a mixture, and the next one finishes or undoes it",
            run: |_| killed(Hook::Xdp, &STEPS),
        },
        Case {
            name: "manager/failed",
            proves: "steps of a transaction fail: all is as before, for each packet, too",
            run: failed,
        },
        Case {
            name: "manager/restart",
            proves: "hiked ends, is killed, and is replaced by another version: traffic and counters do not notice",
            run: |_| restart(Hook::Xdp),
        },
        Case {
            name: "manager/diff",
            proves: "what others have changed in the kernel is told, and mended",
            run: |_| diff(),
        },
        Case {
            name: "manager/tcx-killed",
            proves: "at tcx, hiked is killed at steps of a transaction: no packet is lost or takes a mixture, and the next one finishes or undoes it",
            run: |scale| killed(Hook::Tcx, &scale.drawn(STEPS, 3)),
        },
        Case {
            name: "manager/tcx-restart",
            proves: "at tcx, hiked ends, is killed, and is replaced by another version: traffic and counters do not notice; a link that others take is told and mended",
            run: |_| restart(Hook::Tcx),
        },
    ]
}

/// Two configurations that differ in every part, and what their packets look like.
const ONE: Look = Look {
    label: 1,
    sids: 2,
    source: 0xaa,
    coloured: false,
};
const OTHER: Look = Look {
    label: 2,
    sids: 3,
    source: 0xbb,
    coloured: true,
};
const LOOKS: [Look; 2] = [ONE, OTHER];

/// The steps of a transaction.
const STEPS: [&str; 9] = [
    "begun",
    "filled",
    "made",
    "monitored",
    "routed",
    "switched",
    "committed",
    "counted",
    "settled",
];
/// Those before it is committed, and those after it.
const BEFORE: &[&str] = STEPS.split_at(6).0;
const AFTER: &[&str] = STEPS.split_at(6).1;

/// The same of what leaves on the right: programs of local SIDs do not run there.
fn configuration_at(hook: Hook, look: Look) -> String {
    let text = configuration(look);
    if hook == Hook::Xdp {
        return text;
    }
    let lines = text.lines();
    let lines: Vec<&str> = lines
        .filter(|line| !line.starts_with("local = ") && !line.starts_with("\"fc00:9::/32\""))
        .collect();
    let text = lines.join("\n");
    let text = text.replace(
        &format!("devices = [\"{LEFT}\"]"),
        &format!("devices = [\"{RIGHT}\"]"),
    );
    format!("hook = \"tcx\"\n{text}\n")
}

fn configuration(look: Look) -> String {
    let chain = if look.coloured {
        "acl,enc,mon-in,fw-table"
    } else {
        "acl,enc,fw-table"
    };
    let Look { label, source, .. } = look;
    let sids = sids(look.sids.into(), true).into_iter();
    let sids: Vec<String> = sids.map(|sid| format!("\"{sid}\"")).collect();
    let sids = sids.join(", ");
    let next_hop = text(mac(1, 2));
    let table = 1_000 + label;
    let monitor = if look.coloured { "way" } else { "path" };
    format!(
        r#"
engine = "compiled"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]
rules = [{{ action = "deny", source = "2001:db8:{label}::/48" }}, {{ action = "allow", protocol = 17 }}]

[chains]
edge = "{chain}"
local = "lanes,dec"

[behaviours]
exit = {{ action = "End.DT46", table = {table} }}

[paths.way]
source = "{TUNNEL_SOURCE}"
sids = [{sids}]
flow-label = {label}

[classes]
"{DST_V6}" = {{ chain = "edge", path = "way" }}
"2001:db8::/32" = "kernel"
"fc00:9::/32" = {{ chain = "local", behaviour = "exit", lanes = "never" }}

[flows]
other = {{ source = "2001:db8::{label}", destination = "{DST_V6}", protocol = 17, source-port = 53, class = "kernel" }}

[routes]
"fc00::/16" = {{ port = "{RIGHT}", next-hop = "{next_hop}", source = "02:00:00:00:00:{source:02x}" }}

[monitors]
{monitor} = {{ direction = "in", path = "way", dscp-bit = 0, period-ms = 200 }}
"#
    )
}

/// The surroundings of a test under traffic: the place of the daemon, the packets as they are seen, and the hook at which they
/// take chains.
struct Under<'a> {
    place: &'a Place,
    seen: &'a Seen,
    hook: Hook,
}

/// Runs `work` under traffic that the first configuration forwards, and holds what was counted against what was sent.
fn managed(hook: Hook, work: impl FnOnce(&Under<'_>) -> Result<()>) -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let first = place.start()?;
    first.apply(&configuration_at(hook, ONE))?;
    first.stop()?;
    let (sent, ()) = under_traffic(&LOOKS, |seen| {
        seen.only(ONE)?;
        let place = &place;
        work(&Under { place, seen, hook })
    })?;
    let forwarded = place.start()?.counted("forwarded")?;
    ensure!(
        forwarded == sent,
        "{sent} datagrams were sent, and {forwarded} counted as forwarded"
    );
    Ok(())
}

impl Under<'_> {
    fn configuration(&self, look: Look) -> String {
        configuration_at(self.hook, look)
    }

    /// Holds that there is exactly this, and that packets look like it.
    fn is(&self, daemon: &Daemon<'_>, look: Look) -> Result<()> {
        let differences = daemon.diff(&self.configuration(look))?;
        ensure!(
            differences.is_empty(),
            "what is there differs: {differences:?}"
        );
        let generations = self.place.generations()?;
        ensure!(
            generations.len() == 1,
            "there are generations {generations:?}"
        );
        self.seen.only(look)
    }
}

fn apply() -> Result<()> {
    managed(Hook::Xdp, |under| {
        let daemon = under.place.start()?;
        for (look, revision) in [OTHER, ONE, OTHER, ONE].into_iter().zip(2..) {
            let reached = daemon.apply(&configuration(look))?;
            ensure!(reached == revision, "revision {reached}, not {revision}");
            under.is(&daemon, look)?;
        }
        ensure!(daemon.apply(&configuration(ONE))? == 5, "nothing differed");
        refusals(&daemon)?;
        under.is(&daemon, ONE)?;
        objects(&daemon)?;
        under.is(&daemon, ONE)
    })
}

/// Checks that configurations that cannot work are refused, each with one sentence.
fn refusals(daemon: &Daemon<'_>) -> Result<()> {
    let good = configuration(OTHER);
    daemon.refuses(
        &good.replace("flow-label = 2", "flow-label = 1048576"),
        "hike: FILE:17: path way: flow-label is 1048576: 0 to 1048575 are allowed",
    )?;
    daemon.refuses(
        &good.replace("chain = \"edge\"", "chain = \"edges\""),
        "hike: FILE:20: class fd00:4::2: there is no chain `edges`; there are edge, local",
    )?;
    // The file is good, and this host is not as it wants it.
    let said = daemon.apply_refused(&good.replace("devices = [", "devices = [\"eth77\", "))?;
    let expected = "hike: there is no device eth77; there are ";
    ensure!(said.starts_with(expected), "it says `{said}`");
    // Another program has a device: the one that was taken before it has to go back.
    topology::ip_in(INGRESS, "link add other type veth peer name other-peer")?;
    let other = Place::new(INGRESS);
    let others = other.start()?;
    others.apply("devices = [\"other\"]")?;
    let said = daemon.apply_refused(&good.replace("\"left\"]", "\"left\", \"other\"]"))?;
    let expected = "hike: device other: it takes no XDP program, or has another one already";
    ensure!(said.starts_with(expected), "it says `{said}`");
    let said = daemon.apply_refused(&configuration_at(Hook::Tcx, OTHER))?;
    let expected = "hike: what is there is at XDP, and stays there: ";
    ensure!(said.starts_with(expected), "it says `{said}`");
    Ok(())
}

/// Changes parts of a configuration with the command, and checks what it prints.
fn objects(daemon: &Daemon<'_>) -> Result<()> {
    daemon.ask("chain add spare mon-out,drop")?;
    daemon.ask("chain replace spare drop")?;
    let chains = daemon.ask("chain list")?;
    ensure!(chains["spare"] == "drop", "the chains are {chains}");
    let said = daemon.refused("chain add spare drop")?;
    ensure!(
        said == "hike: chain spare: there is one already; replace it, or take another name",
        "{said}"
    );
    let said = daemon.refused("chain remove edge")?;
    ensure!(
        said == "hike: class fd00:4::2: there is no chain `edge`; there are local, spare",
        "{said}"
    );
    daemon.ask("chain remove spare")?;
    let monitors = daemon.ask("monitor list")?;
    ensure!(
        monitors["path"]["path"] == "way",
        "the monitors are {monitors}"
    );
    let results = daemon.ask("monitor results path")?;
    ensure!(results[0]["direction"] == "in", "the results are {results}");
    let metrics = daemon.show("metrics")?;
    ensure!(
        metrics.contains("\nhike_packets_total{reason=\"forwarded\",fate=\"redirected\"} ")
            && metrics.ends_with("# EOF\n"),
        "the metrics are {metrics}"
    );
    let top = daemon.show("top --count 1")?;
    ensure!(top.contains("redirected"), "top shows {top}");
    let shown = daemon.show("show")?;
    ensure!(
        daemon.diff(&shown)?.is_empty(),
        "it shows something else: {shown}"
    );
    Ok(())
}

fn killed(hook: Hook, steps: &[&str]) -> Result<()> {
    managed(hook, |under| {
        let mut now = ONE;
        for &step in steps {
            let to = if now == ONE { OTHER } else { ONE };
            kill_at(under, step, to).with_context(|| format!("killed at {step}"))?;
            // While there is no daemon, packets take what the devices have, whole; that is watched all the time.
            if AFTER.contains(&step) {
                now = to;
            }
            let daemon = under.place.start()?;
            under
                .is(&daemon, now)
                .with_context(|| format!("after {step}"))?;
        }
        Ok(())
    })
}

/// Starts a daemon that is killed at a step of a transaction; the steps after the commit are steps of each start, too.
fn kill_at(under: &Under<'_>, step: &str, to: Look) -> Result<()> {
    let once = if ["counted", "settled"].contains(&step) {
        "1*off->"
    } else {
        ""
    };
    let daemon = under
        .place
        .start_with(&format!("{step}={once}return(kill)"))?;
    ensure!(
        daemon.apply(&under.configuration(to)).is_err(),
        "it was applied"
    );
    daemon.killed()
}

fn failed(scale: &Scale) -> Result<()> {
    managed(Hook::Xdp, |under| {
        let place = under.place;
        for step in scale.drawn(BEFORE.iter().copied(), 2) {
            let daemon = place.start_with(&format!("{step}=1*return->off"))?;
            let said = daemon.apply_refused(&configuration(OTHER))?;
            let expected = format!("hike: made to fail at `{step}`");
            ensure!(said == expected, "it says `{said}`, and not `{expected}`");
            under
                .is(&daemon, ONE)
                .with_context(|| format!("after {step}"))?;
            daemon.stop()?;
        }
        // What fails later is done by the next.
        let daemon = place.start_with("committed=1*return->off")?;
        daemon.apply(&configuration(OTHER))?;
        daemon.stop()?;
        under.is(&place.start()?, OTHER)
    })
}

fn restart(hook: Hook) -> Result<()> {
    managed(hook, |under| {
        let place = under.place;
        let daemon = place.start()?;
        daemon.apply(&under.configuration(OTHER))?;
        let counted = daemon.counted("forwarded")?;
        wait_until("a block is counted", || {
            let results = daemon.ask("monitor results way")?;
            let mut blocks = results[0]["blocks"].as_array().into_iter().flatten();
            Ok(blocks.any(|block| block["settled"] == true && block["packets"] != 0))
        })?;
        daemon.stop()?;
        let daemon = place.start()?;
        ensure!(
            daemon.counted("forwarded")? >= counted,
            "counters begin again"
        );
        under.is(&daemon, OTHER)?;
        let said = daemon.place_is_taken()?;
        ensure!(said, "a second hiked has the same place");
        daemon.kill()?;
        let daemon = place.start()?;
        under.is(&daemon, OTHER)?;
        daemon.stop()?;
        let before = place.generations()?;
        pretend_other_version(place, before[0])?;
        let daemon = place.start()?;
        ensure!(place.generations()? != before, "the old programs go on");
        under.is(&daemon, OTHER)
    })?;
    match hook {
        Hook::Xdp => Ok(()),
        Hook::Tcx => link_is_mended(),
    }
}

/// Others take what leaves by a device away from its entry at tcx.
fn link_is_mended() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let wanted = configuration_at(Hook::Tcx, ONE);
    let revision = daemon.apply(&wanted)?;
    ensure!(daemon.diff(&wanted)?.is_empty(), "it differs at once");
    let index = netns::within(INGRESS, || Ok(if_nametoindex(RIGHT)?))?;
    fs::remove_file(place.pins.join(format!("links/{index}-tcx")))?;
    let found = daemon.diff(&wanted)?;
    let expected = [["device", RIGHT, "-", "attached"].map(str::to_owned)];
    ensure!(found == expected, "it says {found:?}");
    let mended = daemon.apply(&wanted)?;
    ensure!(mended == revision + 1, "revision {mended}");
    let left = daemon.diff(&wanted)?;
    ensure!(left.is_empty(), "{left:?} is left");
    let shown = daemon.ask("show hook")?;
    ensure!(shown == "tcx", "the hook is {shown}");
    daemon.stop()
}

/// Makes the note of a generation say that its programs are of another version, and one of its maps be of another shape.
fn pretend_other_version(place: &Place, revision: u64) -> Result<()> {
    let pin = place.pins.join(format!("{revision}/id_flows_7"));
    fs::remove_file(&pin)?;
    let other: PerCpuHashMap<MapData, [u8; 136], [u8; 80]> = PerCpuHashMap::create(1, 0)?;
    other.pin(&pin)?;
    notes::make_other_version(place, revision)
}

fn diff() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    let wanted = configuration(ONE);
    let revision = daemon.apply(&wanted)?;
    ensure!(daemon.diff(&wanted)?.is_empty(), "it differs at once");
    // A class is removed from its table, and the device from XDP.
    let classes = MapData::from_pin(place.pins.join(format!("{revision}/classes")))?;
    let mut classes: HashMap<MapData, [u8; 24], u64> = Map::from_map_data(classes)?.try_into()?;
    let keys: Vec<[u8; 24]> = classes.keys().collect::<Result<_, _>>()?;
    for key in keys {
        classes.remove(&key)?;
    }
    let index = netns::within(INGRESS, || Ok(if_nametoindex(LEFT)?))?;
    fs::remove_file(place.pins.join(format!("links/{index}")))?;
    let class = "{ chain = \"edge\", path = \"way\" }";
    let found = daemon.diff(&wanted)?;
    let expected = [
        ["device", LEFT, "-", "attached"],
        ["class", "fd00:4::2", "-", class],
    ];
    let flow = found.get(2).map(|flow| &flow[..3]);
    ensure!(
        found.get(..2) == Some(&expected.map(|one| one.map(str::to_owned))[..])
            && flow == Some(&["flow", "other", "-"].map(str::to_owned)[..])
            && found.len() == 3,
        "it says {found:?}"
    );
    let mended = daemon.apply(&wanted)?;
    ensure!(mended == revision + 1, "revision {mended}");
    let left = daemon.diff(&wanted)?;
    ensure!(left.is_empty(), "{left:?} is left");
    // The file is changed, and nothing is applied.
    let changed = wanted.replace("edge = \"acl,enc,fw-table\"", "edge = \"acl,enc,fw-fib\"");
    let found = daemon.diff(&changed)?;
    let expected = [[
        "chain",
        "edge",
        "\"acl,enc,fw-table\"",
        "\"acl,enc,fw-fib\"",
    ]];
    ensure!(found == expected, "it says {found:?}");
    daemon.stop()
}
