// SPDX-License-Identifier: GPL-2.0

//! Page pools, out of which drivers take the memory of receive buffers, as the kernel reports them (`netdev` netlink).

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::thread;

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use nix::sys::socket::{
    bind, recv, send, socket, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol,
    SockType,
};

use crate::machine::{command, cpu};

/// Kinds and flags of messages, from `linux/netlink.h`, `linux/genetlink.h` and `linux/netdev.h`.
const CONTROL: u16 = 0x10;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const PAGE_POOL_GET: u8 = 5;
const INFLIGHT: u16 = 4;
const DETACH_TIME: u16 = 6;

const HEAD: usize = 16;
const GENERIC_HEAD: usize = 4;
const ATTRIBUTE_HEAD: usize = 4;
const MOST_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePool {
    /// Pages that the pool has given out or keeps for the next time.
    pub(crate) inflight: u64,
    /// True if the pool's queue is gone, and the pool waits for its pages.
    pub(crate) detached: bool,
}

pub(crate) fn all() -> Result<Vec<PagePool>> {
    let mut name = b"netdev\0".to_vec();
    name.resize(name.len().next_multiple_of(4), 0);
    let mut request = Vec::new();
    // CAST: some bytes.
    request.extend((ATTRIBUTE_HEAD as u16 + 7).to_ne_bytes());
    request.extend(FAMILY_NAME.to_ne_bytes());
    request.extend(name);
    let family = ask(CONTROL, REQUEST, GET_FAMILY, &request)?;
    let family = family
        .first()
        .and_then(|attributes| attributes.get(&FAMILY_ID))
        .context("this kernel does not report page pools")?;
    let family = u16::try_from(number(family)?)?;
    let pool = |attributes: &Attributes| {
        let inflight = attributes.get(&INFLIGHT);
        Ok(PagePool {
            inflight: number(inflight.context("a page pool without a number of pages")?)?,
            detached: attributes.contains_key(&DETACH_TIME),
        })
    };
    ask(family, REQUEST | DUMP, PAGE_POOL_GET, &[])?
        .iter()
        .map(pool)
        .collect()
}

/// Waits until every pool whose queue is gone has all its pages back, and is gone, too.
pub(crate) fn wait_returned() -> Result<()> {
    let mut left = Vec::new();
    free_deferred()?;
    command::wait_until(
        "all page pools of closed queues have their pages back",
        || {
            left = all()?;
            left.retain(|pool| pool.detached);
            Ok(left.is_empty())
        },
    )
    // Sockets that have been closed, but not by their peers, may keep packets: the kernel counts them as orphans.
    .with_context(|| format!("{left:?}; {:?}", fs::read_to_string("/proc/net/sockstat")))
}

/// Makes every CPU free the packets that readers have left to it.
///
/// A TCP reader leaves a packet to the CPU that built it (`skb_attempt_defer_free()`), which frees it when it next receives. A
/// lane that no later flow uses keeps the last dozens of them, and their pages, for as long as it is idle.
pub(crate) fn free_deferred() -> Result<()> {
    for cpu in cpu::all_online() {
        let receive = move || -> Result<()> {
            cpu::pin(cpu)?;
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_read_timeout(Some(command::START))?;
            // The loopback device receives on the CPU that sends.
            socket.send_to(&[0], socket.local_addr()?)?;
            socket.recv(&mut [0])?;
            Ok(())
        };
        thread::scope(|scope| scope.spawn(receive).join())
            .map_err(|_| anyhow!("a thread on CPU {cpu} has panicked"))?
            .with_context(|| format!("cannot have CPU {cpu} receive a datagram"))?;
    }
    Ok(())
}

type Attributes = BTreeMap<u16, Vec<u8>>;

/// Sends a request and returns the attributes of each answer.
fn ask(kind: u16, flags: u16, command: u8, attributes: &[u8]) -> Result<Vec<Attributes>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkGeneric,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let length = HEAD + GENERIC_HEAD + attributes.len();
    let mut request = Vec::with_capacity(length);
    request.extend(u32::try_from(length)?.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend(attributes);
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answers = Vec::new();
    let mut buffer = vec![0; MOST_BYTES];
    loop {
        let count = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        let done = read(&buffer[..count], &mut answers)?;
        if done || flags & DUMP == 0 {
            return Ok(answers);
        }
    }
}

/// Reads messages; returns whether the last one was among them.
fn read(mut bytes: &[u8], answers: &mut Vec<Attributes>) -> Result<bool> {
    while bytes.len() >= HEAD {
        let length = usize::try_from(number(&bytes[..4])?)?;
        let kind = number(&bytes[4..6])?;
        ensure!(
            (HEAD..=bytes.len()).contains(&length),
            "a netlink message of {length} bytes among {}",
            bytes.len()
        );
        let body = &bytes[HEAD..length];
        match u16::try_from(kind)? {
            DONE => return Ok(true),
            ERROR => bail!("netlink refuses: {:?}", body.get(..4)),
            _ => answers.push(attributes(body.get(GENERIC_HEAD..).unwrap_or_default())?),
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(false)
}

fn attributes(mut bytes: &[u8]) -> Result<Attributes> {
    let mut found = Attributes::new();
    while bytes.len() >= ATTRIBUTE_HEAD {
        let length = usize::try_from(number(&bytes[..2])?)?;
        ensure!(
            (ATTRIBUTE_HEAD..=bytes.len()).contains(&length),
            "a netlink attribute of {length} bytes among {}",
            bytes.len()
        );
        let kind = u16::try_from(number(&bytes[2..4])?)?;
        found.insert(kind, bytes[ATTRIBUTE_HEAD..length].to_vec());
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(found)
}

/// Reads a number of two, four or eight bytes.
fn number(bytes: &[u8]) -> Result<u64> {
    Ok(match *bytes {
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => bail!("no number: {bytes:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_apart() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let message = |kind: u16, body: &[u8]| {
            let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(body);
            bytes
        };
        let pool = [
            vec![PAGE_POOL_GET, 1, 0, 0],
            attribute(INFLIGHT, &7_u32.to_ne_bytes()),
            attribute(9, b"odd"),
            attribute(DETACH_TIME, &5_u64.to_ne_bytes()),
        ]
        .concat();
        let mut answers = Vec::new();
        let bytes = [message(30, &pool), message(DONE, &[0; 4])].concat();
        assert!(read(&bytes, &mut answers).expect("good messages"));
        assert_eq!(answers.len(), 1);
        assert_eq!(number(&answers[0][&INFLIGHT]).expect("a number"), 7);
        assert_eq!(number(&answers[0][&DETACH_TIME]).expect("a number"), 5);
        assert!(read(&message(ERROR, &[1, 0, 0, 0]), &mut answers).is_err());
        assert!(read(&bytes[..40], &mut answers).is_err());
    }
}
