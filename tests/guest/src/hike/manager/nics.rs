// SPDX-License-Identifier: GPL-2.0

//! Two edge routers whose ports are NICs, and not veths: drivers of NICs send nothing for XDP unless they have a program themselves.
//!
//! ```text
//!   src ───── near ═══════════════ far ───── dst
//!   right   left  eth0   one   eth1  right  left
//!                        wire
//! ```
//!
//! Link n is `fd00:n::/64`, with 1 at its left end and 2 at its right. near puts packets into SRv6, and far takes them out.

use std::net::{Ipv6Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::{Class, Engine, Hike, Path};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};

use super::daemon::{Daemon, Place};
use crate::hike::network::{mac, make_router, text, DST, LEFT, RIGHT, SRC};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::machine::threads;
use crate::network::{netns, topology};

const NEAR: &str = "near";
const FAR: &str = "far";
const NODES: [&str; 4] = [SRC, NEAR, FAR, DST];
/// The NICs of near and far.
const NEAR_NIC: &str = "eth0";
const FAR_NIC: &str = "eth1";
/// The SID of far, and the source of tunnels.
const EXIT: Ipv6Addr = Ipv6Addr::new(0xfc00, 3, 0, 0, 0, 0, 0, 6);
const TUNNEL_SOURCE: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1);
const DST_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2);
const PORT: u16 = 9_003;
const PKTS: u64 = 1_000;
const PAYLOAD_BYTES: usize = 64;
/// The largest packet of jumbo frames, and a payload that is in several buffers of every driver.
const JUMBO_MTU: u32 = 9_000;
const JUMBO_BYTES: usize = 8_000;
const USUAL_MTU: u32 = 1_500;
/// The rest of the sender after every [`TOGETHER`] datagrams.
const REST: Duration = Duration::from_millis(2);
const TOGETHER: u64 = 4;
/// The time without a datagram after which none is expected any more.
const QUIET: Duration = Duration::from_secs(2);
/// Room for what comes while an emulated CPU is away.
const ROOM_BYTES: usize = 16 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "nics/edge",
            proves: "all packets arrive that an edge router sends by a NIC and another one receives by a NIC; nothing stays on the NICs when the daemons are gone",
            run: |_| edge(),
        },
        Case {
            name: "nics/jumbo",
            proves: "the same with packets that are in several buffers",
            run: |_| jumbo(),
        },
        Case {
            name: "nics/shared",
            proves: "instances that share a port go one after the other, and the last one still sends; a port may be a device of an instance meanwhile",
            run: |_| shared(),
        },
    ]
}

/// The nodes, until the end of the scope; then the NICs are back where they were.
struct Network(());

impl Network {
    fn up(mtu: u32) -> Result<Self> {
        let (near, far) = (topology::mac(NEAR_NIC)?, topology::mac(FAR_NIC)?);
        for node in NODES {
            netns::add(node)?;
        }
        let network = Self(());
        for node in NODES {
            make_router(node)?;
        }
        for (nic, node) in [(NEAR_NIC, NEAR), (FAR_NIC, FAR)] {
            topology::ip(&format!("link set {nic} netns {node}"))?;
        }
        for (link, left, right) in [(0, SRC, NEAR), (2, FAR, DST)] {
            topology::ip_in(
                left,
                &format!(
                    "link add {RIGHT} address {} mtu {mtu} type veth peer name {LEFT} netns {right} address {} mtu {mtu}",
                    text(mac(link, 1)),
                    text(mac(link, 2))
                ),
            )?;
        }
        let ends = [
            (SRC, RIGHT, 0, 1, text(mac(0, 2))),
            (NEAR, LEFT, 0, 2, text(mac(0, 1))),
            (NEAR, NEAR_NIC, 1, 1, far),
            (FAR, FAR_NIC, 1, 2, near),
            (FAR, RIGHT, 2, 1, text(mac(2, 2))),
            (DST, LEFT, 2, 2, text(mac(2, 1))),
        ];
        for (node, device, link, end, neighbour) in ends {
            let other = 3 - end;
            topology::ip_in(
                node,
                &format!(
                    "link set {device} mtu {mtu}
                     link set {device} up
                     address add fd00:{link}::{end}/64 dev {device} nodad
                     neighbour replace fd00:{link}::{other} lladdr {neighbour} dev {device}"
                ),
            )?;
        }
        // The kernel knows the same ways, for what is left to it.
        topology::ip_in(SRC, "route add ::/0 via fd00::2")?;
        topology::ip_in(NEAR, "route add ::/0 via fd00:1::2")?;
        topology::ip_in(
            FAR,
            &format!(
                "route add fd00::/64 via fd00:1::1
                 route add {EXIT} encap seg6local action End.DT6 table 254 dev {RIGHT}"
            ),
        )?;
        topology::ip_in(DST, "route add ::/0 via fd00:2::1")?;
        // What XDP redirects to a veth needs a NAPI at its other end, and frames whose checksums are there.
        netns::run(DST, &format!("ethtool -K {LEFT} gro on"))?;
        netns::run(SRC, &format!("ethtool -K {RIGHT} tx off"))?;
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The next case finds out if something is left.
        for (nic, node) in [(NEAR_NIC, NEAR), (FAR_NIC, FAR)] {
            let _back = topology::ip_in(
                node,
                &format!(
                    "link set {nic} down\nlink set {nic} mtu {USUAL_MTU}\nlink set {nic} netns 1"
                ),
            );
        }
        for node in NODES {
            let _gone = netns::delete(node);
        }
    }
}

/// Sends datagrams of this size from src, and returns how many arrive at dst.
fn pass(pkts: u64, bytes: usize) -> Result<u64> {
    let sink = netns::within(DST, || Ok(UdpSocket::bind((DST_V6, PORT))?))?;
    setsockopt(&sink, sockopt::RcvBufForce, &ROOM_BYTES)?;
    sink.set_read_timeout(Some(QUIET))?;
    thread::scope(|scope| {
        let receive = scope.spawn(|| {
            let (mut arrived, mut payload) = (0, vec![0; bytes + 1]);
            while arrived < pkts && sink.recv(&mut payload).is_ok_and(|got| got == bytes) {
                arrived += 1;
            }
            anyhow::Ok(arrived)
        });
        let sent = netns::within(SRC, || {
            let socket = UdpSocket::bind("[::]:0")?;
            socket.connect((DST_V6, PORT))?;
            let payload = vec![7; bytes];
            for number in 1..=pkts {
                socket.send(&payload)?;
                if number % TOGETHER == 0 {
                    thread::sleep(REST);
                }
            }
            Ok(())
        });
        let arrived = threads::result(receive.join());
        sent.and(arrived)
    })
}

/// Fails unless all of so many datagrams arrive, and each has been forwarded by what is counted.
fn pass_all(bytes: usize, counted: impl Fn() -> Result<u64>) -> Result<()> {
    let before = counted()?;
    let arrived = pass(PKTS, bytes)?;
    let forwarded = counted()? - before;
    ensure!(
        arrived == PKTS && forwarded == PKTS,
        "{PKTS} datagrams were sent, {arrived} arrived, and {forwarded} were counted as forwarded"
    );
    Ok(())
}

/// Returns the file of near, as README.md has one, for paths with this MTU.
fn near_file(mtu: u32) -> String {
    format!(
        r#"
devices = ["{LEFT}"]
ports = ["{NEAR_NIC}"]

[chains]
edge = "enc,mon-in,fw-fib"

[paths.berlin]
source = "{TUNNEL_SOURCE}"
sids = ["{EXIT}"]
mtu = {mtu}
flow-id = 1

[classes]
"fd00:2::/64" = {{ chain = "edge", path = "berlin" }}

[monitors]
berlin = {{ direction = "in", path = "berlin" }}
"#
    )
}

/// Returns that of far.
fn far_file() -> String {
    format!(
        r#"
devices = ["{FAR_NIC}"]
ports = ["{RIGHT}"]

[chains]
exit = "mon-out,dec"

[behaviours]
exit = {{ action = "End.DT46" }}

[classes]
"{EXIT}" = {{ chain = "exit", behaviour = "exit" }}
"#
    )
}

fn with_daemons(mtu: u32, work: impl FnOnce(&Daemon<'_>, &Daemon<'_>) -> Result<()>) -> Result<()> {
    let (near, far) = (Place::new(NEAR), Place::new(FAR));
    let (near_daemon, far_daemon) = (near.start()?, far.start()?);
    near_daemon.apply(&near_file(mtu)).context("at near")?;
    far_daemon.apply(&far_file()).context("at far")?;
    // A NIC that has got a program may begin again.
    settled()?;
    work(&near_daemon, &far_daemon)
}

/// Waits until both NICs have a carrier, and what is sent arrives.
fn settled() -> Result<()> {
    wait_until(
        "the NICs carry packets",
        || Ok(pass(1, PAYLOAD_BYTES)? == 1),
    )
}

fn edge() -> Result<()> {
    let _network = Network::up(USUAL_MTU)?;
    with_daemons(USUAL_MTU, |near, far| {
        pass_all(PAYLOAD_BYTES, || near.counted("forwarded")).context("near")?;
        pass_all(PAYLOAD_BYTES, || far.counted("forwarded")).context("far")
    })?;
    // The places of the daemons have ended, and with them all that was there.
    without_program(NEAR, NEAR_NIC)?;
    without_program(FAR, FAR_NIC)
}

fn jumbo() -> Result<()> {
    let _network = Network::up(JUMBO_MTU)?;
    with_daemons(JUMBO_MTU, |near, far| {
        pass_all(JUMBO_BYTES, || near.counted("forwarded")).context("near")?;
        pass_all(JUMBO_BYTES, || far.counted("forwarded")).context("far")?;
        pass_all(PAYLOAD_BYTES, || near.counted("forwarded")).context("small ones")
    })
}

/// Waits until a device has no program any more.
fn without_program(node: &str, device: &str) -> Result<()> {
    wait_until(&format!("the program of {device} is gone"), || {
        let said = netns::run(node, &format!("ip link show {device}"))?;
        Ok(!said.contains("prog/xdp"))
    })
}

/// Makes an instance at near send what is for dst by its NIC.
fn sender() -> Result<Hike> {
    let mut hike = instance(Engine::Compiled)?;
    let path = Path::new(TUNNEL_SOURCE, [EXIT]);
    let class = Class {
        path: Some(hike.add_path(&path)?),
        ..Class::of(hike.add_chain(&"enc,fw-fib".parse()?)?)
    };
    hike.set_class("fd00:2::/64".parse()?, class)?;
    netns::within(NEAR, || {
        hike.attach(LEFT)?;
        hike.add_port(if_nametoindex(NEAR_NIC)?)
    })?;
    Ok(hike)
}

fn forwarded(hike: &Hike) -> Result<u64> {
    let reasons = hike.reasons()?;
    let mut counts = reasons.iter();
    let count = counts.find(|(reason, _)| reason.name == "forwarded");
    Ok(count.context("no such reason")?.1)
}

fn shared() -> Result<()> {
    let _network = Network::up(USUAL_MTU)?;
    // It was there first, and does nothing but to have the port.
    let mut first = instance(Engine::Compiled)?;
    netns::within(NEAR, || first.add_port(if_nametoindex(NEAR_NIC)?))?;
    let mut hike = sender()?;
    settled()?;
    let all_pass = |hike: &Hike| pass_all(PAYLOAD_BYTES, || forwarded(hike));
    all_pass(&hike).context("two instances")?;
    drop(first);
    let said = netns::run(NEAR, &format!("ip link show {NEAR_NIC}"))?;
    ensure!(said.contains("prog/xdp"), "its program is gone: {said}");
    all_pass(&hike).context("the first one is gone")?;
    // As a device of an instance, the port has the instance's entry.
    netns::within(NEAR, || hike.attach(NEAR_NIC))?;
    settled()?;
    all_pass(&hike).context("the port is a device, too")?;
    netns::within(NEAR, || hike.detach(NEAR_NIC))?;
    settled()?;
    all_pass(&hike).context("the port is no device any more")?;
    drop(hike);
    without_program(NEAR, NEAR_NIC)
}
