// SPDX-License-Identifier: GPL-2.0

//! `sockperf` clients that send as fast as they can, at a fixed rate, or when they have an answer, and measure how long a message takes.

use std::thread;

use anyhow::{Context as _, Result};
use mflow_protocol::bench::{Case, End, Latency, Pace, Transport, PORT};

use super::{app_endpoint, counters, seconds, stack, window, AppEndpoint, SETTLE};
use crate::machine::command::{self, Program};
use crate::machine::{cpu, proc_net};
use crate::mflow;
use crate::network::topology::{Family, CLIENT};

/// Every this many messages of a client one is answered: few enough that the answers are no load of their own, and enough for a
/// 99th percentile.
const REPLY_EVERY_UDP: u32 = 100;
const REPLY_EVERY_TCP: u32 = 4;
const REPLY_EVERY_AT_A_RATE: u32 = 20;
/// So many packets show that messages arrive. Messages that wait for one another's answers are few in a second.
const FIRST_PKTS: u64 = 1000;
const FIRST_PKTS_IN_TURN: u64 = 100;
/// Room for what arrives while the application's CPU is away.
const SOCKET_BYTES: usize = 16 << 20;

/// The messages that the clients send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) transport: Transport,
    pub(super) clients: u16,
    pub(super) bytes: usize,
    pub(super) pace: Pace,
}

impl Messages {
    /// Returns the client's mode and its options for the pace.
    fn mode(&self) -> String {
        let (rate, every) = match (self.pace, self.transport) {
            // Its options are the defaults: no rate, and all is answered.
            (Pace::PingPong, _) => return "ping-pong".to_owned(),
            (Pace::FlatOut, Transport::Udp) => ("max".to_owned(), REPLY_EVERY_UDP),
            (Pace::FlatOut, Transport::Tcp) => ("max".to_owned(), REPLY_EVERY_TCP),
            (
                Pace::Rate {
                    msgs_per_s,
                    all_answered,
                },
                _,
            ) => {
                let every = if all_answered {
                    1
                } else {
                    REPLY_EVERY_AT_A_RATE
                };
                (msgs_per_s.to_string(), every)
            }
        };
        format!("under-load --mps {rate} --reply-every {every}")
    }
}

pub(super) fn measure(case: &Case, messages: Messages) -> Result<End> {
    let Messages {
        transport,
        clients,
        bytes,
        pace,
    } = messages;
    let first_pkts = match pace {
        Pace::PingPong => FIRST_PKTS_IN_TURN,
        Pace::FlatOut | Pace::Rate { .. } => FIRST_PKTS,
    };
    let mode = messages.mode();
    stack::prepare(&case.stack, "eth0")?;
    let AppEndpoint {
        namespace,
        address,
        mtu,
    } = app_endpoint(&case.stack);
    let tcp = match transport {
        Transport::Udp => "",
        Transport::Tcp => "--tcp",
    };
    let packets_per_datagram = Family::V4.frames(bytes, mtu) as u64;
    let counts = || match transport {
        Transport::Udp => counters::datagrams(namespace, packets_per_datagram),
        Transport::Tcp => counters::stream(counters::nic_packets),
    };
    let before = mflow::flows_split()?;
    // The address may still be that of a connection of the case before.
    let mut server = Program::start_heard(
        namespace,
        cpu::READER,
        &format!(
            "sockperf server {tcp} --uc-reuseaddr -i {address} -p {PORT} --buffer-size {SOCKET_BYTES}"
        ),
    )?;
    command::wait_until("the sockperf server listens", || {
        server.must_run()?;
        match transport {
            Transport::Udp => proc_net::is_bound(namespace, PORT),
            Transport::Tcp => proc_net::listens(namespace, PORT),
        }
    })?;
    let start = counts()?.packets;
    let mut programs = Vec::new();
    for sender in cpu::SENDERS.into_iter().cycle().take(usize::from(clients)) {
        // An answer must not wait until the sending thread gives up its CPU.
        programs.push(Program::start_heard(
            Some(CLIENT),
            sender,
            &format!(
                "sockperf {mode} {tcp} -i {address} -p {PORT} -m {bytes} -t {} --no-rdtsc --sender-affinity {sender} \
                 --receiver-affinity {}",
                seconds(case),
                cpu::CLIENT_NIC
            ),
        )?);
    }
    command::wait_until("messages arrive", || {
        programs.iter_mut().try_for_each(Program::must_run)?;
        Ok(counts()?.packets > start + first_pkts)
    })?;
    // Fragments have no ports from which the overlay could make one: those of all clients are one flow outside.
    let flows = match transport {
        Transport::Udp if packets_per_datagram > 1 => 1,
        Transport::Udp | Transport::Tcp => u64::from(clients),
    };
    stack::wait_split(&case.stack, flows, before)?;
    thread::sleep(SETTLE);
    window::measure(case, counts)?;
    programs.iter_mut().try_for_each(Program::must_run)?;
    let said = programs
        .into_iter()
        .map(Program::finish)
        .collect::<Result<Vec<_>>>()?;
    slowest(&said).map(|latency| End {
        latency: Some(latency),
    })
}

fn slowest(said: &[String]) -> Result<Latency> {
    let mut worst: Option<Latency> = None;
    for text in said {
        let (p50_us, p99_us) = (percentile(text, "50.000")?, percentile(text, "99.000")?);
        let so_far = worst.unwrap_or(Latency { p50_us, p99_us });
        worst = Some(Latency {
            p50_us: so_far.p50_us.max(p50_us),
            p99_us: so_far.p99_us.max(p99_us),
        });
    }
    worst.context("no sockperf client")
}

/// Reads the line `sockperf: ---> percentile 99.000 = 3675.399`.
fn percentile(said: &str, which: &str) -> Result<f64> {
    said.lines()
        .find_map(|line| {
            let (name, value) = line.split_once("---> percentile ")?.1.split_once('=')?;
            (name.trim() == which).then(|| value.trim().parse().ok())?
        })
        .with_context(|| format!("sockperf states no percentile {which}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(p99: &str, p50: &str) -> String {
        format!(
            "sockperf: Total 5978 observations; each percentile contains 59.78 observations\n\
             sockperf: ---> <MAX> observation = 3978.616\n\
             sockperf: ---> percentile 99.900 = 3930.273\n\
             sockperf: ---> percentile 99.000 = {p99}\n\
             sockperf: ---> percentile 50.000 =   {p50}\n"
        )
    }

    #[test]
    fn percentiles_are_those_of_the_slowest_client() {
        let latency =
            slowest(&[said("3675.399", "15.520"), said("900.5", "16.25")]).expect("percentiles");
        assert_eq!((latency.p50_us, latency.p99_us), (16.25, 3675.399));
        assert!(slowest(&[]).is_err());
    }

    #[test]
    fn a_client_without_observations_is_an_error() {
        let none = "sockperf: No valid observations found. Try tune parameters: --time/--mps/--reply-every\n";
        let error = slowest(&[none.to_owned()]).expect_err("nothing observed");
        assert!(error.to_string().contains("No valid observations"));
    }
}
