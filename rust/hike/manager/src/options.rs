// SPDX-License-Identifier: GPL-2.0

//! The command lines of `hiked` and `hike`, of which help, completion and man pages are made.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::configuration::objects::Kind;

/// The socket at which the daemon listens.
pub const SOCKET: &str = "/run/hiked.sock";
/// The file with the configuration that is applied when the host starts.
pub const FILE: &str = "/etc/hike.toml";
/// The folder in which programs and tables are pinned.
pub const PINS: &str = "/sys/fs/bpf/hike";

/// Keeps what is configured in the kernel: chains of BPF programs at XDP or tcx, their tables and monitors, and routes
///
/// Traffic does not need it: when it ends, all but the sessions of test packets goes on as it is, and it finds all again when it starts.
/// A transaction that was killed half-way is then finished or undone.
#[derive(Debug, Parser)]
#[command(name = "hiked", version, max_term_width = 100)]
pub struct Daemon {
    /// The socket it listens at; only root can open it
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// The folder for pinned programs and tables, on a BPF file system and used by one hiked alone
    #[arg(long, value_name = "FOLDER", default_value = PINS)]
    pub pins: PathBuf,
    /// The file to apply if nothing is in the kernel yet, as after the start of the host; it need not exist
    #[arg(long, value_name = "FILE", default_value = FILE)]
    pub file: PathBuf,
    /// Learn by netlink of what makes the cache forget, without programs that trace the kernel: while hiked does not run, packets then do
    /// without the cache
    #[arg(long)]
    pub no_tracing: bool,
    /// Remove all that is in the kernel, and end: packets take the kernel's path
    #[arg(long)]
    pub remove: bool,
}

/// Configures chains of BPF programs at XDP or tcx, and shows what they count
#[derive(Debug, Parser)]
#[command(
    name = "hike",
    version,
    max_term_width = 100,
    subcommand_required = true
)]
pub struct Cli {
    /// The socket of hiked
    #[arg(long, value_name = "PATH", default_value = SOCKET, global = true)]
    pub socket: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The command to run
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `hike`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a file what is configured: all of it, or nothing if it cannot be
    Apply {
        /// The file
        #[arg(default_value = FILE)]
        file: PathBuf,
    },
    /// Show how what is in the kernel differs from a file; ends with 1 if it does
    Diff {
        /// The file
        #[arg(default_value = FILE, conflicts_with = "applied")]
        file: PathBuf,
        /// Compare with what was applied last: what differs, others have changed
        #[arg(long)]
        applied: bool,
    },
    /// Show what is configured, as a file has it
    Show {
        /// Show only this kind of objects [default: all]
        kind: Option<Kind>,
    },
    /// Show which devices have chains, and which part of the kernel runs these
    Status,
    /// List and change chains
    #[command(subcommand)]
    Chain(Chain),
    /// List monitors, and what they have counted
    #[command(subcommand)]
    Monitor(Monitor),
    /// Show how many packets have had which fate, and why
    Counters {
        /// Also show reasons that no packet has had
        #[arg(long)]
        all: bool,
    },
    /// List the rules of the access list, and how many packets each has decided on
    Rules,
    /// List the local SIDs, with packets and bytes that the behaviour of each was done to
    Sids,
    /// Show delay and loss of test packets to reflectors
    Sessions {
        /// Of these sessions [default: all]
        names: Vec<String>,
    },
    /// Print counters, monitors and sessions as OpenMetrics text
    Metrics,
    /// Show flows and counters, again and again
    Top(Top),
    /// Print each change of what is configured, also those that others make
    Watch,
    /// Print a script that completes command lines of hike
    Completion {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages hike.1 (one for each command, too) and hiked.8
    Man {
        /// The folder that they are written to
        folder: PathBuf,
    },
}

/// The commands for chains.
#[derive(Debug, Subcommand)]
pub enum Chain {
    /// List all
    List,
    /// Add one
    Add(ChainWords),
    /// Make all classes of a chain take other programs instead
    Replace(ChainWords),
    /// Remove one that no class takes
    Remove {
        /// Its name
        name: String,
    },
}

/// A chain.
#[derive(Debug, Args)]
pub struct ChainWords {
    /// Its name
    pub name: String,
    /// Its programs by name or number, with commas in between: enc,mon-in,fw-fib
    pub programs: String,
}

/// The commands for monitors.
#[derive(Debug, Subcommand)]
pub enum Monitor {
    /// List all
    List,
    /// Show the packets of the last blocks
    Results {
        /// Of these monitors [default: all]
        names: Vec<String>,
    },
}

/// The time between two tables, and their number.
#[derive(Clone, Copy, Debug, Args)]
pub struct Top {
    /// Seconds from one table to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// End after this many tables
    #[arg(long, value_name = "TABLES")]
    pub count: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "0.1 to 3600 are allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_lines_are_well_formed() {
        Cli::command().debug_assert();
        Daemon::command().debug_assert();
    }
}
