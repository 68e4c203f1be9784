// SPDX-License-Identifier: GPL-2.0

//! What the driver has to survive.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Result};

use super::{link, Case, Options};
use crate::command;

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
            run: |_| repaired("0 receive-error", "rx_recover"),
        },
        Case {
            name: "fault-send-error",
            proves: "a send queue that has failed is repaired by the driver",
            run: |_| repaired("0 send-error", "tx_recover"),
        },
        Case {
            name: "fault-stall",
            proves: "a card that does nothing for a second loses nothing that matters",
            run: stall,
        },
    ]
}

fn flap(_: &Options) -> Result<()> {
    link::up()?;
    let _load = link::endless_load()?;
    for _ in 0..3 {
        link::order("0 link down");
        link::wait_carrier(false)?;
        link::order("0 link up");
        link::wait_carrier(true)?;
    }
    link::ping(10, 56)
}

fn no_buffers(_: &Options) -> Result<()> {
    link::up()?;
    let _load = link::endless_load()?;
    let before = link::counters("eth0")?;
    link::order("0 no-buffers 500");
    command::wait_until("frames are lost for want of buffers", || {
        Ok(link::counters("eth0")?["rx_out_of_buffer"] == before["rx_out_of_buffer"] + 500)
    })?;
    drop(_load);
    link::ping(10, 56)
}

fn repaired(fault: &str, counter: &str) -> Result<()> {
    link::up()?;
    let load = link::endless_load()?;
    link::order(fault);
    // The card here sends little of its own accord.
    command::wait_until("the driver repairs its queue", || {
        let _lost = link::ping(1, 56);
        Ok(link::counters("eth0")?
            .get(counter)
            .is_some_and(|count| *count > 0))
    })?;
    drop(load);
    command::wait_until("traffic goes on", || Ok(link::ping(5, 56).is_ok()))?;
    ensure!(
        link::load(1, "")?.bits_per_s > 0.0,
        "nothing arrives after the repair"
    );
    Ok(())
}

fn stall(_: &Options) -> Result<()> {
    link::up()?;
    let load = link::endless_load()?;
    link::order("0 stall");
    thread::sleep(Duration::from_secs(1));
    link::order("0 go-on");
    drop(load);
    command::wait_until("traffic goes on", || Ok(link::ping(5, 56).is_ok()))
}
