// SPDX-License-Identifier: GPL-2.0

//! The command `mflow`: what it says is what the module's files say, what it sets is set as a whole or not at all, and what it finds on
//! a host is what was planted there.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use serde_json::{json, Value};
use socket2::SockRef;

use crate::cases::operation::reasons::FlowLive as _;
use crate::cases::{Case, Run};
use crate::flows;
use crate::machine::terminal::Terminal;
use crate::machine::{command, cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;

/// The statuses with which the command ends.
pub(super) const DONE: i32 = 0;
const FOUND: i32 = 1;
const FAILED: i32 = 2;
const NOT_LOADED: i32 = 3;

/// The folder that a collector of metrics looks into.
const COLLECTED: &str = "/run/collected";
/// A file of settings, and the folder that a rule of udev looks into when a device comes.
const SETTINGS: &str = "/run/settings";
const EXPECTED: &str = "/run/mflow/devices";
/// The time after which a change that nobody confirms goes back: long enough for what a case does meanwhile.
const GOES_BACK_S: u64 = 5;
/// Between two datagrams that nobody reads.
const EVERY: Duration = Duration::from_micros(100);

pub(crate) fn cases() -> Vec<Case> {
    let without_traffic = |name: &str, proves: &str, run: fn() -> Result<()>| {
        Case::of_module(name, proves, Run::Plain, move |rig| {
            rig.prepare(&rig.datagrams(), &Knobs::default())?;
            run().map(|()| None)
        })
    };
    vec![
        Case::of_module(
            "command/traffic",
            "while a flow is split, status, flows, get and metrics say what the module's files say, and what set takes or refuses disturbs no packet",
            Run::Plain,
            traffic,
        ),
        without_traffic(
            "command/set",
            "set finds the order in which knobs go together; if one value is refused, all are as before, and the module's sentence says what is allowed",
            set,
        ),
        without_traffic(
            "command/confirm",
            "what set --confirm has set goes back unless it is confirmed, and stays if it is; nothing else is set meanwhile",
            confirm,
        ),
        without_traffic(
            "command/apply",
            "apply sets what a file says in an order in which knobs go together, and nothing if one value is refused; a device that comes later is expected, and can be opted in then",
            apply,
        ),
        without_traffic(
            "command/unloaded",
            "without the module the command says so, with a status of its own; metrics and diagnose work, and top waits for the module",
            unloaded,
        ),
        without_traffic(
            "command/diagnose",
            "diagnose finds nothing on a healthy host, and each of several causes that are planted",
            diagnose,
        ),
    ]
}

/// Runs the command, and returns its output, even if it fails.
fn run(words: &[&str]) -> Result<Output> {
    let output = Command::new("mflow").args(words).output();
    output.context("cannot run mflow")
}

/// Runs the command, which has to end with this status, and returns what it prints.
pub(super) fn ends(status: i32, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = run(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status),
        "mflow {line} has ended with {} instead of {status}: {said}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs the command with `--json`, which has to succeed, and returns what it prints.
pub(super) fn ask(line: &str) -> Result<Value> {
    let text = ends(DONE, &format!("--json {line}"))?;
    serde_json::from_str(&text).with_context(|| format!("mflow {line}: {text}"))
}

/// Runs the command, which has to fail with this status, and returns the one line that it says.
fn refused(status: i32, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = run(&words)?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(status) && said.lines().count() == 1,
        "mflow {line} has ended with {} and said: {said}",
        output.status
    );
    Ok(said.trim_end().to_owned())
}

/// Fails unless the command refuses a line with exactly these words.
pub(super) fn refuses(line: &str, expected: &str) -> Result<()> {
    let said = refused(FAILED, line)?;
    let expected = format!("mflow: {expected}");
    ensure!(
        said == expected,
        "mflow {line} says `{said}`, and not `{expected}`"
    );
    Ok(())
}

/// Fails unless a knob reads so.
fn reads(name: &str, expected: &str) -> Result<()> {
    let found = mflow::read(name)?;
    ensure!(
        found.trim_end() == expected,
        "{name} reads {found:?} instead of {expected:?}"
    );
    Ok(())
}

fn traffic(rig: &Rig) -> Result<Outcome> {
    let knobs = Knobs::default();
    rig.unnoticed(&rig.datagrams(), &knobs, |live| {
        let is_split = |flow: &flows::Flow| flow.text("state") == "split";
        let flow = live.wait_for_flow("the flow is split", is_split)?;
        check_status(&knobs)?;
        check_flows(&flow)?;
        check_knobs()?;
        check_metrics()?;
        let batch_pkts = knobs.batch_pkts.to_string();
        ends(DONE, "set batch_pkts 64")?;
        reads("batch_pkts", "64")?;
        refuses(
            "set batch_pkts 32 merge_timeout_us 5",
            "merge_timeout_us: allowed 10 to 1000000 microseconds; nothing was changed",
        )?;
        reads("batch_pkts", "64")?;
        let device = knobs.device;
        applies(&format!(
            "devices {device}\nbatch_pkts {batch_pkts}\nenabled 1\n"
        ))?;
        reads("batch_pkts", &batch_pkts)
    })
}

fn check_status(knobs: &Knobs) -> Result<()> {
    let status = ask("status")?;
    let lanes = cpu::lane_list(knobs.lanes);
    let way = if mflow::is_patched()? {
        "patched"
    } else {
        "stock"
    };
    for (place, expected) in [
        ("/loaded", json!(true)),
        ("/note", json!(null)),
        ("/version/way", json!(way)),
        ("/enabled", json!(true)),
        ("/mode", json!(knobs.mode)),
        ("/devices", json!([knobs.device])),
        ("/cpus", json!(lanes)),
        ("/lanes", json!(lanes)),
        ("/flows/split", json!(1)),
        ("/packets/late_pkts", json!(0)),
        ("/packets/dropped_pkts", json!(0)),
    ] {
        let found = status.pointer(place);
        ensure!(
            found == Some(&expected),
            "{place} of mflow status is {found:?}, not {expected}: {status}"
        );
    }
    let merged = status.pointer("/packets/merged_pkts");
    ensure!(
        merged.and_then(Value::as_u64).is_some_and(|pkts| pkts > 0),
        "nothing was delivered in turn: {status}"
    );
    let text = ends(DONE, "status")?;
    ensure!(
        text.contains("splitting  on, mode mflow") && text.contains(&lanes),
        "mflow status says: {text}"
    );
    Ok(())
}

fn check_flows(flow: &flows::Flow) -> Result<()> {
    let listed = ask("flows")?;
    let from = flow.text("from");
    let all = listed["flows"].as_array().context("no list")?;
    let found = all.iter().find(|one| one["from"] == from);
    let found = found.with_context(|| format!("no flow is from {from}: {listed}"))?;
    for key in ["device", "proto", "to", "state"] {
        ensure!(
            found[key] == flow.text(key),
            "{key} is {} and not {}",
            found[key],
            flow.text(key)
        );
    }
    ensure!(
        found["slot"].as_u64() == flow.number("slot") && found["why"].is_null(),
        "the flow has another slot: {found}"
    );
    let text = ends(DONE, "flows")?;
    let line = text.lines().find(|line| line.contains(from));
    ensure!(
        line.is_some_and(|line| line.contains(" split ")) && text.starts_with("device "),
        "mflow flows says: {text}"
    );
    Ok(())
}

fn check_knobs() -> Result<()> {
    let values = ask("get")?;
    let values = values.as_array().context("no list")?;
    ensure!(values.len() > 10, "there are few knobs: {values:?}");
    for one in values {
        let name = one["name"].as_str().context("no name")?;
        reads(name, one["value"].as_str().context("no value")?)?;
    }
    let cpus = ends(DONE, "get cpus")?;
    ensure!(cpus == mflow::read("cpus")?, "mflow get cpus says {cpus:?}");
    refuses("get speed", "there is no knob speed; there are enabled, cpus, batch_pkts, merge_timeout_us, min_flow_pps, scaling, build, join, layout, mode, stages, load_threshold_pct, devices")
}

fn check_metrics() -> Result<()> {
    let sample = |text: &str, name: &str| -> Result<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(of, _)| *of == name);
        let (_, value) = found.with_context(|| format!("no sample {name}: {text}"))?;
        Ok(value.parse()?)
    };
    let counted = || -> Result<u64> { Stats::read()?.get("merged_pkts") };
    fs::create_dir_all(COLLECTED)?;
    let file = Path::new(COLLECTED).join("mflow.prom");
    let before = counted()?;
    let text = ends(DONE, "metrics")?;
    ends(DONE, &format!("metrics --file {}", file.display()))?;
    let after = counted()?;
    let written = fs::read_to_string(&file)?;
    let numbers = [
        before,
        sample(&text, "mflow_merged_pkts_total")?,
        sample(&written, "mflow_merged_pkts_total")?,
        after,
    ];
    ensure!(
        numbers.is_sorted() && before > 0,
        "the counter and its samples, one after the other: {numbers:?}"
    );
    ensure!(
        sample(&written, "mflow_loaded")? == 1 && sample(&written, "mflow_flows_now_split")? == 1,
        "the file has: {written}"
    );
    ensure!(
        text.ends_with("# EOF\n") && written.contains("# TYPE mflow_merged_pkts_total counter\n"),
        "the texts have other forms"
    );
    let files = fs::read_dir(COLLECTED)?.count();
    fs::remove_dir_all(COLLECTED)?;
    ensure!(files == 1, "{files} files are where one was written");
    Ok(())
}

fn set() -> Result<()> {
    // A layout with pairs of CPUs goes with no threshold only, which has to be written first.
    ends(DONE, "set load_threshold_pct 85 build auto")?;
    ends(DONE, "set layout lane+stage load_threshold_pct 0 cpus 2-5")?;
    reads("layout", "lane+stage")?;
    let before = ask("get")?;
    for (line, expected) in [
        (
            "set batch_pkts 64 min_flow_pps 0",
            "min_flow_pps: allowed 1 to 10000000 packets per second",
        ),
        (
            "set batch_pkts 64 load_threshold_pct 85",
            "layout lane+stage goes with load_threshold_pct 0 only",
        ),
        (
            "set enabled 0 devices -eth0 devices +nosuch0",
            "devices: there is no nosuch0 here to add or remove",
        ),
        ("set cpus 2-3 join yes", "join: allowed 0 (off) or 1 (on)"),
    ] {
        refuses(line, &format!("{expected}; nothing was changed"))?;
        let after = ask("get")?;
        ensure!(after == before, "after {line}: {after}, before: {before}");
    }
    let absent = cpu::online().to_string();
    // Two, as the layout takes an even number.
    let said = refused(FAILED, &format!("set batch_pkts 64 cpus 2,{absent}"))?;
    ensure!(
        said.contains("online CPUs") && said.ends_with("; nothing was changed"),
        "a CPU that is not there is refused with: {said}"
    );
    refuses(
        "set speed 1 enabled",
        "there is no knob speed; there are enabled, cpus, batch_pkts, merge_timeout_us, min_flow_pps, scaling, build, join, layout, mode, stages, load_threshold_pct, devices",
    )?;
    ensure!(
        ask("get")? == before,
        "refused words have changed something"
    );
    // The threshold comes after the layout now.
    ends(DONE, "set load_threshold_pct 85 layout lane cpus 2-4")?;
    reads("load_threshold_pct", "85")?;
    ends(DONE, "set devices -eth0")?;
    reads("devices", "")?;
    ends(DONE, "set devices eth0,veth0")?;
    let devices = mflow::read("devices")?;
    ensure!(
        devices.lines().count() == 2 && devices.contains("veth0"),
        "the devices are {devices:?}"
    );
    let output = run(&["set", "cpus", ""])?;
    ensure!(output.status.success(), "no lanes are refused: {output:?}");
    reads("cpus", "")
}

fn confirm() -> Result<()> {
    reads("batch_pkts", "256")?;
    ends(
        DONE,
        &format!("set batch_pkts 64 min_flow_pps 500 --confirm {GOES_BACK_S}"),
    )?;
    reads("batch_pkts", "64")?;
    refuses(
        "set batch_pkts 32",
        "the last change waits for `mflow confirm`, or for its time to be over; nothing was changed",
    )?;
    command::wait_until("an unconfirmed change has gone back", || {
        Ok(mflow::read("batch_pkts")?.trim() == "256"
            && mflow::read("min_flow_pps")?.trim() != "500")
    })?;
    command::wait_until("another change is taken", || {
        Ok(run(&["set", "batch_pkts", "128", "--confirm", "2"])?
            .status
            .success())
    })?;
    ends(DONE, "confirm")?;
    thread::sleep(Duration::from_secs(3));
    reads("batch_pkts", "128")?;
    refuses("confirm", "no change waits for a confirmation")?;
    // What is refused does not go back later.
    refused(FAILED, "set batch_pkts 0 --confirm 2")?;
    refuses("confirm", "no change waits for a confirmation")
}

/// Applies a file with this text, which has to be taken, and returns what the command prints.
fn applies(text: &str) -> Result<String> {
    fs::write(SETTINGS, text)?;
    ends(DONE, &format!("apply {SETTINGS}"))
}

fn apply() -> Result<()> {
    ends(DONE, "set load_threshold_pct 85 build auto")?;
    reads("devices", "eth0")?;
    let before = ask("get")?;
    let absent = cpu::online().to_string();
    for (text, begin, end) in [
        (
            "batch_pkts 64\nspeed 1".to_owned(),
            "line 2: there is no knob speed",
            "devices",
        ),
        (
            format!("devices later0\nbatch_pkts 64\ncpus 2,{absent}"),
            "cpus: ",
            "; nothing was changed",
        ),
    ] {
        fs::write(SETTINGS, &text)?;
        let said = refused(FAILED, &format!("apply {SETTINGS}"))?;
        ensure!(
            said.starts_with(&format!("mflow: {SETTINGS}: {begin}")) && said.ends_with(end),
            "{text:?} is refused with: {said}"
        );
        let after = ask("get")?;
        ensure!(after == before, "after {text:?}: {after}, before: {before}");
        ensure!(!is_expected("later0"), "a refused file has its device");
    }
    let text = "# pairs of CPUs\nenabled = 1\nlayout = lane+stage\nload_threshold_pct 0\n\
                cpus 2-5\ndevices eth0, later0  # one comes later\n";
    applies(text)?;
    reads("layout", "lane+stage")?;
    reads("devices", "eth0")?;
    let said = applies(text)?;
    ensure!(
        said == "later0 is not here; its flows are split when it comes\n",
        "what is so already is written again: {said}"
    );
    command::run("ip link add later0 type veth peer name later1")?;
    ensure!(is_expected("later0"), "nobody waits for later0");
    ends(DONE, "set devices +later0")?;
    reads("devices", "eth0\nlater0")?;
    command::run("ip link del later0")?;
    reads("devices", "eth0")?;
    applies("devices =")?;
    reads("devices", "")?;
    ensure!(!is_expected("eth0"), "a device is expected that went");
    fs::remove_file(SETTINGS)?;
    Ok(())
}

fn is_expected(device: &str) -> bool {
    Path::new(EXPECTED).join(device).exists()
}

fn unloaded() -> Result<()> {
    unload_under_top()?;
    fs::write(SETTINGS, "enabled 1\n")?;
    let text = ends(NOT_LOADED, "status")?;
    ensure!(
        text.starts_with("the module mflow is not loaded; load it: modprobe mflow"),
        "mflow status says: {text}"
    );
    let apply = format!("apply {SETTINGS}");
    let text = ends(NOT_LOADED, "top --once --interval 0.2")?;
    ensure!(
        text.starts_with("the module mflow is not loaded") && text.contains("softirq"),
        "mflow top says: {text}"
    );
    for line in ["flows", "get", "set enabled 1", "confirm", &apply] {
        let said = refused(NOT_LOADED, line)?;
        ensure!(said.contains("is not loaded"), "mflow {line} says: {said}");
    }
    let text = ends(DONE, "metrics")?;
    ensure!(
        text.lines().any(|line| line == "mflow_loaded 0"),
        "mflow metrics prints: {text}"
    );
    wait_healthy()
}

/// Unloads the module, loads it, and unloads it again, while a terminal shows it.
fn unload_under_top() -> Result<()> {
    let mut terminal = Terminal::start("mflow top --interval 0.2")?;
    let is_loaded = |screen: &str| screen.starts_with("loaded, version");
    terminal.wait_for("the module is loaded", is_loaded)?;
    mflow::unload()?;
    let is_unloaded = |screen: &str| {
        screen.starts_with("the module mflow is not loaded") && screen.contains("waited for")
    };
    terminal.wait_for("the module is not loaded", is_unloaded)?;
    mflow::load_idle(&Knobs::default())?;
    terminal.wait_for("the module is loaded again", is_loaded)?;
    mflow::unload()?;
    terminal.wait_for("the module is not loaded again", is_unloaded)?;
    terminal.keys("\u{3}")?;
    terminal.require_left()
}

/// Waits until nothing is found: what a case has just done may still be in counters and lists.
fn wait_healthy() -> Result<()> {
    let mut said = Value::Null;
    command::wait_until("diagnose finds nothing", || {
        said = look()?.1;
        Ok(said["healthy"] == true)
    })
    .with_context(|| said.to_string())
}

/// Returns the status with which `diagnose` ends, and what it says.
fn look() -> Result<(i32, Value)> {
    let output = run(&["diagnose", "--json", "--seconds", "1"])?;
    let status = output.status.code().context("it was killed")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = serde_json::from_slice(&output.stdout).context(said)?;
    Ok((status, found))
}

/// Fails unless `diagnose` finds this cause, and says so with its status.
fn finds(cause: &str) -> Result<()> {
    let (status, said) = look()?;
    let findings = said["findings"].as_array().context("no list")?;
    ensure!(
        status == FOUND && findings.iter().any(|one| one["cause"] == cause),
        "{cause} is not found, and diagnose ends with {status}: {said}"
    );
    Ok(())
}

/// Causes, with the command lines that plant and remove each.
const PLANTED: &[(&str, &str, &str)] = &[
    (
        "mtu_of_tunnel",
        "ip link set eth0 mtu 1400",
        "ip link set eth0 mtu 1500",
    ),
    (
        "mtu_of_ports",
        "ip link set veth0 mtu 1500",
        "ip link set veth0 mtu 1450",
    ),
    (
        "tunnel_checksum_off",
        "ethtool -K vxlan0 tx-checksum-ip-generic off",
        "ethtool -K vxlan0 tx-checksum-ip-generic on",
    ),
    (
        "no_devices",
        "mflow set devices -eth0",
        "mflow set devices +eth0",
    ),
];

fn diagnose() -> Result<()> {
    wait_healthy()?;
    for &(cause, plant, remove) in PLANTED {
        command::run(plant)?;
        let found = finds(cause);
        command::run(remove)?;
        found?;
        wait_healthy().with_context(|| format!("after {cause}"))?;
    }
    let steering = "/sys/class/net/vxlan0/queues/rx-0/rps_cpus";
    fs::write(steering, cpu::LANE_MASK)?;
    let found = finds("rps_under_splitting");
    fs::write(steering, "0")?;
    found?;
    threads::beside(send_unread, || finds("socket_drops"))?;
    wait_healthy()
}

/// Sends datagrams to a socket that nobody reads, whose buffer is full soon.
fn send_unread(stop: &AtomicBool) -> Result<()> {
    let unread = UdpSocket::bind("127.0.0.1:0")?;
    SockRef::from(&unread).set_recv_buffer_size(1)?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    while !stop.load(Ordering::Relaxed) {
        sender.send_to(&[0; 1000], unread.local_addr()?)?;
        thread::sleep(EVERY);
    }
    Ok(())
}
