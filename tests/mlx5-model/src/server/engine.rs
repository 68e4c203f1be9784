// SPDX-License-Identifier: GPL-2.0

//! Moves frames: between cards 0 and 1, 2 and 3, and so on, from the source to a card, and between the last card and the outside.
//!
//! The wire keeps order: a frame that finds no buffer waits, and all frames behind it do. That is what flow control on a real
//! wire does. After two seconds, or at once with `lossy`, such a frame is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::source::Source;
use super::stream_socket::Outside;
use super::{lock, LastBreath, Shared, Slot};
use crate::host::device::Receive;

/// Frames on a wire at the same time.
const ON_THE_WIRE: usize = 256;
/// The interval at which cards without buffers are checked, and the wire to the outside, which wakes nobody.
const RETRY: Duration = Duration::from_micros(50);
/// The longest time for which a frame holds up the wire: a driver that posts no buffers for so long never will.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval at which a card with nothing to do is checked, in case a doorbell was missed.
const IDLE: Duration = Duration::from_millis(50);

/// The thread that moves frames, to be woken.
pub(crate) struct Engine {
    work: Mutex<bool>,
    changed: Condvar,
}

/// The ends that wires join.
struct Ends {
    slots: Vec<Shared>,
    source: Arc<Source>,
    outside: Option<Outside>,
    /// True if a frame that finds no buffer is dropped at once.
    lossy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Card(usize),
    /// It only sends.
    Source,
    Outside,
}

/// A wire in one direction.
struct Wire {
    from: End,
    /// The receiving end; without one, all frames are lost.
    to: Option<End>,
    frames: VecDeque<Vec<u8>>,
    waiting_since: Option<Instant>,
}

impl Engine {
    /// Starts the thread; the wire to the outside, if there is one, joins the last card.
    pub(crate) fn start(
        slots: &[Shared],
        lossy: bool,
        source: Arc<Source>,
        outside: Option<Outside>,
    ) -> Arc<Self> {
        let engine = Arc::new(Self {
            work: Mutex::new(false),
            changed: Condvar::new(),
        });
        let mut wires = wires(slots.len(), outside.is_some());
        let mut ends = Ends {
            slots: slots.to_vec(),
            source,
            outside,
            lossy,
        };
        let moving = engine.clone();
        thread::spawn(move || {
            let _ends_process = LastBreath;
            loop {
                let mut busy = false;
                let mut waiting = ends.outside.as_ref().is_some_and(Outside::is_whole);
                for wire in &mut wires {
                    busy |= wire.fill(&mut ends);
                    busy |= wire.drain(&mut ends);
                    waiting |= !wire.frames.is_empty();
                }
                if !busy {
                    moving.rest(if waiting { RETRY } else { IDLE });
                }
            }
        });
        engine
    }

    /// Makes the thread check all wires.
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

/// Returns the wires between this many cards, from the source, and between the last card and the outside.
fn wires(cards: usize, outside: bool) -> Vec<Wire> {
    let peer = |card: usize| {
        if outside && card + 1 == cards {
            return Some(End::Outside);
        }
        Some(card ^ 1).filter(|peer| *peer < cards).map(End::Card)
    };
    let mut wires: Vec<Wire> = (0..cards)
        .map(|card| Wire::new(End::Card(card), peer(card)))
        .collect();
    wires.push(Wire::new(End::Source, None));
    if outside {
        wires.push(Wire::new(End::Outside, cards.checked_sub(1).map(End::Card)));
    }
    wires
}

impl Wire {
    fn new(from: End, to: Option<End>) -> Self {
        Self {
            from,
            to,
            frames: VecDeque::new(),
            waiting_since: None,
        }
    }

    /// Takes frames from the sender as far as there is room; returns whether there were any.
    fn fill(&mut self, ends: &mut Ends) -> bool {
        let room = ON_THE_WIRE.saturating_sub(self.frames.len());
        let before = self.frames.len();
        match self.from {
            End::Source => {
                // Frames of an earlier capture have no receiver any more.
                let to = ends.source.card().map(End::Card);
                if to != self.to {
                    self.to = to;
                    self.frames.clear();
                }
                ends.source.fill(&mut self.frames, ON_THE_WIRE);
            }
            End::Outside => {
                if let Some(outside) = &mut ends.outside {
                    outside.fill(&mut self.frames, ON_THE_WIRE);
                }
            }
            End::Card(from) => {
                let mut slot = lock(&ends.slots[from]);
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
    fn drain(&mut self, ends: &mut Ends) -> bool {
        // Even without frames: the rest of earlier ones may have to be written.
        if let (Some(End::Outside), Some(outside)) = (self.to, &mut ends.outside) {
            return outside.drain(&mut self.frames);
        }
        if self.frames.is_empty() {
            return false;
        }
        let Some(End::Card(to)) = self.to else {
            self.frames.clear();
            return true;
        };
        let mut slot = lock(&ends.slots[to]);
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
                if !ends.lossy && since.elapsed() < PATIENCE {
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use mflow_frames::wire::{self, Arriving};

    use super::super::memory::Guest;
    use super::*;
    use crate::host::bus::Bus as _;
    use crate::host::device::{Config, Device};

    const LONG: Duration = Duration::from_secs(60);

    fn slot() -> Shared {
        Arc::new(Mutex::new(Slot {
            device: Device::new(Config::default()),
            guest: Guest::new(2),
        }))
    }

    fn until(mut so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < LONG, "it takes too long");
            thread::sleep(RETRY);
        }
    }

    fn received(slot: &Shared) -> u64 {
        lock(slot).device.traffic().1.total().frames
    }

    #[test]
    fn the_last_card_is_joined_to_the_outside_and_the_others_to_each_other() {
        let (near, mut far) = UnixStream::pair().expect("a wire");
        let slots = [slot(), slot(), slot()];
        let source = Arc::new(Source::default());
        let engine = Engine::start(&slots, false, source, Some(Outside::new(near)));
        let mut bytes = Vec::new();
        for _ in 0..3 {
            wire::add(&mut bytes, 60).fill(1);
        }
        far.write_all(&bytes).expect("room");
        until(|| received(&slots[2]) == 3);
        for (card, mark) in [(2, 2), (0, 0)] {
            lock(&slots[card]).guest.tx_frame(&[mark; 60]);
        }
        engine.wake();
        until(|| received(&slots[1]) == 1);
        let mut arriving = Arriving::new();
        until(|| arriving.read(&far).expect("a whole wire"));
        let frame = arriving.next_frame().expect("a good frame");
        assert_eq!(frame, Some(&[2; 60][..]));
        assert_eq!(received(&slots[0]), 0);
        // When the program hangs up, the other wires go on.
        drop(far);
        lock(&slots[2]).guest.tx_frame(&[2; 60]);
        lock(&slots[1]).guest.tx_frame(&[1; 60]);
        engine.wake();
        until(|| received(&slots[0]) == 1 && lock(&slots[2]).guest.frames.is_empty());
    }
}
