// SPDX-License-Identifier: GPL-2.0

//! The demo: ten blocks of a flow, what was measured of each beside what is true.

use std::process::ExitCode;

use anyhow::{ensure, Result};
use mflow_hike::{Engine, Hook, Marking};
use mflow_protocol::guest::Message;

use crate::hike::loss::blocks::{self, Setting};
use crate::verdict;

/// Options of `hike-demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Blocks of one second.
    #[arg(long, default_value_t = 10)]
    blocks: u64,
}

/// Exits 0 if each block's loss was measured to the packet.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let setting = Setting {
        hook: Hook::Xdp,
        marking: Marking::Option,
        reordered: false,
        engine: Engine::Compiled,
    };
    blocks::measure(setting, options.blocks, |row| {
        verdict::say(&Message::Loss(row));
        ensure!(
            row.entered == row.left + row.dropped,
            "the loss of block {} was not measured right",
            row.block
        );
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
