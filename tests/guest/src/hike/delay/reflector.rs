// SPDX-License-Identifier: GPL-2.0

//! The reflector at one end of a link: which packets it answers, and which it leaves to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use anyhow::{ensure, Result};
use mflow_hike::stamp::{Format, PORT};
use mflow_hike::{Class, Engine, Hike};

use super::asker::Asker;
use crate::hike::network::{Network, INGRESS, LEFT, RIGHT, SRC, WAY1};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::network::netns;

/// Packets that are answered of each kind.
const PACKETS: u64 = 10;
/// The addresses of ingress on its left, and that of way1 there.
const OWN: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
];
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "stamp/reflector",
        proves: "test packets of IPv4 and IPv6 are answered with the times at which they came and left, in their own format; what is not for the reflector, too short, or from another reflector, the kernel gets as it is",
        run: |_| {
            reflector(Engine::Compiled)?;
            reflector(Engine::TailCalls)
        },
    }]
}

fn reflector(engine: Engine) -> Result<()> {
    let _network = Network::up()?;
    // What XDP sends to a veth needs a NAPI at its other end.
    netns::run(SRC, &format!("ethtool -K {RIGHT} gro on"))?;
    let mut hike = instance(engine)?;
    let class = Class::of(hike.add_chain(&"reflect,send-back".parse()?)?);
    for address in OWN.into_iter().chain([IpAddr::V6(OTHER)]) {
        hike.set_class(address.to_string().parse()?, class)?;
    }
    netns::within(INGRESS, || hike.attach(LEFT))?;
    let mut answered = 0;
    for address in OWN {
        let mut asker = Asker::open(SRC, address, PORT)?;
        for format in [Format::Ntp, Format::Ptp] {
            for _ in 0..PACKETS {
                asker.ask(format, 0)?;
            }
            answered += PACKETS;
        }
        refuses(&hike, address)?;
        // Answers to what was refused would have come first.
        asker.ask(Format::Ntp, 0)?;
        answered += 1;
    }
    let sent_back = counted(&hike, "sent-back")?;
    ensure!(
        sent_back == answered,
        "{sent_back} packets were sent back, and {answered} were answered"
    );
    leaves_others(&hike)
}

fn counted(hike: &Hike, name: &str) -> Result<u64> {
    let reasons = hike.reasons()?;
    let reason = reasons.iter().find(|(reason, _)| reason.name == name);
    Ok(reason.map_or(0, |(_, packets)| *packets))
}

/// Waits until a reason has had one packet more.
fn one_more(hike: &Hike, name: &str, what: &str, send: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = counted(hike, name)?;
    send()?;
    wait_until(what, || Ok(counted(hike, name)? > before))
}

/// Sends what is for nobody, is too short, or seems to come from a reflector.
fn refuses(hike: &Hike, address: IpAddr) -> Result<()> {
    let mut asker = Asker::open(SRC, address, PORT)?;
    let (_, bytes) = asker.question(Format::Ntp)?;
    let mut elsewhere = Asker::open(SRC, address, PORT + 1)?;
    let (_, other) = elsewhere.question(Format::Ntp)?;
    one_more(
        hike,
        "no-test",
        "a packet to another port is left alone",
        || elsewhere.send(&other),
    )?;
    one_more(
        hike,
        "test-refused",
        "a packet of 43 bytes is refused",
        || asker.send(&bytes[..43]),
    )?;
    let any = match address.is_ipv4() {
        true => IpAddr::from([0; 4]),
        false => IpAddr::from([0; 16]),
    };
    asker.socket = netns::within(SRC, || Ok(UdpSocket::bind((any, PORT))?))?;
    one_more(
        hike,
        "test-refused",
        "a packet of a reflector is refused",
        || asker.send(&bytes),
    )?;
    asker.socket.set_nonblocking(true)?;
    let mut came = [0; 128];
    ensure!(
        asker.socket.recv(&mut came).is_err(),
        "a reflector has answered another one"
    );
    Ok(())
}

/// Sends to a host behind the reflector, whose class leads there, too.
fn leaves_others(hike: &Hike) -> Result<()> {
    let behind = netns::within(WAY1, || Ok(UdpSocket::bind((OTHER, PORT))?))?;
    behind.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut asker = Asker::open(SRC, OTHER.into(), PORT)?;
    let (_, bytes) = asker.question(Format::Ptp)?;
    one_more(
        hike,
        "no-test",
        "a packet to another host is left alone",
        || asker.send(&bytes),
    )?;
    let mut came = [0; 128];
    let length = behind.recv(&mut came)?;
    ensure!(
        came.get(..length) == Some(&bytes[..]),
        "the host behind has got another packet"
    );
    Ok(())
}
