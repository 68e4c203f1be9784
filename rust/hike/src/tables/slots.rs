// SPDX-License-Identifier: GPL-2.0

//! The places of a table: the free ones, and the values of the taken ones.

/// Numbered places, of which some are taken.
pub(crate) struct Slots<T>(Vec<Option<T>>);

impl<T> Slots<T> {
    pub(crate) fn new(count: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(count).collect())
    }

    /// Returns the first that is not taken.
    pub(crate) fn free(&self) -> Option<u32> {
        let place = self.0.iter().position(Option::is_none)?;
        // CAST: some thousands at most.
        Some(place as u32)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.0.get(number as usize)?.as_ref()
    }

    /// Takes a place; returns what was there.
    pub(crate) fn put(&mut self, number: u32, value: T) -> Option<T> {
        self.0.get_mut(number as usize)?.replace(value)
    }

    /// Gives a place back; returns what was there.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        self.0.get_mut(number as usize)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_from_the_first_on() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.free(), Some(0));
        assert_eq!(slots.put(0, 'a'), None);
        assert_eq!(slots.put(1, 'b'), None);
        assert_eq!(slots.free(), None);
        assert_eq!(slots.put(0, 'c'), Some('a'));
        assert_eq!((slots.take(0), slots.take(0)), (Some('c'), None));
        assert_eq!((slots.free(), slots.get(1)), (Some(0), Some(&'b')));
        assert_eq!(slots.put(2, 'd'), None);
        assert_eq!(slots.get(2), None);
    }
}
