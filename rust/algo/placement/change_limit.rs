// SPDX-License-Identifier: GPL-2.0

//! A bound on how often lanes are placed again. Each time all flows stop and start, and a reader in a container has some say
//! in it: readers that come and go on many CPUs, each as rarely as [`Occupancy`](super::occupancy::Occupancy) follows one, would
//! make that happen again and again.

/// This many changes may follow each other at once.
pub const MOST_CHANGES: u8 = 8;
/// After this many looks there may be one more: a minute.
pub const CHANGE_LOOKS: u8 = 120;

/// The changes that there may be now.
pub struct ChangeLimit {
    left: u8,
    looks: u8,
}

impl ChangeLimit {
    /// Allows [`MOST_CHANGES`].
    pub const ALL: Self = Self {
        left: MOST_CHANGES,
        looks: 0,
    };

    /// Notes that a look has been taken.
    pub fn look(&mut self) {
        if self.left == MOST_CHANGES {
            return;
        }
        self.looks += 1;
        if self.looks == CHANGE_LOOKS {
            self.looks = 0;
            self.left += 1;
        }
    }

    /// Takes one of the changes; false if there is none left.
    pub fn take(&mut self) -> bool {
        let has_one = self.left > 0;
        self.left -= u8::from(has_one);
        has_one
    }
}
