// SPDX-License-Identifier: GPL-2.0

//! Checks what a stream's reader reads: how far it is, and whether every byte is the right one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{bail, ensure, Result};

use super::pattern;
use crate::machine::clock::now_ns;

#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    bytes: AtomicU64,
    marked: AtomicBool,
    last_ns: AtomicU64,
    longest_stall_ns: AtomicU64,
}

impl ReadProgress {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn mark(&self) {
        self.marked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn longest_stall_ns(&self) -> u64 {
        self.longest_stall_ns.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        let now = now_ns();
        let last = self.last_ns.swap(now, Ordering::Relaxed);
        if self.marked.swap(false, Ordering::Relaxed) {
            self.longest_stall_ns.store(0, Ordering::Relaxed);
        } else if last > 0 {
            let stall = now.saturating_sub(last);
            self.longest_stall_ns.fetch_max(stall, Ordering::Relaxed);
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

pub(crate) struct Verifier<'a> {
    start: u64,
    taken: u64,
    progress: &'a ReadProgress,
}

impl<'a> Verifier<'a> {
    pub(crate) fn new(flow: u16, progress: &'a ReadProgress) -> Self {
        Self {
            start: pattern::start(flow),
            taken: 0,
            progress,
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Checks and counts bytes; fails if they are not the next ones of the stream.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.check(bytes)?;
        self.count(bytes.len());
        Ok(())
    }

    /// Fails if these are not the next bytes of the stream.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        check(self.start, self.start + self.taken, bytes)
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.progress.add(bytes as u64);
    }
}

/// Fails if these are not the bytes that a stream which begins at `start` has at `offset`.
fn check(start: u64, offset: u64, bytes: &[u8]) -> Result<()> {
    let Some(index) = pattern::mismatch(offset, bytes) else {
        return Ok(());
    };
    let at = offset + index as u64;
    match pattern::locate(&bytes[index..]) {
        Some(origin) if origin >= start => bail!(
            "the stream has at byte {} what belongs at byte {}",
            at - start,
            origin - start
        ),
        _ => bail!("byte {} of the stream is not as it was sent", at - start),
    }
}

/// Pieces of one stream that were read in no particular order.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    known: Vec<(u64, u64)>,
    /// Bytes of pieces too short to say where they are from.
    unknown_bytes: u64,
}

impl Pieces {
    /// Takes a piece; fails if it is not of one place.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() < pattern::TELLING {
            self.unknown_bytes += bytes.len() as u64;
            return Ok(());
        }
        let Some(offset) = pattern::locate(bytes) else {
            bail!("received {} bytes that belong nowhere", bytes.len());
        };
        check(0, offset, bytes)?;
        self.known.push((offset, bytes.len() as u64));
        Ok(())
    }

    /// Fails unless the pieces make up the first `length` bytes of the stream that begins at `start`.
    pub(crate) fn require_all(mut self, start: u64, length: u64) -> Result<()> {
        self.known.sort_unstable();
        let (mut next, mut missing) = (start, 0);
        for (offset, length) in self.known {
            ensure!(
                offset >= next,
                "byte {} of the stream was received twice",
                offset - start
            );
            missing += offset - next;
            next = offset + length;
        }
        missing += (start + length).saturating_sub(next);
        ensure!(
            missing == self.unknown_bytes,
            "{missing} bytes of the stream were not received"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        pattern::fill(offset, &mut bytes);
        bytes
    }

    #[test]
    fn a_gap_is_told_with_its_place() {
        let progress = ReadProgress::default();
        let mut verifier = Verifier::new(3, &progress);
        let start = verifier.start();
        verifier.take(&stream(start, 1000)).unwrap();
        let error = verifier.take(&stream(start + 1398, 100)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the stream has at byte 1000 what belongs at byte 1398"
        );
        assert_eq!(verifier.taken(), 1000);
        assert_eq!(progress.bytes(), 1000);
    }

    #[test]
    fn pieces_in_any_order_make_up_the_stream() {
        let pieces = |list: &[(u64, usize)]| {
            let mut pieces = Pieces::default();
            for &(offset, length) in list {
                pieces.add(&stream(offset, length)).unwrap();
            }
            pieces.require_all(0, 300)
        };
        assert!(pieces(&[(100, 200), (0, 100)]).is_ok());
        assert!(pieces(&[(100, 195), (0, 100), (295, 5)]).is_ok());
        assert!(pieces(&[(100, 200)]).is_err(), "a piece is missing");
        assert!(
            pieces(&[(100, 200), (0, 101)]).is_err(),
            "a byte came twice"
        );
        assert!(Pieces::default().add(&[1; 64]).is_err());
    }
}
