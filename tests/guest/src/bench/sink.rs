// SPDX-License-Identifier: GPL-2.0

//! The receiving application of the benchmarks: as plain as one can be, one system call for each datagram, or for as many as
//! there are, up to a number.
//!
//! A second thread, on a CPU that receives nothing, tells the host, which makes the frames, how far the flows have arrived. That
//! keeps frames from piling up in front of a socket that is slower than the wire.

use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use mflow_protocol::bench::Reading;
use mflow_protocol::datagram;
use mflow_protocol::guest::CREDIT_PORT;
use nix::cmsg_space;
use nix::sys::socket::{recvmmsg, recvmsg, setsockopt, sockopt, MsgFlags, MultiHeaders};

use super::window::Counts;
use crate::machine::{cpu, threads};
use crate::network::netns;
use crate::traffic::datagrams::aggregate;
use crate::traffic::datagrams::ledger::Ledger;

const TELL: Duration = Duration::from_millis(2);
/// The interval at which the reader looks whether it shall stop while nothing arrives.
const LOOK: Duration = Duration::from_millis(200);
/// Of so many datagrams the reader verifies all bytes of one, and the length of each: to sum them all would be more than the kernel does
/// for them. No number of datagrams that come together divides it.
const VERIFIED_OF: u32 = 17;
/// Room for every datagram that may be on its way.
const SOCKET_BYTES: usize = 48 << 20;

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    delivered: AtomicU64,
    reordered: AtomicU64,
    corrupt: AtomicU64,
    /// Over all flows, one more than the highest number that has arrived.
    reached: AtomicU64,
}

pub(super) struct Sink {
    shared: Arc<Shared>,
    reader: JoinHandle<Result<()>>,
    teller: JoinHandle<Result<()>>,
}

impl Sink {
    /// Starts to receive in a namespace; returns when the socket is bound.
    pub(super) fn start(
        namespace: Option<&'static str>,
        address: SocketAddr,
        flows: u16,
        bytes: usize,
        reading: Reading,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (reader, ()) = threads::start({
            let shared = Arc::clone(&shared);
            move |ready| {
                cpu::pin(cpu::READER)?;
                if let Some(namespace) = namespace {
                    netns::enter(namespace)?;
                }
                let socket = UdpSocket::bind(address)
                    .with_context(|| format!("cannot bind to {address}"))?;
                setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BYTES)
                    .context("SO_RCVBUFFORCE")?;
                socket.set_read_timeout(Some(LOOK))?;
                let _receiver_gone = ready.send(());
                let ledgers = Ledgers::new(&shared, flows);
                // One byte more than expected: a datagram that has grown does not look good.
                match reading {
                    Reading::One => read(&socket, ledgers, bytes + 1),
                    Reading::Burst(burst) => read_bursts(&socket, ledgers, bytes + 1, burst),
                    Reading::Aggregate => read_aggregates(&socket, ledgers)?,
                }
                Ok(())
            }
        })?;
        let teller = thread::spawn({
            let shared = Arc::clone(&shared);
            move || tell(&shared.stop, || Ok(shared.reached.load(Ordering::Relaxed)))
        });
        Ok(Self {
            shared,
            reader,
            teller,
        })
    }

    /// Returns what has arrived; `packets` is what the caller makes of it.
    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let delivered = read(&self.shared.delivered);
        Counts {
            delivered,
            packets: delivered,
            lost: read(&self.shared.reached).saturating_sub(delivered),
            reordered: read(&self.shared.reordered),
            ..Counts::default()
        }
    }

    pub(super) fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        threads::results([self.reader, self.teller].map(JoinHandle::join))?;
        let corrupt = self.shared.corrupt.load(Ordering::Relaxed);
        if corrupt > 0 {
            bail!("{corrupt} datagrams arrived damaged");
        }
        Ok(())
    }
}

fn read(socket: &UdpSocket, mut ledgers: Ledgers<'_>, room: usize) {
    let mut buffer = vec![0; room];
    while !ledgers.shared.stop.load(Ordering::Relaxed) {
        // An error means that nothing has come for a while.
        if let Ok(length) = socket.recv(&mut buffer) {
            ledgers.record(&buffer[..length]);
        }
    }
}

fn read_bursts(socket: &UdpSocket, mut ledgers: Ledgers<'_>, room: usize, burst: usize) {
    let mut buffers = vec![vec![0; room]; burst];
    let mut headers = MultiHeaders::<()>::preallocate(burst, None);
    let mut lengths = Vec::with_capacity(burst);
    while !ledgers.shared.stop.load(Ordering::Relaxed) {
        let mut slices: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| [IoSliceMut::new(buffer)])
            .collect();
        // An error means that nothing has come for a while.
        let received = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter_mut(),
            MsgFlags::MSG_WAITFORONE,
            None,
        );
        lengths.clear();
        if let Ok(datagrams) = received {
            lengths.extend(datagrams.map(|datagram| datagram.bytes));
        }
        for (buffer, &length) in buffers.iter().zip(&lengths) {
            ledgers.record(&buffer[..length]);
        }
    }
}

fn read_aggregates(socket: &UdpSocket, mut ledgers: Ledgers<'_>) -> Result<()> {
    setsockopt(socket, sockopt::UdpGroSegment, &true).context("UDP_GRO")?;
    let mut buffer = vec![0; aggregate::MOST_BYTES];
    let mut control = cmsg_space!(i32);
    while !ledgers.shared.stop.load(Ordering::Relaxed) {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let fd = socket.as_raw_fd();
        // An error means that nothing has come for a while.
        let Ok(message) = recvmsg::<()>(fd, &mut slices, Some(&mut control), MsgFlags::empty())
        else {
            continue;
        };
        let (bytes, datagram_bytes) = (message.bytes, aggregate::datagram_bytes(&message)?);
        for datagram in aggregate::datagrams(&buffer[..bytes], datagram_bytes) {
            ledgers.record(datagram);
        }
    }
    Ok(())
}

/// The ledgers of the flows, which record the datagrams that have arrived.
struct Ledgers<'a> {
    shared: &'a Shared,
    flows: Vec<Ledger>,
    taken: u32,
}

impl<'a> Ledgers<'a> {
    fn new(shared: &'a Shared, flows: u16) -> Self {
        Self {
            shared,
            flows: vec![Ledger::default(); usize::from(flows)],
            taken: 0,
        }
    }

    fn record(&mut self, bytes: &[u8]) {
        self.taken = self.taken.wrapping_add(1);
        let head = if self.taken.is_multiple_of(VERIFIED_OF) {
            datagram::decode(bytes)
        } else {
            datagram::decode_head(bytes)
        };
        let known = head.and_then(|head| {
            let ledger = self.flows.get_mut(usize::from(head.flow))?;
            Some((head, ledger))
        });
        let Some((head, ledger)) = known else {
            add(&self.shared.corrupt, 1);
            return;
        };
        let (reached, reordered) = (ledger.end(), ledger.reordered());
        ledger.record(head.sequence);
        add(&self.shared.reached, ledger.end() - reached);
        add(&self.shared.reordered, ledger.reordered() - reordered);
        add(&self.shared.delivered, 1);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    if count != 0 {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

/// Tells the host how far the flows are, until it shall stop.
pub(super) fn tell(stop: &AtomicBool, reached: impl Fn() -> Result<u64>) -> Result<()> {
    cpu::pin(cpu::SENDER)?;
    let mut port: File = OpenOptions::new()
        .write(true)
        .open(CREDIT_PORT)
        .context(CREDIT_PORT)?;
    let mut told = 0;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TELL);
        let reached = reached()?;
        if reached != told {
            told = reached;
            port.write_all(format!("{reached}\n").as_bytes())?;
        }
    }
    Ok(())
}
