// SPDX-License-Identifier: GPL-2.0

//! Connections that begin and end within the outer flow of a stream. Most of their packets reach no merge point, and any
//! of them can come just when splitting starts.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use super::switches::off_and_on;
use super::unnoticed;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::tcp::{pair, stream};
use crate::topology::{self, Family, CLIENT, CONTAINER};
use crate::{cpu, netns};

/// How often splitting starts.
const ROUNDS: usize = 15;
/// With the switch in either position.
const PAUSE: Duration = Duration::from_millis(60);
const PORT: u16 = 6_001;
/// How long a connection may take.
const STUCK: Duration = Duration::from_secs(15);

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    vec![Case::of_module(
        "tcp/flows/churn",
        "splitting starts again and again in an outer flow full of connections that begin and end: nothing waits",
        Run::Always,
        |rig| churn(rig).map(Some),
    )
    .patching_code()]
}

fn churn(rig: &Rig) -> Result<Outcome> {
    let plan = rig.tcp_plan();
    rig.prepare_tcp(&plan, &Knobs::default())?;
    topology::one_outer_flow(plan.outer)?;
    topology::patient_tcp()?;
    let address = SocketAddr::from((Family::V4.container(), PORT));
    let listener = netns::within(CONTAINER, || Ok(TcpListener::bind(address)?))?;
    let stop = AtomicBool::new(false);
    let (outcome, connections) = thread::scope(|scope| {
        let server = scope.spawn(|| accept(&listener, &stop));
        let client = scope.spawn(|| connect(address, &stop));
        let outcome = stream::measure(&plan, |live| off_and_on(live, ROUNDS, PAUSE));
        stop.store(true, Ordering::Relaxed);
        let connections = pair::join(client);
        // A last one, for the server that waits for it.
        let woken = netns::within(CLIENT, || {
            TcpStream::connect_timeout(&address, STUCK).context("cannot connect")
        });
        let accepted = woken.and_then(|_| pair::join(server));
        Ok::<_, anyhow::Error>((outcome?, connections.and_then(|n| accepted.map(|()| n))?))
    })?;
    ensure!(
        connections > 10 * ROUNDS as u64,
        "only {connections} connections came and went"
    );
    unnoticed(outcome)
}

/// Opens and closes connections, one after the other; returns how many.
fn connect(address: SocketAddr, stop: &AtomicBool) -> Result<u64> {
    netns::enter(CLIENT)?;
    cpu::pin(cpu::SENDER)?;
    let mut connections = 0;
    while !stop.load(Ordering::Relaxed) {
        TcpStream::connect_timeout(&address, STUCK).context("cannot connect")?;
        connections += 1;
    }
    Ok(connections)
}

/// Accepts connections and closes them at once.
fn accept(listener: &TcpListener, stop: &AtomicBool) -> Result<()> {
    cpu::pin(cpu::READER)?;
    while !stop.load(Ordering::Relaxed) {
        listener.accept().context("cannot accept")?;
    }
    Ok(())
}
