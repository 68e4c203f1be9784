// SPDX-License-Identifier: GPL-2.0

//! The kernel's own counters and sockets of one network namespace: `/proc/net`.

use std::fs;

use anyhow::{Context as _, Result};

use crate::machine::command::{self, Program};
use crate::network::netns;

/// The state in `/proc/net/tcp` of a socket that listens.
const LISTENS: &str = "0A";
/// The state of a socket whose connection has ended, in good order.
const HAS_ENDED: &str = "06";

/// Returns a counter such as `Udp` `InDatagrams` of a namespace, or of the caller's.
pub(crate) fn counter(namespace: Option<&str>, protocol: &str, name: &str) -> Result<u64> {
    find(&read(namespace, "snmp")?, protocol, name)
}

/// Returns a counter of IPv6 such as `Udp6InDatagrams` of a namespace, or of the caller's.
pub(crate) fn counter6(namespace: Option<&str>, name: &str) -> Result<u64> {
    let text = read(namespace, "snmp6")?;
    let mut counters = counters6(&text);
    let found = counters.find_map(|(found, count)| (found == name).then_some(count));
    found.with_context(|| format!("there is no counter {name}"))
}

pub(crate) fn listens(namespace: Option<&str>, port: u16) -> Result<bool> {
    Ok(is_listening(&read(namespace, "tcp")?, port)
        || is_listening(&read(namespace, "tcp6")?, port))
}

/// Waits until a server listens on a TCP port; fails if it ends before.
pub(crate) fn until_listens(
    mut server: Program,
    namespace: Option<&str>,
    port: u16,
) -> Result<Program> {
    command::wait_until("the server listens", || {
        server.must_run()?;
        listens(namespace, port)
    })?;
    Ok(server)
}

pub(crate) fn is_bound(namespace: Option<&str>, port: u16) -> Result<bool> {
    let table = read(namespace, "udp")?;
    let found = sockets(&table).any(|socket| socket.local == port);
    Ok(found)
}

/// Returns the state of every TCP connection of a namespace to this port that has not ended, as the kernel spells it.
pub(crate) fn open_towards(namespace: &str, port: u16) -> Result<Vec<String>> {
    let table = read(Some(namespace), "tcp")? + &read(Some(namespace), "tcp6")?;
    let open = sockets(&table).filter(|socket| socket.remote == port && socket.state != HAS_ENDED);
    Ok(open.map(|socket| socket.state.to_owned()).collect())
}

/// Returns how many sockets look at packets of a namespace, or of the caller's.
pub(crate) fn packet_sockets(namespace: Option<&str>) -> Result<usize> {
    Ok(read(namespace, "packet")?.lines().count())
}

/// The counters of a device of a namespace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) rx_pkts: u64,
    pub(crate) rx_fifo_errors: u64,
}

pub(crate) fn device(namespace: &str, name: &str) -> Result<Device> {
    let table = read(Some(namespace), "dev")?;
    parse_device(&table, name).with_context(|| format!("no device {name} in:\n{table}"))
}

/// Reads the line `gre1: BYTES PACKETS ERRORS DROPS FIFO ...`, where a name may be followed by no space.
fn parse_device(table: &str, name: &str) -> Option<Device> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(found, _)| found.trim() == name)?;
    let mut counts = counts.split_whitespace().skip(1);
    Some(Device {
        rx_pkts: counts.next()?.parse().ok()?,
        rx_fifo_errors: counts.nth(2)?.parse().ok()?,
    })
}

/// Reads a file of a namespace, or of the caller's.
pub(crate) fn read(namespace: Option<&str>, file: &str) -> Result<String> {
    let path = format!("/proc/thread-self/net/{file}");
    let read = || fs::read_to_string(&path).with_context(|| path.clone());
    match namespace {
        Some(name) => netns::within(name, read),
        None => read(),
    }
}

/// Returns the counters of a protocol by name: one line has the names, the next one the values.
///
/// A value that is no count is left out: one of them is a limit, and negative if there is none.
pub(crate) fn counters<'a>(
    text: &'a str,
    protocol: &str,
) -> Result<impl Iterator<Item = (&'a str, u64)>> {
    let prefix = format!("{protocol}: ");
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix.as_str()));
    let (names, values) = lines
        .next()
        .zip(lines.next())
        .with_context(|| format!("no lines {protocol} in:\n{text}"))?;
    let pairs = names.split(' ').zip(values.split(' '));
    Ok(pairs.filter_map(|(name, value)| Some((name, value.parse().ok()?))))
}

/// Returns the counters of IPv6 by name: each has a line.
pub(crate) fn counters6(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, count) = line.split_once(char::is_whitespace)?;
        Some((name, count.trim().parse().ok()?))
    })
}

fn find(text: &str, protocol: &str, name: &str) -> Result<u64> {
    counters(text, protocol)?
        .find_map(|(found, count)| (found == name).then_some(count))
        .with_context(|| format!("{protocol} has no counter {name}"))
}

fn is_listening(table: &str, port: u16) -> bool {
    sockets(table).any(|socket| socket.local == port && socket.state == LISTENS)
}

#[derive(Debug, PartialEq, Eq)]
struct Socket<'a> {
    local: u16,
    remote: u16,
    state: &'a str,
}

/// Returns the ports and the state of every socket: the second, third and fourth column.
fn sockets(table: &str) -> impl Iterator<Item = Socket<'_>> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip(1);
        Some(Socket {
            local: port(words.next()?)?,
            remote: port(words.next()?)?,
            state: words.next()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text =
            "Tcp: InSegs RetransSegs\nTcp: 7 5\nUdp: InDatagrams InErrors\nUdp: 12 3\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!(find(text, "Udp", "InErrors").expect("there"), 3);
        assert_eq!(find(text, "Tcp", "RetransSegs").expect("there"), 5);
        assert!(find(text, "Udp", "InSegs").is_err());
        assert!(find(text, "Icmp", "InMsgs").is_err());
    }

    #[test]
    fn what_a_device_has_counted_is_read() {
        let table = "Inter-|   Receive                    |  Transmit\n face |bytes packets errs drop fifo frame\n  \
                     eth0:1000 10 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n  gre1: 2000 20 3 2 1 0 0 0 9 1 0 0 0 0 0 0\n";
        let gre = Device {
            rx_pkts: 20,
            rx_fifo_errors: 1,
        };
        assert_eq!(parse_device(table, "gre1"), Some(gre));
        assert_eq!(parse_device(table, "gre"), None);
    }

    #[test]
    fn a_listening_socket_is_told_from_a_connected_one() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 0201000A:1389 00000000:0000 0A 00000000:00000000\n   \
                     1: 0201000A:138A 0101000A:D431 01 00000000:00000000\n";
        assert!(is_listening(table, 5001));
        assert!(!is_listening(table, 5002));
        assert!(!is_listening(table, 80));
        let connected = Socket {
            local: 5002,
            remote: 0xd431,
            state: "01",
        };
        assert_eq!(sockets(table).last(), Some(connected));
    }
}
