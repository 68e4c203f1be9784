// SPDX-License-Identifier: GPL-2.0

//! The module's trial (`c-shims/trial/mflow_trial.c`): what is written to it, and what is read.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};

use anyhow::{ensure, Context as _, Result};

use super::drawn::{Drawn, DrawnRun};

const FILE: &str = "/sys/kernel/debug/mflow_trial";
/// Less than the file takes at once (`MFLOW_TRIAL_IN_BYTES`), by more than the longest run.
pub(super) const BATCH_BYTES: usize = 256 << 10;

const APART: u32 = 1;
const QUIET: u32 = 2;

/// The features of the device that a driver's GRO looks at.
pub(super) const LISTS: u32 = 1;
pub(super) const FORWARDS: u32 = 2;

/// The form in which a lane's datagrams pass the stack: `MFLOW_FORM_*` in `net/mflow.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Form {
    Single = 0,
    List = 1,
    Aggregate = 2,
}

/// The part of a batch that all its runs share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) form: Form,
    pub(super) features: u32,
}

/// A packet that came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packet {
    /// All of `struct mflow_trial_packet` but the number of frames and what follows here.
    pub(super) description: Vec<u8>,
    /// The bytes by which it does not count for the memory of which it is made.
    pub(super) memory_error: u32,
    pub(super) frames: Vec<Vec<u8>>,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) joined: u32,
    /// The packets that GRO let go.
    pub(super) packets: u32,
    pub(super) memory: Memory,
    /// Pages of the pool that nobody has given back.
    pub(super) held_pages: i32,
    /// Those of GRO and of the lane, if they were asked for or differ.
    pub(super) both: Option<[Vec<Packet>; 2]>,
}

/// The memory for which all packets of a run count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) gro: u32,
    pub(super) lane: u32,
    /// The lane's may count for so much more than those of GRO. Zero: they have to count for the same.
    pub(super) allowance: u32,
}

/// Runs that are written at once.
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) runs: usize,
}

pub(super) struct Trial(File);

impl Batch {
    /// Returns a batch without runs. If `is_apart`, all packets are taken apart. If `is_quiet`, only packets that differ are told.
    pub(super) fn new(setting: Setting, is_apart: bool, is_quiet: bool) -> Self {
        let mut bytes = Vec::with_capacity(BATCH_BYTES * 2);
        let flags = u32::from(is_apart) * APART + u32::from(is_quiet) * QUIET;
        for word in [flags, setting.form as u32, setting.features] {
            bytes.extend(word.to_ne_bytes());
        }
        Self { bytes, runs: 0 }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() < BATCH_BYTES
    }

    pub(super) fn add(&mut self, run: &DrawnRun) {
        self.runs += 1;
        // CAST: few.
        let frames = run.frames.len() as u32;
        let [most_bytes, most_ipv4_bytes] = run.most_bytes;
        for word in [frames, most_bytes, most_ipv4_bytes] {
            self.bytes.extend(word.to_ne_bytes());
        }
        for Drawn { frame, handling } in &run.frames {
            let at = self.bytes.len();
            self.bytes.extend([0, 0, handling.flags, handling.sums]);
            self.bytes.extend(handling.flow.to_ne_bytes());
            let begin = self.bytes.len();
            frame.write(&mut self.bytes);
            // CAST: no frame is that long.
            let bytes = (self.bytes.len() - begin) as u16;
            self.bytes[at..at + 2].copy_from_slice(&bytes.to_ne_bytes());
        }
    }
}

impl Trial {
    /// Opens a trial with devices in the caller's network namespace.
    pub(super) fn open() -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(FILE);
        Ok(Self(file.with_context(|| format!("cannot open {FILE}"))?))
    }

    /// Carries out all runs of a batch, and returns the result of each.
    pub(super) fn carry_out(&mut self, batch: &Batch) -> Result<Vec<Outcome>> {
        self.0
            .write_all(&batch.bytes)
            .context("the trial does not take what is written to it")?;
        let mut read = Vec::new();
        self.0.read_to_end(&mut read)?;
        let mut rest = read.as_slice();
        let outcomes: Result<Vec<_>> = (0..batch.runs).map(|_| Outcome::take(&mut rest)).collect();
        ensure!(rest.is_empty(), "the trial says more than it was asked");
        outcomes
    }
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Result<&'a [u8]> {
    let (taken, rest) = from
        .split_at_checked(bytes)
        .context("the trial has ended in the midst of a result")?;
    *from = rest;
    Ok(taken)
}

fn take_number(from: &mut &[u8]) -> Result<u32> {
    Ok(u32::from_ne_bytes(take(from, 4)?.try_into()?))
}

impl Outcome {
    fn take(from: &mut &[u8]) -> Result<Self> {
        let (joined, packets) = (take_number(from)?, take_number(from)?);
        // CAST: 32 bits into a usize.
        let [gro, lane] = [take_number(from)? as usize, take_number(from)? as usize];
        let memory = Memory {
            gro: take_number(from)?,
            lane: take_number(from)?,
            allowance: take_number(from)?,
        };
        // CAST: the same bits.
        let held_pages = take_number(from)? as i32;
        let mut both = None;
        if (gro, lane) != (0, 0) {
            both = Some([
                Packet::take_all(take(from, gro)?)?,
                Packet::take_all(take(from, lane)?)?,
            ]);
        }
        Ok(Self {
            joined,
            packets,
            memory,
            held_pages,
            both,
        })
    }
}

impl Packet {
    fn take_all(mut from: &[u8]) -> Result<Vec<Self>> {
        let mut packets = Vec::new();
        while !from.is_empty() {
            let frames = take_number(&mut from)?;
            let description = take(&mut from, 20)?.to_vec();
            let memory_error = take_number(&mut from)?;
            let frames = (0..frames).map(|_| {
                // CAST: 32 bits into a usize.
                let bytes = take_number(&mut from)? as usize;
                let frame = take(&mut from, bytes.next_multiple_of(4))?;
                Ok(frame[..bytes].to_vec())
            });
            packets.push(Self {
                description,
                memory_error,
                frames: frames.collect::<Result<_>>()?,
            });
        }
        Ok(packets)
    }
}
