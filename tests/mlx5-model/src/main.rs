// SPDX-License-Identifier: GPL-2.0

//! Serves cards to QEMU.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use mlx5_model::ifc::Layouts;
use mlx5_model::server::{self, Options};

#[derive(Parser)]
#[command(about, max_term_width = 100)]
enum Cli {
    /// Serve one card for each socket until the machine ends; a wire joins the first and the second, and so on
    ///
    /// Says `ready` on standard output when QEMU may connect; takes orders on standard input (`0 link down`).
    Serve(Options),
    /// Write the table of layouts that the kernel's headers say
    Layouts {
        /// .../include/linux/mlx5/mlx5_ifc.h; its neighbours are read, too
        header: PathBuf,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse() {
        Cli::Serve(options) => serve(&options),
        Cli::Layouts { header } => layouts(&header),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<()> {
    let summaries = server::serve(options, || println!("ready"))?;
    for (card, summary) in summaries.iter().enumerate() {
        println!(
            "end {card} unknown={} objects={} lost={} sent={} received={}",
            summary.unknown_commands,
            summary.objects,
            summary.lost,
            summary.sent.total().frames,
            summary.received.total().frames
        );
    }
    Ok(())
}

fn layouts(header: &Path) -> Result<()> {
    let layouts = Layouts::from_headers(header).map_err(anyhow::Error::msg)?;
    println!("# Where the fields of commands and queue entries are in Linux 6.12: made of include/linux/mlx5/ by `mlx5-model layouts HEADER`.");
    print!("{}", layouts.to_table());
    Ok(())
}
