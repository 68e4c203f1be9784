// SPDX-License-Identifier: GPL-2.0

//! Features of the card beyond carrying frames.

use std::collections::BTreeMap;
use std::mem;

use anyhow::{ensure, Context as _, Result};

use super::link::{self, PEER};
use super::Case;
use crate::machine::{command, proc_net};
use crate::network::topology;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "counters",
            proves: "both cards' counters agree with each other and with what was sent",
            run: counters,
        },
        Case {
            name: "checksums",
            proves: "checksums are written by one card, checked by the other, and right",
            run: checksums,
        },
        Case {
            name: "large-frames",
            proves: "frames of 9000 bytes pass, in several pieces of memory",
            run: large_frames,
        },
        Case {
            name: "segments",
            proves: "TCP packets of 64 KB are cut by the card, UDP too",
            run: segments,
        },
        Case {
            name: "tags",
            proves: "VLAN tags are inserted and taken out, or left in where that is switched off",
            run: tags,
        },
        Case {
            name: "spreading",
            proves: "flows spread over the channels by their hash, and a flow stays on one",
            run: spreading,
        },
        Case {
            name: "compression",
            proves: "compressed completions tell the same",
            run: compression,
        },
    ]
}

type Counters = BTreeMap<String, u64>;

fn grown(device: &str, names: &[&str], work: impl FnOnce() -> Result<()>) -> Result<Vec<u64>> {
    let before = link::counters(device)?;
    work()?;
    differences(&before, &link::counters(device)?, names)
}

fn differences(before: &Counters, after: &Counters, names: &[&str]) -> Result<Vec<u64>> {
    let value = |counters: &Counters, name: &str| {
        let value = counters.get(name).copied();
        value.with_context(|| format!("the card has no counter {name}"))
    };
    names
        .iter()
        .map(|name| Ok(value(after, name)? - value(before, name)?))
        .collect()
}

/// Returns the counters of the card here and of the other one, read while no frame passes from there to here: the end of an
/// earlier case's connection, sent again, would otherwise be counted by one of them only.
fn at_rest() -> Result<[Counters; 2]> {
    let both = || Ok::<_, anyhow::Error>([link::counters("eth0")?, link::counters("eth1")?]);
    let mut last = both()?;
    command::wait_until("no frame passes between the cards", || {
        let before = mem::replace(&mut last, both()?);
        let frames = |[here, there]: &[Counters; 2]| {
            [
                here["rx_vport_unicast_packets"],
                there["tx_vport_unicast_packets"],
            ]
        };
        Ok(frames(&before) == frames(&last))
    })?;
    Ok(last)
}

fn send(options: &str) -> Result<()> {
    link::load(1, options).map(drop)
}

fn send_to(address: &str) -> Result<()> {
    link::load_to(address, 1, "").map(drop)
}

fn counters() -> Result<()> {
    link::up()?;
    // Neighbours are found out first.
    link::ping(2, 56)?;
    let [here, there] = at_rest()?;
    link::ping(100, 1_000)?;
    let [here_after, there_after] = at_rest()?;
    let received = differences(
        &here,
        &here_after,
        &[
            "rx_vport_unicast_packets",
            "rx_vport_unicast_bytes",
            "rx_packets_phy",
            "rx_out_of_buffer",
            "rx_1024_to_1518_bytes_phy",
        ],
    )?;
    let sent = differences(
        &there,
        &there_after,
        &["tx_vport_unicast_packets", "tx_vport_unicast_bytes"],
    )?;
    ensure!(
        received[..2] == sent[..],
        "received {received:?}, sent {sent:?}"
    );
    // Address resolution and the end of an earlier connection may add a frame or two, IPv6 some to many.
    ensure!(
        (100..=104).contains(&sent[0]) && (sent[0]..sent[0] + 20).contains(&received[2]),
        "{sent:?} frames and bytes for 100 echoes, {received:?} received"
    );
    ensure!(received[3] == 0, "{} frames found no buffer", received[3]);
    // 1000 bytes of payload, 28 of headers, 14 and 4 of Ethernet.
    ensure!(
        (100..=sent[0]).contains(&received[4]),
        "{} frames of 1046 bytes, of 100 sent",
        received[4]
    );
    Ok(())
}

fn checksums() -> Result<()> {
    link::up()?;
    let errors = || proc_net::counter(None, "Udp", "InCsumErrors");
    let before = errors()?;
    let written = grown("eth1", &["tx_csum_partial"], || {
        let seen = grown("eth0", &["rx_csum_complete", "rx_csum_none"], || {
            let load = link::load(1, "--udp --bitrate 20M --length 999")?;
            ensure!(load.packets > 1_000 && load.lost == 0, "{load:?}");
            Ok(())
        })?;
        ensure!(seen[0] > 1_000, "the card here gave {} checksums", seen[0]);
        Ok(())
    })?;
    ensure!(
        written[0] > 1_000,
        "the other card wrote {} checksums",
        written[0]
    );
    ensure!(errors()? == before, "checksums were wrong");
    Ok(())
}

fn large_frames() -> Result<()> {
    link::up()?;
    topology::ip("link set eth0 mtu 9000")?;
    topology::ip_in(PEER, "link set eth1 mtu 9000")?;
    link::wait_carrier(true)?;
    link::ping(20, 8_972)?;
    let large = grown("eth0", &["rx_8192_to_10239_bytes_phy"], || send(""))?;
    ensure!(large[0] > 100, "{} frames of 9000 bytes", large[0]);
    Ok(())
}

fn segments() -> Result<()> {
    link::up()?;
    let cut = grown("eth1", &["tx_tso_packets", "tx_packets_phy"], || {
        let load = link::load(2, "")?;
        ensure!(load.bits_per_s > 0.0, "{load:?}");
        Ok(())
    })?;
    ensure!(
        cut[0] > 100 && cut[1] > 4 * cut[0],
        "{} large packets became {} frames",
        cut[0],
        cut[1]
    );
    // The same over IPv6, whose headers are other ones.
    topology::ip("addr add fd00:9::1/64 dev eth0 nodad")?;
    topology::ip_in(PEER, "addr add fd00:9::2/64 dev eth1 nodad")?;
    let cut = grown("eth1", &["tx_tso_packets"], || send_to("fd00:9::1"))?;
    ensure!(cut[0] > 50, "{} large packets over IPv6", cut[0]);
    Ok(())
}

fn tags() -> Result<()> {
    link::up()?;
    topology::ip(
        "link add link eth0 name eth0.5 type vlan id 5
         addr add 10.5.0.1/24 dev eth0.5
         link set eth0.5 up",
    )?;
    topology::ip_in(
        PEER,
        "link add link eth1 name eth1.5 type vlan id 5
         addr add 10.5.0.2/24 dev eth1.5
         link set eth1.5 up",
    )?;
    let through = || -> Result<Vec<u64>> {
        let inserted = grown("eth1", &["tx_added_vlan_packets"], || send_to("10.5.0.1"))?;
        ensure!(
            inserted[0] > 100,
            "the other card inserted {} tags",
            inserted[0]
        );
        Ok(inserted)
    };
    let taken = grown("eth0", &["rx_removed_vlan_packets"], || through().map(drop))?;
    ensure!(taken[0] > 100, "the card here took {} tags out", taken[0]);
    command::run("ethtool -K eth0 rxvlan off")?;
    let taken = grown("eth0", &["rx_removed_vlan_packets"], || through().map(drop))?;
    ensure!(
        taken[0] == 0,
        "the card here took {} tags out, though it shall not",
        taken[0]
    );
    Ok(())
}

fn spreading() -> Result<()> {
    link::up()?;
    command::run("ethtool -L eth0 combined 4")?;
    link::wait_carrier(true)?;
    let names = ["rx0_packets", "rx1_packets", "rx2_packets", "rx3_packets"];
    command::run("ethtool -N eth0 rx-flow-hash udp4 sdfn")?;
    let one = grown("eth0", &names, || send("--udp --bitrate 10M --length 500"))?;
    let all: u64 = one.iter().sum();
    let most = one.iter().max().copied().unwrap_or(0);
    // iperf3's control connection is a flow of its own.
    ensure!(most > 1_000 && most + 200 > all, "one flow went to {one:?}");
    let many = grown("eth0", &names, || {
        send("--udp --bitrate 1M --length 500 --parallel 32")
    })?;
    ensure!(
        many.iter().all(|count| *count > 100),
        "32 flows went to {many:?}"
    );
    Ok(())
}

fn compression() -> Result<()> {
    link::up()?;
    command::run("ethtool --set-priv-flags eth0 rx_cqe_compress on")?;
    link::wait_carrier(true)?;
    let packed = grown("eth0", &["rx_cqe_compress_pkts", "rx_packets"], || {
        link::load(2, "")?;
        let load = link::load(1, "--udp --bitrate 20M --length 700")?;
        ensure!(load.lost == 0, "{load:?}");
        Ok(())
    })?;
    ensure!(
        packed[0] > 100,
        "{} of {} completions were compressed",
        packed[0],
        packed[1]
    );
    command::run("ethtool --set-priv-flags eth0 rx_cqe_compress off")?;
    let packed = grown("eth0", &["rx_cqe_compress_pkts"], || send(""))?;
    ensure!(
        packed[0] == 0,
        "{} completions were compressed, though it is off",
        packed[0]
    );
    Ok(())
}
