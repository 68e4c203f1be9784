// SPDX-License-Identifier: GPL-2.0

//! A program that the kernel asks about packets of the container (NFQUEUE), and that lets each pass, at once or later.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nfq::{Message, Queue, Verdict};
use nix::errno::Errno;

use crate::machine::{cpu, threads};
use crate::network::netns;
use crate::network::topology::CONTAINER;

const NUMBER: u16 = 0;
/// More than a case sends in the time that a virtual CPU is away.
const MOST_PKTS: u32 = 65_536;
const LOOK: Duration = Duration::from_millis(1);

pub(crate) struct Judge(Queue);

impl Judge {
    /// Returns when the kernel can be told to ask.
    pub(crate) fn open() -> Result<Self> {
        netns::within(CONTAINER, || {
            let mut queue = Queue::open()?;
            queue.bind(NUMBER)?;
            // It does not look at the packets.
            queue.set_copy_range(NUMBER, 0)?;
            queue.set_queue_max_len(NUMBER, MOST_PKTS)?;
            queue.set_nonblocking(true);
            Ok(Self(queue))
        })
        .context("this kernel has no NFQUEUE")
    }

    /// Lets all packets pass until it shall stop; returns how many they were.
    pub(crate) fn accept_all(mut self, stop: &AtomicBool) -> Result<u64> {
        cpu::pin(cpu::LANES[3])?;
        let mut accepted = 0;
        loop {
            match self.0.recv() {
                Ok(mut packet) => {
                    packet.set_verdict(Verdict::Accept);
                    self.0.verdict(packet).context("cannot accept a packet")?;
                    accepted += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(accepted);
                    }
                    thread::sleep(LOOK);
                }
                Err(error) => return Err(error).context("cannot ask for packets"),
            }
        }
    }
}

/// A judge on a thread of its own, which keeps each packet waiting.
pub(crate) struct SlowJudge {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<u64>>>,
}

#[derive(Default)]
struct Shared {
    hurry: AtomicBool,
    stop: AtomicBool,
}

impl SlowJudge {
    /// Returns one that lets each packet pass so much later; the kernel can be told to ask.
    pub(crate) fn start(delay: Duration) -> Result<Self> {
        let judge = Judge::open()?;
        let shared = Arc::new(Shared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || judge.accept_later(delay, &shared)
        });
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Lets all that wait pass, and from now on each packet at once.
    pub(crate) fn hurry(&self) {
        self.shared.hurry.store(true, Ordering::Relaxed);
    }

    /// Ends it; the kernel drops what waits. Returns how many packets have passed.
    pub(crate) fn end(mut self) -> Result<u64> {
        self.stop().unwrap_or(Ok(0))
    }

    fn stop(&mut self) -> Option<Result<u64>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(threads::result(thread.join()))
    }
}

impl Drop for SlowJudge {
    fn drop(&mut self) {
        let _ended_before_or_failed = self.stop();
    }
}

impl Judge {
    fn accept_later(mut self, delay: Duration, shared: &Shared) -> Result<u64> {
        // Lanes' CPUs come and go.
        cpu::pin(cpu::READER)?;
        let mut waiting: VecDeque<(Instant, Message)> = VecDeque::new();
        let mut accepted = 0;
        while !shared.stop.load(Ordering::Relaxed) {
            match self.0.recv() {
                Ok(packet) => waiting.push_back((Instant::now() + delay, packet)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(error) if is_about_dropped(&error) => {}
                Err(error) => return Err(error).context("cannot ask for packets"),
            }
            let (now, hurry) = (Instant::now(), shared.hurry.load(Ordering::Relaxed));
            while waiting.front().is_some_and(|(due, _)| hurry || *due <= now) {
                let Some((_, mut packet)) = waiting.pop_front() else {
                    break;
                };
                packet.set_verdict(Verdict::Accept);
                self.0.verdict(packet).context("cannot accept a packet")?;
                accepted += 1;
            }
        }
        Ok(accepted)
    }
}

/// Tells whether the kernel says that it has dropped packets: those that waited when a hook went, or those for which there was no room.
fn is_about_dropped(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(number, Some(Errno::ENOENT | Errno::ENOBUFS))
}
