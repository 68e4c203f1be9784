// SPDX-License-Identifier: GPL-2.0

//! The event queue: events come by time, and those of the same time in the order in which they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Picoseconds in a microsecond: fine enough that rounding a cost never shows.
pub(crate) const PS_PER_US: f64 = 1e6;
pub(crate) const PS_PER_S: f64 = 1e12;

pub(crate) struct Calendar<E> {
    heap: BinaryHeap<Entry<E>>,
    now_ps: u64,
    planned: u64,
}

struct Entry<E> {
    time_ps: u64,
    number: u64,
    event: E,
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            now_ps: 0,
            planned: 0,
        }
    }

    /// Returns the time of the event that happened last.
    pub(crate) fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// Plans an event; a time that has passed is now.
    pub(crate) fn plan(&mut self, time_ps: u64, event: E) {
        self.heap.push(Entry {
            time_ps: time_ps.max(self.now_ps),
            number: self.planned,
            event,
        });
        self.planned += 1;
    }

    /// Returns whether nothing will happen any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<E> {
        let entry = self.heap.pop()?;
        self.now_ps = entry.time_ps;
        Some(entry.event)
    }
}

impl<E> Ord for Entry<E> {
    // The heap gives the greatest first; the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ps, other.number).cmp(&(self.time_ps, self.number))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_planning() {
        let mut calendar = Calendar::new();
        calendar.plan(20, 'c');
        calendar.plan(10, 'a');
        calendar.plan(10, 'b');
        assert_eq!(calendar.next(), Some('a'));
        calendar.plan(5, 'x');
        assert_eq!(calendar.next(), Some('b'));
        assert_eq!(calendar.now_ps(), 10);
        assert_eq!((calendar.next(), calendar.next()), (Some('x'), Some('c')));
        assert_eq!(calendar.next(), None);
    }
}
