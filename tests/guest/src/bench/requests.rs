// SPDX-License-Identifier: GPL-2.0

//! Servers that people run in containers, each with a load generator that people run against it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Case, End, Latency, Server, PORT};

use super::{app_endpoint, counters, seconds, stack, window, AppEndpoint, SETTLE};
use crate::machine::command::{self, Program};
use crate::machine::{cpu, proc_net};
use crate::mflow;
use crate::network::netns;
use crate::network::topology::CLIENT;
use crate::traffic::nginx;

/// Objects each client of memcached sets before it begins, of 1,024: the least that the generator takes.
const OBJECTS: &str = "1k";

/// Measures a case: the server on the application's CPU, its clients on the sender's.
pub(super) fn measure(case: &Case, server: Server, clients: u16, bytes: usize) -> Result<End> {
    stack::prepare(&case.stack, "eth0")?;
    let AppEndpoint {
        namespace, address, ..
    } = app_endpoint(&case.stack);
    let address = SocketAddr::from((address, PORT));
    let before = mflow::flows_split()?;
    let (serve, ask) = match server {
        Server::Memcached => (
            format!("memcached -u root -l {} -p {PORT} -U 0 -t 1", address.ip()),
            format!(
                "memcaslap -s {address} -T 1 -c {clients} -w {OBJECTS} -X {bytes} -S 3600s -t {}s",
                seconds(case)
            ),
        ),
        Server::Nginx => {
            let ask = format!(
                "wrk --latency -t 1 -c {clients} -d {} http://{address}/file",
                seconds(case)
            );
            (nginx::prepare(PORT, &vec![b'x'; bytes])?, ask)
        }
    };
    let program = Program::start_heard(namespace, cpu::READER, &serve)?;
    let _running = proc_net::until_listens(program, namespace, PORT)?;
    let answered = || match namespace {
        Some(name) => netns::within(name, || served(server, address)),
        None => served(server, address),
    };
    let start = answered()?;
    let mut client = Program::start_heard(Some(CLIENT), cpu::SENDER, &ask)?;
    let begun = start + warming_up(server, clients);
    command::wait_until("requests are answered", || {
        client.must_run()?;
        Ok(answered()? > begun)
    })?;
    stack::wait_split(&case.stack, u64::from(clients), before)?;
    thread::sleep(SETTLE);
    window::measure(case, || counters::stream(answered))?;
    client.must_run()?;
    let said = client.finish()?;
    let latency = match server {
        Server::Memcached => memcaslap_latency(&said)?,
        Server::Nginx => wrk_latency(&said)?,
    };
    Ok(End {
        latency: Some(latency),
    })
}

/// Returns how many requests are not part of the load.
fn warming_up(server: Server, clients: u16) -> u64 {
    match server {
        Server::Memcached => u64::from(clients) * 1024,
        Server::Nginx => 0,
    }
}

fn served(server: Server, address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address).context("the server does not answer")?;
    let ask: &[u8] = match server {
        Server::Memcached => b"stats\r\nquit\r\n",
        Server::Nginx => b"GET /served HTTP/1.0\r\n\r\n",
    };
    stream.write_all(ask)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match server {
        Server::Memcached => memcached_served(&text),
        Server::Nginx => nginx_served(&text),
    }
}

/// Reads the lines `STAT cmd_get 231444` and `STAT cmd_set 25720`.
fn memcached_served(text: &str) -> Result<u64> {
    let stat = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name))
            .and_then(|value| value.trim().parse::<u64>().ok())
            .with_context(|| format!("memcached states no {name}: {text}"))
    };
    Ok(stat("cmd_get ")? + stat("cmd_set ")?)
}

/// Reads the line after `server accepts handled requests`: ` 3 3 5120`.
fn nginx_served(text: &str) -> Result<u64> {
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("server accepts handled requests"));
    lines
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(2)?.parse().ok())
        .with_context(|| format!("nginx states no number of requests: {text}"))
}

/// Reads the latencies of all requests, which are counted in classes: class 0 is up to 1 us, each next one up to twice as
/// long. What is returned is the end of the class that the percentile is in.
fn memcaslap_latency(said: &str) -> Result<Latency> {
    let total = said
        .split_once("Total Statistics (")
        .with_context(|| format!("memcaslap states no latencies: {said}"))?
        .1;
    let mut classes: Vec<u64> = Vec::new();
    for line in total
        .lines()
        .skip_while(|line| line.trim() != "Log2 Dist:")
        .skip(1)
    {
        let Some((first, counts)) = line.split_once(':') else {
            break;
        };
        let Ok(first) = first.trim().parse() else {
            break;
        };
        // Lines without a count are left out.
        classes.resize(first, 0);
        for count in counts.split_whitespace() {
            classes.push(count.parse().context("memcaslap's latencies")?);
        }
    }
    let all: u64 = classes.iter().sum();
    ensure!(all > 0, "memcaslap states no latencies: {said}");
    let end_of = |per_cent: u64| {
        let mut seen = 0;
        let class = classes.iter().position(|count| {
            seen += count;
            seen * 100 >= all * per_cent
        });
        // CAST: a class is a number of bits.
        2_f64.powi(class.unwrap_or(classes.len()) as i32)
    };
    Ok(Latency {
        p50_us: end_of(50),
        p99_us: end_of(99),
    })
}

/// Reads the lines `50%  1.02ms` and `99%  7.31ms`.
fn wrk_latency(said: &str) -> Result<Latency> {
    let part = |which: &str| {
        said.lines()
            .find_map(|line| microseconds(line.trim().strip_prefix(which)?.trim()))
            .with_context(|| format!("wrk states no latency of {which}: {said}"))
    };
    Ok(Latency {
        p50_us: part("50%")?,
        p99_us: part("99%")?,
    })
}

fn microseconds(text: &str) -> Option<f64> {
    // In this order: `us` and `ms` end in `s`.
    for (unit, factor) in [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.trim().parse::<f64>().ok()? * factor);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_say_how_much_they_have_served() {
        let stats =
            "STAT threads 1\r\nSTAT cmd_get 90\r\nSTAT cmd_set 10\r\nSTAT cmd_flush 7\r\nEND\r\n";
        assert_eq!(memcached_served(stats).expect("stated"), 100);
        assert!(memcached_served("ERROR\r\n").is_err());
        let status = "HTTP/1.1 200 OK\r\n\r\nActive connections: 1 \nserver accepts handled requests\n 3 4 5120 \nReading: 0\n";
        assert_eq!(nginx_served(status).expect("stated"), 5120);
        assert!(nginx_served("HTTP/1.1 404 Not Found\r\n\r\n").is_err());
    }

    #[test]
    fn wrk_states_latencies_in_any_unit() {
        let said = "  Latency Distribution\n     50%  812.00us\n     75%    1.02ms\n     90%  3.00ms\n     99%    1.20s \n";
        let latency = wrk_latency(said).expect("stated");
        assert_eq!(latency.p50_us, 812.0);
        assert!((latency.p99_us - 1_200_000.0).abs() < 1e-3);
        assert!(wrk_latency("unable to connect").is_err());
    }

    #[test]
    fn memcaslap_states_latencies_in_classes() {
        let said = "Set Statistics (5 events)\n   Log2 Dist:\n       0:        5        0        0        0\n\n\
                    Total Statistics (200 events)\n   Min:        17\n   Max:      4187\n   Log2 Dist:\n       \
                    4:        0      100       90        7\n       8:        2        1\n\ncmd_get: 180\n";
        let latency = memcaslap_latency(said).expect("stated");
        assert_eq!(latency.p50_us, 32.0);
        // 197 of 200 are up to class 7: the 198th is in class 8.
        assert_eq!(latency.p99_us, 256.0);
        assert!(memcaslap_latency("Total Statistics (0 events)\n").is_err());
    }
}
