// SPDX-License-Identifier: GPL-2.0

//! The laboratory: measures what the receive path costs, and predicts other machines from that.
//!
//! `cargo xtask bench` and `cargo xtask sim` run this program.

mod bench;
mod sim;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about, max_term_width = 100)]
enum Command {
    /// Measure instructions per packet on the busiest core, for every stack
    Bench(bench::Options),
    /// Predict other machines from measured costs, and check the predictions against what was measured
    Sim(sim::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Bench(options) => bench::run(options),
        Command::Sim(options) => sim::run(options),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
