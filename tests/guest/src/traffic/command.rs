// SPDX-License-Identifier: GPL-2.0

//! The command `stream`: one run of datagrams by hand.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::RangedU64ValueParser;
use mflow_protocol::datagram::{MAX_BYTES, MIN_BYTES};

use super::datagrams::run::Datagrams;
use crate::mflow::{self, Knobs};
use crate::network::topology::{self, Family};
use crate::traffic::rig::Rig;
use crate::traffic::{Load as _, Plan};

/// Options of `stream`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Datagrams to send.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Bytes per datagram.
    #[arg(long, default_value_t = MIN_BYTES, value_parser = RangedU64ValueParser::<usize>::new().range(MIN_BYTES as u64..=MAX_BYTES as u64))]
    bytes: usize,
    /// Flows to send at once.
    #[arg(long, default_value_t = 1)]
    flows: u16,
    /// Frames per second on the wire (default: as fast as the client can).
    #[arg(long)]
    frames_per_s: Option<f64>,
    /// Split the flows over this many lanes (1, 2 or 4); 0: the vanilla stack.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=4))]
    lanes: u8,
    /// Packets per batch.
    #[arg(long, default_value_t = 256)]
    batch_pkts: u32,
    /// Time that the merger waits for a lane, in microseconds.
    #[arg(long, default_value_t = mflow::STRICT_TIMEOUT_US)]
    merge_timeout_us: u32,
    /// Address family inside the overlay.
    #[arg(long, value_enum, default_value_t)]
    inner: Family,
    /// Address family of the outer packets.
    #[arg(long, value_enum, default_value_t)]
    outer: Family,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    topology::up(options.outer)?;
    Rig::wait_ready(options.outer)?;
    let split = options.lanes > 0;
    mflow::unload()?;
    if split {
        mflow::load(&Knobs {
            lanes: usize::from(options.lanes),
            batch_pkts: options.batch_pkts,
            merge_timeout_us: options.merge_timeout_us,
            ..Knobs::default()
        })?;
    }
    let plan = Plan {
        flows: options.flows,
        inner: options.inner,
        outer: options.outer,
        one_outer: false,
        split,
        load: Datagrams {
            bytes: options.bytes,
            ..Datagrams::smallest(options.count, options.frames_per_s)
        },
    };
    let outcome = Datagrams::measure(&plan, |_| Ok(()))?;
    println!("{}", serde_json::to_string_pretty(&outcome)?);
    outcome.require_whole()?;
    outcome.require_order()?;
    Ok(ExitCode::SUCCESS)
}
