// SPDX-License-Identifier: GPL-2.0

//! Numbered objects of one kind.

use std::collections::BTreeMap;

use super::commands::Status;

/// Objects by number.
#[derive(Clone, Debug)]
pub(crate) struct Objects<T> {
    map: BTreeMap<u32, T>,
    first: u32,
    last: u32,
    next: u32,
}

impl<T> Objects<T> {
    /// Returns an empty set whose numbers are from `first` to `last`.
    pub(crate) fn new(first: u32, last: u32) -> Self {
        Self {
            map: BTreeMap::new(),
            first,
            last,
            next: first,
        }
    }

    /// Adds an object and returns its number: not one that was removed lately, which a late doorbell may still name.
    pub(crate) fn add(&mut self, object: T) -> Result<u32, Status> {
        if self.map.len() > (self.last - self.first) as usize {
            return Err(Status::ExceedsLimit);
        }
        loop {
            let number = self.next;
            self.next = if number == self.last {
                self.first
            } else {
                number + 1
            };
            if let std::collections::btree_map::Entry::Vacant(place) = self.map.entry(number) {
                place.insert(object);
                return Ok(number);
            }
        }
    }

    pub(crate) fn remove(&mut self, number: u32) -> Result<T, Status> {
        self.map.remove(&number).ok_or(Status::BadResource)
    }

    pub(crate) fn get(&self, number: u32) -> Result<&T, Status> {
        self.map.get(&number).ok_or(Status::BadResource)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Result<&mut T, Status> {
        self.map.get_mut(&number).ok_or(Status::BadResource)
    }

    /// Returns all objects with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.map.iter().map(|(number, object)| (*number, object))
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_late() {
        let mut objects = Objects::new(1, 3);
        assert_eq!([objects.add('a'), objects.add('b')], [Ok(1), Ok(2)]);
        assert_eq!(objects.remove(1), Ok('a'));
        assert_eq!([objects.add('c'), objects.add('d')], [Ok(3), Ok(1)]);
        assert_eq!(objects.add('e'), Err(Status::ExceedsLimit));
        assert_eq!(objects.remove(9), Err(Status::BadResource));
        assert_eq!(objects.len(), 3);
    }
}
