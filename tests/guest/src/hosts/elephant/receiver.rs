// SPDX-License-Identifier: GPL-2.0

//! The receiver of an elephant, and its view of each datagram: the socket that got it, the sender, the destination, and the marks
//! in its header.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::datagram::{self, Head, MIN_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{sockaddr_in, sockaddr_in6, timespec};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sys::socket::{
    recvmmsg, setsockopt, sockopt, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg,
    SockaddrIn, SockaddrIn6, SockaddrStorage,
};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, ClockId};

use crate::machine::cpu_absence::NoRoom;
use crate::machine::sockopt as more_sockopt;
use crate::machine::{command, cpu, threads};
use crate::traffic::datagrams::ledger::Ledger;

const BATCH: usize = 64;
const POLL_MS: u16 = 20;
/// One in this many datagrams may find no room in its socket.
const MOST_REFUSED: u64 = 20;
/// Ports from here on are the kernel's choice, another one each time.
const FIRST_EPHEMERAL: u16 = 32_768;

/// The number that rules write into datagrams of the first flow. No case has this many flows.
pub(in crate::hosts) const WRITTEN: u16 = 0xabcd;

/// The view that a receiver has of a datagram beside its bytes. All datagrams of a flow that look alike are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hosts) struct Look {
    /// The place of the socket that got it.
    pub(in crate::hosts) socket: usize,
    pub(in crate::hosts) flow: u16,
    pub(in crate::hosts) from: IpAddr,
    /// 0: one that the kernel has chosen.
    pub(in crate::hosts) from_port: u16,
    pub(in crate::hosts) to: Option<SocketAddr>,
    /// DSCP and ECN.
    pub(in crate::hosts) tos: Option<u8>,
    /// TTL or hop limit.
    pub(in crate::hosts) hops: Option<u8>,
    /// The mark that a rule has written [`WRITTEN`] to where a datagram begins; else the number of its flow is there.
    pub(in crate::hosts) written: bool,
}

/// Datagrams of the first flow that have come one after the other without a gap, and that look alike.
#[derive(Clone, Debug)]
struct Stretch {
    datagrams: Range<u64>,
    look: Look,
}

/// Datagrams of the first flow that were all sent, and all passed, while rules were there, or while they were not.
#[derive(Clone, Debug)]
pub(in crate::hosts) struct Span {
    pub(in crate::hosts) datagrams: Range<u64>,
    pub(in crate::hosts) has_rules: bool,
}

/// The most datagrams that may be between the sender and the reader. The reader's socket has no room for more.
const UNDER_WAY: u64 = 512;

/// The datagrams of all flows that have come.
#[derive(Clone, Debug, Default)]
pub(in crate::hosts) struct Arrived {
    pub(in crate::hosts) looks: BTreeMap<Look, u64>,
    flows: Vec<Ledger>,
    /// The flows as each socket has got them: nothing keeps an order between two sockets.
    by_socket: BTreeMap<(usize, u16), Ledger>,
    stretches: Vec<Stretch>,
    pub(in crate::hosts) spans: Vec<Span>,
    /// Datagrams of the first flow that were sent while there was nobody who could take them.
    pub(in crate::hosts) away: Vec<Range<u64>>,
    corrupt: u64,
    /// Datagrams for which a socket had no room: an emulated CPU is away for longer than a default buffer lasts.
    pub(in crate::hosts) refused: u64,
    /// Datagrams whose time stamp is later than the clock when they are read. Few sockets ask for stamps.
    pub(in crate::hosts) ahead: u64,
    pub(in crate::hosts) sent: u64,
    /// The growth of the module's counters since the flow was split, and the number of datagrams that were sent meanwhile.
    pub(in crate::hosts) counters: BTreeMap<String, i64>,
    pub(in crate::hosts) counted: u64,
}

impl Arrived {
    fn sum(&self, count: fn(&Ledger) -> u64) -> u64 {
        self.flows.iter().map(count).sum()
    }

    fn record(&mut self, sequence: u64, look: Look) {
        self.flows[usize::from(look.flow)].record(sequence);
        let key = (look.socket, look.flow);
        self.by_socket.entry(key).or_default().record(sequence);
        if look.flow == 0 {
            match self.stretches.last_mut() {
                Some(last) if last.datagrams.end == sequence && last.look == look => {
                    last.datagrams.end += 1;
                }
                _ => self.stretches.push(Stretch {
                    datagrams: sequence..sequence + 1,
                    look: look.clone(),
                }),
            }
        }
        *self.looks.entry(look).or_default() += 1;
    }

    /// Returns how many datagrams look like this.
    pub(in crate::hosts) fn count(&self, is_it: impl Fn(&Look) -> bool) -> u64 {
        let looks = self.looks.iter().filter(|(look, _)| is_it(look));
        looks.map(|(_, count)| count).sum()
    }

    /// Fails unless every datagram has come once, as it was sent and at each socket in order, but for some that found no room.
    pub(in crate::hosts) fn require_whole(&self) -> Result<()> {
        self.require_all()?;
        let reordered: u64 = self.by_socket.values().map(Ledger::reordered).sum();
        ensure!(
            reordered == 0,
            "of {} datagrams {reordered} arrived out of order; they look like {:?}; counters: {}",
            self.sent,
            self.looks,
            self.counters()
        );
        Ok(())
    }

    /// Does the same where only one of the flows has to be in order.
    pub(in crate::hosts) fn require_order_of(&self, flow: usize) -> Result<()> {
        self.require_all()?;
        let reordered = self.flows[flow].reordered();
        ensure!(
            reordered == 0,
            "of flow {flow} {reordered} datagrams arrived out of order; counters: {}",
            self.counters()
        );
        Ok(())
    }

    /// Fails unless every datagram has come once and as it was sent, in whatever order, but for some that found no room.
    pub(in crate::hosts) fn require_all(&self) -> Result<()> {
        let delivered = self.sum(Ledger::delivered);
        ensure!(
            delivered + self.refused == self.sent
                && self.sum(Ledger::duplicate) == 0
                && self.corrupt == 0,
            "of {} datagrams {delivered} arrived, {} twice, {} not as sent; sockets had no room for {}; they look like {:?}; counters: {}",
            self.sent,
            self.sum(Ledger::duplicate),
            self.corrupt,
            self.refused,
            self.looks,
            self.counters()
        );
        if self.refused > self.sent / MOST_REFUSED {
            let (refused, sent) = (self.refused, self.sent);
            return Err(NoRoom { refused, sent }.into());
        }
        Ok(())
    }

    /// Fails unless every datagram has come once, as it was sent and at each socket in order, but for some of the first flow that were
    /// sent or under way while nobody could take them, and some that found no room.
    pub(in crate::hosts) fn require_but_away(&self) -> Result<()> {
        let reordered: u64 = self.by_socket.values().map(Ledger::reordered).sum();
        ensure!(
            self.sum(Ledger::duplicate) + reordered + self.corrupt == 0,
            "of {} datagrams {} arrived twice, {reordered} out of order, {} not as sent; counters: {}",
            self.sent,
            self.sum(Ledger::duplicate),
            self.corrupt,
            self.counters()
        );
        let first = self.flows.first().context("there is no flow")?;
        let taken = |sequence: u64| {
            self.away
                .iter()
                .any(|away| (away.start.saturating_sub(UNDER_WAY)..away.end).contains(&sequence))
        };
        // CAST: some thousand.
        let missing = (0..self.sent).filter(|&sequence| !first.has(sequence) && !taken(sequence));
        let missing: Vec<_> = missing.collect();
        ensure!(
            missing.len() as u64 <= self.refused.min(self.sent / MOST_REFUSED),
            "of {} datagrams {} are missing that were not sent while nobody could take them, which was {:?}, the first of them {:?}; \
             sockets had no room for {}; counters: {}",
            self.sent,
            missing.len(),
            self.away,
            missing.first(),
            self.refused,
            self.counters()
        );
        Ok(())
    }

    /// Fails unless each datagram of the first flow that was sent while rules were there looks as rules make it look, and none of
    /// those that were sent without them does.
    pub(in crate::hosts) fn require_spans(&self, is_ruled: impl Fn(&Look) -> bool) -> Result<()> {
        ensure!(!self.spans.is_empty(), "no rules were made");
        for span in &self.spans {
            let (from, to) = (span.datagrams.start, span.datagrams.end);
            let within = |of: &Stretch| of.datagrams.start < to && of.datagrams.end > from;
            let stretches: Vec<_> = self.stretches.iter().filter(|of| within(of)).collect();
            ensure!(!stretches.is_empty(), "no datagram of {span:?} has come");
            let wrong = stretches
                .iter()
                .find(|of| is_ruled(&of.look) != span.has_rules);
            if let Some(wrong) = wrong {
                bail!("of {span:?} are {wrong:?}; all spans: {:?}", self.spans);
            }
        }
        Ok(())
    }

    /// Fails unless lanes carried the flow from when it was split to its end: one that stays whole, or is given up, shows nothing.
    pub(in crate::hosts) fn require_split(&self) -> Result<()> {
        let lanes = self.counters.iter().filter(|(name, _)| is_of_lane(name));
        let carried: i64 = lanes.map(|(_, pkts)| pkts).sum();
        ensure!(
            // CAST: some thousand.
            carried as u64 >= self.counted / 2,
            "lanes carried {carried} of {} datagrams: {}",
            self.counted,
            self.counters()
        );
        Ok(())
    }

    /// Fails if the flow was split.
    pub(in crate::hosts) fn require_kept(&self) -> Result<()> {
        let split = self.counters.get("flows_split").copied();
        ensure!(split == Some(0), "the flow was split: {}", self.counters());
        Ok(())
    }

    /// Fails if the merger preferred delivery to order.
    pub(in crate::hosts) fn require_nothing_given_up(&self) -> Result<()> {
        let counts = ["deadline_batches", "overflow_batches", "late_pkts"]
            .map(|name| self.counters.get(name).copied().unwrap_or(0));
        ensure!(
            counts == [0; 3],
            "batches were given up: {}",
            self.counters()
        );
        Ok(())
    }

    pub(in crate::hosts) fn counters(&self) -> String {
        let changed = self.counters.iter().filter(|(_, &added)| added != 0);
        let changed: Vec<_> = changed
            .map(|(name, added)| format!("{name} {added:+}"))
            .collect();
        changed.join(", ")
    }

    /// Fails unless all datagrams look as those of the other run do, in whatever numbers.
    pub(in crate::hosts) fn require_looks_of(&self, other: &Self) -> Result<()> {
        let (own, others): (Vec<_>, Vec<_>) =
            (self.looks.keys().collect(), other.looks.keys().collect());
        ensure!(
            own == others,
            "the receiver sees {:?}, and with enabled 0 it is {others:?}",
            self.looks
        );
        Ok(())
    }
}

fn is_of_lane(counter: &str) -> bool {
    counter.starts_with("lane_cpu") && counter.ends_with("_pkts")
}

/// Makes a socket report the fields of [`Look`].
pub(in crate::hosts) fn seeing(socket: UdpSocket) -> Result<UdpSocket> {
    if socket.local_addr()?.is_ipv4() {
        setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
    }
    Ok(socket)
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    arrivals: AtomicU64,
    arrived: Mutex<Arrived>,
    /// Sockets that come in the place of those that are read.
    next: Mutex<Option<Vec<UdpSocket>>>,
}

impl Shared {
    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Vec<UdpSocket>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(in crate::hosts) struct Receiver {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Receiver {
    /// Starts to read this many flows from these sockets.
    pub(in crate::hosts) fn start(sockets: Vec<UdpSocket>, flows: usize) -> Self {
        let shared = Arc::new(Shared::default());
        shared.arrived().flows = vec![Ledger::default(); flows];
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || read(sockets, &shared)
        });
        Self { shared, thread }
    }

    pub(in crate::hosts) fn arrivals(&self) -> u64 {
        self.shared.arrivals.load(Ordering::Relaxed)
    }

    /// Returns how all datagrams look that have come so far.
    pub(in crate::hosts) fn looks(&self) -> BTreeMap<Look, u64> {
        self.shared.arrived().looks.clone()
    }

    /// Returns one more than the highest number of the first flow's datagrams that have come.
    pub(in crate::hosts) fn end(&self) -> u64 {
        self.shared.arrived().flows.first().map_or(0, Ledger::end)
    }

    /// Closes the sockets, and goes on with others, whose places are behind those of all before.
    pub(in crate::hosts) fn replace(&self, sockets: Vec<UdpSocket>) -> Result<()> {
        *self.shared.next() = Some(sockets);
        command::wait_until("the sockets are closed", || {
            Ok(self.thread.is_finished() || self.shared.next().is_none())
        })
    }

    /// Closes the sockets, and returns what has come.
    pub(in crate::hosts) fn stop(self) -> Result<Arrived> {
        self.shared.stop.store(true, Ordering::Relaxed);
        threads::result(self.thread.join())?;
        let arrived = self.shared.arrived().clone();
        Ok(arrived)
    }
}

fn read(mut sockets: Vec<UdpSocket>, shared: &Shared) -> Result<()> {
    cpu::pin(cpu::READER)?;
    let mut buffers = vec![vec![0; MIN_BYTES]; BATCH];
    let space = cmsg_space!(u8, i32, i32, sockaddr_in, sockaddr_in6, timespec);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(space));
    let mut first_place = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let mut next = shared.next();
        if let Some(others) = next.take() {
            first_place += sockets.len();
            note_refused(&sockets, shared)?;
            // Closed before anybody is told.
            sockets = others;
        }
        drop(next);
        let entries = sockets.iter();
        let mut ready: Vec<_> = entries
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        if poll(&mut ready, POLL_MS)? == 0 {
            continue;
        }
        for (place, socket) in sockets.iter().enumerate() {
            let place = first_place + place;
            take(place, socket, &mut headers, &mut buffers, shared)?;
        }
    }
    note_refused(&sockets, shared)
}

fn note_refused(sockets: &[UdpSocket], shared: &Shared) -> Result<()> {
    for socket in sockets {
        shared.arrived().refused += u64::from(more_sockopt::receive_memory(socket)?.drops);
    }
    Ok(())
}

fn take(
    place: usize,
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    buffers: &mut [Vec<u8>],
    shared: &Shared,
) -> Result<()> {
    let slices = buffers.iter_mut();
    let mut slices: Vec<_> = slices.map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let dont_wait = MsgFlags::MSG_DONTWAIT;
    let messages = match recvmmsg(
        socket.as_raw_fd(),
        headers,
        slices.iter_mut(),
        dont_wait,
        None,
    ) {
        Ok(messages) => messages,
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
        Err(error) => return Err(error).context("cannot receive"),
    };
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    let mut arrived = shared.arrived();
    for message in messages {
        let is_whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        let bytes = message.iovs().next().filter(|_| is_whole);
        let read = bytes.and_then(decode);
        let read = read.filter(|(head, _)| usize::from(head.flow) < arrived.flows.len());
        match read {
            Some((head, written)) => {
                if is_ahead(&message, now)? {
                    arrived.ahead += 1;
                }
                let look = look(place, head.flow, &message)?;
                arrived.record(head.sequence, Look { written, ..look });
            }
            None => arrived.corrupt += 1,
        }
        shared.arrivals.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Returns what a datagram says, and whether a rule has written to it.
fn decode(bytes: &[u8]) -> Option<(Head, bool)> {
    let Some(rest) = bytes.strip_prefix(&WRITTEN.to_be_bytes()) else {
        return Some((datagram::decode(bytes)?, false));
    };
    let as_sent = [&[0; size_of::<u16>()], rest].concat();
    Some((datagram::decode(&as_sent)?, true))
}

/// Returns whether a datagram has a time stamp that is later.
fn is_ahead(message: &RecvMsg<'_, '_, SockaddrStorage>, now: TimeSpec) -> Result<bool> {
    Ok(message.cmsgs()?.any(
        |control| matches!(control, ControlMessageOwned::ScmTimestampns(stamp) if stamp > now),
    ))
}

fn look(socket: usize, flow: u16, message: &RecvMsg<'_, '_, SockaddrStorage>) -> Result<Look> {
    let from = message.address.as_ref().and_then(address);
    let from = from.context("a datagram has no sender")?;
    let mut look = Look {
        socket,
        flow,
        from: from.ip(),
        from_port: Some(from.port())
            .filter(|&port| port < FIRST_EPHEMERAL)
            .unwrap_or(0),
        to: None,
        tos: None,
        hops: None,
        written: false,
    };
    for control in message.cmsgs()? {
        // CAST: the kernel's numbers are bytes of the header.
        match control {
            ControlMessageOwned::Ipv4Tos(tos) => look.tos = Some(tos),
            ControlMessageOwned::Ipv6TClass(class) => look.tos = Some(class as u8),
            ControlMessageOwned::Ipv4Ttl(ttl) => look.hops = Some(ttl as u8),
            ControlMessageOwned::Ipv6HopLimit(limit) => look.hops = Some(limit as u8),
            ControlMessageOwned::Ipv4OrigDstAddr(to) => {
                look.to = Some(SocketAddrV4::from(SockaddrIn::from(to)).into());
            }
            ControlMessageOwned::Ipv6OrigDstAddr(to) => {
                look.to = Some(SocketAddrV6::from(SockaddrIn6::from(to)).into());
            }
            _ => {}
        }
    }
    Ok(look)
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage
        .as_sockaddr_in()
        .map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| {
        storage
            .as_sockaddr_in6()
            .map(|v6| SocketAddrV6::from(*v6).into())
    })
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn seen(socket: usize) -> Look {
        Look {
            socket,
            flow: 0,
            from: IpAddr::from([10, 0, 1, 1]),
            from_port: 0,
            to: None,
            tos: None,
            hops: None,
            written: false,
        }
    }

    /// Returns an arrival of datagrams at two sockets, and of rules from 10 to 20.
    fn arrived(datagrams: &[(u64, usize)]) -> Arrived {
        let mut arrived = Arrived {
            flows: vec![Ledger::default()],
            sent: 30,
            ..Arrived::default()
        };
        for &(sequence, socket) in datagrams {
            arrived.record(sequence, seen(socket));
        }
        for (datagrams, has_rules) in [(0..8, false), (10..20, true), (22..30, false)] {
            arrived.spans.push(Span {
                datagrams,
                has_rules,
            });
        }
        arrived
    }

    #[test]
    fn rules_have_to_show_in_their_span_and_in_no_other() {
        let is_ruled = |look: &Look| look.socket == 1;
        let all = (0..30).map(|number| (number, usize::from((9..21).contains(&number))));
        let all: Vec<_> = all.collect();
        arrived(&all).require_spans(is_ruled).unwrap();
        arrived(&all).require_whole().unwrap();
        for wrong in [3, 10, 19, 22] {
            let mut all = all.clone();
            all[wrong].1 = 1 - all[wrong].1;
            arrived(&all).require_spans(is_ruled).unwrap_err();
        }
        // Those of no span.
        arrived(&all[..22]).require_spans(is_ruled).unwrap_err();
        Arrived::default().require_spans(is_ruled).unwrap_err();
    }

    #[test]
    fn what_is_missing_was_sent_while_nobody_could_take_it() {
        let but = |missing: Range<u64>| {
            let sent = 4 * UNDER_WAY;
            let come = (0..sent).filter(|sequence| !missing.contains(sequence));
            let come: Vec<_> = come.map(|sequence| (sequence, 0)).collect();
            Arrived {
                sent,
                away: iter::once(2 * UNDER_WAY..3 * UNDER_WAY).collect(),
                ..arrived(&come)
            }
        };
        but(0..0).require_but_away().unwrap();
        but(UNDER_WAY..3 * UNDER_WAY).require_but_away().unwrap();
        for wrong in [UNDER_WAY - 1, 3 * UNDER_WAY] {
            but(wrong..wrong + 1).require_but_away().unwrap_err();
        }
        arrived(&[(0, 0), (2, 0), (1, 0)])
            .require_but_away()
            .unwrap_err();
    }

    #[test]
    fn sockets_may_be_read_one_after_the_other_but_each_has_its_order() {
        let mut all: Vec<_> = (0..30)
            .map(|number| (number, usize::from(number >= 15)))
            .collect();
        all.rotate_left(15);
        arrived(&all).require_whole().unwrap();
        all.swap(3, 4);
        arrived(&all).require_whole().unwrap_err();
    }
}
