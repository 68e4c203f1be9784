// SPDX-License-Identifier: GPL-2.0

//! Devices that come, change and go beside a daemon.

use anyhow::{ensure, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::Hook;
use serde_json::{json, Value};

use super::daemon::{Daemon, Place};
use crate::hike::network::{
    mac, text, Network, DST_V6, INGRESS, LEFT, RIGHT, SRC, TUNNEL_SOURCE, WAY1,
};
use crate::hike::peers::kernel::{by_kernel, frame, Shape, HOP_LIMIT};
use crate::hike::peers::other_hosts::{Ends, LATER, OF_OTHERS};
use crate::hike::peers::own_traffic::{forget_neighbours, ping, OWN_V4, OWN_V6};
use crate::hike::Case;
use crate::machine::command::wait_until;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "manager/devices",
            proves: "a device that goes and comes again, or changes its address or MTU, does what is configured for it, at both hooks; the file of a host's start waits for its devices",
            run: |_| {
                come_and_go(Hook::Xdp)?;
                come_and_go(Hook::Tcx)
            },
        },
        Case {
            name: "manager/new-address",
            proves: "when a device gets another Ethernet address, frames for that one are forwarded, and those for the old one are not",
            run: |_| new_address(),
        },
        Case {
            name: "manager/own-traffic",
            proves: "with a class for all destinations, this host's own addresses answer, and one that comes later does, too",
            run: |_| own_traffic(),
        },
        Case {
            name: "manager/required-hmac",
            proves: "when a device requires signed segment routing headers, of which the kernel tells nobody, unsigned ones are soon left to the kernel",
            run: |_| required_hmac(),
        },
        Case {
            name: "manager/device-kinds",
            proves: "a device whose packets come by others, or without Ethernet headers, is refused with what to name in its place",
            run: |_| kinds(),
        },
        Case {
            name: "manager/modes",
            proves: "the stack runs programs only where the file asks for it, and status says which part of the kernel does; a device whose driver cannot is refused in one sentence, and nothing changes",
            run: |_| modes(),
        },
    ]
}

fn configuration(hook: Hook) -> String {
    let hook = match hook {
        Hook::Xdp => "xdp",
        Hook::Tcx => "tcx",
    };
    format!(
        r#"
hook = "{hook}"
devices = ["one"]
ports = ["two"]

[chains]
out = "fw-table"

[classes]
"2001:db8::/32" = {{ chain = "out" }}

[routes]
"2001:db8::/32" = {{ port = "two", next-hop = "02:00:00:00:00:02" }}

[kernel-routes]
way = {{ destination = "2001:db8:1::/48", device = "two", sids = ["fc00::1"] }}
"#
    )
}

fn ip(lines: &str) -> Result<()> {
    topology::ip_in(INGRESS, lines)
}

fn come_and_go(hook: Hook) -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let wanted = configuration(hook);
    place.write_file(&wanted)?;
    let daemon = place.start()?;
    let said = daemon.apply_refused(&wanted)?;
    let expected = "hike: there is no device one; there are ";
    ensure!(said.starts_with(expected), "it says `{said}`");
    ip("link add one type veth peer name one-peer\nlink set one up")?;
    ensure!(
        daemon.ask("show devices")? == serde_json::json!([]),
        "half a file was applied"
    );
    add_two()?;
    whole(&daemon, &wanted, "the devices of the file are there")?;
    // Tables have two's number, which is another one then.
    ip("link del two")?;
    let gone = daemon.diff(&wanted)?;
    let gone: Vec<[&str; 2]> = gone
        .iter()
        .map(|one| [one[0].as_str(), one[1].as_str()])
        .collect();
    ensure!(
        gone.contains(&["port", "two"]) && gone.contains(&["kernel-route", "way"]),
        "without two, {gone:?} differs"
    );
    ip("link del one")?;
    add_two()?;
    ip("link add one type veth peer name one-peer")?;
    whole(&daemon, &wanted, "both devices are there again")?;
    // The kernel forgets routes of a device that is down.
    ip("link set two down")?;
    wait_until("the kernel's route is gone", || {
        Ok(!daemon.diff(&wanted)?.is_empty())
    })?;
    ip("link set two up")?;
    whole(&daemon, &wanted, "two is up again")?;
    // Routes of fw-table have both.
    for change in ["address 02:00:00:00:00:77", "mtu 1400"] {
        ip(&format!("link set two {change}"))?;
        let when = format!("the table has what two has: {change}");
        whole(&daemon, &wanted, &when)?;
    }
    // It need not have been there meanwhile.
    daemon.stop()?;
    ip("link del one\nlink add one type veth peer name one-peer")?;
    let daemon = place.start()?;
    whole(&daemon, &wanted, "hiked is there again")?;
    daemon.stop()
}

/// Adds the port. It sends frames of XDP from the moment on at which it has its name.
fn add_two() -> Result<()> {
    ip("link add new type veth peer name two-peer")?;
    netns::run(INGRESS, "ethtool -K two-peer gro on")?;
    ip("link set two-peer up\nlink set new name two\nlink set two up")
}

fn new_address() -> Result<()> {
    let _network = Network::up()?;
    let ends = Ends::open()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    daemon.apply(&format!(
        r#"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]

[chains]
go = "fw-fib"

[classes]
"{DST_V6}" = {{ chain = "go" }}
"#
    ))?;
    ends.send(LATER, OF_OTHERS)?;
    ends.send(mac(0, 2), HOP_LIMIT)?;
    ends.see_own()?;
    ip(&format!("link set {LEFT} address {}", text(LATER)))?;
    wait_until("the new address is known", || {
        ends.send(LATER, HOP_LIMIT)?;
        Ok(daemon.counted("forwarded")? > 1)
    })?;
    let forwarded = daemon.counted("forwarded")?;
    let others = daemon.counted("other-host")?;
    ends.send(mac(0, 2), OF_OTHERS)?;
    wait_until("a frame for the old address is left alone", || {
        Ok(daemon.counted("other-host")? > others)
    })?;
    let now = daemon.counted("forwarded")?;
    ensure!(
        now == forwarded,
        "a frame for the old address was forwarded"
    );
    daemon.stop()
}

fn own_traffic() -> Result<()> {
    const LATER: &str = "2001:db8:5::1";
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    daemon.apply(&format!(
        r#"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]

[chains]
edge = "enc,fw-fib"

[paths.way]
source = "{TUNNEL_SOURCE}"
sids = ["fc00:3::6"]

[classes]
default = {{ chain = "edge", path = "way" }}
"#
    ))?;
    forget_neighbours()?;
    ping(OWN_V6)?;
    ping(OWN_V4)?;
    ip(&format!("address add {LATER}/128 dev lo nodad"))?;
    wait_until("the new address answers", || Ok(ping(LATER).is_ok()))?;
    ensure!(
        daemon.counted("own-address")? > 0,
        "nothing was for this host"
    );
    daemon.stop()
}

fn required_hmac() -> Result<()> {
    const SHAPE: Shape = Shape {
        v6: true,
        mode: Mode::Encaps,
        sids: 3,
    };
    let _network = Network::up()?;
    let src = PacketSocket::open(SRC, RIGHT)?;
    let place = Place::new(WAY1);
    let daemon = place.start()?;
    daemon.apply(&format!(
        r#"
devices = ["{LEFT}"]
ports = ["{RIGHT}"]

[chains]
sid = "end,fw-fib"

[behaviours]
end = {{ action = "End" }}

[classes]
"fc00:1::/32" = {{ chain = "sid", behaviour = "end" }}
"#
    ))?;
    let is_counted = |reason| {
        by_kernel(SHAPE, |()| {
            src.send(&frame(SHAPE, 0, HOP_LIMIT)?)?;
            Ok(daemon.counted(reason)? > 0)
        })
    };
    wait_until("End goes on", || is_counted("forwarded"))?;
    netns::within(WAY1, || {
        topology::sysctl(&format!("net/ipv6/conf/{LEFT}/seg6_require_hmac"), "1")
    })?;
    wait_until("unsigned headers are left to the kernel", || {
        is_counted("sid-unsigned")
    })?;
    daemon.stop()
}

fn kinds() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    ip(&format!(
        "link add one type veth peer name one-peer
        link add two type veth peer name two-peer
        link add pair type bond
        link set one master pair
        link add red type vrf table 100
        link set two master red
        link add link {LEFT} name tagged type vlan id 5
        link add link {LEFT} name beside type macvlan
        link add lan type bridge
        link add three type veth peer name three-peer
        link set three master lan
        tuntap add mode tun name tunnel
        tuntap add mode tap name vm"
    ))?;
    let refuses = |hook: &str, device: &str, expected: &str| {
        let text = format!("hook = \"{hook}\"\ndevices = [\"{device}\"]\n");
        daemon.refuses(&text, &format!("hike: device {device}: {expected}"))
    };
    let said = daemon.apply_refused("mode = \"generic\"\ndevices = [\"pair\"]\n")?;
    let bond = "hike: device pair: it is a bond, which gets packets that GRO has joined where the stack runs programs; ";
    ensure!(
        said.starts_with(bond) && said.ends_with("name its devices in its place: one"),
        "it says `{said}`"
    );
    for hook in ["xdp", "tcx"] {
        let vrf =
            "it is a VRF, by which no packets come or leave; name its devices in its place: two";
        refuses(hook, "red", vrf)?;
        let tunnel = "its packets have no Ethernet headers, behind which chains look for IP; name a device that has them";
        refuses(hook, "tunnel", tunnel)?;
    }
    let joined = "which gets packets that GRO has joined";
    let vlan = format!(
        "it is a VLAN, {joined}; name {LEFT} in its place, as chains look through VLAN tags"
    );
    refuses("xdp", "tagged", &vlan)?;
    let above = format!("it is above another device, {joined}; name {LEFT} in its place");
    refuses("xdp", "beside", &above)?;
    let bridge = format!("it is a bridge, {joined}; name its devices in its place: three");
    refuses("xdp", "lan", &bridge)?;
    let said = daemon.apply_refused("devices = [\"vm\"]\n")?;
    ensure!(
        said.starts_with("hike: device vm: it is a tap, ")
            && said.ends_with("write mode = \"generic\""),
        "it says `{said}`"
    );
    daemon.apply("devices = [\"pair\", \"two\"]\n")?;
    daemon.apply("mode = \"generic\"\ndevices = [\"vm\"]\n")?;
    daemon.stop()
}

fn modes() -> Result<()> {
    let _network = Network::up()?;
    let place = Place::new(INGRESS);
    let daemon = place.start()?;
    ip("link add plain type dummy\nlink set plain up")?;
    let of = |mode: &str, devices: &[&str]| format!("mode = \"{mode}\"\ndevices = {devices:?}\n");
    let is = |devices: &[[&str; 2]]| -> Result<()> {
        let status = daemon.ask("status")?;
        let expected: Vec<Value> = devices
            .iter()
            .map(|[name, mode]| json!({ "name": name, "attached": true, "mode": mode }))
            .collect();
        ensure!(status["devices"] == json!(expected), "it says {status}");
        Ok(())
    };
    let refuses = |why: &str| -> Result<()> {
        let said = daemon.apply_refused(&of("native", &[LEFT, "plain"]))?;
        let expected = format!("hike: device plain: {why}");
        ensure!(said.starts_with(&expected), "it says `{said}`");
        Ok(())
    };
    daemon.apply(&of("native", &[LEFT]))?;
    refuses("its driver runs no XDP programs, or not as the device is set up; with mode = \"generic\" the stack runs them")?;
    is(&[[LEFT, "native"]])?;
    // The driver that can does it even then.
    daemon.apply(&of("generic", &[LEFT, "plain"]))?;
    is(&[[LEFT, "native"], ["plain", "generic"]])?;
    let shown = daemon.show("status")?;
    ensure!(
        shown.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words == ["plain", "attached", "generic"]
        }),
        "it shows {shown}"
    );
    // A link does not change its mode.
    refuses("the stack runs its programs (generic XDP); write mode = \"generic\", or apply a configuration without the device first")?;
    is(&[[LEFT, "native"], ["plain", "generic"]])?;
    daemon.apply(&of("native", &[LEFT]))?;
    is(&[[LEFT, "native"]])?;
    ip("link del plain")?;
    daemon.stop()
}

fn whole(daemon: &Daemon<'_>, wanted: &str, when: &str) -> Result<()> {
    wait_until(when, || Ok(daemon.diff(wanted)?.is_empty()))
}
