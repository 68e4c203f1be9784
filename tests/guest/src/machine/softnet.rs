// SPDX-License-Identifier: GPL-2.0

//! The kernel's own counters of receive work per CPU: `/proc/net/softnet_stat`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

const PATH: &str = "/proc/net/softnet_stat";
/// Hexadecimal columns: packets processed, packets dropped, and the CPU the line is about.
const PROCESSED: usize = 0;
const DROPPED: usize = 1;
const CPU: usize = 12;

/// Receive work of every online CPU since boot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Softnet {
    /// Packets taken through the stack, by CPU. One packet counts once per device it is received on: an overlay packet up
    /// to three times (NIC, VXLAN device, container).
    pub(crate) processed: BTreeMap<usize, u64>,
    pub(crate) dropped: u64,
}

impl Softnet {
    pub(crate) fn read() -> Result<Self> {
        parse(&fs::read_to_string(PATH).context(PATH)?)
    }

    /// Returns what was added since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let processed = self.processed.iter().map(|(&cpu, &now)| {
            let before = earlier.processed.get(&cpu).copied().unwrap_or(0);
            (cpu, now.wrapping_sub(before) & u64::from(u32::MAX))
        });
        Self {
            processed: processed.collect(),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

fn parse(text: &str) -> Result<Softnet> {
    let mut softnet = Softnet::default();
    for line in text.lines() {
        let columns: Vec<u64> = line
            .split_whitespace()
            .map(|column| u64::from_str_radix(column, 16))
            .collect::<Result<_, _>>()
            .with_context(|| format!("{PATH}: {line}"))?;
        let column = |index: usize| {
            columns
                .get(index)
                .copied()
                .with_context(|| format!("{PATH}: no column {index}: {line}"))
        };
        // CAST: a CPU number.
        let cpu = column(CPU)? as usize;
        softnet.processed.insert(cpu, column(PROCESSED)?);
        softnet.dropped += column(DROPPED)?;
    }
    Ok(softnet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_format_of_this_kernel() {
        let text = "0000000a 00000001 0 0 0 0 0 0 0 0 0 0 00000000 0 0\n\
                    000000ff 00000002 0 0 0 0 0 0 0 0 0 0 00000003 0 0\n";
        let softnet = parse(text).expect("good text");
        assert_eq!(softnet.processed, BTreeMap::from([(0, 10), (3, 255)]));
        assert_eq!(softnet.dropped, 3);
    }
}
