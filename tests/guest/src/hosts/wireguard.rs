// SPDX-License-Identifier: GPL-2.0

//! WireGuard between two hosts, whose device is opted in: each peer's packets come from a poll that moves between CPUs.

use std::fs;
use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;

use super::elephant::receiver::seeing;
use super::elephant::{Elephant, Fate, PORT};
use super::host::{Host, Rules};
use super::Case;
use crate::machine::command;
use crate::mflow;
use crate::network::netns;
use crate::network::topology::{self, Family, CLIENT};

/// Private keys of the server and the client: any 32 bytes, in base 64.
const KEYS: [&str; 2] = [
    "CBgoOEhYaHiImKi4yNjo+AgYKDhIWGh4iJiouMjY6Fg=",
    "EBAgMEBQYHCAkKCwwNDg8AAQIDBAUGBwgJCgsMDQ4FA=",
];
const KEY_FILE: &str = "/tmp/wireguard-key";
const SERVER: &str = "10.0.20.2";
const FROM: &str = "10.0.20.1";
/// The share of an elephant's rate that is sent: each datagram is encrypted, too.
const SHARE: f64 = 0.5;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new(
        "wireguard",
        "WireGuard to another host, its device opted in",
        "a flow in WireGuard, whose device is opted in, keeps its order, split or whole",
        between_hosts,
    )
    .with_fate(Fate::Either)]
}

fn between_hosts(host: &Host) -> Result<()> {
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        if mflow::read("enabled")?.trim() == "1" {
            mflow::write("devices", "+wg0")?;
        }
        let elephant = Elephant {
            from: FROM.parse()?,
            to: vec![SocketAddr::new(SERVER.parse()?, PORT)],
            sockets: vec![seeing(UdpSocket::bind((SERVER, PORT))?)?],
            pps: host.elephant_pps * SHARE,
            fate: Fate::Either,
        };
        Ok(elephant.run(host.datagrams, |_| Ok(()))?.0)
    });
    // Also after a failure.
    mflow::unload()?;
    take_away();
    let compared = compared?;
    compared.off.require_whole()?;
    compared.on.require_whole()
}

/// Removes both ends, if they are there.
fn take_away() {
    for namespace in [None, Some(CLIENT)] {
        let _ = topology::ip_in(namespace, "link del wg0");
    }
}

fn set_up() -> Result<()> {
    take_away();
    let [server, client] = KEYS;
    let ends = [
        (None, server, client, SERVER, FROM, "192.168.50.1:51820"),
        (
            Some(CLIENT),
            client,
            server,
            FROM,
            SERVER,
            "192.168.50.2:51820",
        ),
    ];
    for (namespace, own, others, address, peer, endpoint) in ends {
        fs::write(KEY_FILE, own)?;
        let public = command::run_with_input("wg pubkey", others)?;
        topology::ip_in(namespace, "link add wg0 type wireguard")?;
        let public = public.trim();
        let line = format!(
            "wg set wg0 listen-port 51820 private-key {KEY_FILE} peer {public} allowed-ips {peer}/32 endpoint {endpoint}"
        );
        netns::run(namespace, &line)?;
        topology::ip_in(
            namespace,
            &format!("addr add {address}/24 dev wg0\nlink set wg0 up"),
        )?;
    }
    Ok(())
}
