// SPDX-License-Identifier: GPL-2.0

//! Changes of the host's routing while the daemon runs: the programs are told which packets they have to leave to the kernel now.

use std::thread;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use mflow_hike::{Facts, Follower};
use tokio::sync::mpsc::{self, Sender};

use crate::say;
use crate::service::Service;

/// The time after which the kernel is asked again if it did not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells the programs of all changes. The first time, too: the host may have changed before this has begun to listen.
pub async fn watch(service: &Service) -> Result<()> {
    let (sender, mut changes) = mpsc::channel(1);
    // It waits in the kernel, and ends with the process.
    thread::Builder::new()
        .name("routing".to_owned())
        .spawn(move || follow(&sender))
        .context("cannot start a thread")?;
    let mut said = None;
    while let Some(change) = changes.recv().await {
        let problem = match change {
            Ok(facts) => service.routing_changed(facts).await,
            Err(problem) => Some(problem),
        };
        // The same problem each second is told once.
        if let Some(problem) = problem.as_ref().filter(|_| problem != said) {
            say(format_args!(
                "{problem}; what the programs know of the host's routing is old"
            ));
        }
        said = problem;
    }
    bail!("the thread that follows the host's routing has ended")
}

type Change = std::result::Result<Facts, String>;

/// Sends what is known after each change, or why it cannot be known; returns when nobody receives it any more.
fn follow(sender: &Sender<Change>) {
    loop {
        let error = match Follower::new() {
            Ok(follower) => match send_changes(follower, sender) {
                Ok(()) => return,
                Err(error) => error,
            },
            Err(error) => error,
        };
        if sender.blocking_send(Err(format!("{error:#}"))).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    }
}

fn send_changes(mut follower: Follower, sender: &Sender<Change>) -> Result<()> {
    loop {
        let facts = follower.facts().clone();
        if sender.blocking_send(Ok(facts)).is_err() {
            return Ok(());
        }
        while !follower.follow()? {}
    }
}
