// SPDX-License-Identifier: GPL-2.0

//! Segments of no connection in the outer flow of an elephant. The rule gives them the proxy's listener, with a reference that the
//! stack gives back. The listener ends, and the container goes: its namespace has to go, too.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use etherparse::PacketBuilder;
use mflow_protocol::network::{mac_bytes, CLIENT_MAC, CONTAINER_MAC};

use super::{far, proxied_elephant, proxy, set_up, TCP};
use crate::hosts::elephant::receiver::Arrived;
use crate::hosts::host::{Host, Rules};
use crate::hosts::Case;
use crate::machine::{proc_net, threads};
use crate::network::netlink::Netlink;
use crate::network::netns;
use crate::network::packet_socket::PacketSocket;
use crate::network::topology::{Family, CLIENT, CONTAINER};

/// The segments, each from a port of its own, and the time between two of them.
const SEGMENTS: u16 = 150;
const EVERY: Duration = Duration::from_millis(3);
const FIRST_PORT: u16 = 20_000;
/// The time in which all are refused, and in which the kernel ends a namespace that nobody uses.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn cases() -> [Case; 2] {
    [Family::V4, Family::V6].map(|inner| {
        Case::new(
            format!("tproxy/stray/v{}", inner.number()),
            "a transparent proxy in the container",
            "segments of no connection beside a split flow are refused, and when the proxy and its container go, so does their namespace",
            move |host| strays(host, inner),
        )
    })
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    /// Segments that were refused.
    refused: u64,
    /// The end of the namespace, or why it has not ended.
    ended: Result<(), String>,
}

fn strays(host: &Host, inner: Family) -> Result<()> {
    let compared = host.compare(inner, Rules::First, set_up, |host| seen(host, inner))?;
    compared.each(|seen| {
        ensure!(
            seen.refused >= u64::from(SEGMENTS),
            "{} of {SEGMENTS} segments were refused",
            seen.refused
        );
        ensure!(
            seen.ended.is_ok(),
            "the container's namespace is there still: {:?}",
            seen.ended
        );
        seen.arrived.require_whole()
    })?;
    compared.on.arrived.require_split()
}

fn seen(host: &Host, inner: Family) -> Result<Seen> {
    let (services, proxy) = proxy(inner)?;
    let (arrived, refused) =
        proxied_elephant(host, inner, proxy).run(host.datagrams, |_| send(inner))?;
    // The elephant's socket is closed.
    drop(services);
    netns::delete(CONTAINER)?;
    Ok(Seen {
        arrived,
        refused,
        ended: until_ended().map_err(|error| format!("{error:#}")),
    })
}

/// Sends the segments, and returns how many the container has refused.
fn send(inner: Family) -> Result<u64> {
    let refused = || proc_net::counter(Some(CONTAINER), "Tcp", "OutRsts");
    let before = refused()?;
    let socket = PacketSocket::open(CLIENT, "vxlan0")?;
    for port in FIRST_PORT..FIRST_PORT + SEGMENTS {
        socket.send(&segment(inner, port)?)?;
        thread::sleep(EVERY);
    }
    let all = u64::from(SEGMENTS);
    // Too few are an error of the case.
    let _ = threads::until_ok(LIMIT, || {
        ensure!(refused()? >= before + all, "some are under way");
        Ok(())
    });
    Ok(refused()? - before)
}

/// Returns the frame of a segment to the proxy that acknowledges what nobody has sent.
fn segment(inner: Family, port: u16) -> Result<Vec<u8>> {
    let [from, to] = [CLIENT_MAC, CONTAINER_MAC].map(mac_bytes);
    let (from, to) = from.zip(to).context("an address")?;
    let frame = PacketBuilder::ethernet2(from, to);
    let packet = match (inner.client(), far(inner)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => frame.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => frame.ipv6(from.octets(), to.octets(), 64),
        ends => bail!("{ends:?} are not of one family"),
    };
    let mut bytes = Vec::new();
    let segment = packet.tcp(port, TCP, 1, 1_000).ack(1);
    segment.write(&mut bytes, &[])?;
    Ok(bytes)
}

/// Waits until the container's namespace has ended: with it goes its end of the veth pair, and so the other one.
fn until_ended() -> Result<()> {
    let host = Netlink::open(None)?;
    threads::until_ok(LIMIT, || {
        ensure!(!host.exists("veth0"), "its end of the veth pair is there");
        Ok(())
    })
}
