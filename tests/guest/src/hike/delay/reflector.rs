// SPDX-License-Identifier: GPL-2.0

//! The reflector at one end of a link: which packets it answers, and which it leaves to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, ensure, Result};
use aya::programs::{TestRun as _, TestRunOptions};
use etherparse::PacketBuilder;
use mflow_hike::limits::REFLECTED_AT_ONCE;
use mflow_hike::stamp::{Format, PORT};
use mflow_hike::{Class, Engine, Hike};

use super::answers_come;
use super::asker::Asker;
use crate::hike::model::stamp::{seconds, ANSWER_TIMES_AT};
use crate::hike::network::{Network, INGRESS, LEFT, SRC, SRC_V4, WAY1};
use crate::hike::{instance, Case, TEST_RUN_MAC};
use crate::machine::command::wait_until;
use crate::machine::time_service::TimeService;
use crate::network::netns;

/// Packets that are answered of each kind.
const PACKETS: u64 = 10;
/// The words of a time service about the clock: the offset of TAI that there is since 2017, and an error.
const TAI_AHEAD_S: u32 = 37;
const CLOCK_ERROR: Duration = Duration::from_micros(1_234);
/// Packets that a CPU answers at once, even if it has answered some just before.
// CAST: some thousand.
const LEAST_AT_ONCE: u64 = REFLECTED_AT_ONCE as u64 / 2;
/// The port of a service that sends back what it gets: RFC 862.
const ECHO_PORT: u16 = 7;
/// `enum xdp_action`.
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// The addresses of ingress on its left, and that of way1 there.
const OWN: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
];
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2);

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        name: "stamp/reflector",
        proves: "test packets of IPv4 and IPv6 are answered with the times at which they came and left, in their own format, and with the error of the clock; what is not for the reflector, too short, an answer, or too much, the kernel gets as it is",
        run: |_| {
            reflector(Engine::Compiled)?;
            reflector(Engine::TailCalls)
        },
    }]
}

fn reflector(engine: Engine) -> Result<()> {
    let _network = Network::up()?;
    let _program = answers_come(SRC)?;
    let mut hike = instance(engine)?;
    let class = Class::of(hike.add_chain(&"reflect,send-back".parse()?)?);
    for address in OWN.into_iter().chain([IpAddr::V6(OTHER)]) {
        hike.set_class(address.to_string().parse()?, class)?;
    }
    netns::within(INGRESS, || hike.attach(LEFT))?;
    let mut answered = 0;
    for address in OWN {
        let mut asker = Asker::open(SRC, address, PORT)?;
        for tai_ahead_s in [0, TAI_AHEAD_S] {
            let _service = TimeService::says(tai_ahead_s, CLOCK_ERROR)?;
            hike.tell_clock()?;
            asker.least_error = CLOCK_ERROR;
            for format in [Format::Ntp, Format::Ptp] {
                for _ in 0..PACKETS {
                    asker.ask(format, 0)?;
                }
                answered += PACKETS;
            }
        }
        asker.least_error = Duration::ZERO;
        hike.tell_clock()?;
        refuses(&hike, address)?;
        answered += refuses_answers(&hike, address)?;
        // Answers to what was refused would have come first.
        asker.ask(Format::Ntp, 0)?;
        answered += 1;
    }
    let sent_back = counted(&hike, "sent-back")?;
    ensure!(
        sent_back == answered,
        "{sent_back} packets were sent back, and {answered} were answered"
    );
    leaves_others(&hike)?;
    answers_some(&mut hike)
}

/// Sends what answers look like, from a port at which a reflector may be, or a service that sends all back. Returns how many were answered.
fn refuses_answers(hike: &Hike, address: IpAddr) -> Result<u64> {
    let mut asker = Asker::open(SRC, address, PORT)?;
    let any = match address.is_ipv4() {
        true => IpAddr::from([0; 4]),
        false => IpAddr::from([0; 16]),
    };
    asker.socket = netns::within(SRC, || Ok(UdpSocket::bind((any, ECHO_PORT))?))?;
    asker
        .socket
        .set_read_timeout(Some(Duration::from_secs(20)))?;
    let (_, question) = asker.question(Format::Ntp)?;
    for at in ANSWER_TIMES_AT {
        for s in seconds(SystemTime::now()) {
            let mut bytes = question.clone();
            bytes[at..at + 4].copy_from_slice(&s.to_be_bytes());
            one_more(hike, "test-refused", "an answer is refused", || {
                asker.send(&bytes)
            })?;
        }
    }
    // An hour ago is padding as good as any.
    let mut old = question.clone();
    let hour_ago = seconds(SystemTime::now() - Duration::from_secs(3_600))[0];
    old[ANSWER_TIMES_AT[0]..][..4].copy_from_slice(&hour_ago.to_be_bytes());
    let mut came = [0; 128];
    for bytes in [old, question] {
        asker.send(&bytes)?;
        let length = asker.socket.recv(&mut came)?;
        ensure!(length == bytes.len(), "{length} bytes were answered");
        // What the reflector has answered comes back to it.
        one_more(hike, "test-refused", "its own answer is refused", || {
            asker.send(&came[..length])
        })?;
    }
    asker.socket.set_nonblocking(true)?;
    ensure!(
        asker.socket.recv(&mut came).is_err(),
        "an answer was answered"
    );
    Ok(2)
}

/// Runs test packets through the reflector, one right behind the other, until a CPU has answered as many as it may, and then some more.
fn answers_some(hike: &mut Hike) -> Result<()> {
    let IpAddr::V4(own) = OWN[1] else {
        bail!("{} is of the other version", OWN[1]);
    };
    let (_, test) = Asker::open(SRC, OWN[1], PORT)?.question(Format::Ntp)?;
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], TEST_RUN_MAC)
        .ipv4(SRC_V4.octets(), own.octets(), 64)
        .udp(50_000, PORT)
        .write(&mut frame, &test)?;
    let mut out = vec![0; 256];
    let (mut passed, mut sent_back) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    while passed < PACKETS {
        ensure!(
            Instant::now() < until,
            "{sent_back} are answered, and all others, too"
        );
        let options = TestRunOptions {
            data_in: Some(&frame),
            data_out: Some(&mut out),
            ..TestRunOptions::default()
        };
        match hike.dispatcher()?.test_run(options)?.return_value {
            XDP_PASS => passed += 1,
            XDP_TX => sent_back += 1,
            other => bail!("the action is {other}"),
        }
    }
    let too_often = counted(hike, "test-too-often")?;
    ensure!(
        too_often == passed && sent_back >= LEAST_AT_ONCE,
        "{sent_back} are answered, {passed} are not, {too_often} of them as they come too often"
    );
    // After a rest it answers again.
    Asker::open(SRC, OWN[1], PORT)?.ask(Format::Ntp, 0)
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
