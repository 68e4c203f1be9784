// SPDX-License-Identifier: GPL-2.0

//! Numbered datagrams through the domain. Each of them has to arrive, and to look behind ingress as a configuration makes it
//! look.

use std::net::{Ipv6Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::hike::network::{DST, DST_V6, LEFT, SRC, TUNNEL_SOURCE, WAY1};
use crate::machine::command::wait_until;
use crate::machine::threads;
use crate::network::netns;
use crate::network::packet_socket::PacketSocket;

const PORT: u16 = 9_001;
/// The time for which the sender rests after every [`TOGETHER`] datagrams.
const REST: Duration = Duration::from_millis(8);
const TOGETHER: u64 = 4;
/// The time without a datagram after which the receiver ends.
const QUIET: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
/// The size of the sockets' buffers: room for the packets that come while an emulated CPU is away.
const ROOM_BYTES: usize = 16 << 20;
/// The number of packets of a kind in a row after which no other kind is expected any more.
const ENOUGH: u64 = 20;

const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const SRH_LAST_ENTRY: usize = 4;
const UDP: u8 = 17;
const ROUTING: u8 = 43;

/// The properties that tell one configuration from another in each packet: its flow label, the number of SIDs in its SRH, the
/// last byte of its Ethernet source, and whether the lowest bit of DSCP may be set. Paths, chains, monitors and routes each have
/// a part in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) label: u32,
    pub(crate) sids: u8,
    pub(crate) source: u8,
    pub(crate) coloured: bool,
}

/// The looks that packets may have, the look that was seen last, and the number of times in a row that it was seen.
pub(crate) struct Seen {
    looks: Vec<Look>,
    run: Mutex<(Option<usize>, u64)>,
}

impl Seen {
    /// Waits until packets look like this, and like nothing else any more.
    pub(crate) fn only(&self, look: Look) -> Result<()> {
        let place = self.looks.iter().position(|one| *one == look);
        *self.run() = (None, 0);
        wait_until(&format!("packets look like {look:?}"), || {
            let run = *self.run();
            Ok(run.0 == place && run.1 >= ENOUGH)
        })
    }

    fn run(&self) -> std::sync::MutexGuard<'_, (Option<usize>, u64)> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, socket: &PacketSocket, stop: &AtomicBool) -> Result<()> {
        // ORDERING: Nothing else depends on it.
        while !stop.load(Ordering::Relaxed) {
            let Some(frame) = socket.next()? else {
                continue;
            };
            let place = match seen(&frame) {
                None => continue,
                Some((label, sids, source, coloured)) => {
                    let is_it = |look: &Look| {
                        (look.label, look.sids, look.source) == (label, sids, source)
                            && (look.coloured || !coloured)
                    };
                    let place = self.looks.iter().position(is_it);
                    if place.is_none() {
                        bail!("a packet is a mixture: label {label}, {sids} SIDs, source {source:#x}, coloured {coloured}");
                    }
                    place
                }
            };
            let mut run = self.run();
            *run = if run.0 == place {
                (place, run.1 + 1)
            } else {
                (place, 1)
            };
        }
        Ok(())
    }
}

/// Returns the label, the number of SIDs, the source and the colour of a packet of the stream, or `None` for another packet.
fn seen(frame: &[u8]) -> Option<(u32, u8, u8, bool)> {
    let ip6 = frame.get(ETHERNET_BYTES..)?;
    let address = |at: usize| <[u8; 16]>::try_from(ip6.get(at..at + 16)?).ok();
    if frame[12..14] != [0x86, 0xdd] {
        return None;
    }
    let (from, to) = (Ipv6Addr::from(address(8)?), Ipv6Addr::from(address(24)?));
    if from != TUNNEL_SOURCE {
        // It is as it was sent: nobody has put it into a tunnel.
        let is_of_the_stream = to == DST_V6 && ip6[6] == UDP;
        return is_of_the_stream.then_some((0, 0, 0, false));
    }
    // Packets that ingress itself sends have no routing header.
    if ip6[6] != ROUTING {
        return None;
    }
    let word = u32::from_be_bytes([ip6[0], ip6[1], ip6[2], ip6[3]]);
    let srh = ip6.get(IPV6_BYTES..IPV6_BYTES + 8)?;
    let coloured = word >> 20 & 4 != 0;
    Some((word & 0xfffff, srh[SRH_LAST_ENTRY] + 1, frame[11], coloured))
}

/// Runs `work` while datagrams are sent. Fails if one does not arrive once, or looks like none of `looks`. Returns the number of
/// datagrams, and the result of `work`.
pub(crate) fn under_traffic<T>(
    looks: &[Look],
    work: impl FnOnce(&Seen) -> Result<T>,
) -> Result<(u64, T)> {
    let seen = Seen {
        looks: looks.to_vec(),
        run: Mutex::new((None, 0)),
    };
    let socket = PacketSocket::open(WAY1, LEFT)?;
    socket.make_room(ROOM_BYTES)?;
    let sink = netns::within(DST, || Ok(UdpSocket::bind((DST_V6, PORT))?))?;
    setsockopt(&sink.as_fd(), sockopt::RcvBufForce, &ROOM_BYTES)?;
    sink.set_read_timeout(Some(LOOK))?;
    let run = |stop: &AtomicBool| {
        thread::scope(|scope| {
            let send = scope.spawn(|| netns::within(SRC, || send(stop)));
            let receive = scope.spawn(|| receive(&sink, stop));
            let watch = scope.spawn(|| seen.watch(&socket, stop));
            let sent = threads::result(send.join());
            let received = threads::result(receive.join());
            threads::result(watch.join())?;
            Ok((sent?, received?))
        })
    };
    let ((sent, received), done) = threads::beside(run, || work(&seen))?;
    let missing = received.iter().position(|&times| times != 1);
    // CAST: some thousands.
    ensure!(
        received.len() as u64 == sent && missing.is_none(),
        "{sent} datagrams were sent and {} arrived; the first that did not arrive once: {missing:?}",
        received.iter().filter(|&&times| times > 0).count()
    );
    Ok((sent, done))
}

fn send(stop: &AtomicBool) -> Result<u64> {
    let socket = UdpSocket::bind("[::]:0")?;
    socket.connect((DST_V6, PORT))?;
    let mut sent = 0u64;
    // ORDERING: Nothing else depends on it.
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..TOGETHER {
            socket.send(&sent.to_be_bytes())?;
            sent += 1;
        }
        thread::sleep(REST);
    }
    Ok(sent)
}

/// Returns how often each number has come.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> Result<Vec<u32>> {
    let mut times = Vec::new();
    let mut last = Instant::now();
    let mut number = [0; 8];
    // ORDERING: Nothing else depends on it.
    while !stop.load(Ordering::Relaxed) || last.elapsed() < QUIET {
        match socket.recv(&mut number) {
            Ok(bytes) => {
                ensure!(bytes == 8, "a datagram of {bytes} bytes");
                let number = usize::try_from(u64::from_be_bytes(number))?;
                if number >= times.len() {
                    times.resize(number + 1, 0);
                }
                times[number] += 1;
                last = Instant::now();
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(times)
}
