// SPDX-License-Identifier: GPL-2.0

//! Containers that change while a flow to them is split: their device goes to another namespace and comes back, as plugins and
//! operators move it, or they are made again with the same addresses, as `docker restart` does.

use std::net::UdpSocket;

use anyhow::{ensure, Result};
use mflow_protocol::network::{CLIENT_MAC, CONTAINER_MAC};

use super::elephant::receiver::{seeing, Look};
use super::elephant::{unspecified, Elephant, Fate, Live, PORT};
use super::host::{Host, Rules, CONTAINER2};
use super::Case;
use crate::machine::command;
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};

/// The number of times that a container changes and changes back, and of datagrams that have to come each time.
const TIMES: usize = 3;
const COME_EACH: u64 = 200;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (inner, of_family) in [(Family::V4, ""), (Family::V6, "/v6")] {
        let case = |name: &str, has, proves, run: fn(&Host, Family) -> Result<()>| {
            Case::new(
                format!("containers/{name}{of_family}"),
                has,
                proves,
                move |host| run(host, inner),
            )
            .with_fate(Fate::Either)
        };
        cases.extend([
            case(
                "moved",
                "a container's device that goes to another namespace and comes back",
                "a split flow follows the device to the other namespace's socket and back: nothing comes to both, and what is lost was \
                 under way while the device was",
                moved,
            ),
            case(
                "unplugged",
                "the host's end of a veth that goes to another namespace and comes back",
                "a split flow goes on when the host's end is back at the bridge, and what is lost was under way while it was not",
                unplugged,
            ),
            case(
                "restarted",
                "a container that is made again with the same addresses",
                "a split flow goes on to the new container's socket, and what is lost was under way while there was none",
                restarted,
            ),
        ]);
    }
    cases
}

/// Compares hosts whose container changes while the flow is split, and goes on.
fn compare(
    host: &Host,
    inner: Family,
    set_up: fn() -> Result<()>,
    namespaces: &[&'static str],
    change: impl Fn(&Live, usize) -> Result<()>,
) -> Result<()> {
    let compared = host.compare(inner, Rules::First, set_up, |host| {
        let sockets = namespaces.iter().map(|namespace| bound(namespace, inner));
        let elephant = Elephant {
            from: inner.client(),
            to: vec![(inner.container(), PORT).into()],
            sockets: sockets.collect::<Result<_>>()?,
            pps: host.elephant_pps,
            fate: Fate::Split,
        };
        let count = host.datagrams / 4;
        let (arrived, ()) = elephant.run(count, |live| {
            (0..TIMES).try_for_each(|time| change(live, time))
        })?;
        Ok(arrived)
    })?;
    compared.each(|arrived| {
        let flow_of = |look: &Look| (look.from, look.to, look.tos, look.hops);
        let mut flows = arrived.looks.keys().map(flow_of);
        let first = flows.next();
        ensure!(
            flows.all(|flow| Some(flow) == first),
            "datagrams differ: {:?}",
            arrived.looks
        );
        arrived.require_but_away()
    })?;
    let counters = &compared.on.counters;
    ensure!(
        counters.get("paths_async") == Some(&0),
        "a queue was seen where there is none: {}",
        compared.on.counters()
    );
    compared.on.require_looks_of(&compared.off)
}

fn bound(namespace: &str, inner: Family) -> Result<UdpSocket> {
    netns::within(namespace, || {
        seeing(UdpSocket::bind((unspecified(inner), PORT))?)
    })
}

fn moved(host: &Host, inner: Family) -> Result<()> {
    let both = [CONTAINER, CONTAINER2];
    let set_up = || {
        netns::add(CONTAINER2)?;
        topology::ip_in(CONTAINER2, "link set lo up")
    };
    compare(host, inner, set_up, &both, |live, _| {
        for (place, to) in [(1, CONTAINER2), (0, CONTAINER)] {
            let from = both[1 - place];
            live.away(|| {
                topology::ip_in(from, &format!("link set eth0 netns {to}"))?;
                topology::ip_in(
                    to,
                    &format!(
                        "link set eth0 up
                         addr add 10.0.1.2/24 dev eth0
                         addr add fd00:1::2/64 dev eth0 nodad
                         neigh replace 10.0.1.1 lladdr {CLIENT_MAC} dev eth0
                         neigh replace fd00:1::1 lladdr {CLIENT_MAC} dev eth0"
                    ),
                )
            })?;
            live.come_to(place, COME_EACH)?;
        }
        Ok(())
    })
}

fn unplugged(host: &Host, inner: Family) -> Result<()> {
    let set_up = || netns::add(CONTAINER2);
    compare(host, inner, set_up, &[CONTAINER], |live, _| {
        live.away(|| {
            topology::ip(&format!("link set veth0 netns {CONTAINER2}"))?;
            topology::ip_in(CONTAINER2, "link set veth0 up\nlink set veth0 netns 1")?;
            topology::ip("link set veth0 master br0\nlink set veth0 up")?;
            command::run(&format!(
                "bridge fdb replace {CONTAINER_MAC} dev veth0 master static"
            ))
        })?;
        live.come_to(0, COME_EACH)
    })
}

fn restarted(host: &Host, inner: Family) -> Result<()> {
    compare(
        host,
        inner,
        || Ok(()),
        &[CONTAINER],
        |live, time| {
            live.away(|| {
                live.replace(Vec::new())?;
                topology::restart_container(inner)?;
                live.replace(vec![bound(CONTAINER, inner)?])
            })?;
            live.come_to(time + 1, COME_EACH)
        },
    )
}
