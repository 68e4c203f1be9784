// SPDX-License-Identifier: GPL-2.0

//! Places for guests. A guest keeps little more than one core busy. So as many guests run at a time as there are cores, in the
//! order in which they asked for a place.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::tools;

#[derive(Default)]
pub(crate) struct Places {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: usize,
    asked: u64,
    admitted: u64,
}

/// A place, until it is dropped.
pub(in crate::test) struct Place<'a> {
    places: &'a Places,
    since: Instant,
}

impl Places {
    /// Waits for a place.
    pub(in crate::test) fn take(&self) -> Place<'_> {
        self.take_one_of(tools::cores())
    }

    fn take_one_of(&self, places: usize) -> Place<'_> {
        let mut state = self.lock();
        let turn = state.asked;
        state.asked += 1;
        let waits = |state: &mut State| state.admitted != turn || state.taken >= places;
        let mut state = self
            .changed
            .wait_while(state, waits)
            .unwrap_or_else(PoisonError::into_inner);
        state.admitted += 1;
        state.taken += 1;
        // The next one may have a place, too.
        self.changed.notify_all();
        Place {
            places: self,
            since: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Returns how long it has been taken.
    pub(in crate::test) fn held(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.lock().taken -= 1;
        self.places.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Makes three threads ask for one of two places while both are taken, frees `free` places, and returns the order in which
    /// the threads got theirs.
    fn order_with(free: usize) -> Vec<u64> {
        let places = Places::default();
        let mut taken = vec![places.take_one_of(2), places.take_one_of(2)];
        let (say, said) = mpsc::channel();
        thread::scope(|scope| {
            let mut waiting = Vec::new();
            for name in 0..3_u64 {
                let (say, places) = (say.clone(), &places);
                waiting.push(scope.spawn(move || {
                    let place = places.take_one_of(2);
                    say.send(name).expect("a listener");
                    drop(place);
                }));
                // Only when it waits does the next one ask.
                while places.lock().asked != 3 + name {
                    thread::yield_now();
                }
            }
            assert!(said.try_recv().is_err());
            assert_eq!(places.lock().taken, 2);
            taken.truncate(2 - free);
            for one in waiting {
                one.join().expect("no panic");
            }
        });
        drop((say, taken));
        assert_eq!(places.lock().taken, 0);
        said.iter().collect()
    }

    #[test]
    fn one_place_is_taken_in_turn() {
        assert_eq!(order_with(1), [0, 1, 2]);
    }

    #[test]
    fn all_get_a_place_in_the_end() {
        let mut order = order_with(2);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2]);
    }
}
