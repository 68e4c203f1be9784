// SPDX-License-Identifier: GPL-2.0

//! Packets that a port drops after they have been sent to it: they are counted as dropped, and not as forwarded. That takes a kernel with
//! BTF, which the guest's own kernel has not, so these cases run on the distribution's.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Class, Engine, Hike};
use nix::net::if_::if_nametoindex;

use super::kernel::{frame, Shape, HOP_LIMIT, MARK};
use crate::hike::network::{attach, Network, DST_V6, INGRESS, LEFT, RIGHT, SRC, WAY1};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

const PKTS: u64 = 5;
const SHAPE: Shape = Shape {
    v6: true,
    mode: Mode::Encaps,
    sids: 1,
};
/// Less than a frame has: the port itself takes more.
const SMALL_MTU: u16 = 70;
/// Longer than that by more than an Ethernet header and a tag.
const FRAME_BYTES: usize = 120;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "traced/port-drops",
        proves: "packets that a port does not take, or that its driver drops, are counted as dropped, and not as forwarded",
        run: |_| port_drops(),
    }]
}

fn port_drops() -> Result<()> {
    let _network = Network::up()?;
    let (src, way1) = (
        PacketSocket::open(SRC, RIGHT)?,
        PacketSocket::open(WAY1, LEFT)?,
    );
    let mut hike = instance(Engine::Compiled)?;
    let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class(DST_V6.to_string().parse()?, class)?;
    attach(&mut hike, INGRESS)?;
    ensure!(hike.counts_drops(), "this kernel has no BTF");
    // Another instance with the same ports sees none of these packets.
    let mut other = instance(Engine::Compiled)?;
    netns::within(INGRESS, || other.add_port(if_nametoindex(RIGHT)?))?;
    let send = || {
        let mut frame = frame(SHAPE, 0, HOP_LIMIT)?;
        // Links may pad what they carry.
        frame.resize(FRAME_BYTES, 0);
        (0..PKTS).try_for_each(|_| src.send(&frame))
    };
    send()?;
    for _ in 0..PKTS {
        way1.receive(&MARK)?;
    }
    is_counted(&hike, PKTS, 0)?;
    // The driver sends nothing for XDP any more.
    netns::run(WAY1, &format!("ethtool -K {LEFT} gro off"))?;
    send()?;
    is_counted(&hike, PKTS, PKTS).context("a port that sends nothing for XDP")?;
    netns::run(WAY1, &format!("ethtool -K {LEFT} gro on"))?;
    // The driver takes packets, and drops them.
    topology::ip_in(WAY1, &format!("link set {LEFT} mtu {SMALL_MTU}"))?;
    send()?;
    is_counted(&hike, PKTS, 2 * PKTS).context("a driver that drops packets")?;
    is_counted(&other, 0, 0).context("the other instance")
}

/// Waits until so many packets are counted as forwarded, and as dropped by a port.
fn is_counted(hike: &Hike, forwarded: u64, dropped: u64) -> Result<()> {
    let counted = || -> Result<(u64, u64)> {
        let reasons = hike.reasons()?;
        let of = |name: &str| {
            let mut all = reasons.iter();
            let one = all.find(|(reason, _)| reason.name == name);
            one.map_or(0, |(_, pkts)| *pkts)
        };
        Ok((of("forwarded"), of("port-dropped")))
    };
    let waited = wait_until("packets are counted", || {
        Ok(counted()? == (forwarded, dropped))
    });
    waited.with_context(|| format!("(forwarded, dropped): {:?}", counted().ok()))
}
