// SPDX-License-Identifier: GPL-2.0

//! Changes on the host while `hiked` runs: it tells the programs, without a transaction.

use anyhow::{ensure, Context as _, Result};

use super::bed::{address, ip, neighbours, sysctl, Bed, IN, PORTS, ROUTER, SOURCES_V4};
use super::packet::Packet;
use crate::hike::manager::daemon::{Daemon, Place};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::netns;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "routes/changes",
        proves: "hiked follows routes, rules, VLANs, knobs and policies of IPsec that come and go, and packets are forwarded or left as they say",
        run: |_| changes(),
    }]
}

const TAG: [u8; 4] = [0x81, 0, 0, 100];
const COUNT: usize = 3;

fn packets(tags: &[[u8; 4]]) -> Vec<Packet> {
    let packet = Packet {
        tags: tags.to_vec(),
        payload_bytes: 800,
        ..Packet::plain(address(SOURCES_V4[1]), address("10.9.1.1"))
    };
    vec![packet; COUNT]
}

/// A change, the reason that packets have after it, and the lines that undo it.
struct Change {
    what: &'static str,
    lines: &'static str,
    knob: Option<[&'static str; 3]>,
    reason: &'static str,
    undo: &'static str,
}

const NOTHING: Change = Change {
    what: "",
    lines: "",
    knob: None,
    reason: "",
    undo: "",
};

const CHANGES: [Change; 6] = [
    Change {
        what: "a route with an MTU",
        lines: "-4 route add 192.0.2.0/24 via 10.8.2.2 dev out1 mtu 700",
        reason: "fw-too-big",
        undo: "-4 route del 192.0.2.0/24",
        ..NOTHING
    },
    Change {
        what: "a knob of a device",
        knob: Some(["net/ipv4/conf/wan0/rp_filter", "1", "0"]),
        // The way back to the source is another one.
        lines: "-4 route add 10.88.0.0/24 via 10.8.2.2 dev out1",
        reason: "fw-source",
        undo: "-4 route del 10.88.0.0/24",
    },
    Change {
        what: "a policy of IPsec",
        lines: "xfrm policy add src 192.0.2.1/32 dst 192.0.2.2/32 dir fwd action block",
        reason: "fw-ipsec",
        undo: "xfrm policy flush",
        ..NOTHING
    },
    Change {
        what: "a bridge",
        lines: "link add br0 type bridge
            link set wan0 master br0",
        reason: "fw-device",
        undo: "link set wan0 nomaster
            link del br0",
        ..NOTHING
    },
    Change {
        what: "several next hops, and a policy that cannot be followed",
        knob: Some(["net/ipv4/fib_multipath_hash_policy", "1", "0"]),
        lines:
            "-4 route add 192.0.2.0/24 nexthop via 10.8.1.2 dev out0 nexthop via 10.8.2.2 dev out1",
        reason: "fw-multipath",
        undo: "-4 route del 192.0.2.0/24",
    },
    Change {
        what: "a group of next hops, and a policy that cannot be followed",
        knob: Some(["net/ipv4/fib_multipath_hash_policy", "3", "0"]),
        lines: "nexthop add id 1 via 10.8.1.2 dev out0
            nexthop add id 2 via 10.8.2.3 dev out1
            nexthop add id 10 group 1/2",
        reason: "fw-multipath",
        undo: "nexthop flush",
    },
];

fn changes() -> Result<()> {
    let bed = Bed::up()?;
    let line = format!("ethtool -K {IN} rxvlan off rx-vlan-stag-hw-parse off");
    netns::run(ROUTER, &line)?;
    ip("-4 route add 10.9.0.0/16 via 10.8.1.2 dev out0")?;
    let place = Place::new(ROUTER);
    let daemon = place.start()?;
    let ports = PORTS.map(|port| format!("\"{port}\"")).join(", ");
    daemon.apply(&format!(
        "devices = [\"{IN}\"]\nports = [{ports}]\n\n[chains]\nway = \"fw-fib\"\n\n[classes]\ndefault = {{ chain = \"way\" }}\n"
    ))?;
    becomes(&bed, &daemon, &[], "forwarded", "at first")?;
    for change in &CHANGES {
        if let Some([knob, value, _]) = change.knob {
            sysctl(knob, value)?;
        }
        ip(change.lines)?;
        becomes(&bed, &daemon, &[], change.reason, change.what)?;
        ip(change.undo)?;
        if let Some([knob, _, value]) = change.knob {
            sysctl(knob, value)?;
        }
        let what = format!("without {}", change.what);
        becomes(&bed, &daemon, &[], "forwarded", &what)?;
    }
    // A VLAN comes, whose packets leave by another VLAN that comes, too.
    becomes(&bed, &daemon, &[TAG], "fw-vlan", "before there is a VLAN")?;
    ip("link add link wan0 name wan0.100 type vlan id 100
        link set wan0.100 up
        link add link out1 name out1.9 type vlan id 9
        link set out1.9 up")?;
    neighbours("out1.9", "10.81.0.", "fd81::")?;
    ip(
        "-4 route add 10.9.0.0/16 via 10.81.0.2 dev out1.9 onlink table 101
        -4 rule add pref 100 iif wan0.100 table 101",
    )?;
    becomes(&bed, &daemon, &[TAG], "forwarded", "a VLAN")?;
    ip("link del wan0.100")?;
    becomes(&bed, &daemon, &[TAG], "fw-vlan", "the VLAN has gone")?;
    // While there is no daemon, programs go by old facts; the next one reads again.
    daemon.kill()?;
    ip("xfrm policy add src 192.0.2.1/32 dst 192.0.2.2/32 dir fwd action block")?;
    let daemon = place.start()?;
    becomes(&bed, &daemon, &[], "fw-ipsec", "while there was no daemon")?;
    ip("xfrm policy flush")?;
    daemon.stop()
}

/// Waits until packets are counted by a reason, all of them.
fn becomes(
    bed: &Bed,
    daemon: &Daemon<'_>,
    tags: &[[u8; 4]],
    reason: &str,
    when: &str,
) -> Result<()> {
    wait_until(reason, || {
        let before = daemon.counted(reason)?;
        let seen = bed.carry(&packets(tags), None)?.len();
        let grown = daemon.counted(reason)? - before;
        if grown == COUNT as u64 && reason == "forwarded" {
            ensure!(seen == COUNT, "{seen} of {COUNT} forwarded packets left");
        }
        Ok(grown == COUNT as u64)
    })
    .context(when.to_owned())
}
