// SPDX-License-Identifier: GPL-2.0

//! Test runs of an instance's entry at both hooks: what the kernel is told of a frame, and what it says has become of it.

use anyhow::{Context as _, Result};
use aya::maps::{Map, MapData, PerCpuArray, PerCpuValues};
use aya::programs::{TestRun as _, TestRunOptions};
use mflow_hike::counters::reason::Fate;
use mflow_hike::{Hike, Hook};
use nix::net::if_::if_nametoindex;
use rand::rngs::Xoshiro256PlusPlus;
use rand::RngExt as _;

use crate::hike::model::fuzz_network::{CLOSED, CLOSED_MAC, PORT, PORT_MAC};
use crate::hike::model::packet::Leaving;
use crate::hike::model::programs::Done;

/// The length that no frame exceeds after a test run.
const MOST_BYTES: usize = 4_096;

/// `enum xdp_action`.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
/// The reasons of packets that are the answer to their source, or of which it is left.
const ANSWERS: [&str; 2] = ["enc-too-big-told", "sent-back"];
/// The states of each CPU that say how many sources it may tell yet, and how many test packets it may answer, and their sizes.
const TELLING: &str = "telling";
const TELLING_BYTES: usize = 48;
const REFLECTING: &str = "reflecting";
const REFLECTING_BYTES: usize = 16;
/// `linux/pkt_cls.h`; others have their turn (-1), or the packet leaves by this device.
const TC_ACT_UNSPEC: u32 = u32::MAX;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;

/// `struct __sk_buff` in `linux/bpf.h`: its length, and where its members are.
const SKB_BYTES: usize = 192;
const SKB_IFINDEX_AT: usize = 40;
const SKB_GSO_SEGS_AT: usize = 164;
const SKB_GSO_SIZE_AT: usize = 176;
const ETHERNET_BYTES: usize = 14;

/// Returns whether frames that are drawn here can have this reason.
pub(crate) fn occurs(hook: Hook, reason: &str) -> bool {
    let never = [
        "no-chain-there",
        "broken-chain",
        "no-path",
        "no-behaviour",
        "sid-unsigned",
        "headers-apart",
        "fw-buffers",
        "port-dropped",
        // Instances rest before they have answered so many.
        "test-too-often",
        // Reasons of the host's routing have cases of their own.
        "fw-tunnel",
        "fw-disabled",
        "fw-source",
        "fw-redirect",
        "fw-multipath",
        "fw-suppressed",
        "fw-icmp",
        "fw-ipsec",
        "fw-vrf",
        "fw-stale",
    ];
    let at_xdp_alone = [
        "enc-hop-limit",
        "enc-hop-limit-end",
        "fw-hop-limit",
        "fw-vlan",
        "fw-device",
        "fw-no-neighbour",
        "no-headroom",
        "own-address",
        "enc-too-big-told",
        "dec-congested",
        "sid-headers",
        "sid-segments-left",
        "sid-upper-layer",
        "no-test",
        "test-refused",
        "sent-back",
    ];
    let at_tcx_alone = ["enc-offload", "enc-offload-end"];
    let elsewhere = match hook {
        Hook::Xdp => &at_tcx_alone[..],
        Hook::Tcx => &at_xdp_alone[..],
    };
    !never.contains(&reason) && !elsewhere.contains(&reason)
}

/// Returns whether the kernel would send such a frame, and take it for a test run: it does not if the frame ends within its IP
/// header.
pub(crate) fn is_sent(frame: &[u8]) -> bool {
    let least = match frame.get(12..ETHERNET_BYTES) {
        Some([0x08, 0x00]) => 20,
        Some([0x86, 0xdd]) => 40,
        _ => 0,
    };
    frame.len() >= ETHERNET_BYTES + least
}

/// Draws what the kernel knows of a packet that leaves.
pub(crate) fn draw_leaving(rng: &mut Xoshiro256PlusPlus) -> Leaving {
    let is_cut = rng.random_range(0..4) == 0;
    Leaving {
        device: [None, Some(PORT_MAC), Some(CLOSED_MAC)][rng.random_range(0..3)],
        gso_size: if is_cut {
            rng.random_range(1..1_500)
        } else {
            0
        },
        gso_segs: if is_cut { rng.random_range(0..5) } else { 0 },
    }
}

/// The state that all test runs of a case need.
pub(crate) struct TestRuns {
    port: u32,
    closed: u32,
    /// A buffer that begins with what is left of the last frame.
    out: Vec<u8>,
}

impl TestRuns {
    /// Looks for the devices once: that takes as long as a test run.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            port: if_nametoindex(PORT)?,
            closed: if_nametoindex(CLOSED)?,
            out: vec![0; MOST_BYTES],
        })
    }

    /// Runs a frame through an instance: one that leaves if that is said. Returns what is done with it, and what is left of it.
    pub(crate) fn run(
        &mut self,
        hike: &mut Hike,
        frame: &[u8],
        leaving: Option<Leaving>,
    ) -> Result<(u32, &[u8])> {
        let skb = leaving.map(|leaving| self.skb(leaving));
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut self.out),
            ctx_in: skb.as_ref().map(|skb| &skb[..]),
            ..TestRunOptions::default()
        };
        let result = match leaving {
            None => hike.dispatcher()?.test_run(options)?,
            Some(_) => hike.classifier()?.test_run(options)?,
        };
        // CAST: no longer than what it is written into.
        let bytes = result.data_size_out as usize;
        Ok((result.return_value, &self.out[..bytes]))
    }

    /// Returns what the kernel knows as a test run is told.
    fn skb(&self, leaving: Leaving) -> [u8; SKB_BYTES] {
        let device = match leaving.device {
            None => 0,
            Some(PORT_MAC) => self.port,
            Some(_) => self.closed,
        };
        let mut skb = [0; SKB_BYTES];
        for (at, value) in [
            (SKB_IFINDEX_AT, device),
            (SKB_GSO_SEGS_AT, leaving.gso_segs.into()),
            (SKB_GSO_SIZE_AT, leaving.gso_size.into()),
        ] {
            skb[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        skb
    }
}

/// Lets an instance tell as many sources, and answer as many test packets, as after a rest.
pub(crate) fn rest(hike: &Hike) -> Result<()> {
    forget::<TELLING_BYTES>(hike, TELLING)?;
    forget::<REFLECTING_BYTES>(hike, REFLECTING)
}

fn forget<const BYTES: usize>(hike: &Hike, name: &str) -> Result<()> {
    let state = Map::from_map_data(MapData::from_pin(hike.folder().join(name))?)?;
    let mut state: PerCpuArray<MapData, [u8; BYTES]> = state.try_into()?;
    let cpus = state.get(&0, 0)?.len();
    let none = PerCpuValues::try_from(vec![[0; BYTES]; cpus])?;
    Ok(state.set(0, none, 0)?)
}

/// Returns what the hook does with a packet of which the model says this.
pub(crate) fn action_of(hook: Hook, done: &Done) -> Result<u32> {
    let reasons = mflow_hike::counters::reason::reasons();
    let known = reasons.iter().find(|known| known.name == done.reason);
    let known = known.with_context(|| format!("no reason {}", done.reason))?;
    if ANSWERS.contains(&known.name) {
        return Ok(XDP_TX);
    }
    Ok(match (hook, known.fate) {
        (Hook::Xdp, Fate::Passed) => XDP_PASS,
        (Hook::Xdp, Fate::Redirected) => XDP_REDIRECT,
        (Hook::Xdp, Fate::Dropped) => XDP_DROP,
        (Hook::Tcx, Fate::Redirected) if !done.stays => TC_ACT_REDIRECT,
        (Hook::Tcx, Fate::Passed | Fate::Redirected) => TC_ACT_UNSPEC,
        (Hook::Tcx, Fate::Dropped) => TC_ACT_SHOT,
    })
}
