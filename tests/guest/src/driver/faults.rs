// SPDX-License-Identifier: GPL-2.0

//! Faults that the driver has to survive.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::{link, Case};
use crate::machine::{command, threads};
use crate::network::devlink;

/// Longer than the kernel's watchdog takes to notice a send queue that stands still.
const WATCHDOG: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "fault-link",
            proves: "the link goes and comes back under load",
            run: flap,
        },
        Case {
            name: "fault-no-buffers",
            proves: "frames without a buffer are lost and counted, and traffic goes on",
            run: no_buffers,
        },
        Case {
            name: "fault-receive-error",
            proves: "a receive queue that has failed is repaired by the driver",
            run: || repaired("0 receive-error", "rx_recover"),
        },
        Case {
            name: "fault-send-error",
            proves: "a send queue that has failed is repaired by the driver",
            run: || repaired("0 send-error", "tx_recover"),
        },
        Case {
            name: "fault-events-twice",
            proves: "events about completions that come twice, with their interrupts, do no harm",
            run: events_twice,
        },
        Case {
            name: "fault-lost-interrupt",
            proves: "a channel whose interrupt was lost is found and goes on",
            run: || stands_still("lose-interrupts", |counters| counters["ch_eq_rearm"] > 0),
        },
        Case {
            name: "fault-event-overrun",
            proves: "channels whose events found their queue full are found and go on",
            run: || stands_still("lose-events", |_| true),
        },
        Case {
            name: "fault-health",
            proves: "the driver reports a card whose event queue has overrun, and goes on",
            run: health,
        },
        Case {
            name: "fault-fatal",
            proves: "the driver revives a card that has died",
            run: fatal,
        },
        Case {
            name: "fault-stall",
            proves: "a card that does nothing for a second loses nothing that matters",
            run: stall,
        },
    ]
}

fn flap() -> Result<()> {
    let _load = link::up_with_load()?;
    for _ in 0..3 {
        link::order("0 link down");
        link::wait_carrier(false)?;
        link::order("0 link up");
        link::wait_carrier(true)?;
    }
    link::ping(10, 56)
}

fn no_buffers() -> Result<()> {
    let load = link::up_with_load()?;
    let before = link::counters("eth0")?;
    link::order("0 no-buffers 500");
    command::wait_until("frames are lost for want of buffers", || {
        Ok(link::counters("eth0")?["rx_out_of_buffer"] == before["rx_out_of_buffer"] + 500)
    })?;
    drop(load);
    link::ping(10, 56)
}

fn repaired(fault: &str, counter: &str) -> Result<()> {
    let load = link::up_with_load()?;
    link::order(fault);
    // The card here sends little of its own accord.
    command::wait_until("the driver repairs its queue", || {
        let _lost = link::ping_once(1, 56);
        Ok(link::counters("eth0")?
            .get(counter)
            .is_some_and(|count| *count > 0))
    })?;
    drop(load);
    command::wait_until("traffic goes on", || Ok(link::ping_once(5, 56).is_ok()))?;
    ensure!(
        link::load(1, "")?.bits_per_s > 0.0,
        "nothing arrives after the repair"
    );
    Ok(())
}

fn events_twice() -> Result<()> {
    let _load = link::up_with_load()?;
    let before = link::counters("eth0")?;
    link::order("0 duplicate-events 500");
    command::wait_until("the load goes on", || {
        Ok(link::counters("eth0")?["rx_packets"] > before["rx_packets"] + 5_000)
    })?;
    link::ping(10, 56)
}

/// A card that reports no completions stands still until its driver looks by itself, when packets have waited for 15 s to be
/// sent.
fn stands_still(fault: &str, is_repaired: fn(&BTreeMap<String, u64>) -> bool) -> Result<()> {
    link::up()?;
    // With one channel, everything depends on the same event queue.
    command::run("ethtool -L eth0 combined 1")?;
    // A watchdog only looks at a queue that is full: it has to be shorter than what the senders' sockets hold.
    command::run("ethtool -G eth0 tx 128")?;
    link::wait_carrier(true)?;
    let _load = link::endless_sending()?;
    link::order(&format!("0 {fault} 1000000"));
    command::wait_until("the card stands still", || {
        Ok(link::ping_once(1, 56).is_err())
    })?;
    link::order(&format!("0 {fault} 0"));
    ensure!(
        link::ping_once(1, 56).is_err(),
        "the card goes on before its driver has looked"
    );
    threads::until_ok(WATCHDOG, || link::ping_once(1, 56)).context("the driver has not looked")?;
    let counters = link::counters("eth0")?;
    ensure!(is_repaired(&counters), "it was not repaired that way");
    link::ping(10, 56)
}

fn health() -> Result<()> {
    link::up()?;
    let complaints = || {
        Ok::<_, anyhow::Error>(
            devlink::health("fw")?
                .iter()
                .map(|health| health.errors)
                .sum::<u64>(),
        )
    };
    ensure!(complaints()? == 0, "there was a complaint before");
    // The syndrome "async EQ buffer overrun".
    link::order("0 health 12");
    // The driver looks every two seconds.
    command::wait_until("the driver reports it", || Ok(complaints()? == 1))?;
    link::ping(10, 56)?;
    link::order("0 health 0");
    link::ping(10, 56)
}

fn fatal() -> Result<()> {
    let load = link::up_with_load()?;
    link::order("0 fatal");
    devlink::wait_revived()?;
    drop(load);
    // The card is the same, its interface is a new one.
    link::up_here()?;
    link::ping(10, 56)?;
    ensure!(
        link::load(1, "")?.bits_per_s > 0.0,
        "nothing arrives after the revival"
    );
    Ok(())
}

fn stall() -> Result<()> {
    let load = link::up_with_load()?;
    link::order("0 stall");
    thread::sleep(Duration::from_secs(1));
    link::order("0 go-on");
    drop(load);
    command::wait_until("traffic goes on", || Ok(link::ping_once(5, 56).is_ok()))
}
