// SPDX-License-Identifier: GPL-2.0

//! Generic XDP programs, which run in the stack and not in a driver: at the NIC, and at the container's device. They are there from the
//! beginning, or come and go while a flow is split.

use std::cell::RefCell;
use std::ops::AddAssign;

use anyhow::{ensure, Result};

use super::elephant::receiver::Arrived;
use super::elephant::{Elephant, Fate};
use super::host::{Change, Host, Rules};
use super::Case;
use crate::network::bpf::{self, Xdp, XdpMode};
use crate::network::netns;
use crate::network::topology::{self, Family, CONTAINER};

/// The number of datagrams that are sent while the program is there for the first time.
const SENT_BESIDE: u64 = 500;
/// The number of packets that may be between the NIC's counter and the program, or be shown to it by a lane as well, whenever it
/// comes or goes: some batches.
const UNDER_WAY: u64 = 128;

/// The device that a program is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nic,
    Container,
}

impl At {
    fn attach(self) -> Result<Xdp> {
        let attach = || Xdp::attach("eth0", XdpMode::Generic);
        match self {
            Self::Nic => attach(),
            Self::Container => netns::within(CONTAINER, attach),
        }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (inner, of_family) in [(Family::V4, ""), (Family::V6, "/v6")] {
        let case = |name: &str, has, proves, run: fn(&Host, Family) -> Result<()>| {
            Case::new(format!("xdp/{name}{of_family}"), has, proves, move |host| {
                run(host, inner)
            })
            .with_fate(Fate::Either)
        };
        let at_nic = "a generic XDP program on the NIC";
        cases.extend([
            case(
                "nic",
                at_nic,
                "a generic XDP program on the NIC runs once for each packet, split or not",
                |host, inner| there(host, inner, Rules::First),
            ),
            case(
                "nic/later",
                at_nic,
                "the same of one that comes when splitting is on already",
                |host, inner| there(host, inner, Rules::Later),
            ),
            case(
                "nic/during",
                at_nic,
                "a generic XDP program comes to the NIC and goes again, four times, while a flow is split: it runs once for each packet, \
                 and the flow loses nothing and stays in order",
                |host, inner| during(host, inner, At::Nic),
            ),
            case(
                "container/during",
                "a generic XDP program on the container's device",
                "the same of one on the container's device, which lists of datagrams come to",
                |host, inner| during(host, inner, At::Container),
            ),
        ]);
    }
    cases
}

fn there(host: &Host, inner: Family, rules: Rules) -> Result<()> {
    bpf::count_runs(true)?;
    let program = RefCell::new(None);
    let set_up = || {
        *program.borrow_mut() = None;
        *program.borrow_mut() = Some(At::Nic.attach()?);
        Ok(())
    };
    let runs = || program.borrow().as_ref().map_or(Ok(0), Xdp::runs);
    let compared = host.compare(inner, rules, set_up, |host| {
        let before = (topology::received_pkts("eth0")?, runs()?);
        let mut elephant = Elephant::plain(host, inner)?;
        elephant.fate = Fate::Either;
        let (arrived, ()) = elephant.run(host.datagrams, |_| Ok(()))?;
        let (received, runs) = (topology::received_pkts("eth0")?, runs()?);
        Ok((arrived, received - before.0, runs - before.1))
    });
    // Also after a failure.
    bpf::count_runs(false)?;
    drop(program);
    let compared = compared?;
    for (enabled, (arrived, received, runs)) in
        [&compared.off, &compared.on].into_iter().enumerate()
    {
        ensure!(
            runs == received,
            "with enabled {enabled} the program ran {runs} times for {received} packets: {}",
            arrived.counters()
        );
        arrived.require_whole()?;
    }
    Ok(())
}

/// The number of packets that came while programs were there for sure, and while they may have been, and of runs of the programs.
/// A program is there before the call that attaches it returns.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    times: u64,
    least: u64,
    most: u64,
    runs: u64,
}

impl AddAssign for Counted {
    fn add_assign(&mut self, other: Self) {
        self.times += other.times;
        self.least += other.least;
        self.most += other.most;
        self.runs += other.runs;
    }
}

impl Counted {
    /// Fails unless the programs ran once for each packet, but for some that were under way when they came and went. What comes to
    /// the container's device as a list is one packet there.
    fn require(&self, at: At, arrived: &Arrived) -> Result<()> {
        let under_way = self.times * UNDER_WAY;
        let least = match at {
            At::Nic => self.least.saturating_sub(under_way).max(1),
            At::Container => 1,
        };
        ensure!(
            (least..=self.most + under_way).contains(&self.runs),
            "programs ran {} times, where {} to {} packets came while they were there, {} times: {}",
            self.runs,
            self.least,
            self.most,
            self.times,
            arrived.counters()
        );
        arrived.require_whole()
    }
}

fn during(host: &Host, inner: Family, at: At) -> Result<()> {
    // The kernel patches its code for the first such program of all: not under load.
    let _first = Xdp::attach("lo", XdpMode::Generic)?;
    bpf::count_runs(true)?;
    let program = RefCell::new(None);
    let counted = RefCell::new(Counted::default());
    let received = || topology::received_pkts("eth0");
    let make = || {
        let before = received()?;
        let there = at.attach()?;
        *program.borrow_mut() = Some((there, before, received()?));
        Ok(())
    };
    let undo = || {
        let Some((there, before, behind)) = program.borrow_mut().take() else {
            return Ok(());
        };
        let (until, runs) = (received()?, there.runs()?);
        *counted.borrow_mut() += Counted {
            times: 1,
            least: until - behind,
            most: received()? - before,
            runs,
        };
        Ok(())
    };
    let change = Change {
        when: Rules::During,
        make: &make,
        undo: &undo,
    };
    let set_up = || {
        *program.borrow_mut() = None;
        *counted.borrow_mut() = Counted::default();
        Ok(())
    };
    let compared = host.compare(inner, change.when, set_up, |host| {
        let (arrived, ()) = Elephant::plain(host, inner)?.run(host.datagrams / 4, |live| {
            live.beside(&change, || live.send_more(SENT_BESIDE))?;
            undo()
        })?;
        Ok((arrived, *counted.borrow()))
    });
    // Also after a failure.
    bpf::count_runs(false)?;
    *program.borrow_mut() = None;
    compared?.each(|(arrived, counted)| counted.require(at, arrived))
}
