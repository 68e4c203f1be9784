// SPDX-License-Identifier: GPL-2.0

//! One counter for each place and CPU: which place has which number, and what the counters say.

use std::collections::HashMap;

/// The place of everything in user space.
pub(crate) const USER: usize = 0;
/// The place of all blocks that found no free number.
pub(crate) const OTHER: usize = 1;

/// Kernel addresses begin here.
const KERNEL: u64 = 1 << 63;

/// The places, and the number of each.
#[derive(Debug)]
pub(crate) struct Places {
    numbers: HashMap<u64, usize>,
    addresses: Vec<u64>,
    limit: usize,
}

impl Places {
    /// Returns an empty list for at most `limit` places.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            numbers: HashMap::new(),
            // The first two are no addresses.
            addresses: vec![USER as u64, OTHER as u64],
            limit,
        }
    }

    /// Returns the number of the place of a block at this address.
    pub(crate) fn number(&mut self, address: u64) -> usize {
        if address < KERNEL {
            return USER;
        }
        if let Some(&number) = self.numbers.get(&address) {
            return number;
        }
        if self.addresses.len() == self.limit {
            return OTHER;
        }
        let number = self.addresses.len();
        self.addresses.push(address);
        self.numbers.insert(address, number);
        number
    }

    /// Returns the address of each place, by number; 0 is user space, 1 all blocks that found no number.
    pub(crate) fn addresses(&self) -> &[u64] {
        &self.addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_block_has_a_place_of_its_own() {
        let mut places = Places::new(4);
        assert_eq!(places.number(0x40_1000), USER);
        let one = places.number(0xffff_ffff_8100_0000);
        let two = places.number(0xffff_ffff_8100_0010);
        assert!(one != two && one > OTHER && two > OTHER);
        assert_eq!(places.number(0xffff_ffff_8100_0000), one);
        assert_eq!(places.addresses()[two], 0xffff_ffff_8100_0010);
        // No room left.
        assert_eq!(places.number(0xffff_ffff_8100_0020), OTHER);
        assert_eq!(places.addresses().len(), 4);
    }
}
