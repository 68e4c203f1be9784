// SPDX-License-Identifier: GPL-2.0

//! The outcome of a run of traffic, and the demands that may be made of it.
//!
//! For byte streams over TCP, read "packet on the wire" for "datagram". Lost packets are those that were sent again, and
//! reordered packets are those that TCP found a hole in front of.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::guest::Measured;
use serde::Serialize;

use crate::mflow::{Knobs, Mode};
use crate::traffic::tcp_counters::{noise, QUIET};

const LATE: &str = "late_pkts";
/// The counters of the module that grow when it prefers delivery to order.
const GIVEN_UP: [&str; 3] = ["deadline_batches", "overflow_batches", LATE];

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    /// Different datagrams that arrived whole.
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    /// The first runs of lost numbers, with their flow; for messages.
    #[serde(skip)]
    pub(crate) gaps: Vec<(usize, Range<u64>)>,
    /// Datagrams that arrived after one of their flow that was sent later.
    pub(crate) reordered: u64,
    /// Datagrams that arrived once more.
    pub(crate) duplicate: u64,
    /// Datagrams that are not as they were sent.
    pub(crate) corrupt: u64,
    /// Datagrams per second the sender kept up, between the two marks.
    pub(crate) offered_per_s: u64,
    /// Frames of the flows that crossed the wire between the two marks.
    pub(crate) frames: u64,
    pub(crate) longest_stall_us: u64,
    /// The longest way of a datagram; 0 if they are too short to say.
    pub(crate) longest_wait_us: u64,
    /// Datagrams whose time stamp of arrival is before that of one ahead of them. Few sockets ask for stamps.
    pub(crate) stamps_back: u64,
    /// Datagrams whose time stamp of arrival is later than the clock when they are read.
    pub(crate) stamps_ahead: u64,
    /// From the last datagram's sending to the last arrival.
    pub(crate) tail_wait_us: u64,
    /// Packets taken through the stack, by CPU (a packet counts once per device).
    pub(crate) softnet_pkts: BTreeMap<usize, u64>,
    /// The growth of the module's counters; empty without the module.
    pub(crate) mflow: BTreeMap<String, i64>,
    /// The number of packets that the kernel says to have dropped, by place; empty if the run was not about datagrams.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) drops: BTreeMap<String, u64>,
    /// Bytes of streams that arrived, each of them the right one; 0 if it was not about streams.
    pub(crate) stream_bytes: u64,
    /// The growth of TCP's counters, over both ends; empty if the run was not about TCP.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tcp: BTreeMap<String, u64>,
}

impl Outcome {
    /// Adds what another receiver of the same flow has got.
    pub(crate) fn add_received(&mut self, other: &Self) {
        self.delivered += other.delivered;
        self.reordered += other.reordered;
        self.duplicate += other.duplicate;
        self.corrupt += other.corrupt;
    }

    pub(crate) fn measured(&self) -> Measured {
        Measured {
            sent: self.sent,
            delivered: self.delivered,
            lost: self.lost,
            reordered: self.reordered,
            corrupt: self.corrupt,
            offered_per_s: self.offered_per_s,
            longest_stall_us: self.longest_stall_us,
            stream_bytes: self.stream_bytes,
        }
    }

    /// Returns itself if it passes the checks; an error tells all counters that changed.
    pub(crate) fn judge(self, checks: impl FnOnce(&Self) -> Result<()>) -> Result<Self> {
        checks(&self).with_context(|| {
            let mflow = self.mflow.iter().filter(|(_, &added)| added != 0);
            let mflow = mflow.map(|(name, added)| format!("{name} {added:+}"));
            let tcp = self
                .tcp
                .iter()
                .map(|(name, added)| format!("{name} +{added}"));
            let drops = self.drops.iter();
            let drops = drops.map(|(name, added)| format!("{name} +{added}"));
            let counters: Vec<String> = mflow.chain(tcp).chain(drops).collect();
            format!(
                "{} sent, {} delivered, {} reordered; counters: {}",
                self.sent,
                self.delivered,
                self.reordered,
                counters.join(", ")
            )
        })?;
        Ok(self)
    }

    pub(crate) fn require_whole(&self) -> Result<()> {
        ensure!(
            self.lost == 0,
            "{} of {} datagrams lost{}",
            self.lost,
            self.sent,
            self.first_gaps()
        );
        self.require_intact()
    }

    /// Returns the numbers that were lost first, as the end of a message; empty if only the last ones were.
    fn first_gaps(&self) -> String {
        let gaps = self.gaps.iter();
        gaps.map(|(flow, gap)| format!(", {gap:?} of flow {flow}"))
            .collect()
    }

    /// Fails if anything was duplicated or damaged; losses are allowed.
    pub(crate) fn require_intact(&self) -> Result<()> {
        ensure!(self.corrupt == 0, "{} datagrams corrupt", self.corrupt);
        ensure!(
            self.duplicate == 0,
            "{} datagrams arrived twice",
            self.duplicate
        );
        Ok(())
    }

    pub(crate) fn require_order(&self) -> Result<()> {
        ensure!(
            self.reordered == 0,
            "{} of {} datagrams out of order",
            self.reordered,
            self.delivered
        );
        Ok(())
    }

    /// Fails if TCP saw segments out of order, dropped any or sent any again but of a handshake.
    pub(crate) fn require_quiet_tcp(&self) -> Result<()> {
        for name in QUIET {
            let count = noise(&self.tcp, name);
            ensure!(
                count == 0,
                "{name} grew by {count}, but nothing was lost and no order changed on the wire"
            );
        }
        Ok(())
    }

    /// Fails if the merger gave up waiting: then order proves nothing about completion by lane progress.
    pub(crate) fn require_no_deadline(&self) -> Result<()> {
        self.require_no_deadline_but(0)
    }

    /// Fails if the merger gave up waiting, or if more than `late_pkts` packets came late, such as others have made up.
    pub(crate) fn require_no_deadline_but(&self, late_pkts: u64) -> Result<()> {
        for name in GIVEN_UP {
            let count = self.counter(name)?;
            let most = if name == LATE { late_pkts } else { 0 };
            ensure!(
                count <= most,
                "{name} grew by {count}, and at most {most} may be given up here"
            );
        }
        Ok(())
    }

    /// Fails unless packets went to the CPU of the first stage, and no stage was too slow for them.
    fn require_staged(&self) -> Result<()> {
        let staged = self.counter("stage_nic_pkts")?;
        ensure!(
            staged >= self.frames / 2,
            "{staged} of {} packets went to the CPU of a stage",
            self.frames
        );
        let dropped = self.counter("dropped_stage_full")?;
        ensure!(dropped == 0, "a full stage dropped {dropped} packets");
        Ok(())
    }

    /// Fails unless the configured lanes, none more than twice what another did, carried this many flows; in the modes of FALCON, unless
    /// flows went from CPU to CPU.
    pub(crate) fn require_split(&self, knobs: &Knobs, flows: u16) -> Result<()> {
        if knobs.mode != Mode::Mflow.name() {
            return self.require_staged();
        }
        let mut lanes = Vec::new();
        for &lane in knobs.carrying() {
            lanes.push(self.lane_pkts(lane)?);
        }
        let carried: u64 = lanes.iter().sum();
        ensure!(
            carried >= self.frames / 2,
            "the lanes carried {carried} of {} packets ({lanes:?}), {} went inline: the flow was not really split",
            self.frames,
            self.counter("inline_pkts")?
        );
        let (least, most) = (lanes.iter().min(), lanes.iter().max());
        let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
        // Whole batches are dealt out: short runs can be uneven by one at either end of each flow, each time it is split. While a lane's
        // CPU is away, the others get its batches.
        let times = u64::from(flows) + self.counter("flows_split")?;
        let allowed = least.max(2 * times * u64::from(knobs.batch_pkts));
        ensure!(
            least > 0 && most - least <= allowed,
            "the lanes carried {lanes:?} packets: not evenly split"
        );
        Ok(())
    }

    pub(crate) fn lane_pkts(&self, lane: usize) -> Result<u64> {
        self.counter(&format!("lane_cpu{lane}_pkts"))
    }

    pub(crate) fn counter(&self, name: &str) -> Result<u64> {
        let added = self.mflow.get(name).copied();
        let added = added.with_context(|| format!("stats has no line {name}"))?;
        Ok(u64::try_from(added).unwrap_or(0))
    }
}
