// SPDX-License-Identifier: GPL-2.0

//! Several threads wait for datagrams of one socket: each datagram wakes one of them, also when several come at once.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::cases::{Case, Run};
use crate::machine::{cpu, threads};
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::{CLIENT, CONTAINER};
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::{Live as _, Load as _};

const PORT: u16 = 6_002;
const THREADS: u64 = 4;
const ROUNDS: u64 = 20;
const BYTES: usize = 16;
/// A datagram for each thread.
const BURST: [u8; BYTES * THREADS as usize] = [0; BYTES * THREADS as usize];
/// Long enough for threads to fall asleep again.
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time that a thread sleeps: far longer than [`PATIENCE`], because a thread that wakes up by itself finds the
/// datagram.
const SLEEP: Duration = Duration::from_secs(15);

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "readers/waiting",
        "of several threads that wait at one socket, as many wake up as datagrams come",
        Run::Always,
        waiting,
    )]
}

fn waiting(rig: &Rig) -> Result<Outcome> {
    // Beside a stream that keeps the flow split.
    let mut plan = rig.datagrams();
    plan.one_outer = true;
    rig.prepare(&plan, &Knobs::default())?;
    let to = SocketAddr::from((plan.inner.container(), PORT));
    let socket = netns::within(CONTAINER, || Ok(UdpSocket::bind(to)?))?;
    let from = netns::within(CLIENT, || Ok(UdpSocket::bind((plan.inner.client(), 0))?))?;
    // One system call, so that nothing of the stream comes in between.
    setsockopt(&from, sockopt::UdpGsoSegment, &(BYTES as i32)).context("UDP_SEGMENT")?;
    let round = Round::default();
    let outcome = thread::scope(|scope| {
        let readers = [(); THREADS as usize].map(|()| scope.spawn(|| round.read(&socket)));
        let outcome = Datagrams::measure(&plan, |live| round.send(live, &from, to));
        round.over.store(true, Ordering::Relaxed);
        from.send_to(&BURST, to)?;
        let read = threads::results(readers.map(ScopedJoinHandle::join));
        outcome.and_then(|outcome| read.map(|_| outcome))
    })?;
    outcome.judge(|outcome| rig.require_unnoticed::<Datagrams>(outcome))
}

#[derive(Default)]
struct Round {
    /// The burst that is sent, or was sent last.
    number: AtomicU64,
    /// Datagrams that threads have got, over all bursts.
    got: AtomicU64,
    over: AtomicBool,
}

impl Round {
    /// Sends one burst after the other; each time, every thread has to get its datagram.
    fn send(&self, live: &LiveDatagrams, from: &UdpSocket, to: SocketAddr) -> Result<()> {
        for number in 1..=ROUNDS {
            live.flow_for(PAUSE)?;
            self.number.store(number, Ordering::Relaxed);
            from.send_to(&BURST, to)?;
            threads::until_ok(PATIENCE, || {
                let got = self.got.load(Ordering::Relaxed) - (number - 1) * THREADS;
                ensure!(
                    got >= THREADS,
                    "of burst {number}, {got} threads of {THREADS} have a datagram, and the others sleep"
                );
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Gets one datagram of each burst, and no second one before each thread has one.
    fn read(&self, socket: &UdpSocket) -> Result<()> {
        cpu::pin(cpu::READER)?;
        socket.set_read_timeout(Some(SLEEP))?;
        let mut datagram = [0; 2 * BYTES];
        while !self.over.load(Ordering::Relaxed) {
            if socket.recv(&mut datagram).is_err() {
                continue;
            }
            let all = self.number.load(Ordering::Relaxed) * THREADS;
            self.got.fetch_add(1, Ordering::Relaxed);
            while self.got.load(Ordering::Relaxed) < all && !self.over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}
