// SPDX-License-Identifier: GPL-2.0

//! Frames that are not for this host: a veth hands over all that is sent to it, as a promiscuous NIC does. The kernel forwards none of
//! them, and neither may HIKE. Each device's own address counts, whatever it is at the moment.

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Class, Engine, Hike, Route};
use nix::net::if_::if_nametoindex;

use super::kernel::{frame, Shape, HOP_LIMIT, MARK};
use crate::hike::network::{attach, mac, text, Network, DST_V6, INGRESS, LEFT, RIGHT, SRC, WAY1};
use crate::hike::{instance, Case};
use crate::machine::command;
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

/// All hosts, groups of IPv6 and IPv4, and another host.
const OTHERS: [[u8; 6]; 4] = [
    [0xff; 6],
    [0x33, 0x33, 0, 0, 0, 1],
    [1, 0, 0x5e, 1, 1, 1],
    [2, 0, 0, 0, 0xee, 1],
];
/// The address that ingress has later, and that of a device on top of its own.
pub(crate) const LATER: [u8; 6] = [2, 0, 0, 0, 0xdd, 1];
const ON_TOP: [u8; 6] = [2, 0, 0, 0, 0xcc, 1];
/// The hop limit of frames that are for others.
pub(crate) const OF_OTHERS: u8 = 33;
const NEXT_HEADER_AT: usize = 14 + 6;
const HOP_LIMIT_AT: usize = 14 + 7;
const ICMPV6: u8 = 58;
const SHAPE: Shape = Shape {
    v6: true,
    mode: Mode::Encaps,
    sids: 1,
};
pub(crate) const BOND: &str = "bond0";
/// A device of the bond that is not active, and its other end.
const SPARE: &str = "spare";
const SPARE_END: &str = "spare-end";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "peer/other-hosts",
            proves: "frames for other Ethernet addresses, for groups and for all are left to the kernel, which forwards none of them; a device's new address counts once it is known",
            run: |_| {
                other_hosts(Engine::Compiled)?;
                other_hosts(Engine::TailCalls)
            },
        },
        Case {
            name: "peer/bond",
            proves: "what a bond's slave receives for the bond is forwarded, and what it receives for others, or a backup receives, is not",
            run: |_| bonded(),
        },
    ]
}

/// The two ends of ingress: where frames are sent to it, and where those come that it forwards.
pub(crate) struct Ends {
    src: PacketSocket,
    way1: PacketSocket,
}

impl Ends {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self {
            src: PacketSocket::open(SRC, RIGHT)?,
            way1: PacketSocket::open(WAY1, LEFT)?,
        })
    }

    /// Sends a frame for this Ethernet address.
    pub(crate) fn send(&self, to: [u8; 6], hop_limit: u8) -> Result<()> {
        self.src.send(&frame_to(to, hop_limit)?)
    }

    /// Fails unless the first frame that is forwarded is for ingress: those for others have been sent before it.
    pub(crate) fn see_own(&self) -> Result<()> {
        let seen = loop {
            let seen = self.way1.receive(&MARK).context("a frame for ingress")?;
            // The last host answers, and its answer quotes the frame.
            if seen[NEXT_HEADER_AT] != ICMPV6 {
                break seen;
            }
        };
        let hop_limit = seen[HOP_LIMIT_AT];
        ensure!(
            hop_limit == HOP_LIMIT - 1,
            "a frame for others was forwarded: its hop limit is {hop_limit}"
        );
        Ok(())
    }
}

fn frame_to(to: [u8; 6], hop_limit: u8) -> Result<Vec<u8>> {
    let mut frame = frame(SHAPE, 0, hop_limit)?;
    frame[..to.len()].copy_from_slice(&to);
    Ok(frame)
}

fn counted(hike: &Hike, name: &str) -> Result<u64> {
    let reasons = hike.reasons()?;
    let one = reasons.iter().find(|(reason, _)| reason.name == name);
    Ok(one.with_context(|| format!("no reason {name}"))?.1)
}

fn other_hosts(engine: Engine) -> Result<()> {
    let _network = Network::up()?;
    let ends = Ends::open()?;
    let mut hike = instance(engine)?;
    let class = Class::of(hike.add_chain(&"fw-fib".parse()?)?);
    hike.set_class(DST_V6.to_string().parse()?, class)?;
    attach(&mut hike, INGRESS)?;
    for other in OTHERS {
        ends.send(other, OF_OTHERS)?;
    }
    ends.send(mac(0, 2), HOP_LIMIT)?;
    ends.see_own()?;
    expect(&hike, 1, "one frame for ingress")?;
    let others = counted(&hike, "other-host")?;
    // CAST: four.
    ensure!(
        others >= OTHERS.len() as u64,
        "{others} frames were for others"
    );
    // The kernel forwards what comes for another device of this host.
    topology::ip_in(
        INGRESS,
        &format!(
            "link add top link {LEFT} address {} type macvlan mode bridge\nlink set top up",
            text(ON_TOP)
        ),
    )?;
    ends.send(ON_TOP, HOP_LIMIT)?;
    ends.see_own()?;
    expect(&hike, 1, "a device on top has an address, too")?;
    topology::ip_in(INGRESS, "link delete top")?;
    // Until HIKE learns of it, the kernel alone forwards what is for the new address.
    topology::ip_in(INGRESS, &format!("link set {LEFT} address {}", text(LATER)))?;
    ends.send(LATER, HOP_LIMIT)?;
    ends.see_own()?;
    expect(&hike, 1, "nobody has told of the new address")?;
    netns::within(INGRESS, || hike.follow())?;
    ends.send(mac(0, 2), OF_OTHERS)?;
    ends.send(LATER, HOP_LIMIT)?;
    ends.see_own()?;
    expect(&hike, 2, "the new address is known")
}

/// Fails unless this many frames have been forwarded since there is the instance.
fn expect(hike: &Hike, pkts: u64, when: &str) -> Result<()> {
    let forwarded = counted(hike, "forwarded")?;
    ensure!(forwarded == pkts, "{when}: {forwarded} were forwarded");
    Ok(())
}

/// Makes the left device of ingress one of a bond, beside a backup.
pub(crate) fn bond_ingress() -> Result<()> {
    // A slave comes down before, and loses its addresses.
    topology::ip_in(
        INGRESS,
        &format!(
            "link add {BOND} type bond mode active-backup miimon 10
             link add {SPARE} type veth peer name {SPARE_END}
             link set {LEFT} down
             link set {LEFT} master {BOND}
             link set {SPARE} master {BOND}
             link set {BOND} up
             link set {SPARE_END} up"
        ),
    )?;
    let is = |device: &str, state: &str| -> Result<bool> {
        let shown = netns::run(INGRESS, &format!("ip -details link show {device}"))?;
        Ok(shown.contains(&format!("state {state}")))
    };
    command::wait_until("the bond has an active slave and a backup", || {
        Ok(is(LEFT, "ACTIVE")? && is(SPARE, "BACKUP")?)
    })
}

fn bonded() -> Result<()> {
    let _network = Network::up()?;
    let ends = Ends::open()?;
    bond_ingress()?;
    let spare = PacketSocket::open(INGRESS, SPARE_END)?;
    let mut hike = instance(Engine::Compiled)?;
    let class = Class::of(hike.add_chain(&"fw-table".parse()?)?);
    let to = DST_V6.to_string();
    hike.set_class(to.parse()?, class)?;
    netns::within(INGRESS, || {
        hike.attach(BOND)?;
        let port = if_nametoindex(RIGHT)?;
        hike.add_port(port)?;
        let route = Route {
            port,
            mtu: 1_500,
            source: mac(1, 1),
            destination: mac(1, 2),
        };
        hike.set_route(to.parse()?, &route)
    })?;
    let bond = mac_of_bond()?;
    let others = counted(&hike, "other-host")?;
    spare.send(&frame_to(bond, OF_OTHERS)?)?;
    command::wait_until("the backup's frame is left to the kernel", || {
        Ok(counted(&hike, "other-host")? > others)
    })?;
    ends.send([2, 0, 0, 0, 0xee, 1], OF_OTHERS)?;
    ends.send(bond, HOP_LIMIT)?;
    ends.see_own()?;
    expect(&hike, 1, "one frame for the bond")
}

/// Returns the bond's Ethernet address, which is that of its first slave.
fn mac_of_bond() -> Result<[u8; 6]> {
    let said = netns::run(INGRESS, &format!("ip -brief link show {BOND}"))?;
    ensure!(
        said.contains(&text(mac(0, 2))),
        "the bond is another than its slave: {said}"
    );
    Ok(mac(0, 2))
}
