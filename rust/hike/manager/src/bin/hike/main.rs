// SPDX-License-Identifier: GPL-2.0

//! The command: asks the daemon, and prints what it says. Ends with 0; with 1 if `diff` has found differences; with 2 if something
//! could not be done, which one sentence on standard error says. It ends with 0, too, when nobody reads its output any more.

#![deny(unsafe_code)]

mod changes;
mod client;
mod counted;
mod output;
mod pages;
mod top;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use mflow_hike_manager::options::{Cli, Command};

use crate::output::Unread;

/// The exit status of `diff` if something differs.
const DIFFERS: u8 = 1;
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run(&cli)));
    match done {
        Ok(differs) => ExitCode::from(if differs { DIFFERS } else { 0 }),
        Err(error) if error.is::<Unread>() => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("{error:#}");
            if cli.json {
                eprintln!("{}", serde_json::json!({ "error": text }));
            } else {
                eprintln!("hike: {text}");
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Returns whether differences were found.
async fn run(cli: &Cli) -> Result<bool> {
    match &cli.command {
        Command::Apply { file } => changes::apply(cli, file).await?,
        Command::Diff { file, applied } => {
            let file = (!applied).then_some(file.as_path());
            return changes::diff(cli, file).await;
        }
        Command::Show { kind } => changes::show(cli, *kind).await?,
        Command::Status => changes::status(cli).await?,
        Command::Chain(what) => changes::chain(cli, what).await?,
        Command::Watch => changes::watch(cli).await?,
        Command::Monitor(what) => counted::monitor(cli, what).await?,
        Command::Counters { all } => counted::counters(cli, *all).await?,
        Command::Rules => counted::rules(cli).await?,
        Command::Sids => counted::sids(cli).await?,
        Command::Sessions { names } => counted::sessions(cli, names).await?,
        Command::Metrics => counted::metrics(cli).await?,
        Command::Top(options) => top::run(cli, *options).await?,
        Command::Completion { shell } => pages::completion(*shell)?,
        Command::Man { folder } => pages::man(folder)?,
    }
    Ok(false)
}
