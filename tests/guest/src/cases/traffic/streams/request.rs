// SPDX-License-Identifier: GPL-2.0

//! Requests and answers over a connection whose packets go over several lanes: none waits for a batch to fill or for a
//! deadline.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

use crate::cases::{Case, Run};
use crate::machine::{cpu, threads};
use crate::mflow::{self, Knobs, Stats};
use crate::network::topology::Family;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::{self, Pair};

/// The bytes of what is to be answered, and of what is not.
const REQUEST: u8 = 1;
const BULK: u8 = 0;
const REQUEST_BYTES: usize = 128;
const REQUESTS: usize = 300;
/// The number of rounds, each without the module and with it; the best of each is compared, because the host has other work, too.
const ROUNDS: usize = 3;
/// Not answered: what makes the flow fast enough to be split.
const BULK_BYTES: usize = 256 << 10;
const SPLIT_LIMIT: Duration = Duration::from_secs(20);
/// The longest time that the median answer may take: this many times what it takes without the module, and this much more. A
/// batch or a deadline to wait for would add up to a second; the rest is the time that emulated CPUs need to find each other.
const MOST_TIMES: u32 = 2;
const MOST_MORE: Duration = Duration::from_millis(2);

pub(in crate::cases) fn cases() -> Vec<Case> {
    [256, 4096]
        .into_iter()
        .map(|batch_pkts| {
            Case::of_module(
                format!("tcp/request/batch-{batch_pkts}"),
                "a small request on a split flow is answered at once, however large the batches are",
                Run::Plain,
                move |rig| compare(rig, batch_pkts).map(Some),
            )
        })
        .collect()
}

fn compare(rig: &Rig, batch_pkts: u32) -> Result<Outcome> {
    let knobs = Knobs {
        batch_pkts,
        // Few requests a second are enough for the flow to stay split.
        min_flow_pps: 10,
        ..Knobs::default()
    };
    rig.prepare(&rig.streams(), &knobs)?;
    let (mut vanilla, mut split) = (Duration::MAX, Duration::MAX);
    let mut last = Outcome::default();
    for _ in 0..ROUNDS {
        mflow::unload()?;
        vanilla = vanilla.min(exchange(false)?.0);
        mflow::load(&knobs)?;
        let (median, outcome) = exchange(true)?;
        split = split.min(median);
        last = outcome.judge(|outcome| {
            outcome.require_no_deadline()?;
            let carried = outcome.counter("lane_pkts")?;
            ensure!(
                carried >= REQUESTS as u64 * 9 / 10,
                "the lanes carried {carried} packets of {REQUESTS} requests: the flow was not split any more"
            );
            rig.settle()
        })?;
    }
    let most = vanilla * MOST_TIMES + MOST_MORE;
    ensure!(
        split <= most,
        "half of the answers took more than {} us, {} us without the module",
        split.as_micros(),
        vanilla.as_micros()
    );
    Ok(last)
}

/// Returns the median time from request to answer.
fn exchange(wait_split: bool) -> Result<(Duration, Outcome)> {
    let before = mflow::flows_split()?;
    let Pair { client, server } = connection::connect(Family::V4)?;
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&server));
        let client = scope.spawn(|| {
            let client = client;
            ask(&client, wait_split.then_some(before))
        });
        let asked = threads::result(client.join());
        threads::result(server.join())?;
        asked
    })
}

fn serve(mut socket: &TcpStream) -> Result<()> {
    cpu::pin(cpu::READER)?;
    let mut buffer = vec![0; BULK_BYTES];
    loop {
        // The first byte of a message says what it is, and so how long it is.
        if socket.read(&mut buffer[..1]).context("no request")? == 0 {
            return Ok(());
        }
        let is_request = buffer[0] == REQUEST;
        let length = if is_request {
            REQUEST_BYTES
        } else {
            BULK_BYTES
        };
        socket
            .read_exact(&mut buffer[1..length])
            .context("half a request")?;
        if is_request {
            socket.write_all(&buffer[..REQUEST_BYTES])?;
        }
    }
}

fn ask(mut socket: &TcpStream, split_after: Option<u64>) -> Result<(Duration, Outcome)> {
    cpu::pin(cpu::SENDER)?;
    let bulk = vec![BULK; BULK_BYTES];
    let start = Instant::now();
    loop {
        socket.write_all(&bulk).context("cannot send")?;
        match split_after {
            None if start.elapsed() > Duration::from_millis(300) => break,
            Some(before) if mflow::flows_split()? > before => break,
            _ => {}
        }
        ensure!(
            start.elapsed() < SPLIT_LIMIT,
            "the flow was not split after {} s",
            SPLIT_LIMIT.as_secs()
        );
    }
    // The first answer comes after all of the bulk.
    let mut once = || -> Result<Duration> {
        let mut answer = [0; REQUEST_BYTES];
        let asked = Instant::now();
        socket.write_all(&[REQUEST; REQUEST_BYTES])?;
        socket.read_exact(&mut answer).context("no answer")?;
        let time = asked.elapsed();
        ensure!(answer == [REQUEST; REQUEST_BYTES], "a wrong answer");
        Ok(time)
    };
    once()?;
    let stats = Stats::read_if_loaded()?;
    let mut times = (0..REQUESTS)
        .map(|_| once())
        .collect::<Result<Vec<Duration>>>()?;
    times.sort_unstable();
    let longest_us = times.last().map_or(0, Duration::as_micros);
    let seconds: f64 = times.iter().map(Duration::as_secs_f64).sum();
    let outcome = Outcome {
        sent: REQUESTS as u64,
        delivered: REQUESTS as u64,
        // CAST: requests per second.
        offered_per_s: (REQUESTS as f64 / seconds) as u64,
        longest_wait_us: u64::try_from(longest_us)?,
        mflow: mflow::added_since(stats.as_ref())?,
        ..Outcome::default()
    };
    Ok((times[REQUESTS / 2], outcome))
}
