// SPDX-License-Identifier: GPL-2.0

//! A fast flow of numbered datagrams, or several in one outer flow.
//!
//! It begins with one datagram of each flow, and goes on when these have come. The kernel lets datagrams of one poll into rules
//! together, before the first has made an entry: rules that choose among endpoints would choose for each of them.
//!
//! Its sockets have default buffers. The rate leaves room for the times for which an emulated CPU is away.

pub(super) mod receiver;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::datagram::MIN_BYTES;

use self::receiver::{seeing, Arrived, Look, Receiver, Span};
use super::host::{Change, Host, Rules};
use crate::machine::{command, threads};
use crate::mflow::Stats;
use crate::network::netns;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::datagrams::run::wait_quiet;
use crate::traffic::datagrams::sender::{SendOrder, Sender};
use crate::{flows, mflow};

/// The port at which the container reads an elephant.
pub(super) const PORT: u16 = 5_001;
/// The time that an elephant may take to send the wanted datagrams.
const STUCK: Duration = Duration::from_secs(60);
/// The number of times that rules are taken away and made again, and of datagrams that are sent with them and without them.
const TIMES_AGAIN: usize = 3;
const SENT_BETWEEN: u64 = 250;

/// The expected state of an elephant's flow once `enabled` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Split,
    /// It stays whole, for this reason of the file `flows`.
    Kept(&'static str),
    /// It may be split or not.
    Either,
}

/// An elephant: the ends, the rate and the fate of its flows.
pub(super) struct Elephant {
    pub(super) from: IpAddr,
    /// One flow for each.
    pub(super) to: Vec<SocketAddr>,
    pub(super) sockets: Vec<UdpSocket>,
    pub(super) pps: f64,
    pub(super) fate: Fate,
}

impl Elephant {
    /// Returns one that goes to the container's own address and port.
    pub(super) fn plain(host: &Host, inner: Family) -> Result<Self> {
        let to = SocketAddr::from((inner.container(), PORT));
        let socket = netns::within(CONTAINER, || {
            let any = SocketAddr::from((unspecified(inner), PORT));
            seeing(UdpSocket::bind(any)?)
        })?;
        Ok(Self {
            from: inner.client(),
            to: vec![to],
            sockets: vec![socket],
            pps: host.elephant_pps,
            fate: Fate::Split,
        })
    }

    /// Sends from the client until `count` datagrams have been sent since the outer flow was split, if flows are split at all, and
    /// `during` has returned.
    pub(super) fn run<T>(
        self,
        count: u64,
        during: impl FnOnce(&Live) -> Result<T>,
    ) -> Result<(Arrived, T)> {
        self.run_in(CLIENT, count, during)
    }

    /// Does the same from another namespace.
    pub(super) fn run_in<T>(
        self,
        namespace: &'static str,
        count: u64,
        during: impl FnOnce(&Live) -> Result<T>,
    ) -> Result<(Arrived, T)> {
        let split_before = mflow::flows_split()?;
        let fate = is_enabled()?.then_some(self.fate);
        let flows = self.to.len();
        let receiver = Receiver::start(self.sockets, flows);
        let order = SendOrder {
            from: self.from,
            to: self.to,
            bytes: MIN_BYTES,
            rate: Some(self.pps),
        };
        let sender = Sender::start_held(namespace, order);
        let live = Live {
            sender,
            receiver,
            // CAST: a handful.
            flows: flows as u64,
            spans: RefCell::default(),
            away: RefCell::default(),
        };
        let seen = live.sent_for(split_before, fate, count, during);
        // Also after a failure: no thread may outlive the run.
        live.sender.stop_at(0);
        let sent = live.sender.join().map(|sent| sent.iter().sum());
        let all = sent.as_ref().map_or(0, |sent| *sent);
        wait_quiet(|| live.receiver.arrivals(), all);
        let arrived = live.receiver.stop();
        let (mark, seen) = seen?;
        let mut arrived = arrived?;
        arrived.sent = sent?;
        arrived.counters = mflow::added_since(mark.stats.as_ref())?;
        arrived.counted = all - mark.sent;
        arrived.spans = live.spans.into_inner();
        arrived.away = live.away.into_inner();
        Ok((arrived, seen))
    }
}

/// Tells whether flows may be split.
pub(super) fn is_enabled() -> Result<bool> {
    Ok(mflow::loaded() && mflow::read("enabled")?.trim() == "1")
}

/// Waits until a flow is as it is to be, if flows may be split; `split_before` is what [`mflow::flows_split`] was before.
pub(super) fn wait_fate(split_before: u64, fate: Option<Fate>) -> Result<()> {
    match fate {
        // A flow that stays whole would show nothing.
        Some(Fate::Split) => mflow::wait_split_since(split_before, 1),
        Some(Fate::Kept(reason)) => command::wait_until("the flow is said to be whole", || {
            flows::any(&[("state", "whole"), ("reason", reason)])
        })
        .with_context(|| mflow::read("flows").unwrap_or_default()),
        Some(Fate::Either) | None => Ok(()),
    }
}

/// Returns the address that stands for all of a host's.
pub(super) fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([0; 4]),
        Family::V6 => IpAddr::from([0; 16]),
    }
}

/// The number of sent datagrams, and the module's counters, when the flow had been split.
struct Mark {
    sent: u64,
    stats: Option<Stats>,
}

/// One that runs.
pub(super) struct Live {
    sender: Sender,
    receiver: Receiver,
    flows: u64,
    spans: RefCell<Vec<Span>>,
    away: RefCell<Vec<Range<u64>>>,
}

impl Live {
    fn sent_for<T>(
        &self,
        split_before: u64,
        fate: Option<Fate>,
        count: u64,
        during: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<(Mark, T)> {
        command::wait_until("the first datagrams come", || {
            Ok(self.receiver.arrivals() >= self.flows)
        })?;
        self.sender.release();
        wait_fate(split_before, fate)?;
        // In this order: this thread may be away between the two, and what lanes carry meanwhile must not be missing.
        let stats = Stats::read_if_loaded()?;
        let mark = Mark {
            sent: self.sender.sent(),
            stats,
        };
        let seen = during(self)?;
        self.until_sent(mark.sent + count)?;
        Ok((mark, seen))
    }

    /// Sends this many more.
    pub(super) fn send_more(&self, count: u64) -> Result<()> {
        self.until_sent(self.sender.sent() + count)
    }

    /// Does something beside the elephant. If rules come during that, makes them first. Afterwards it takes them away and makes
    /// them again while the elephant goes on.
    pub(super) fn beside<T>(
        &self,
        change: &Change<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if change.when != Rules::During {
            return work();
        }
        self.span(false, || self.send_more(SENT_BETWEEN))?;
        (change.make)()?;
        let done = self.span(true, work)?;
        for _ in 0..TIMES_AGAIN {
            (change.undo)()?;
            self.span(false, || self.send_more(SENT_BETWEEN))?;
            (change.make)()?;
            self.span(true, || self.send_more(SENT_BETWEEN))?;
        }
        Ok(done)
    }

    /// Notes which datagrams were sent and have passed while this was done.
    fn span<T>(&self, has_rules: bool, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let first = self.sender.next();
        let done = work()?;
        let end = self.sender.sequence();
        threads::until_ok(STUCK, || {
            let come = self.receiver.end();
            ensure!(come >= end, "{come} of {end} datagrams have come");
            Ok(())
        })?;
        self.spans.borrow_mut().push(Span {
            datagrams: first..end,
            has_rules,
        });
        Ok(done)
    }

    /// Notes which datagrams were sent while this was done, as nobody may have been there to take them.
    pub(super) fn away<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let first = self.sender.sequence();
        let done = work()?;
        self.away.borrow_mut().push(first..self.sender.next());
        Ok(done)
    }

    /// Waits until a socket has this many datagrams more.
    pub(super) fn come_to(&self, socket: usize, count: u64) -> Result<()> {
        let come = || -> u64 {
            let looks = self.looks().into_iter();
            let of_socket = looks.filter(|(look, _)| look.socket == socket);
            of_socket.map(|(_, count)| count).sum()
        };
        let wanted = come() + count;
        threads::until_ok(STUCK, || {
            let come = come();
            ensure!(
                come >= wanted,
                "socket {socket} has {come} of {wanted} datagrams"
            );
            Ok(())
        })
    }

    /// Closes the sockets, and goes on with others.
    pub(super) fn replace(&self, sockets: Vec<UdpSocket>) -> Result<()> {
        self.receiver.replace(sockets)
    }

    fn until_sent(&self, wanted: u64) -> Result<()> {
        threads::until_ok(STUCK, || {
            let sent = self.sender.sent();
            ensure!(!self.sender.ended(), "the sender ended");
            ensure!(sent >= wanted, "only {sent} of {wanted} datagrams are sent");
            Ok(())
        })
    }

    /// Returns how all datagrams look that have come so far.
    pub(super) fn looks(&self) -> BTreeMap<Look, u64> {
        self.receiver.looks()
    }
}
