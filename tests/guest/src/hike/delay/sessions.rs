// SPDX-License-Identifier: GPL-2.0

//! The sessions of `hiked`: what it says of delay and loss, against a delay and a loss that are known.

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_hike::stamp::{Format, PORT};
use mflow_hike::{Class, Engine, Hike};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::answers_come;
use super::asker::Asker;
use crate::hike::manager::daemon::{Daemon, Place};
use crate::hike::network::{Network, INGRESS, LEFT, RIGHT, SRC};
use crate::hike::{instance, Case};
use crate::machine::command::wait_until;
use crate::machine::time_service::TimeService;
use crate::network::bpf::Xdp;
use crate::network::{netns, topology};

/// The delay of the queue between both hosts, on the way to the reflector.
const DELAY_NS: i64 = 60_000_000;
/// Answers of which the delay is looked at, and packets that are lost.
const ANSWERS: u64 = 30;
const LOST: u64 = 5;
/// The kernel's clocks for programs, packets and processes differ by a part of a tick at most.
const CLOCKS_NS: i64 = 1_000_000;

/// The error of the clock that a time service says.
const CLOCK_ERROR: Duration = Duration::from_millis(2);

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "stamp/delay",
            proves: "of a delay on the way to the reflector, hiked says that it is there, on this way and not on the way back; sessions that are not changed go on over transactions, and others begin again",
            run: |_| delay(),
        },
        Case {
            name: "stamp/loss",
            proves: "each test packet that a filter drops is lost and no other one, those that a queue doubles are answered twice, and what cannot be sent is told",
            run: |_| loss(),
        },
        Case {
            name: "stamp/stopped",
            proves: "an answer that has come in time is no loss, however late hiked reads it",
            run: |_| stopped(),
        },
        Case {
            name: "stamp/renumbered",
            proves: "sessions go on from another address when the one that the kernel has chosen is gone",
            run: |_| renumbered(),
        },
        Case {
            name: "stamp/clock",
            proves: "a reflector of hiked learns while it runs what a time service says of the clock, and by how much TAI is ahead",
            run: |_| clock(),
        },
    ]
}

fn configuration(more: &str) -> String {
    format!(
        r#"
[sessions]
six = {{ reflector = "fd00::2", interval-ms = 20, timeout-ms = 5000 }}
{more}
"#
    )
}

const FOUR: &str =
    "four = { reflector = \"10.9.0.2\", source = \"10.9.0.1\", interval-ms = 20, timeout-ms = 5000, dscp = 46 }";

/// Makes ingress a reflector, whose answers the other end of its link gets.
fn reflector() -> Result<(Hike, Xdp)> {
    let program = answers_come(SRC)?;
    let mut hike = instance(Engine::Compiled)?;
    let class = Class::of(hike.add_chain(&"reflect,send-back".parse()?)?);
    for address in ["fd00::2", "10.9.0.2"] {
        hike.set_class(address.parse()?, class)?;
    }
    netns::within(INGRESS, || hike.attach(LEFT))?;
    Ok((hike, program))
}

/// Returns what is said of a session.
fn session(daemon: &Daemon<'_>, name: &str) -> Result<Value> {
    let said = daemon.ask(&format!("sessions {name}"))?;
    let session = said.get(0).with_context(|| format!("no {name}: {said}"))?;
    Ok(session.clone())
}

fn number(value: &Value, words: &[&str]) -> Result<i64> {
    let found = words.iter().fold(value, |value, word| &value[word]);
    let number = found.as_i64();
    number.with_context(|| format!("no number {words:?} in {value}"))
}

fn count(session: &Value, what: &str) -> Result<u64> {
    Ok(number(session, &["counts", what])?.unsigned_abs())
}

/// Waits until a session has so many of something, and returns what is said of it then.
fn until(daemon: &Daemon<'_>, name: &str, what: &str, least: u64) -> Result<Value> {
    let mut said = Value::Null;
    wait_until(&format!("{name} has {least} {what}"), || {
        said = session(daemon, name)?;
        Ok(count(&said, what)? >= least)
    })
    .with_context(|| format!("{name} is {said}"))?;
    Ok(said)
}

fn delay() -> Result<()> {
    let _network = Network::up()?;
    let _reflector = reflector()?;
    let place = Place::new(SRC);
    let daemon = place.start()?;
    daemon.apply(&configuration(FOUR))?;
    for name in ["six", "four"] {
        let without = until(&daemon, name, "answered", ANSWERS)?;
        // Whatever the machine does meanwhile: some packet was fast.
        let min = number(&without, &["two_way", "min_ns"])?;
        ensure!(min < DELAY_NS, "without a delay it is {min} ns: {without}");
    }
    netns::run(
        SRC,
        &format!(
            "tc qdisc add dev {RIGHT} root netem delay {}us",
            DELAY_NS / 1_000
        ),
    )?;
    // A session that is changed begins again, so that all of its packets are delayed. The other one goes on.
    let before = count(&session(&daemon, "six")?, "sent")?;
    daemon.apply(&configuration(&FOUR.replace("dscp = 46", "dscp = 40")))?;
    let six = session(&daemon, "six")?;
    ensure!(
        count(&six, "sent")? >= before,
        "a session that was not changed has begun again: {six}"
    );
    let four = until(&daemon, "four", "answered", ANSWERS)?;
    for (way, word) in [("two_way", "both ways"), ("forward", "forward")] {
        let (min, max) = (
            number(&four, &[way, "min_ns"])?,
            number(&four, &[way, "max_ns"])?,
        );
        ensure!(
            min + CLOCKS_NS >= DELAY_NS && min < 2 * DELAY_NS && min <= max,
            "{word}, the delay is {min} to {max} ns: {four}"
        );
    }
    let back = number(&four, &["backward", "min_ns"])?;
    ensure!(
        (-CLOCKS_NS..DELAY_NS).contains(&back),
        "the delay back is {back} ns: {four}"
    );
    ensure!(
        count(&four, "refused")? == 0 && count(&four, "unmeasured")? == 0,
        "not all answers are good: {four}"
    );
    // The hop limit that no router has taken from.
    ensure!(number(&four, &["hop_limit"])? == 255, "{four}");
    let shown = daemon.show("sessions")?;
    ensure!(
        shown.lines().filter(|line| line.contains("four")).count() == 3,
        "a person sees {shown}"
    );
    daemon.apply("")?;
    ensure!(
        daemon.ask("sessions")? == Value::from(Vec::<Value>::new()),
        "sessions go on that are no more"
    );
    let said = daemon.refused("sessions six")?;
    ensure!(said == "hike: there is no session six", "it says {said}");
    daemon.stop()
}

/// The time for which a daemon is stopped, and that in which an answer has to come.
const STOPPED: Duration = Duration::from_secs(3);
const TIMEOUT_MS: u64 = 2_000;

fn stopped() -> Result<()> {
    let _network = Network::up()?;
    let _reflector = reflector()?;
    netns::run(
        SRC,
        &format!(
            "tc qdisc add dev {RIGHT} root netem delay {}us",
            DELAY_NS / 1_000
        ),
    )?;
    let place = Place::new(SRC);
    let daemon = place.start()?;
    let text = format!("timeout-ms = {TIMEOUT_MS}");
    daemon.apply(&configuration("").replace("timeout-ms = 5000", &text))?;
    until(&daemon, "six", "answered", ANSWERS)?;
    daemon.signal(Signal::SIGSTOP)?;
    thread::sleep(STOPPED);
    daemon.signal(Signal::SIGCONT)?;
    let before = count(&session(&daemon, "six")?, "answered")?;
    let said = until(&daemon, "six", "answered", before + ANSWERS)?;
    ensure!(
        count(&said, "lost")? == 0 && count(&said, "late")? == 0,
        "answers came in time, and were read later: {said}"
    );
    daemon.stop()
}

fn renumbered() -> Result<()> {
    let _network = Network::up()?;
    let _reflector = reflector()?;
    let place = Place::new(SRC);
    let daemon = place.start()?;
    daemon.apply(&configuration(
        "four = { reflector = \"10.9.0.2\", interval-ms = 20, timeout-ms = 500 }",
    ))?;
    for (name, before, after) in [
        ("six", "fd00::1/64", "fd00::11/64"),
        ("four", "10.9.0.1/24", "10.9.0.11/24"),
    ] {
        until(&daemon, name, "answered", ANSWERS)?;
        topology::ip_in(SRC, &format!("address del {before} dev {RIGHT}"))?;
        let nodad = if name == "six" { "nodad" } else { "" };
        topology::ip_in(SRC, &format!("address add {after} dev {RIGHT} {nodad}"))?;
        // Answers to the address before may still be on their way.
        let so_far = count(&session(&daemon, name)?, "answered")?;
        until(&daemon, name, "answered", so_far + 2 * ANSWERS)?;
    }
    daemon.stop()
}

fn clock() -> Result<()> {
    let _network = Network::up()?;
    let _program = answers_come(SRC)?;
    let place = Place::new(INGRESS);
    let _without = TimeService::says(0, CLOCK_ERROR)?;
    let daemon = place.start()?;
    daemon.apply(&format!(
        "devices = [\"{LEFT}\"]\n[chains]\nback = \"reflect,send-back\"\n[classes]\n\"fd00::2\" = {{ chain = \"back\" }}\n"
    ))?;
    let reflector = "fd00::2".parse()?;
    Asker::open(SRC, reflector, PORT)?.ask(Format::Ptp, 0)?;
    for tai_ahead_s in [37, 36] {
        let _service = TimeService::says(tai_ahead_s, CLOCK_ERROR)?;
        let mut last = Ok(());
        let told = wait_until("the reflector knows the offset of TAI", || {
            last = Asker::open(SRC, reflector, PORT)?.ask(Format::Ptp, 0);
            Ok(last.is_ok())
        });
        told.with_context(|| format!("ahead by {tai_ahead_s}: {last:?}"))?;
    }
    daemon.stop()
}

fn loss() -> Result<()> {
    let _network = Network::up()?;
    let _reflector = reflector()?;
    let place = Place::new(SRC);
    // Of IPv6, what goes to the port of reflectors.
    let to_reflectors = "match ip6 protocol 17 0xff match u16 862 0xffff at 42";
    for line in [
        format!("qdisc add dev {RIGHT} clsact"),
        format!("filter add dev {RIGHT} egress protocol ipv6 prio 1 u32 {to_reflectors} action pass random determ drop 4"),
    ] {
        netns::run(SRC, &format!("tc {line}"))?;
    }
    let daemon = place.start()?;
    let nowhere =
        "nowhere = { reflector = \"fd00::2\", source = \"fd00:77::1\", interval-ms = 20 }";
    let unheard =
        "unheard = { reflector = \"fd00::2\", port = 863, interval-ms = 20, timeout-ms = 200 }";
    let text = configuration(&format!("{nowhere}\n{unheard}"));
    daemon.apply(&text.replace("timeout-ms = 5000", "timeout-ms = 500"))?;
    for _ in 0..2 {
        until(&daemon, "six", "lost", LOST)?;
        // Each packet that was dropped is lost, or waits; each that is lost was dropped, unless its answer comes yet.
        let mut said = Value::Null;
        let mut seen = [0; 2];
        wait_until("packets that are lost are those that were dropped", || {
            seen[0] = dropped()?;
            said = session(&daemon, "six")?;
            seen[1] = dropped()?;
            let (lost, late) = (count(&said, "lost")?, count(&said, "late")?);
            let waiting = number(&said, &["waiting"])?.unsigned_abs();
            ensure!(
                count(&said, "sent")? == count(&said, "answered")? + lost + waiting,
                "not every packet has one fate: {said}"
            );
            Ok(lost <= seen[1] + late && seen[0] <= lost + waiting)
        })
        .with_context(|| format!("the filter had dropped {seen:?}: {said}"))?;
        let lost = count(&said, "lost")?;
        ensure!(count(&said, "answered")? > lost, "{said}");
    }
    // Nobody listens there, which the kernel of the other host says.
    let said = until(&daemon, "unheard", "lost", LOST)?;
    ensure!(count(&said, "answered")? == 0, "{said}");
    let said = until(&daemon, "nowhere", "unsent", 1)?;
    let trouble = said["trouble"].as_str().unwrap_or_default();
    ensure!(
        trouble.starts_with("cannot send from fd00:77::1: "),
        "of an address that this host has not, it says {said}"
    );
    let metrics = daemon.show("metrics")?;
    let line = "hike_session_packets_total{session=\"unheard\",fate=\"lost\"} ";
    let lost = metrics.lines().find_map(|one| one.strip_prefix(line));
    ensure!(
        lost.is_some_and(|lost| lost.parse::<u64>().is_ok_and(|lost| lost >= LOST)),
        "{lost:?} lost in {metrics}"
    );
    // What comes twice is answered twice, and counted once.
    netns::run(SRC, &format!("tc filter del dev {RIGHT} egress"))?;
    netns::run(
        SRC,
        &format!("tc qdisc add dev {RIGHT} root netem duplicate 100%"),
    )?;
    let said = until(&daemon, "six", "duplicates", LOST)?;
    ensure!(
        count(&said, "duplicates")? <= count(&said, "answered")? && count(&said, "refused")? == 0,
        "{said}"
    );
    daemon.stop()
}

/// Returns how many packets the filter has dropped.
fn dropped() -> Result<u64> {
    let said = netns::run(SRC, &format!("tc -s filter show dev {RIGHT} egress"))?;
    let counts = said.split("(dropped ").skip(1).map(|rest| {
        let count = rest.split(',').next().unwrap_or_default();
        count
            .parse::<u64>()
            .with_context(|| format!("tc says {said}"))
    });
    counts.sum()
}
