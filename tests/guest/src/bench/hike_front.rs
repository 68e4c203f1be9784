// SPDX-License-Identifier: GPL-2.0

//! An instance of HIKE on the NIC, in front of the stack that is measured: what its hook costs packets that end on this host.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Class, Destination, Engine, Hike, Lanes};
use mflow_protocol::bench::Front as Wanted;
use mflow_protocol::network::SERVER_HOST;

use crate::hike;
use crate::mflow::Stats;
use crate::network::topology::{self, FEED};

/// A destination that nothing goes to.
const NOBODY: &str = "192.0.2.1";
const CHAIN: &str = "lanes,fw-kernel";
/// Packets that the machine outside may send beside the load.
const OTHER_PKTS: u64 = 16;

/// The instance, until the end of the scope.
pub(super) struct Front {
    hike: Hike,
    /// The reason by which the instance counts the load.
    reason: &'static str,
    /// The number of packets that the NIC had received before the instance was attached.
    received_pkts: u64,
}

impl Front {
    /// Attaches an instance to the NIC. That may move the NIC's queue, so it goes before all that looks where packets come in.
    pub(super) fn up(wanted: Wanted) -> Result<Self> {
        // What the host books instructions to has names.
        topology::sysctl("net/core/bpf_jit_kallsyms", "1")?;
        let (to, reason) = match wanted {
            Wanted::NoClass => (NOBODY.parse()?, "no-class"),
            Wanted::Lanes => (Destination::Address(SERVER_HOST.into()), "by-chain"),
        };
        let mut hike = hike::instance(Engine::Compiled)?;
        let class = Class {
            lanes: Some(Lanes::Split),
            ..Class::of(hike.add_chain(&CHAIN.parse()?)?)
        };
        hike.set_class(to, class)?;
        let received_pkts = topology::received_pkts(FEED)?;
        hike.attach(FEED)?;
        Ok(Self {
            hike,
            reason,
            received_pkts,
        })
    }

    /// Fails if packets did not take the way that is measured, or if lanes built some: with an XDP program, the NIC's core builds all.
    pub(super) fn check(&self) -> Result<()> {
        // In this order: what comes meanwhile is not missed.
        let received_pkts = topology::received_pkts(FEED)? - self.received_pkts;
        let reasons = self.hike.reasons()?;
        let found = reasons
            .iter()
            .find(|(reason, _)| reason.name == self.reason);
        let (_, seen_pkts) = found.with_context(|| format!("no reason {}", self.reason))?;
        ensure!(
            seen_pkts + OTHER_PKTS >= received_pkts,
            "of {received_pkts} packets that came, HIKE has counted {seen_pkts} as {}",
            self.reason
        );
        let built_pkts =
            Stats::read_if_loaded()?.map_or(Ok(0), |stats| stats.get("request_pkts"))?;
        ensure!(
            built_pkts == 0,
            "lanes built {built_pkts} packets of a NIC that has an XDP program"
        );
        Ok(())
    }
}
