// SPDX-License-Identifier: GPL-2.0

//! Sessions of test packets (STAMP, RFC 8762): this daemon sends, and a reflector answers.
//!
//! Read in this order: [`tally`] (what becomes of each packet), [`delays`] (what is said of many), `sender` (the socket), and this file (the
//! sessions that run, and what they are to be).
//!
//! Sessions are those of the configuration that was applied last. One that is not changed goes on; all end with the daemon, and begin from
//! 0 with the next one.

pub mod delays;
mod sender;
pub mod tally;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{bail, Result};
use tokio::task::AbortHandle;

use self::tally::Tally;
use crate::configuration::Session;
use crate::v1;

/// The sessions that run; each clone has the same.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<BTreeMap<String, Running>>>);

#[derive(Debug)]
struct Running {
    session: Session,
    tally: Arc<Mutex<Tally>>,
    task: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sessions {
    /// Begins and ends sessions until there are those that are wanted. It has to be called within a runtime, on which they run.
    pub fn set(&self, wanted: &BTreeMap<String, Session>) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|name, one| wanted.get(name) == Some(&one.session));
        for (name, session) in wanted {
            if running.contains_key(name) {
                continue;
            }
            let tally = Arc::new(Mutex::new(Tally::new(session.timeout())));
            let task = sender::run(name.clone(), session.clone(), Arc::clone(&tally));
            let task = tokio::spawn(task).abort_handle();
            let session = session.clone();
            running.insert(
                name.clone(),
                Running {
                    session,
                    tally,
                    task,
                },
            );
        }
    }

    /// Returns what is known of those with these names; of all if none is named.
    pub fn results(&self, names: &[String]) -> Result<Vec<v1::SessionResult>> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unknown) = names.iter().find(|name| !running.contains_key(*name)) {
            bail!("there is no session {unknown}");
        }
        let asked = running
            .iter()
            .filter(|(name, _)| names.is_empty() || names.contains(name));
        let asked: Vec<_> = asked
            .map(|(name, one)| (name.clone(), one.session.reflector, Arc::clone(&one.tally)))
            .collect();
        // To say what it is takes time, which no transaction waits for.
        drop(running);
        let results = asked.into_iter().map(|(name, reflector, tally)| {
            let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.result(&name, reflector)
        });
        Ok(results.collect())
    }
}
