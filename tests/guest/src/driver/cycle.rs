// SPDX-License-Identifier: GPL-2.0

//! The life of the driver, from loading to unloading, again and again.

use anyhow::{ensure, Context as _, Result};

use super::{link, Case};
use crate::machine::{command, page_pool};
use crate::network::topology;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "cycle",
            proves: "load, up, ping, TCP, UDP, channels and rings changed, down, unload: again and again",
            run: || cycles(3),
        },
        Case {
            name: "cycle-20",
            proves: "the same, often enough to see a little lost each time",
            run: || cycles(20),
        },
        Case {
            name: "unload-under-load",
            proves: "the driver goes while frames come in",
            run: || {
                let _load = link::up_with_load()?;
                link::unload()
            },
        },
        Case {
            name: "changes-under-load",
            proves: "channels, rings and link change while frames come in, and the load goes on",
            run: changes,
        },
    ]
}

fn cycles(rounds: usize) -> Result<()> {
    (1..=rounds).try_for_each(|round| cycle().with_context(|| format!("round {round} of {rounds}")))
}

fn cycle() -> Result<()> {
    link::up()?;
    ensure!(!page_pool::all()?.is_empty(), "the card uses no page pool");
    link::ping(5, 56)?;
    link::load_bytes("2M", "")?;
    let load = link::load_bytes("500K", "--udp --bitrate 40M --length 1000")?;
    ensure!(
        load.lost == 0,
        "the wire loses nothing, but {} datagrams are lost",
        load.lost
    );
    for (change, channels) in [
        ("ethtool -L eth0 combined 1", 1),
        ("ethtool -G eth0 rx 512 tx 256", 1),
        ("ethtool -L eth0 combined 4", 4),
        ("ethtool -G eth0 rx 2048 tx 2048", 4),
    ] {
        command::run(change)?;
        link::wait_carrier(true)?;
        let now = link::channels()?;
        ensure!(now == channels, "after {change}: {now} channels");
        link::ping(5, 1_400)?;
    }
    link::load_bytes("2M", "")?;
    topology::ip("link set eth0 down")?;
    link::unload()
}

fn changes() -> Result<()> {
    let _load = link::up_with_load()?;
    for change in [
        "ethtool -L eth0 combined 2",
        "ethtool -G eth0 rx 512",
        "ip link set eth0 mtu 4000",
        "ethtool -L eth0 combined 4",
        "ethtool -K eth0 rxvlan off",
        "ethtool -G eth0 rx 1024",
        "ip link set eth0 down",
        "ip link set eth0 up",
    ] {
        command::run(change)?;
        // An interface that goes down takes no traffic, but all others must.
        if !change.ends_with("down") {
            let before = link::counters("eth0")?;
            command::wait_until("the load goes on", || {
                Ok(link::counters("eth0")?["rx_packets"] > before["rx_packets"])
            })
            .with_context(|| format!("after {change}"))?;
        }
    }
    Ok(())
}
