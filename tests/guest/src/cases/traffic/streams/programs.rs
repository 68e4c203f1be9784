// SPDX-License-Identifier: GPL-2.0

//! Programs that people measure and serve with.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

use crate::cases::{Case, Run};
use crate::machine::command::Program;
use crate::machine::{cpu, proc_net};
use crate::mflow::{self, Knobs, Stats};
use crate::network::netns;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::nginx;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::pattern;
use crate::traffic::tcp_counters::Counters;

const SECONDS: u64 = 3;
const IPERF_PORT: u16 = 5201;
const NGINX_PORT: u16 = 8080;
const FETCHED: &str = "/tmp/fetched";
const WEB: [&str; 2] = ["/usr/sbin/nginx", "/usr/bin/curl"];
/// The time that a program may take; some measure for a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

pub(in crate::cases) fn cases() -> Vec<Case> {
    let mut cases = vec![
        program(
            "iperf3",
            Run::Always,
            "iperf3 sends as fast as it can",
            iperf3,
        ),
        program(
            "sockperf",
            Run::Plain,
            "sockperf plays ping-pong over TCP without a wrong or missing answer",
            sockperf,
        ),
    ];
    // The guest has these if the host has, so that both list the same cases; this case alone is no reason to install a web
    // server.
    if WEB.iter().all(|program| Path::new(program).exists()) {
        cases.push(program(
            "nginx",
            Run::Plain,
            "curl in the container fetches a file from nginx, byte by byte the same",
            fetch,
        ));
    }
    cases
}

fn program(name: &str, when: Run, proves: &str, run: fn(&Rig) -> Result<()>) -> Case {
    Case::of_traffic(format!("tcp/programs/{name}"), proves, when, move |rig| {
        rig.prepare(&rig.streams(), &Knobs::default())?;
        let counters = Counters::read()?;
        let stats = Stats::read_if_loaded()?;
        let start = Instant::now();
        run(rig)?;
        ensure!(start.elapsed() < LIMIT, "it took too long");
        let outcome = Outcome {
            tcp: Counters::read()?.since(&counters),
            mflow: mflow::added_since(stats.as_ref())?,
            ..Outcome::default()
        };
        outcome.judge(|outcome| {
            outcome.require_quiet_tcp()?;
            if rig.splits() {
                outcome.require_no_deadline()?;
                let (split, carried) = (outcome.counter("flows_split")?, outcome.counter("lane_pkts")?);
                ensure!(
                    split > 0 && carried > 0,
                    "{split} flows were split and the lanes carried {carried} packets: nothing was shown"
                );
            }
            rig.settle()
        })
    })
}

fn serve(namespace: &str, cpu: usize, line: &str, port: u16) -> Result<Program> {
    let server = Program::start(Some(namespace), cpu, line)?;
    proc_net::until_listens(server, Some(namespace), port)
}

fn on_client(line: &str) -> Result<String> {
    netns::run(CLIENT, &format!("taskset -c {} {line}", cpu::SENDER))
}

/// Returns the number of bytes that a program moves: a number instead of a time, as a guest's CPUs may be away for most of any
/// time.
fn volume_bytes(rig: &Rig) -> u64 {
    rig.scale.tcp_bytes.min(64 << 20)
}

fn iperf3(rig: &Rig) -> Result<()> {
    let container = Family::V4.container();
    let _server = serve(
        CONTAINER,
        cpu::READER,
        &format!("iperf3 -s -p {IPERF_PORT}"),
        IPERF_PORT,
    )?;
    let report = on_client(&format!(
        "iperf3 -c {container} -p {IPERF_PORT} -n {} -J",
        volume_bytes(rig)
    ))?;
    let report: serde_json::Value = serde_json::from_str(&report).context("iperf3's report")?;
    let bytes = |end: &str| report["end"][end]["bytes"].as_u64().unwrap_or(0);
    let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
    // The report does not wait for what is still on its way.
    ensure!(
        sent >= volume_bytes(rig) && received > 0 && received <= sent,
        "iperf3 sent {sent} bytes and received {received}"
    );
    Ok(())
}

fn sockperf(_rig: &Rig) -> Result<()> {
    let container = Family::V4.container();
    let port = 11_111;
    let line = format!("sockperf server --tcp -i {container} -p {port}");
    let _server = serve(CONTAINER, cpu::READER, &line, port)?;
    let report = on_client(&format!(
        "sockperf ping-pong --tcp -i {container} -p {port} -t {SECONDS} -m 1024"
    ))?;
    let good = report.lines().any(|line| {
        line.contains(
            "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0",
        )
    });
    ensure!(good, "sockperf misses something:\n{report}");
    Ok(())
}

/// The server is at the client's end: what it serves comes into the container.
fn fetch(rig: &Rig) -> Result<()> {
    let mut content = vec![0; usize::try_from(volume_bytes(rig))?];
    pattern::fill(0, &mut content);
    let line = nginx::prepare(NGINX_PORT, &content)?;
    let _server = serve(CLIENT, cpu::SENDER, &line, NGINX_PORT)?;
    let before = mflow::flows_split()?;
    let (client, reader) = (Family::V4.client(), cpu::READER);
    let command =
        format!("taskset -c {reader} curl -sS -o {FETCHED} http://{client}:{NGINX_PORT}/file");
    // One transfer may be over before its flow is split.
    for _ in 0..10 {
        netns::run(CONTAINER, &command)?;
        let fetched = fs::read(FETCHED)?;
        ensure!(
            fetched.len() == content.len() && pattern::mismatch(0, &fetched).is_none(),
            "curl fetched {} of {} bytes, the first wrong one is {:?}",
            fetched.len(),
            content.len(),
            pattern::mismatch(0, &fetched)
        );
        if !rig.splits() || mflow::flows_split()? > before {
            break;
        }
    }
    fs::remove_file(FETCHED)?;
    nginx::remove_file()
}
