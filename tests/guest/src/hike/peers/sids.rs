// SPDX-License-Identifier: GPL-2.0

//! Local SIDs beside the kernel's own: what leaves a node is the same, byte by byte, as the kernel makes it.

use std::net::{Ipv6Addr, UdpSocket};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::config::path::Mode;
use mflow_hike::{Behaviour, Class, DeviceName, Engine, Flavours, Hike, Traffic, HOPS_TABLE};

use super::kernel::{by_kernel, frame, Shape, ETHERNET_BYTES, HOP_LIMIT, MARK, PORT};
use crate::hike::network::{
    attach, mac, text, Network, DST, EGRESS, INGRESS, LEFT, RIGHT, SRC, TUNNEL_SOURCE, WAY1, WAY2,
};
use crate::hike::{instance, Case};
use crate::network::packet_socket::PacketSocket;
use crate::network::{netns, topology};

/// A VRF at egress.
const VRF: &str = "vrf100";
const VRF_TABLE: u32 = 100;

const IPV6_BYTES: usize = 40;
/// The offset of the hop limit in an IPv6 packet.
const HOP_LIMIT_AT: usize = 7;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "peer/local-sids",
            proves: "End with its flavours, End.X and End.DT send on what the kernel's own send on, and where the kernel has to answer, it answers the same: byte by byte",
            run: |_| local_sids(),
        },
        Case {
            name: "peer/vrf",
            proves: "End.DT4, End.DT6 and End.DT46 by the table of a VRF do what the kernel's own do with the same VRF: byte by byte",
            run: |_| vrf(),
        },
    ]
}

/// The link-local address of way2 on the link that it has with way1.
const WAY2_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x22);

/// Returns End.X from way1 to way2 by the link-local address of that.
fn link_local_hop() -> Behaviour {
    let device = RIGHT.parse::<DeviceName>();
    Behaviour::EndX {
        next_hop: WAY2_LINK_LOCAL,
        device: Some(device.unwrap_or_else(|error| panic!("{RIGHT}: {error}"))),
        flavours: NO_FLAVOURS,
    }
}

/// One behaviour at one node, and the kernel's that does the same.
struct Role {
    node: &'static str,
    sids: &'static str,
    /// As `ip route` writes it, and the device of its route.
    kernels: &'static str,
    device: &'static str,
    chain: &'static str,
    behaviour: Behaviour,
    shape: Shape,
}

const NO_FLAVOURS: Flavours = Flavours {
    psp: false,
    usp: false,
    usd: false,
};

fn roles() -> Vec<Role> {
    let shape = |v6, mode, sids| Shape { v6, mode, sids };
    let plain = shape(true, Mode::Encaps, 3);
    let end = |flavours| Behaviour::End { flavours };
    let role = |node, sids, kernels, chain, behaviour, shape| Role {
        node,
        sids,
        kernels,
        device: RIGHT,
        chain,
        behaviour,
        shape,
    };
    let (psp, usd) = (
        Flavours {
            psp: true,
            ..NO_FLAVOURS
        },
        Flavours {
            usd: true,
            ..NO_FLAVOURS
        },
    );
    // way2's address on the link that it has with way1.
    let next_hop = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2);
    let end_x = Behaviour::EndX {
        next_hop,
        device: None,
        flavours: NO_FLAVOURS,
    };
    let (way1, way2, at_way1, at_way2) = (WAY1, WAY2, "fc00:1::/32", "fc00:2::/32");
    let mut roles = vec![
        role(way1, at_way1, "End", "end,fw-fib", end(NO_FLAVOURS), plain),
        role(
            way1,
            at_way1,
            "End",
            "end,fw-fib",
            end(NO_FLAVOURS),
            shape(false, Mode::Reduced, 3),
        ),
        role(
            way1,
            at_way1,
            "End flavors psp",
            "acl,end,fw-fib",
            end(psp),
            plain,
        ),
        role(
            way2,
            at_way2,
            "End flavors psp",
            "end,fw-fib",
            end(psp),
            plain,
        ),
        role(
            way2,
            at_way2,
            "End flavors psp",
            "end,fw-fib",
            end(psp),
            shape(false, Mode::Reduced, 3),
        ),
        role(way1, at_way1, "End.X nh6 fd00:2::2", "end-x", end_x, plain),
        role(
            way1,
            at_way1,
            "End.X nh6 fd00:2::2",
            "end-x",
            end_x,
            shape(true, Mode::Reduced, 10),
        ),
        role(
            way1,
            at_way1,
            "End.X nh6 fd00:2::2",
            "end-x",
            link_local_hop(),
            plain,
        ),
    ];
    for (v6, sids, kernels) in [
        (true, "fc00:3::6", "End.DX6 nh6 fd00:4::2"),
        (false, "fc00:3::4", "End.DX4 nh4 10.9.4.2"),
    ] {
        let table = Some(254);
        for behaviour in [
            Behaviour::Dt46 { table: None },
            if v6 {
                Behaviour::Dt6 { table }
            } else {
                Behaviour::Dt4 { table }
            },
        ] {
            let with_srh = shape(v6, Mode::Encaps, 3);
            roles.push(role(EGRESS, sids, kernels, "dec", behaviour, with_srh));
        }
        let without_srh = shape(v6, Mode::Reduced, 1);
        roles.push(role(
            EGRESS,
            sids,
            kernels,
            "mon-out,dec",
            Behaviour::Dt46 { table: None },
            without_srh,
        ));
        roles.push(role(
            EGRESS,
            sids,
            kernels,
            "end,fw-fib",
            end(usd),
            shape(v6, Mode::Encaps, 1),
        ));
    }
    roles
}

/// The same with a VRF at the end, whose table both are told.
fn vrf_roles() -> Vec<Role> {
    let table = Some(VRF_TABLE);
    let dt46 = Behaviour::Dt46 { table };
    let mut roles = Vec::new();
    for (v6, sids, kernels, behaviour) in [
        (
            true,
            "fc00:3::6",
            "End.DT6 vrftable 100",
            Behaviour::Dt6 { table },
        ),
        (
            false,
            "fc00:3::4",
            "End.DT4 vrftable 100",
            Behaviour::Dt4 { table },
        ),
        (true, "fc00:3::6", "End.DT46 vrftable 100", dt46),
        (false, "fc00:3::4", "End.DT46 vrftable 100", dt46),
    ] {
        // Either one takes what has an SRH, and what has none.
        for (mode, count) in [(Mode::Encaps, 3), (Mode::Reduced, 1)] {
            roles.push(Role {
                node: EGRESS,
                sids,
                kernels,
                device: VRF,
                chain: "mon-out,dec",
                behaviour,
                shape: Shape {
                    v6,
                    mode,
                    sids: count,
                },
            });
        }
    }
    roles
}

/// The places where frames are sent and looked at.
struct Wire {
    src: PacketSocket,
    /// The frames that a node receives, and those that it sends on.
    into: PacketSocket,
    out_of: PacketSocket,
    dst: PacketSocket,
    /// Without it, dst would answer that nobody listens, and send the packet back for that.
    _sink: UdpSocket,
}

impl Wire {
    fn at(node: &str) -> Result<Self> {
        let next = match node {
            WAY1 => WAY2,
            WAY2 => EGRESS,
            _ => DST,
        };
        Ok(Self {
            src: PacketSocket::open(SRC, RIGHT)?,
            into: PacketSocket::open(node, LEFT)?,
            out_of: PacketSocket::open(next, LEFT)?,
            dst: PacketSocket::open(DST, LEFT)?,
            _sink: netns::within(DST, || Ok(UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT))?))?,
        })
    }

    /// Sends what the kernel of ingress encapsulates. Returns the frame that comes to the node, which must not take it further.
    fn carry_into(&self, shape: Shape) -> Result<Vec<u8>> {
        self.carry(shape, || self.into.receive(&MARK))
    }

    /// Does the same with a frame that the node sends on. Returns that frame as it is when the packet has come to its end: the next node's
    /// kernel writes into what a socket has seen.
    fn carry_out(&self, shape: Shape) -> Result<Vec<u8>> {
        self.carry(shape, || {
            self.dst.receive(&MARK).context("at the end")?;
            self.out_of.receive(&MARK)
        })
    }

    fn carry(&self, shape: Shape, see: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        by_kernel(shape, |()| {
            self.src.send(&frame(shape, 0, HOP_LIMIT)?)?;
            see()
        })
    }
}

/// Sends a frame that a node cannot forward; returns the kernel's answer to it.
fn answer(node: &str, frame: &[u8]) -> Result<Vec<u8>> {
    let before = match node {
        WAY1 => INGRESS,
        WAY2 => WAY1,
        _ => WAY2,
    };
    // It sees all frames but those that it has sent itself.
    let link = PacketSocket::open(before, RIGHT)?;
    link.send(frame)?;
    let mut answer = link.receive(&MARK).context("the answer")?;
    if answer[ETHERNET_BYTES] >> 4 == 4 {
        // What is new each time: the identification, and with it the checksum.
        for at in [4, 5, 10, 11] {
            answer[ETHERNET_BYTES + at] = 0;
        }
    }
    Ok(answer)
}

fn local_sids() -> Result<()> {
    let _network = ready()?;
    // Back to the tunnel's source.
    topology::ip_in(
        WAY2,
        &format!("route add fd00:1::/64 via fd00:2::1 dev {LEFT}"),
    )?;
    let hop = link_local_hop().hop().context("no link-local next hop")?;
    topology::ip_in(
        WAY1,
        &format!(
            "neighbour add {WAY2_LINK_LOCAL} lladdr {} dev {RIGHT}
             route add {} via {WAY2_LINK_LOCAL} dev {RIGHT} table {HOPS_TABLE}",
            text(mac(2, 2)),
            hop.stands_for
        ),
    )?;
    compare_all(&roles())
}

fn vrf() -> Result<()> {
    let _network = ready()?;
    topology::ip_in(
        EGRESS,
        &format!("link add {VRF} type vrf table {VRF_TABLE}\nlink set {VRF} up"),
    )?;
    netns::within(EGRESS, || topology::sysctl("net/vrf/strict_mode", "1"))?;
    // A device that comes to a VRF is down for a moment, and loses what it had. Answers leave the VRF by the way that packets came.
    let neighbour = text(mac(4, 2));
    topology::ip_in(
        EGRESS,
        &format!(
            "link set {RIGHT} master {VRF}
             address replace fd00:4::1/64 dev {RIGHT} nodad
             address replace 10.9.4.1/24 dev {RIGHT}
             neighbour replace fd00:4::2 lladdr {neighbour} dev {RIGHT}
             neighbour replace 10.9.4.2 lladdr {neighbour} dev {RIGHT}
             route add fd00::/64 via fd00:3::1 dev {LEFT} table {VRF_TABLE}
             route add 10.9.0.0/24 via 10.9.3.1 dev {LEFT} onlink table {VRF_TABLE}"
        ),
    )?;
    compare_all(&vrf_roles())
}

/// Makes the domain, whose nodes answer each packet that they cannot forward.
fn ready() -> Result<Network> {
    let network = Network::up()?;
    topology::ip_in(INGRESS, &format!("sr tunsrc set {TUNNEL_SOURCE}"))?;
    for node in [WAY1, WAY2, EGRESS] {
        netns::within(node, || {
            topology::sysctl("net/ipv6/icmp/ratemask", "")?;
            topology::sysctl("net/ipv4/icmp_ratemask", "0")
        })?;
    }
    Ok(network)
}

fn compare_all(roles: &[Role]) -> Result<()> {
    for engine in [Engine::Compiled, Engine::TailCalls] {
        let mut hike = instance(engine)?;
        // The model says that both do the same.
        let step = if engine == Engine::Compiled { 1 } else { 4 };
        for role in roles.iter().step_by(step) {
            compare(role, &mut hike).with_context(|| {
                format!(
                    "{engine:?}, {} at {}: {}, {:?}",
                    role.behaviour, role.node, role.chain, role.shape
                )
            })?;
        }
    }
    Ok(())
}

fn compare(role: &Role, hike: &mut Hike) -> Result<()> {
    let wire = Wire::at(role.node)?;
    let replace = |route: String| topology::ip_in(role.node, &format!("route replace {route}"));
    // The kernel's behaviours write into what a socket has seen, so none is there while one looks.
    replace(format!("blackhole {}", role.sids))?;
    let into = wire.carry_into(role.shape).context("into the node")?;
    replace(format!(
        "{} encap seg6local action {} dev {}",
        role.sids, role.kernels, role.device
    ))?;
    let kernels = wire.carry_out(role.shape).context("out of the kernel")?;
    let exhausted = exhausted(role, &into)?;
    let kernels_answer = answer(role.node, &exhausted)?;

    let before = hike.reasons()?;
    let class = Class {
        chain: hike.add_chain(&role.chain.parse()?)?,
        path: None,
        lanes: None,
    };
    let behaviour = hike.add_behaviour(&role.behaviour)?;
    hike.set_local_sid(role.sids.parse()?, class, behaviour)?;
    attach(hike, role.node)?;
    let ours = wire.carry_out(role.shape).context("out of the programs")?;
    let our_answer = answer(role.node, &exhausted)?;
    ensure!(
        ours == kernels,
        "sent on\n{ours:02x?}\nand not\n{kernels:02x?}"
    );
    ensure!(
        our_answer == kernels_answer,
        "answered\n{our_answer:02x?}\nand not\n{kernels_answer:02x?}"
    );
    netns::within(role.node, || hike.detach(LEFT))?;
    let traffic = hike.traffic(behaviour)?;
    let expected = counted(role, into.len() - ETHERNET_BYTES);
    ensure!(
        traffic == expected,
        "of the SID {traffic:?} is counted, and not {expected:?}"
    );
    hike.remove_class(role.sids.parse()?)?;
    hike.remove_behaviour(behaviour)?;
    hike.remove_chain(class.chain)?;
    let after = hike.reasons()?;
    let counted = after.iter().zip(&before);
    let counted = counted.map(|((reason, after), (_, before))| (reason.name, after - before));
    let counted: Vec<(&str, u64)> = counted.filter(|(_, pkts)| *pkts > 0).collect();
    for once in [("forwarded", 1), ("fw-hop-limit", 1)] {
        ensure!(counted.contains(&once), "{counted:?} lacks {once:?}");
    }
    Ok(())
}

/// Returns what is counted of a packet of this length, and of the same with its hop limit run out: that is the SID's where the hop
/// limit is one inside of what `end` has taken off.
fn counted(role: &Role, bytes: usize) -> Traffic {
    let is_usd = matches!(role.behaviour, Behaviour::End { flavours } if flavours.usd);
    let pkts = if is_usd { 2 } else { 1 };
    Traffic {
        pkts,
        // CAST: some hundred.
        bytes: pkts * bytes as u64,
    }
}

/// Returns the frame with the hop limit, of what is to be forwarded, run out.
fn exhausted(role: &Role, into: &[u8]) -> Result<Vec<u8>> {
    let mut frame_out = into.to_vec();
    let inner_bytes = frame(role.shape, 0, 1)?.len() - ETHERNET_BYTES;
    let inner_at = into.len() - inner_bytes;
    if role.node != EGRESS {
        frame_out[ETHERNET_BYTES + HOP_LIMIT_AT] = 1;
    } else if role.shape.v6 {
        frame_out[inner_at + HOP_LIMIT_AT] = 1;
    } else {
        let exhausted = frame(role.shape, 0, 1)?;
        frame_out[inner_at..].copy_from_slice(&exhausted[ETHERNET_BYTES..]);
    }
    ensure!(
        inner_at >= ETHERNET_BYTES + IPV6_BYTES,
        "the packet has no outer header"
    );
    Ok(frame_out)
}
