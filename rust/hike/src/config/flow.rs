// SPDX-License-Identifier: GPL-2.0

//! Monitored flows: alternate marking (RFC 9341), and what it has counted.
//!
//! Time is cut into blocks of equal length, whose packets have two colours in turn. What was counted of a block where a flow enters, less
//! what was counted where it leaves, is lost, to the packet. A block can be read from half a period after its end on, for as
//! long as two more last.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, SystemTime};

use anyhow::{bail, ensure, Context as _, Result};
use serde::{Deserialize, Serialize};

use super::path::{Path, FLOW_IDS};
use crate::layout::{Block, Counters};
use crate::limits::{FLOW_BLOCKS, FLOW_SIDS};

/// [`FLOW_BLOCKS`] are kept: shorter ones would be gone before anyone could read them.
const LEAST_PERIOD: Duration = Duration::from_millis(10);
const MOST_PERIOD: Duration = Duration::from_secs(86_400);

/// The end of a flow at which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The end at which it enters the monitored part of its way, counted by `mon-in`.
    In = 0,
    /// The end at which it leaves that part, counted by `mon-out`.
    Out = 1,
}

/// Set beside a FlowMonID: packets have the option with it.
const HAS_ID: u32 = 1 << 31;

/// A flow: the FlowMonID of its packets, its source, and the SIDs of its SRH; without an SRH, its destination as the only one.
///
/// RFC 9343, 5.3 tells flows apart by FlowMonID, source and destination. The SIDs stand for a destination that changes on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// `None`: packets do not have the option.
    id: Option<u32>,
    source: Ipv6Addr,
    /// In the order in which they are visited.
    sids: Vec<Ipv6Addr>,
}

impl Flow {
    /// Returns the flow of a source with 1 to 16 SIDs, in the order in which they are visited. Its packets do not have the option of RFC
    /// 9343.
    pub fn new(source: Ipv6Addr, sids: impl Into<Vec<Ipv6Addr>>) -> Result<Self> {
        let sids = sids.into();
        ensure!(
            (1..=FLOW_SIDS).contains(&sids.len()),
            "a flow of {} SIDs cannot be monitored: 1 to {FLOW_SIDS} are allowed",
            sids.len()
        );
        Ok(Self {
            id: None,
            source,
            sids,
        })
    }

    /// Returns the flow of which packets have the option with this FlowMonID, 20 bits, and else are alike; `None`: without the option.
    pub fn with_id(self, id: Option<u32>) -> Result<Self> {
        if let Some(id) = id {
            ensure!(
                id < FLOW_IDS,
                "{id} is no FlowMonID: 0 to {} are allowed",
                FLOW_IDS - 1
            );
        }
        Ok(Self { id, ..self })
    }

    /// Returns the flow of what takes a path.
    pub fn of(path: &Path) -> Result<Self> {
        let listed = path.listed_sids();
        let without_srh = path.sids.get(..1).unwrap_or_default();
        let sids = if listed.is_empty() {
            without_srh
        } else {
            listed
        };
        Self::new(path.source, sids)?.with_id(path.flow_id)
    }

    /// Returns the FlowMonID that its packets have, if they have the option.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// Returns its source.
    pub fn source(&self) -> Ipv6Addr {
        self.source
    }

    /// Returns its SIDs, in the order in which they are visited.
    pub fn sids(&self) -> &[Ipv6Addr] {
        &self.sids
    }

    /// Returns the flow and the direction of such a key.
    pub(crate) fn of_key(key: &[u8]) -> Result<(Self, Direction)> {
        let (direction, rest) = key.split_first_chunk().context("no direction")?;
        let (id, rest) = rest.split_first_chunk().context("no FlowMonID")?;
        let (source, sids) = rest.split_first_chunk::<16>().context("no source")?;
        let direction = match u32::from_ne_bytes(*direction) {
            0 => Direction::In,
            1 => Direction::Out,
            other => bail!("{other} is no direction"),
        };
        let id = match u32::from_ne_bytes(*id) {
            0 => None,
            id => Some(id ^ HAS_ID),
        };
        let sids = sids.chunks(16).rev().map(<[u8; 16]>::try_from);
        let sids = sids.map(|sid| Ok(sid.context("half a SID")?.into()));
        let sids = sids.collect::<Result<Vec<Ipv6Addr>>>()?;
        let flow = Self::new((*source).into(), sids)?.with_id(id)?;
        Ok((flow, direction))
    }

    /// Returns `struct hike_flow`, as long as it is for this many SIDs.
    pub(crate) fn key(&self, direction: Direction) -> Vec<u8> {
        let mut key = (direction as u32).to_ne_bytes().to_vec();
        key.extend(self.id.map_or(0, |id| id | HAS_ID).to_ne_bytes());
        key.extend(self.source.octets());
        // As in an SRH: the last one first.
        key.extend(self.sids.iter().rev().flat_map(|sid| sid.octets()));
        key
    }
}

/// The place of a packet's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// The L bit of the option of RFC 9343, which the packets of the flow have to have.
    Option,
    /// One of the six bits of DSCP, 0 to 5 from the lowest; nothing else on the way may use it.
    DscpBit(u8),
}

/// The settings of a flow's monitor; the same at both ends of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The length of a block: 10 milliseconds to a day.
    pub period: Duration,
    /// The place of a packet's colour.
    pub marking: Marking,
}

impl Monitor {
    /// Fails with the reason if it cannot be.
    pub fn check(&self) -> Result<()> {
        self.counters().map(drop)
    }

    /// Fails with the reason if such a flow cannot be monitored so.
    pub fn check_flow(&self, flow: &Flow) -> Result<()> {
        ensure!(
            flow.id.is_some() || self.marking != Marking::Option,
            "a flow without a FlowMonID has no option for the colour; give it one, or take a bit of DSCP"
        );
        self.check()
    }

    /// Returns how a flow with these counters is monitored.
    pub(crate) fn of_counters(counters: &Counters) -> Self {
        Self {
            period: Duration::from_nanos(counters.period_ns),
            marking: match counters.colour_bit {
                0 => Marking::Option,
                // CAST: one of eight bits; of these the lower two are ECN.
                bit => Marking::DscpBit((bit.trailing_zeros() as u8).saturating_sub(2)),
            },
        }
    }

    /// Returns the counters with which a flow that can be monitored so begins.
    pub(crate) fn counters_of(&self, flow: &Flow) -> Result<Counters> {
        self.check_flow(flow)?;
        self.counters()
    }

    /// Returns the counters with which a flow begins, even if its packets have no place for the colour.
    pub(crate) fn counters(&self) -> Result<Counters> {
        ensure!(
            (LEAST_PERIOD..=MOST_PERIOD).contains(&self.period),
            "blocks of {:?} cannot be: {LEAST_PERIOD:?} to {MOST_PERIOD:?} are allowed",
            self.period
        );
        let colour_bit = match self.marking {
            Marking::Option => 0,
            Marking::DscpBit(bit) => {
                ensure!(bit < 6, "DSCP has no bit {bit}: 0 to 5 are allowed");
                // Above the two of ECN.
                4 << bit
            }
        };
        Ok(Counters {
            // CAST: a day at most.
            period_ns: self.period.as_nanos() as u64,
            colour_bit,
            number: 0,
            pkts: 0,
            blocks: [Block::default(); FLOW_BLOCKS],
        })
    }

    /// Returns the number of the block that this time is in, on a host whose clock has no TAI offset.
    ///
    /// Blocks go by the kernel's TAI clock, which leap seconds do not disturb; it is ahead of UTC by what the host's time service has
    /// told the kernel, or by nothing.
    pub fn block_at(&self, time: SystemTime) -> u64 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        // CAST: nanoseconds since 1970 fit until 2554.
        (since.unwrap_or_default().as_nanos() / self.period.as_nanos().max(1)) as u64
    }
}

/// The counts of a flow in one direction: packets by block, and in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    blocks: BTreeMap<u64, u64>,
    total_pkts: u64,
}

impl Counts {
    /// Adds up what each CPU has counted.
    pub(crate) fn sum(of_cpus: &[Counters]) -> Self {
        let mut blocks = BTreeMap::new();
        for block in of_cpus.iter().flat_map(|counters| &counters.blocks) {
            if block.pkts > 0 {
                *blocks.entry(block.number).or_default() += block.pkts;
            }
        }
        Self {
            blocks,
            total_pkts: of_cpus.iter().map(|counters| counters.pkts).sum(),
        }
    }

    /// Returns the packets of all blocks since the flow's monitor was added.
    pub fn total_pkts(&self) -> u64 {
        self.total_pkts
    }

    /// Returns the packets of a block.
    pub fn pkts(&self, block: u64) -> u64 {
        self.blocks.get(&block).copied().unwrap_or(0)
    }

    /// Returns all blocks that had packets, the oldest one first; of a CPU that counts no more, old ones stay.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.blocks.iter().map(|(&block, &pkts)| (block, pkts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::path::Mode;

    fn sid(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 1)
    }

    #[test]
    fn a_flow_is_what_its_packets_show() {
        let mut path = Path::new(sid(0), [sid(1), sid(2)]);
        assert_eq!(Flow::of(&path).expect("good").sids, [sid(1), sid(2)]);
        path.mode = Mode::Reduced;
        assert_eq!(Flow::of(&path).expect("good").sids, [sid(2)]);
        path.sids.truncate(1);
        assert_eq!(Flow::of(&path).expect("good").sids, [sid(1)]);
        let key = Flow::new(sid(0), [sid(1), sid(2)])
            .expect("good")
            .key(Direction::Out);
        assert_eq!(key[..4], 1u32.to_ne_bytes());
        assert_eq!(key[4..8], [0; 4]);
        assert_eq!(key[8..24], sid(0).octets());
        assert_eq!(
            (&key[24..40], &key[40..]),
            (&sid(2).octets()[..], &sid(1).octets()[..])
        );
        let flow = Flow::new(sid(0), [sid(1), sid(2)]).expect("good");
        let back = Flow::of_key(&key).expect("what it gave");
        assert_eq!(back, (flow.clone(), Direction::Out));
        path.flow_id = Some(0);
        assert_eq!(Flow::of(&path).expect("good").id(), Some(0));
        // 0 is one, too.
        for id in [Some(0), Some(0xfffff)] {
            let with_id = flow.clone().with_id(id).expect("20 bits");
            let key = with_id.key(Direction::In);
            assert_eq!((key[..4] == [0; 4], key[4..8] == [0; 4]), (true, false));
            let back = Flow::of_key(&key).expect("what it gave");
            assert_eq!(back, (with_id, Direction::In));
        }
        let error = flow.with_id(Some(1 << 20)).expect_err("21 bits");
        assert_eq!(
            error.to_string(),
            "1048576 is no FlowMonID: 0 to 1048575 are allowed"
        );
        let error = Flow::new(sid(0), vec![sid(1); 17]).expect_err("too many");
        assert_eq!(
            error.to_string(),
            "a flow of 17 SIDs cannot be monitored: 1 to 16 are allowed"
        );
    }

    #[test]
    fn blocks_of_all_cpus_are_added_up() {
        let counters = |pkts, blocks| Counters {
            period_ns: 1,
            colour_bit: 0,
            number: 0,
            pkts,
            blocks,
        };
        let block = |number, pkts| Block { number, pkts };
        let counts = Counts::sum(&[
            counters(70, [block(8, 1), block(9, 2), block(0, 0), block(7, 4)]),
            counters(24, [block(4, 8), block(9, 16), block(0, 0), block(0, 0)]),
        ]);
        assert_eq!(
            Vec::from_iter(counts.blocks()),
            [(4, 8), (7, 4), (8, 1), (9, 18)]
        );
        assert_eq!((counts.pkts(9), counts.pkts(10)), (18, 0));
        // Blocks that are gone are in it, too.
        assert_eq!(counts.total_pkts(), 94);
    }

    #[test]
    fn a_monitor_that_cannot_be_is_refused_with_the_reason() {
        let monitor = |millis, marking| Monitor {
            period: Duration::from_millis(millis),
            marking,
        };
        let error = |monitor: Monitor| monitor.counters().expect_err("bad").to_string();
        assert_eq!(
            error(monitor(9, Marking::Option)),
            "blocks of 9ms cannot be: 10ms to 86400s are allowed"
        );
        assert_eq!(
            error(monitor(10, Marking::DscpBit(6))),
            "DSCP has no bit 6: 0 to 5 are allowed"
        );
        let flow = Flow::new(sid(0), [sid(1)]).expect("good");
        let without = monitor(10, Marking::Option).check_flow(&flow);
        assert_eq!(
            without.expect_err("no place for a colour").to_string(),
            "a flow without a FlowMonID has no option for the colour; give it one, or take a bit of DSCP"
        );
        let with = flow.clone().with_id(Some(7)).expect("good");
        for marking in [Marking::Option, Marking::DscpBit(0)] {
            monitor(10, marking).check_flow(&with).expect("good");
        }
        monitor(10, Marking::DscpBit(0))
            .check_flow(&flow)
            .expect("good");
        let good = monitor(1000, Marking::DscpBit(5)).counters().expect("good");
        assert_eq!((good.period_ns, good.colour_bit), (1_000_000_000, 0x80));
        for monitor in [
            monitor(1000, Marking::DscpBit(5)),
            monitor(10, Marking::Option),
        ] {
            let counters = monitor.counters().expect("good");
            assert_eq!(Monitor::of_counters(&counters), monitor);
        }
    }
}
