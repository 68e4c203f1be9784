// SPDX-License-Identifier: GPL-2.0

//! Packets with tags that others have made up: rules of a namespace may write any number into the field that has the tag where the
//! kernel lacks our hooks. One namespace sends such packets to itself, another one to the container of a split flow.

mod mark_rule;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::CONTAINER_MAC;

use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::{cpu, threads};
use crate::mflow::Knobs;
use crate::network::netlink::{Behind, Netlink};
use crate::network::topology::{self, Family};
use crate::network::{netns, nft};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Live as _;

/// A namespace without a way to any other one.
const ALONE: &str = "forger";
/// A container at the same bridge as that of the flow, and its port.
const NEIGHBOUR: &str = "neighbour";
const PORT: &str = "forger0";
const NEIGHBOUR_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 7);
const NEIGHBOUR_MAC: &str = "02:00:00:00:07:07";
/// A port at which nobody listens.
const DISCARD: u16 = 9;

/// The parts of a tag: `include/net/mflow.h`.
const KIND_SHIFT: u32 = 29;
const SLOT_SHIFT: u32 = 23;
const SLOTS: u32 = 64;
/// All kinds, of which the last three are none.
const KINDS: u32 = 7;
/// An odd number: its multiples are all batch numbers in an order that looks drawn.
const STEP: u32 = 0x9E37_79B1;

/// Each datagram's first bytes become its tag. The counter has those that leave with one.
const TABLE: &str = "mflow";
const CHAIN: &str = "forge";
const COUNTER: &str = "tagged";
const RULES: &str = "
table inet mflow {
    counter tagged { }
    chain forge { type filter hook output priority 0; }
}
";

/// The time for which packets are forged, and that for which a sender rests after it has sent one for each slot: the lanes' CPUs have
/// the flow's packets to carry, too.
const FORGED_FOR: Duration = Duration::from_millis(1_500);
const REST: Duration = Duration::from_millis(10);
const LEAST_FORGED: u64 = 1_000;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "hooks/forged",
        "other namespaces send themselves, and the container, packets with forged tags of each kind for all slots, on the CPUs of the \
         lanes: the split flow stays split, and no packet of the flow is lost or out of order",
        Run::Plain,
        forged,
    )]
}

fn forged(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    let mut seen = Vec::new();
    let outcome = rig.measure(&rig.datagrams(), &knobs, |live| {
        live.wait_split_since(0)?;
        set_up()?;
        let (_, ()) = threads::beside(forge, || live.flow_for(FORGED_FOR))?;
        for namespace in [ALONE, NEIGHBOUR] {
            seen.push((namespace, nft::counted(namespace, COUNTER)?.pkts));
        }
        ensure!(
            flows::any(&[("state", "split")])?,
            "the flow is not split any more"
        );
        Ok(())
    });
    // Also after a failure.
    [ALONE, NEIGHBOUR].into_iter().try_for_each(remove)?;
    outcome?.judge(|outcome| {
        for &(namespace, pkts) in &seen {
            ensure!(
                pkts >= LEAST_FORGED,
                "{namespace} has sent {pkts} packets with a tag"
            );
        }
        for counter in ["paths_async", "flows_split"] {
            let count = outcome.counter(counter)?;
            ensure!(
                count == 0,
                "{counter} grew by {count}: forged packets were taken for the flow's"
            );
        }
        outcome.require_whole()?;
        outcome.require_order()?;
        outcome.require_no_deadline_but(most_late(outcome.counter("unknown_tags")?))?;
        outcome.require_split(&knobs, rig.datagrams().outer_flows())?;
        rig.settle()
    })
}

/// Returns how many forged packets may be taken for late ones of flows: of each slot's numbers, one in 4,096 is within the window.
fn most_late(forged: u64) -> u64 {
    8 + forged / 4_096
}

fn set_up() -> Result<()> {
    netns::add(ALONE)?;
    topology::ip_in(ALONE, "link set lo up")?;
    netns::add(NEIGHBOUR)?;
    let mtu = Family::V4.overlay_mtu();
    topology::ip(&format!(
        "link add {PORT} mtu {mtu} type veth peer name eth0 mtu {mtu} address {NEIGHBOUR_MAC} netns {NEIGHBOUR}"
    ))?;
    let bridge = Netlink::open(None)?;
    bridge.enslave(PORT, "br0")?;
    bridge.forward(NEIGHBOUR_MAC, Behind::Port(PORT))?;
    let container = Family::V4.container();
    topology::ip_in(
        NEIGHBOUR,
        &format!(
            "link set eth0 up\naddr add {NEIGHBOUR_ADDRESS}/24 dev eth0\nneigh replace {container} lladdr {CONTAINER_MAC} dev eth0"
        ),
    )?;
    for namespace in [ALONE, NEIGHBOUR] {
        nft::add(namespace, RULES)?;
        netns::within(namespace, || mark_rule::add(TABLE, CHAIN, COUNTER))?;
    }
    Ok(())
}

/// Removes a namespace, and the port that leads there.
fn remove(namespace: &str) -> Result<()> {
    if netns::exists(namespace) {
        netns::delete(namespace)?;
    }
    Ok(())
}

/// Sends forged packets from both namespaces on each CPU of the lanes until it shall stop.
fn forge(stop: &AtomicBool) -> Result<()> {
    let lanes = &cpu::LANES[..Knobs::default().lanes];
    let to_container = SocketAddr::from((Family::V4.container(), DISCARD));
    threads::each(2 * lanes.len(), |number| {
        let lane = lanes[number / 2];
        if number.is_multiple_of(2) {
            // Its packets end at its own socket, which keeps what it has room for.
            let here = || Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
            let socket = netns::within(ALONE, here)?;
            let to_itself = socket.local_addr()?;
            send(stop, &socket, to_itself, lane)
        } else {
            let here = || Ok(UdpSocket::bind((NEIGHBOUR_ADDRESS, 0))?);
            let socket = netns::within(NEIGHBOUR, here)?;
            send(stop, &socket, to_container, lane)
        }
    })
    .map(drop)
}

fn send(stop: &AtomicBool, socket: &UdpSocket, to: SocketAddr, lane: usize) -> Result<()> {
    cpu::pin(lane)?;
    let mut batch = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        for kind in 1..=KINDS {
            for slot in 0..SLOTS {
                batch = batch.wrapping_add(STEP);
                let number = batch >> (u32::BITS - SLOT_SHIFT);
                let tag = kind << KIND_SHIFT | slot << SLOT_SHIFT | number;
                socket
                    .send_to(&tag.to_ne_bytes(), to)
                    .context("cannot send a forged packet")?;
            }
            thread::sleep(REST);
        }
    }
    Ok(())
}
