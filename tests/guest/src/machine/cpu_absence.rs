// SPDX-License-Identifier: GPL-2.0

//! The time for which a CPU of the guest was away: a host with fewer CPUs than the guest lets some of them wait, now and then for
//! longer than any deadline that a test can set. A test that fails then says nothing about what it tests.

use std::error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::machine::cpu;

const NAP: Duration = Duration::from_millis(50);

/// True if a case keeps tasks off a CPU itself.
static PROVOKED: AtomicBool = AtomicBool::new(false);

/// Notes that the case makes a CPU absent on purpose: nothing can be told until it is over.
pub(crate) fn provoke() {
    PROVOKED.store(true, Ordering::Relaxed);
}

/// Too many datagrams found no room in their socket: its reader was away, or something kept them for too long.
#[derive(Debug)]
pub(crate) struct NoRoom {
    pub(crate) refused: u64,
    pub(crate) sent: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused, sent } = self;
        write!(
            text,
            "sockets had no room for {refused} of {sent} datagrams"
        )
    }
}

impl error::Error for NoRoom {}

/// Threads that sleep and look at the clock, one on each CPU.
pub(crate) struct Watch;

/// The longest that any of them has overslept since the last look at it.
static LONGEST_US: AtomicU64 = AtomicU64::new(0);

impl Watch {
    /// Starts to watch, until the program ends.
    pub(crate) fn start() -> Self {
        for cpu in 0..cpu::online() {
            thread::spawn(move || {
                // On another CPU, as after its own went offline, it still sees when the whole guest stands still.
                let _elsewhere = cpu::pin(cpu);
                loop {
                    let start = Instant::now();
                    thread::sleep(NAP);
                    let late = start.elapsed().saturating_sub(NAP);
                    // CAST: half a million years.
                    LONGEST_US.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
                }
            });
        }
        Self
    }

    /// Returns how long a CPU was away at most since the last call; nothing if that was on purpose.
    pub(crate) fn longest(&self) -> Duration {
        let longest = Duration::from_micros(LONGEST_US.swap(0, Ordering::Relaxed));
        if PROVOKED.swap(false, Ordering::Relaxed) {
            return Duration::ZERO;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_told_once() {
        let watch = Watch::start();
        LONGEST_US.fetch_max(900_000, Ordering::Relaxed);
        assert!(watch.longest() >= Duration::from_millis(900));
        assert!(watch.longest() < Duration::from_millis(900));
        provoke();
        LONGEST_US.fetch_max(900_000, Ordering::Relaxed);
        assert_eq!(watch.longest(), Duration::ZERO);
    }
}
