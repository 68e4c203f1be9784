// SPDX-License-Identifier: GPL-2.0

//! The main job, side by side: the vanilla stack, then mflow on 2 and on 4 lanes.
//!
//! Each gets the same two loads. Numbered streams at an offered rate that the vanilla stack carries without loss prove
//! order and integrity; sockperf clients, flat out, show the message rate and which core does the work.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use mflow_protocol::guest::{DemoRow, Message, Sockperf};

use crate::machine::cpu;
use crate::mflow::Knobs;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::scale::Scale;
use crate::traffic::sockperf;
use crate::verdict;

/// The most runs of the vanilla stack, each at a lower offered rate than the last, if the stack loses something after all.
const TRIES: usize = 4;
/// The factor by which a lane may carry more than another lane.
const MOST_UNEVEN: f64 = 1.3;

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Numbered datagrams per stack.
    #[arg(long, default_value_t = 150_000)]
    count: u64,
    /// Time for which sockperf is measured, in seconds.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
}

/// Runs `demo`: exits 0 if mflow loses, reorders and damages nothing.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let scale = Scale {
        main: options.count,
        other: options.count,
        tcp_main_bytes: 0,
        tcp_bytes: 0,
        brief: false,
    };
    let mut rig = Rig::new(true, scale)?;
    let mut all_good = true;
    for lanes in [0, 2, 4] {
        let row = measure(&mut rig, lanes, options)?;
        all_good &= row.errors.is_empty();
        verdict::say(&Message::Row(row));
    }
    Ok(if all_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn measure(rig: &mut Rig, lanes: usize, options: &Options) -> Result<DemoRow> {
    let knobs = Knobs {
        lanes,
        ..Knobs::default()
    };
    rig.mflow = lanes > 0;
    let mut numbered = run_numbered(rig, &knobs)?;
    for _ in 1..TRIES {
        if rig.mflow || numbered.lost == 0 {
            break;
        }
        rig.offer_less();
        numbered = run_numbered(rig, &knobs)?;
    }
    // Fresh counters and devices for the second load.
    rig.prepare(&rig.datagrams(), &knobs)?;
    let sockperf = sockperf::measure(Duration::from_secs(options.seconds))?;
    let mut errors = Vec::new();
    if rig.mflow {
        let checks = [
            numbered.require_whole(),
            numbered.require_order(),
            numbered.require_split(&knobs, 1),
            require_even(&sockperf, lanes),
        ];
        errors.extend(
            checks
                .into_iter()
                .filter_map(|check| check.err().map(|error| format!("{error:#}"))),
        );
    } else if numbered.lost > 0 {
        errors.push(format!(
            "the vanilla stack loses packets at {} frames/s already: this host is too busy to compare on",
            rig.frames_per_s()
        ));
    }
    Ok(DemoRow {
        lanes,
        numbered: numbered.measured(),
        sockperf,
        errors,
    })
}

fn run_numbered(rig: &Rig, knobs: &Knobs) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    // CAST: three.
    plan.flows = sockperf::CLIENTS as u16;
    plan.load.one_socket = true;
    rig.measure(&plan, knobs, |_| Ok(()))
}

/// Fails if one lane carried much more of sockperf's traffic than another.
fn require_even(sockperf: &Sockperf, lanes: usize) -> Result<()> {
    let carried: Vec<i64> = cpu::LANES[..lanes]
        .iter()
        .map(|lane| {
            let name = format!("lane_cpu{lane}_pkts");
            sockperf.mflow.get(&name).copied().unwrap_or(0)
        })
        .collect();
    let least = carried.iter().min().copied().unwrap_or(0);
    let most = carried.iter().max().copied().unwrap_or(0);
    // CAST: packet counts are far from where f64 loses digits.
    anyhow::ensure!(
        least > 0 && most as f64 <= least as f64 * MOST_UNEVEN,
        "the lanes carried {carried:?} packets of the sockperf clients: not within a factor of {MOST_UNEVEN}"
    );
    Ok(())
}
