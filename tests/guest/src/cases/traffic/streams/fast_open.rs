// SPDX-License-Identifier: GPL-2.0

//! Connections that the container opens to the client with data in the first segment (TCP Fast Open). The client answers before
//! the handshake is over, so its first data come right behind the segment that answers the container's, in a flow that is split.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::cases::{Case, Run};
use crate::machine::sockopt;
use crate::machine::{cpu, threads};
use crate::mflow::Knobs;
use crate::network::netns;
use crate::network::topology::{self, CLIENT, CONTAINER};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::accept_all;
use crate::traffic::streams::pattern;
use crate::traffic::streams::run::Streams;
use crate::traffic::Load as _;

const PORT: u16 = 6_004;
/// The size of the client's answer: as much as a sender may send before the first acknowledgement.
const BYTES: usize = 14_000;
/// For one connection, this many of the datagrams that other cases send.
const DATAGRAMS_PER_CONNECTION: u64 = 16;
/// Connections that may wait for the client, and those of them that may be unconfirmed.
const PLACES: i32 = 1024;
const STUCK: Duration = Duration::from_secs(15);
/// Both ends may open connections this way.
const CLIENT_AND_SERVER: &str = "3";
const BATCH_PKTS: u32 = 1;

pub(in crate::cases) fn cases() -> Vec<Case> {
    vec![Case::of_traffic(
        "tcp/fast-open",
        "the first data of a connection that the container opens come right behind the first answer, in a split flow: nothing is sent again",
        Run::Plain,
        fast_open,
    )]
}

fn fast_open(rig: &Rig) -> Result<Outcome> {
    let mut plan = rig.streams();
    plan.one_outer = true;
    let knobs = Knobs::of(2, BATCH_PKTS);
    rig.prepare(&plan, &knobs)?;
    for namespace in [CLIENT, CONTAINER] {
        netns::within(namespace, || {
            topology::sysctl("net/ipv4/tcp_fastopen", CLIENT_AND_SERVER)
        })?;
    }
    let address = SocketAddr::from((plan.inner.client(), PORT));
    let count = rig.scale.other / DATAGRAMS_PER_CONNECTION;
    let outcome = Streams::measure(&plan, |_| {
        let listener = netns::within(CLIENT, || listen(address))?;
        let serve = |stop: &AtomicBool| accept_all(&listener, stop, |socket, _| answer(&socket));
        threads::beside(serve, || {
            netns::within(CONTAINER, || {
                cpu::pin(cpu::READER)?;
                (0..count).try_for_each(|number| {
                    ask(address).with_context(|| format!("connection {number}"))
                })
            })
        })
        .map(drop)
    })?;
    outcome.judge(|outcome| {
        let opened = outcome.tcp.get("TCPFastOpenPassive").copied().unwrap_or(0);
        ensure!(
            opened >= count / 2,
            "{opened} of {count} connections began with data"
        );
        rig.require_strict(&plan, &knobs, outcome)
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    sockopt::take_fast_open(&listener, PLACES)?;
    SockRef::from(&listener).listen(PLACES)?;
    Ok(listener)
}

/// Answers what a connection has brought along.
fn answer(mut socket: &TcpStream) -> Result<()> {
    socket.read_exact(&mut [0])?;
    let mut bytes = [0; BYTES];
    pattern::fill(0, &mut bytes);
    socket.write_all(&bytes)?;
    Ok(())
}

/// Opens a connection with a byte, and reads the answer.
fn ask(address: SocketAddr) -> Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    sockopt::connect_with_data(&socket)?;
    socket.connect(&SockAddr::from(address))?;
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(STUCK))?;
    socket.write_all(&[1])?;
    let mut bytes = [0; BYTES];
    socket.read_exact(&mut bytes)?;
    ensure!(
        pattern::mismatch(0, &bytes).is_none(),
        "the answer has other bytes than were given"
    );
    Ok(())
}
