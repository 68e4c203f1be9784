// SPDX-License-Identifier: GPL-2.0

//! Moves frames: between cards 0 and 1, 2 and 3, and so on, and from the source to a card.
//!
//! The wire keeps order: a frame that finds no buffer waits, and all frames behind it do. That is what flow control on a real
//! wire does. After two seconds, or at once with `lossy`, such a frame is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::source::Source;
use super::{lock, LastBreath, Shared, Slot};
use crate::device::Receive;

/// Frames on a wire at the same time.
const ON_THE_WIRE: usize = 256;
/// How often a card without buffers is looked at.
const RETRY: Duration = Duration::from_micros(50);
/// How long a frame may hold up the wire: a driver that posts no buffers for so long never will.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a card with nothing to do is looked at, in case a doorbell was missed.
const IDLE: Duration = Duration::from_millis(50);

/// The thread that moves frames, to be woken.
pub(crate) struct Engine {
    work: Mutex<bool>,
    changed: Condvar,
}

/// A wire in one direction.
struct Wire {
    /// The card that sends; none is the source.
    from: Option<usize>,
    /// The card that receives; none loses everything.
    to: Option<usize>,
    frames: VecDeque<Vec<u8>>,
    waiting_since: Option<Instant>,
}

impl Engine {
    pub(crate) fn start(slots: &[Shared], lossy: bool, source: Arc<Source>) -> Arc<Self> {
        let engine = Arc::new(Self {
            work: Mutex::new(false),
            changed: Condvar::new(),
        });
        let wire = |from, to| Wire {
            from,
            to,
            frames: VecDeque::new(),
            waiting_since: None,
        };
        let peer = |card: usize| Some(card ^ 1).filter(|peer| *peer < slots.len());
        let mut wires: Vec<Wire> = (0..slots.len())
            .map(|card| wire(Some(card), peer(card)))
            .collect();
        wires.push(wire(None, None));
        let (slots, moving) = (slots.to_vec(), engine.clone());
        thread::spawn(move || {
            let _ends_process = LastBreath;
            loop {
                let mut busy = false;
                let mut waiting = false;
                for wire in &mut wires {
                    busy |= wire.fill(&slots, &source);
                    busy |= wire.drain(&slots, lossy);
                    waiting |= !wire.frames.is_empty();
                }
                if !busy {
                    moving.rest(if waiting { RETRY } else { IDLE });
                }
            }
        });
        engine
    }

    /// Has the thread look at all wires.
    pub(crate) fn wake(&self) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn rest(&self, longest: Duration) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut work, _) = self
            .changed
            .wait_timeout_while(work, longest, |work| !*work)
            .unwrap_or_else(PoisonError::into_inner);
        *work = false;
    }
}

impl Wire {
    /// Takes frames from the sender as far as there is room; returns whether there were any.
    fn fill(&mut self, slots: &[Shared], source: &Source) -> bool {
        let room = ON_THE_WIRE.saturating_sub(self.frames.len());
        let before = self.frames.len();
        match self.from {
            None => {
                // Frames of an earlier stream have no receiver any more.
                if source.card() != self.to {
                    self.to = source.card();
                    self.frames.clear();
                }
                source.fill(&mut self.frames, ON_THE_WIRE);
            }
            Some(from) => {
                let mut slot = lock(&slots[from]);
                let Slot { device, guest } = &mut *slot;
                // Even without room: memory keys have to be updated for the card to receive.
                device.transmit(guest, room);
                device.flush(guest);
                self.frames.append(&mut guest.frames);
            }
        }
        self.frames.len() > before
    }

    /// Hands frames to the receiver as far as it has buffers; returns whether it took any.
    fn drain(&mut self, slots: &[Shared], lossy: bool) -> bool {
        if self.frames.is_empty() {
            return false;
        }
        let Some(to) = self.to else {
            self.frames.clear();
            return true;
        };
        let mut slot = lock(&slots[to]);
        let Slot { device, guest } = &mut *slot;
        let before = self.frames.len();
        while let Some(frame) = self.frames.front() {
            if device.receive(guest, frame) == Receive::Wait {
                if device.is_idle() {
                    // A stalled card does not lack buffers: it takes this frame when it goes on.
                    self.waiting_since = None;
                    break;
                }
                let since = *self.waiting_since.get_or_insert_with(Instant::now);
                if !lossy && since.elapsed() < PATIENCE {
                    break;
                }
                device.drop_waiting(frame);
            }
            self.waiting_since = None;
            self.frames.pop_front();
        }
        device.flush(guest);
        self.frames.len() < before
    }
}
