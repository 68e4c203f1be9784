// SPDX-License-Identifier: GPL-2.0

//! Marks and bytes that are written into packets between NIC and socket: a congestion mark on the tunnel, a filter's DSCP, a router's TTL, addresses and ports that
//! a rule rewrites without a state, and bytes of datagrams. Each datagram has to show it at the receiver, also where lanes have joined
//! several.

use std::net::SocketAddr;

use anyhow::{ensure, Result};

use super::elephant::receiver::{Arrived, Look};
use super::elephant::{Elephant, PORT};
use super::host::{Change, Host, Rules};
use super::{router, Case};
use crate::machine::command;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::network::{netns, nft};

const ECT0: u8 = 2;
const CE: u8 = 3;
/// The TTL or hop limit that a sender sets; a router lowers it by one.
const HOPS: u8 = 64;
/// AF11, CS1 and CS2 as a byte of the header.
const AF11: u8 = 10 << 2;
const CS1: u8 = 8 << 2;
const CS2: u8 = 16 << 2;
const REWRITTEN_PORT: u16 = 5_011;
const NEW_PORT: u16 = 1_234;

/// The sender knows congestion marks, and on its network eight of sixteen packets of the tunnel get one. In IPv6's header `ecn set` writes
/// a single byte, which Linux 7.3 does not do; these rules write the first two, as `dscp set` does.
const CONGESTED: &str = "
table inet mflow {
    counter marked { }
    chain out {
        type filter hook output priority 0;
        udp dport 5001 ip ecn set ect0
        udp dport 5001 meta nfproto ipv6 @nh,0,16 set @nh,0,16 & 0xffcf | 0x0020
        ip ecn ect0 udp dport 4789 numgen inc mod 16 < 8 counter name marked ip ecn set ce
        ip6 ecn ect0 udp dport 4789 numgen inc mod 16 < 8 counter name marked @nh,0,16 set @nh,0,16 | 0x0030
    }
}
";

const IN_CONTAINER: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 ip dscp set af11
        udp dport 5001 ip6 dscp set af11
    }
}
";

const ON_BRIDGE: &str = "
table bridge mflow {
    chain forward {
        type filter hook forward priority 0;
        ether type ip udp dport 5001 ip dscp set cs1
        ether type ip6 udp dport 5001 ip6 dscp set cs1
    }
}
";

const ON_ROUTER: &str = "
table inet mflow {
    chain forward {
        type filter hook forward priority 0;
        udp dport 5001 ip dscp set cs2
        udp dport 5001 ip6 dscp set cs2
    }
}
";

const REWRITE: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority raw;
        udp dport 5011 ip saddr 10.0.1.1 ip saddr set 10.0.1.77 udp sport set 1234 udp dport set 5001
        udp dport 5011 ip6 saddr fd00:1::1 ip6 saddr set fd00:1::77 udp sport set 1234 udp dport set 5001
    }
}
";

/// A datagram without a checksum may be written to by programs that do not know of checksums.
const BYTES_IN_CONTAINER: &str = "
table inet mflow {
    chain before {
        type filter hook prerouting priority mangle;
        udp dport 5001 @th,48,16 set 0 @th,64,16 set 0xabcd
    }
}
";

const BYTES_ON_BRIDGE: &str = "
table bridge mflow {
    chain forward {
        type filter hook forward priority 0;
        ether type ip udp dport 5001 @th,48,16 set 0 @th,64,16 set 0xabcd
    }
}
";

/// Writes the same as the rules do, behind 20 or 40 and 8 bytes of headers, and sums again.
const EDIT: &str =
    "protocol ip matchall action pedit munge offset 28 u16 set 0xabcd pipe action csum ip and udp";
const EDIT6: &str =
    "protocol ipv6 matchall action pedit munge offset 48 u16 set 0xabcd pipe action csum udp";

pub(super) fn cases() -> Vec<Case> {
    let both = [(Family::V4, "v4"), (Family::V6, "v6")];
    let mut cases = Vec::new();
    for (inner, name) in both {
        cases.push(Case::new(
            format!("header/congestion/{name}"),
            "congestion marks on packets of the tunnel",
            "as many datagrams of a split flow bring a congestion mark as packets of the tunnel were marked",
            move |host| congestion(host, inner),
        ));
        let case = |what, has, proves, set_up, shows| {
            Case::new(format!("header/{what}/{name}"), has, proves, move |host| {
                written(host, inner, set_up, PORT, shows)
            })
        };
        cases.push(case(
            "container",
            "a filter in the container that writes DSCP",
            "each datagram of a split flow has the DSCP that the container's filter writes",
            || nft::add(CONTAINER, IN_CONTAINER),
            |look| look.tos == Some(AF11) && look.hops == Some(HOPS),
        ));
        cases.push(Case::new(
            format!("header/container/during/{name}"),
            "such a filter, made, taken away and made again while a flow is split",
            "each datagram of a split flow that is sent while the container's filter is there has the DSCP that it writes, and no other has",
            move |host| written_during(host, inner),
        ));
        cases.push(case(
            "bridge",
            "a filter at the bridge that writes DSCP",
            "each datagram of a split flow has the DSCP that the bridge's filter writes",
            || nft::add(None, ON_BRIDGE),
            |look| look.tos == Some(CS1) && look.hops == Some(HOPS),
        ));
        cases.push(case(
            "cut",
            "a filter at the bridge that writes DSCP, in front of a veth that cuts large packets of UDP (`tx-udp-segmentation` off)",
            "each datagram of a split flow has the DSCP that the bridge's filter writes",
            || {
                command::run("ethtool -K veth0 tx-udp-segmentation off")?;
                nft::add(None, ON_BRIDGE)
            },
            |look| look.tos == Some(CS1) && look.hops == Some(HOPS),
        ));
        cases.push(case(
            "cut/segments",
            "the same filter in front of a veth that cuts packets of more than 16 segments (`gso_max_segs`)",
            "each datagram of a split flow has the DSCP that the bridge's filter writes",
            || {
                command::run("ip link set veth0 gso_max_segs 16")?;
                nft::add(None, ON_BRIDGE)
            },
            |look| look.tos == Some(CS1) && look.hops == Some(HOPS),
        ));
        cases.push(case(
            "router",
            "a route to the container instead of a bridge, and a filter that writes DSCP",
            "each datagram of a split flow has the hop limit that the host's routing leaves, and the DSCP that its filter writes",
            || router::set_up().and_then(|()| nft::add(None, ON_ROUTER)),
            |look| look.tos == Some(CS2) && look.hops == Some(HOPS - 1),
        ));
        cases.push(Case::new(
            format!("header/rewritten/{name}"),
            "a rule without a state that writes addresses and ports",
            "each datagram of a split flow has the addresses and ports that a rule without a state writes",
            move |host| {
                written(
                    host,
                    inner,
                    || nft::add(CONTAINER, REWRITE),
                    REWRITTEN_PORT,
                    |look| look.from_port == NEW_PORT && look.from.to_string().ends_with("77"),
                )
            },
        ));
    }
    let case = |what, has, set_up: fn() -> Result<()>| {
        Case::new(
            format!("header/bytes/{what}"),
            has,
            "each datagram of a split flow has the bytes that are written into it, behind its header",
            move |host| written(host, Family::V4, set_up, PORT, |look| look.written),
        )
    };
    cases.extend([
        case(
            "container",
            "a rule in the container that writes into datagrams",
            || nft::add(CONTAINER, BYTES_IN_CONTAINER),
        ),
        case(
            "bridge",
            "a rule at the bridge that writes into datagrams",
            || nft::add(None, BYTES_ON_BRIDGE),
        ),
        case(
            "tunnel",
            "a filter at the tunnel's end that edits datagrams and their checksums (tc pedit and csum)",
            || edit(None, "vxlan0", "ingress", EDIT),
        ),
        case(
            "veth",
            "the same at the container's veth",
            || edit(None, "veth0", "egress", EDIT),
        ),
        case(
            "inside",
            "the same in the container",
            || edit(Some(CONTAINER), "eth0", "ingress", EDIT),
        ),
    ]);
    let set_up = || edit(None, "vxlan0", "ingress", EDIT6);
    cases.push(Case::new(
        "header/bytes/tunnel/v6",
        "a filter at the tunnel's end that edits datagrams and their checksums (tc pedit and csum)",
        "the same over IPv6",
        move |host| written(host, Family::V6, set_up, PORT, |look| look.written),
    ));
    cases
}

/// Attaches a classifier that edits all datagrams that pass a device.
fn edit(namespace: Option<&str>, device: &str, at: &str, edit: &str) -> Result<()> {
    for line in [
        format!("tc qdisc add dev {device} clsact"),
        format!("tc filter add dev {device} {at} {edit}"),
    ] {
        netns::run(namespace, &line)?;
    }
    Ok(())
}

fn congestion(host: &Host, inner: Family) -> Result<()> {
    let set_up = || nft::add(CLIENT, CONGESTED);
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let (arrived, ()) = Elephant::plain(host, inner)?.run(host.datagrams, |_| Ok(()))?;
        Ok((arrived, nft::counted(CLIENT, "marked")?.pkts))
    })?;
    for (enabled, (arrived, marked)) in [&compared.off, &compared.on].into_iter().enumerate() {
        let ecn = |mark| arrived.count(|look| look.tos.is_some_and(|tos| tos & 3 == mark));
        let (congested, others) = (ecn(CE), ecn(ECT0));
        ensure!(
            congested <= *marked
                && congested + arrived.refused >= *marked
                && *marked > 0
                && others > 0,
            "with enabled {enabled} {marked} packets of the tunnel got a congestion mark, which {congested} datagrams have, and \
             {others} have none"
        );
        arrived.require_whole()?;
    }
    compared.on.0.require_split()
}

/// Demands that all datagrams to a port of the container show what was written.
fn written(
    host: &Host,
    inner: Family,
    set_up: fn() -> Result<()>,
    port: u16,
    shows: fn(&Look) -> bool,
) -> Result<()> {
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let mut elephant = Elephant::plain(host, inner)?;
        elephant.to = vec![SocketAddr::from((inner.container(), port))];
        Ok(elephant.run(host.datagrams, |_| Ok(()))?.0)
    })?;
    for (enabled, arrived) in [&compared.off, &compared.on].into_iter().enumerate() {
        require_shown(arrived, shows)
            .map_err(|error| error.context(format!("with enabled {enabled}")))?;
    }
    compared.on.require_looks_of(&compared.off)?;
    compared.on.require_split()
}

/// Demands that those datagrams show the container's DSCP that are sent while the filter is there.
fn written_during(host: &Host, inner: Family) -> Result<()> {
    let filter = Change {
        when: Rules::During,
        make: &|| nft::add(CONTAINER, IN_CONTAINER),
        undo: &|| nft::flush(CONTAINER),
    };
    let set_up = || filter.before();
    let compared = host.compare(inner, filter.when, set_up, |host| {
        let elephant = Elephant::plain(host, inner)?;
        let (arrived, ()) = elephant.run(host.datagrams / 4, |live| {
            live.beside(&filter, || live.send_more(host.datagrams / 4))
        })?;
        Ok(arrived)
    })?;
    compared.each(|arrived| {
        arrived.require_spans(|look| look.tos == Some(AF11))?;
        arrived.require_whole()
    })?;
    compared.on.require_looks_of(&compared.off)?;
    compared.on.require_split()
}

fn require_shown(arrived: &Arrived, shows: fn(&Look) -> bool) -> Result<()> {
    let (shown, all) = (arrived.count(shows), arrived.count(|_| true));
    ensure!(
        shown == all,
        "{shown} of {all} datagrams have what was written into their headers: {:?}",
        arrived.looks
    );
    arrived.require_whole()
}
