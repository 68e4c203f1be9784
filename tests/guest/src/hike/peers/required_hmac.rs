// SPDX-License-Identifier: GPL-2.0

//! Devices that require signed segment routing headers (`seg6_require_hmac`): the kernel drops what is not signed, so HIKE, which
//! verifies nothing, must not forward it. What has no SRH needs no signature.

use std::net::{Ipv6Addr, UdpSocket};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Behaviour, Class, Engine, Flavours, Hike};

use super::kernel::{by_kernel, frame, Shape, HOP_LIMIT, MARK, PORT};
use crate::hike::network::{
    attach, Network, DST, EGRESS, INGRESS, LEFT, RIGHT, SRC, TUNNEL_SOURCE, WAY1, WAY2,
};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

const VRF: &str = "vrf77";
const WITH_SRH: Shape = Shape {
    v6: true,
    mode: Mode::Encaps,
    sids: 3,
};
const WITHOUT_SRH: Shape = Shape {
    v6: true,
    mode: Mode::Reduced,
    sids: 1,
};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "peer/required-hmac",
        proves: "where a device, or the VRF that it is in, requires signed segment routing headers, unsigned ones are left to the kernel, which drops them",
        run: |_| {
            required(Engine::Compiled)?;
            required(Engine::TailCalls)
        },
    }]
}

/// A node with an instance for a local SID, and the sockets before and behind it.
struct Node {
    name: &'static str,
    hike: Hike,
    src: PacketSocket,
    behind: PacketSocket,
}

fn required(engine: Engine) -> Result<()> {
    let _network = Network::up()?;
    // Without it, dst would answer that nobody listens, and quote the packet.
    let _sink = netns::within(DST, || Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT))?))?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    let flavours = Flavours::default();
    let end = Behaviour::End { flavours };
    let mut way1 = Node::up(engine, WAY1, WAY2, "end,fw-fib", "fc00:1::/32", end)?;
    way1.forwards(WITH_SRH).context("End")?;
    way1.require(LEFT, "1")?;
    way1.leaves_alone(WITH_SRH)
        .context("End, and the device requires")?;
    way1.require(LEFT, "0")?;
    way1.forwards(WITH_SRH)
        .context("End, and the device requires no more")?;
    let dec = Behaviour::Dt46 { table: None };
    let mut egress = Node::up(engine, EGRESS, DST, "dec", "fc00:3::6", dec)?;
    egress.require(LEFT, "1")?;
    egress
        .leaves_alone(WITH_SRH)
        .context("End.DT46, and the device requires")?;
    egress
        .forwards(WITHOUT_SRH)
        .context("End.DT46 without an SRH")?;
    // The stack sees what the device receives as coming from the VRF.
    topology::ip_in(
        WAY1,
        &format!(
            "link add {VRF} type vrf table 77\nlink set {VRF} up\nlink set {LEFT} master {VRF}"
        ),
    )?;
    way1.require(VRF, "1")?;
    way1.leaves_alone(WITH_SRH)
        .context("End, and the VRF requires")
}

impl Node {
    fn up(
        engine: Engine,
        name: &'static str,
        next: &str,
        chain: &str,
        sids: &str,
        behaviour: Behaviour,
    ) -> Result<Self> {
        let mut hike = instance(engine)?;
        let class = Class::of(hike.add_chain(&chain.parse()?)?);
        let behaviour = hike.add_behaviour(&behaviour)?;
        hike.set_local_sid(sids.parse()?, class, behaviour)?;
        attach(&mut hike, name)?;
        Ok(Self {
            name,
            hike,
            src: PacketSocket::open(SRC, RIGHT)?,
            behind: PacketSocket::open(next, LEFT)?,
        })
    }

    /// Says for a device whether signatures are required, and has the instance learn of it.
    fn require(&mut self, device: &str, value: &str) -> Result<()> {
        netns::within(self.name, || {
            let knob = format!("net/ipv6/conf/{device}/seg6_require_hmac");
            topology::sysctl(&knob, value)?;
            self.hike.follow()
        })
    }

    fn counted(&self, name: &str) -> Result<u64> {
        let reasons = self.hike.reasons()?;
        let one = reasons.iter().find(|(reason, _)| reason.name == name);
        Ok(one.with_context(|| format!("no reason {name}"))?.1)
    }

    /// Forgets what has come by for other nodes.
    fn forget(&self) -> Result<()> {
        while self.behind.next()?.is_some() {}
        Ok(())
    }

    fn forwards(&self, shape: Shape) -> Result<()> {
        self.forget()?;
        let before = self.counted("forwarded")?;
        by_kernel(shape, |()| {
            self.src.send(&frame(shape, 0, HOP_LIMIT)?)?;
            self.behind.receive(&MARK).map(drop)
        })?;
        let forwarded = self.counted("forwarded")? - before;
        ensure!(forwarded == 1, "HIKE has forwarded {forwarded} packets");
        Ok(())
    }

    fn leaves_alone(&self, shape: Shape) -> Result<()> {
        self.forget()?;
        let before = (self.counted("forwarded")?, self.counted("sid-unsigned")?);
        by_kernel(shape, |()| {
            self.src.send(&frame(shape, 0, HOP_LIMIT)?)?;
            wait_until("the packet has come", || {
                let now = (self.counted("forwarded")?, self.counted("sid-unsigned")?);
                Ok(now != before)
            })
        })?;
        let forwarded = self.counted("forwarded")? - before.0;
        ensure!(forwarded == 0, "HIKE has forwarded it");
        while let Some(frame) = self.behind.next()? {
            ensure!(!frame.ends_with(&MARK), "the kernel has forwarded it");
        }
        Ok(())
    }
}
