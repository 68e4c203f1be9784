// SPDX-License-Identifier: GPL-2.0

//! Threads: the result of one, one beside the caller, and a wait for what another one brings about.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{bail, Context as _, Result};

const LOOK: Duration = Duration::from_millis(20);

/// Returns what a thread that was joined has returned; its panic is an error like any other.
pub(crate) fn result<T>(joined: thread::Result<Result<T>>) -> Result<T> {
    match joined {
        Ok(result) => result,
        Err(_) => bail!("a thread panicked; its message is on standard error"),
    }
}

/// Returns what all of these threads have returned, when each has ended, or the first error.
pub(crate) fn results<T>(
    joined: impl IntoIterator<Item = thread::Result<Result<T>>>,
) -> Result<Vec<T>> {
    let ended: Vec<_> = joined.into_iter().map(result).collect();
    ended.into_iter().collect()
}

/// Runs `work` on this many threads at the same time, each with its number, and returns what all have returned, or the first error.
pub(crate) fn each<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let running: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        results(running.into_iter().map(|thread| thread.join()))
    })
}

/// Starts a thread, and returns it with what it says when it is ready; its error if it ends before.
pub(crate) fn start<T: Send + 'static, R: Send + 'static>(
    work: impl FnOnce(SyncSender<R>) -> Result<T> + Send + 'static,
) -> Result<(JoinHandle<Result<T>>, R)> {
    let (ready, said) = mpsc::sync_channel(1);
    let thread = thread::spawn(move || work(ready));
    match said.recv() {
        Ok(said) => Ok((thread, said)),
        Err(_) => {
            result(thread.join())?;
            bail!("a thread ended before it began")
        }
    }
}

/// Runs `work` on a thread of its own while `meanwhile` runs, and tells it to stop afterwards; returns what both return.
///
/// The thread's error goes first: what `meanwhile` waits for does not happen because of it.
pub(crate) fn beside<W: Send, M>(
    work: impl FnOnce(&AtomicBool) -> Result<W> + Send,
    meanwhile: impl FnOnce() -> Result<M>,
) -> Result<(W, M)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        let seen = meanwhile();
        stop.store(true, Ordering::Relaxed);
        let done = result(worker.join())?;
        Ok((done, seen?))
    })
}

/// Repeats a check until it passes; its error counts once `limit` is over.
pub(crate) fn until_ok(limit: Duration, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    loop {
        match check() {
            Err(_) if start.elapsed() < limit => thread::sleep(LOOK),
            checked => return checked.with_context(|| format!("after {} s", limit.as_secs())),
        }
    }
}
