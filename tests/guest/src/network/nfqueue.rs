// SPDX-License-Identifier: GPL-2.0

//! A program that the kernel asks about packets of the container (NFQUEUE), and that lets each pass at once.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nfq::{Queue, Verdict};

use crate::machine::cpu;
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
