// SPDX-License-Identifier: GPL-2.0

//! The counts of one window, as text.
//!
//! ```text
//!   window 0 8                          the window's number, the number of CPUs
//!   0 812 0 0 0 0 0 77 0                user space, by CPU
//!   ffffffff81a3b2c0 0 1200 ...         a block of the kernel, by CPU; blocks that did not run are left out
//!   end 0
//! ```

use std::io::{self, Write};

/// Writes one window; `now` and `before` hold a row of counters for each CPU.
pub(crate) fn write(
    to: &mut impl Write,
    number: u64,
    addresses: &[u64],
    before: &[Vec<u64>],
    now: &[Vec<u64>],
) -> io::Result<()> {
    writeln!(to, "window {number} {}", now.len())?;
    for (place, address) in addresses.iter().enumerate() {
        let added: Vec<u64> = now
            .iter()
            .enumerate()
            .map(|(cpu, counters)| {
                // A block that was translated after the window began was not counted before.
                let earlier = before.get(cpu).and_then(|counters| counters.get(place));
                let count = counters.get(place).copied().unwrap_or(0);
                count.wrapping_sub(earlier.copied().unwrap_or(0))
            })
            .collect();
        if added.iter().any(|&count| count != 0) {
            write!(to, "{address:x}")?;
            for count in added {
                write!(to, " {count}")?;
            }
            writeln!(to)?;
        }
    }
    writeln!(to, "end {number}")?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_added_is_written() {
        let mut text = Vec::new();
        let before = [vec![5, 0, 7], vec![1, 0, 7]];
        let now = [vec![6, 0, 7, 3], vec![1, 0, 7, 0]];
        let addresses = [0, 1, 0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040];
        write(&mut text, 2, &addresses, &before, &now).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "window 2 2\n0 1 0\nffffffff81000040 3 0\nend 2\n"
        );
    }
}
