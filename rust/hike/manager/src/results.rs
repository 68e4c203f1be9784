// SPDX-License-Identifier: GPL-2.0

//! The counts: packets of flows by block, packets by reason, and packets and bytes by local SID.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{bail, Result};
use mflow_hike::instance::generation::Generation;
use rustix::time::{clock_gettime_dynamic, DynamicClockId};

use crate::configuration::Configuration;
use crate::fill::local_sids;
use crate::v1;

/// Returns what these monitors have counted; all if none is named.
pub fn counts(
    generation: &Generation,
    configuration: &Configuration,
    names: &[String],
) -> Result<Vec<v1::Result>> {
    let known = &configuration.monitors;
    if let Some(unknown) = names.iter().find(|name| !known.contains_key(*name)) {
        bail!("there is no monitor {unknown}");
    }
    let names: BTreeSet<&String> = if names.is_empty() {
        known.keys().collect()
    } else {
        names.iter().collect()
    };
    let mut all = Vec::new();
    for name in names {
        let counted = &known[name];
        let flow = configuration.flow(counted)?;
        let period = counted.monitor().period;
        // The time comes first: what is settled by then is in what is read after it.
        let last_settled = last_settled(now(), period);
        let read = generation.counts(&flow, counted.direction)?;
        let recent = read
            .blocks()
            .filter(|(number, _)| *number >= oldest(last_settled));
        all.push(v1::Result {
            monitor: name.clone(),
            direction: v1::Direction::from(counted.direction).into(),
            flow: Some((&flow).into()),
            // CAST: a day at most.
            period_ns: period.as_nanos() as u64,
            blocks: recent
                .map(|(number, packets)| v1::Block {
                    number,
                    packets,
                    settled: number <= last_settled,
                })
                .collect(),
            last_settled,
            total_packets: read.total_pkts(),
        });
    }
    Ok(all)
}

/// Returns what was counted of local SIDs, with the numbers under which they are counted.
pub fn sids(
    generation: &Generation,
    configuration: &Configuration,
    numbers: &BTreeMap<String, u64>,
) -> Result<Vec<v1::LocalSid>> {
    let sids = local_sids(configuration).into_values();
    let counted = sids.map(|(destination, behaviour)| {
        let destination = destination.to_string();
        let number = numbers.get(&destination).copied().unwrap_or(0);
        let traffic = generation.traffic(number)?;
        Ok(v1::LocalSid {
            destination,
            behaviour: behaviour.to_owned(),
            packets: traffic.pkts,
            bytes: traffic.bytes,
        })
    });
    counted.collect()
}

/// Returns how long ago the epoch of blocks was, as the programs see it.
fn now() -> Duration {
    let tai = clock_gettime_dynamic(DynamicClockId::Tai);
    // Every kernel that runs BPF has this clock.
    let tai = tai.ok().and_then(|time| Duration::try_from(time).ok());
    tai.unwrap_or_default()
}

/// Returns the last block that has ended half a period ago at least.
fn last_settled(now: Duration, period: Duration) -> u64 {
    let settled = now.saturating_sub(period / 2).as_nanos() / period.as_nanos().max(1);
    // CAST: blocks since 1970.
    (settled as u64).saturating_sub(1)
}

/// Returns the oldest block that every CPU still has, even if some have begun the one after this.
fn oldest(last_settled: u64) -> u64 {
    last_settled.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_settled_half_a_period_after_its_end() {
        let at = |ms| last_settled(Duration::from_millis(ms), Duration::from_millis(100));
        // Block 7 ends at 800.
        assert_eq!((at(849), at(850), at(949), at(950)), (6, 7, 7, 8));
        assert_eq!(at(0), 0);
    }
}
