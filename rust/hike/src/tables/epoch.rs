// SPDX-License-Identifier: GPL-2.0

//! The epoch of an instance: entries of the cache are good in the epoch in which they were made, and while somebody watches.
//!
//! It is in memory that the programs share with this process, so each of them moves it in one step.
#![allow(unsafe_code, reason = "memory that the kernel shares is mapped here")]

use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use aya::maps::MapData;
use rustix::fd::AsFd as _;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use crate::layout;

const NAME: &str = "epoch";

/// The time that does not come: the kernel itself watches.
const FOR_EVER: u64 = u64::MAX;

/// The epoch of an instance, or nothing where there is no cache: then all that is done with it has no effect.
#[derive(Clone, Debug)]
pub(crate) struct Epoch(Option<Arc<Shared>>);

/// The memory, until the end of the scope.
#[derive(Debug)]
struct Shared(NonNull<layout::Epoch>);

// SAFETY: All members are atomic, and the memory is there until the last user has gone.
unsafe impl Send for Shared {}
// SAFETY: The same.
unsafe impl Sync for Shared {}

impl Shared {
    fn map(map: &MapData) -> io::Result<Self> {
        let bytes = size_of::<layout::Epoch>();
        let (may, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: The kernel chooses a place where nothing is.
        let at = unsafe { mmap(ptr::null_mut(), bytes, may, kind, map.fd().as_fd(), 0)? };
        NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    fn get(&self) -> &layout::Epoch {
        // SAFETY: It is aligned to a page, as long as the structure, and goes with this value; others write to it in atomic steps.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: It was mapped here with this length, and nobody has a reference to it any more.
        let _gone = unsafe { munmap(self.0.as_ptr().cast(), size_of::<layout::Epoch>()) };
    }
}

impl Epoch {
    /// The one where there is no cache.
    pub(crate) const NONE: Self = Self(None);

    /// Returns whether the instance in a folder has one.
    pub(crate) fn is_in(folder: &Path) -> bool {
        folder.join(NAME).exists()
    }

    /// Opens that of an instance, if it has one.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        if !Self::is_in(folder) {
            return Ok(Self::NONE);
        }
        let pin = folder.join(NAME);
        let shared = MapData::from_pin(&pin)
            .map_err(anyhow::Error::from)
            .and_then(|map| Ok(Shared::map(&map)?))
            .with_context(|| format!("cannot map {}", pin.display()))?;
        Ok(Self(Some(Arc::new(shared))))
    }

    /// Returns its number.
    pub(crate) fn number(&self) -> u64 {
        // ORDERING: What has moved it was a call of the kernel, and so before this.
        let read = |shared: &Arc<Shared>| shared.get().number.load(Ordering::Acquire);
        self.0.as_ref().map_or(0, read)
    }

    /// Moves it: something has changed of which entries have come.
    pub(crate) fn moves(&self) {
        if let Some(shared) = &self.0 {
            // ORDERING: What has changed was written by calls of the kernel, and so before this.
            shared.get().number.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Moves it when what is returned goes: at the end of a change, however it ends.
    pub(crate) fn moves_behind(&self) -> Behind {
        let (epoch, is_due) = (self.clone(), true);
        Behind { epoch, is_due }
    }

    /// The same, if [something has changed](Behind::changes) by then.
    pub(crate) fn moves_if_changed(&self) -> Behind {
        let (epoch, is_due) = (self.clone(), false);
        Behind { epoch, is_due }
    }

    /// Says until which jiffy somebody watches.
    pub(crate) fn watch_until(&self, jiffy: u64) {
        if let Some(shared) = &self.0 {
            // ORDERING: A packet that sees this has to see that the epoch has moved before.
            shared.get().watched_until.store(jiffy, Ordering::Release);
        }
    }

    /// Lets packets trust that the kernel itself moves it, or not.
    pub(crate) fn trust_kernel(&self, moves_it: bool) {
        let Some(shared) = &self.0 else {
            return;
        };
        if !moves_it {
            return self.watch_until(0);
        }
        // ORDERING: Nothing else depends on it.
        if shared.get().watched_until.load(Ordering::Relaxed) != FOR_EVER {
            // What has changed before that was not seen.
            self.moves();
            self.watch_until(FOR_EVER);
        }
    }

    /// Returns the number of the network namespace whose neighbours are noted; 0: of none.
    pub(crate) fn network(&self) -> u64 {
        // ORDERING: Nothing else depends on it.
        let read = |shared: &Arc<Shared>| shared.get().network.load(Ordering::Relaxed);
        self.0.as_ref().map_or(0, read)
    }

    /// Says in which network namespace neighbours are noted, by its number.
    pub(crate) fn note_neighbours_of(&self, network: u64) {
        if let Some(shared) = &self.0 {
            // ORDERING: Nothing else depends on it; the kernel is asked for all neighbours afterwards.
            shared.get().network.store(network, Ordering::Relaxed);
        }
    }

    /// Returns the jiffies when the clock was read last.
    pub(crate) fn clock(&self) -> u64 {
        // ORDERING: The program that has written it has run, for this thread.
        let read = |shared: &Arc<Shared>| shared.get().now.load(Ordering::Relaxed);
        self.0.as_ref().map_or(0, read)
    }
}

/// Moves the epoch when it goes.
pub(crate) struct Behind {
    epoch: Epoch,
    is_due: bool,
}

impl Behind {
    /// Says that something changes.
    pub(crate) fn changes(&mut self) {
        self.is_due = true;
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if self.is_due {
            self.epoch.moves();
        }
    }
}
