// SPDX-License-Identifier: GPL-2.0

//! A lane's CPU goes offline and comes back while it carries packets.

use std::time::Duration;

use anyhow::Result;

use crate::cases::{Case, Run};
use crate::machine::{command, cpu};
use crate::mflow::{Knobs, Stats};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

const ROUNDS: usize = 3;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "hotplug/lane",
        "a lane's CPU goes offline and comes back under load: no loss, no reordering",
        Run::Always,
        lane_comes_and_goes,
    )]
}

fn lane_comes_and_goes(rig: &Rig) -> Result<Outcome> {
    let lane = cpu::LANES[1];
    let result = rig.measure(&rig.datagrams(), &Knobs::default(), |live| {
        for _ in 0..ROUNDS {
            live.flow_for(Duration::from_millis(200))?;
            cpu::set_online(lane, false)?;
            live.flow_for(Duration::from_millis(300))?;
            cpu::set_online(lane, true)?;
        }
        if rig.mflow {
            let carried = || Stats::read()?.get(&format!("lane_cpu{lane}_pkts"));
            let before = carried()?;
            command::wait_until("the lane is used again", || Ok(carried()? > before))?;
        }
        Ok(())
    });
    // Also after a failure: the next case needs all CPUs.
    cpu::set_online(lane, true)?;
    result?.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        rig.settle()
    })
}
