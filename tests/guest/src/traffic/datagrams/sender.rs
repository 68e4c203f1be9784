// SPDX-License-Identifier: GPL-2.0

//! The client: one thread that sends numbered datagrams of every flow in turn, at an offered rate or flat out.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::socket::{sendmmsg, ControlMessage, MsgFlags, MultiHeaders};

use crate::machine::clock::now_ns;
use crate::machine::{cpu, threads};
use crate::network::{netns, topology};
use crate::traffic::datagrams::disguise::Disguise;
use mflow_protocol::datagram::{self, Head, Pattern};

/// The most datagrams handed to the kernel by one system call, so the largest burst on the wire.
const BURST: usize = 32;
/// The time that one system call may wait for room on the wire.
const STUCK: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
pub(crate) struct SendOrder {
    pub(crate) from: std::net::IpAddr,
    pub(crate) to: Vec<SocketAddr>,
    pub(crate) bytes: usize,
    /// Datagrams per second over all flows; `None`: as fast as the client can.
    pub(crate) rate: Option<f64>,
}

#[derive(Debug)]
struct Shared {
    /// The sequence number at which every flow stops; may be lowered while the sender runs.
    limit: AtomicU64,
    /// A flag: each flow stops after its first datagram until it is released.
    held: AtomicBool,
    sent: Vec<AtomicU64>,
    last_send_ns: AtomicU64,
}

pub(crate) struct Sender {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

impl Sender {
    /// Starts in the client's namespace.
    pub(crate) fn start(order: SendOrder) -> Self {
        Self::start_disguised(order, None)
    }

    /// Does the same, and disguises some datagrams.
    pub(crate) fn start_disguised(order: SendOrder, disguise: Option<Disguise>) -> Self {
        Self::begin(topology::CLIENT, order, disguise, false)
    }

    /// Starts in a namespace with one datagram of each flow, and sends no more until [`Sender::release`].
    pub(crate) fn start_held(namespace: &'static str, order: SendOrder) -> Self {
        Self::begin(namespace, order, None, true)
    }

    pub(crate) fn release(&self) {
        self.shared.held.store(false, Ordering::Relaxed);
    }

    fn begin(
        namespace: &'static str,
        order: SendOrder,
        disguise: Option<Disguise>,
        held: bool,
    ) -> Self {
        let shared = Arc::new(Shared {
            limit: AtomicU64::new(u64::MAX),
            held: AtomicBool::new(held),
            sent: order.to.iter().map(|_| AtomicU64::new(0)).collect(),
            last_send_ns: AtomicU64::new(0),
        });
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || send(namespace, &order, disguise, &shared)
        });
        Self { shared, thread }
    }

    pub(crate) fn sent(&self) -> u64 {
        let sent = self.shared.sent.iter();
        sent.map(|flow| flow.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn last_send_ns(&self) -> u64 {
        self.shared.last_send_ns.load(Ordering::Relaxed)
    }

    /// Lets every flow come to at least `sequence` datagrams (exactly, if it is not there yet), then ends the sender.
    pub(crate) fn stop_at(&self, sequence: u64) {
        self.shared.limit.store(sequence, Ordering::Relaxed);
    }

    /// Returns how far the flow is that is furthest.
    pub(crate) fn sequence(&self) -> u64 {
        let sent = self.shared.sent.iter();
        sent.map(|flow| flow.load(Ordering::Relaxed))
            .max()
            .unwrap_or(0)
    }

    /// Returns a number from which on no datagram of any flow has been given to the kernel yet.
    pub(crate) fn next(&self) -> u64 {
        // CAST: a few.
        self.sequence() + BURST as u64
    }

    pub(crate) fn ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end and returns how many datagrams each flow has sent.
    pub(crate) fn join(self) -> Result<Vec<u64>> {
        threads::result(self.thread.join())?;
        let sent = self.shared.sent.iter();
        Ok(sent.map(|flow| flow.load(Ordering::Relaxed)).collect())
    }
}

fn send(
    namespace: &str,
    order: &SendOrder,
    disguise: Option<Disguise>,
    shared: &Shared,
) -> Result<()> {
    cpu::pin(cpu::SENDER)?;
    netns::enter(namespace)?;
    let sockets = order
        .to
        .iter()
        .map(|to| connect(order, to))
        .collect::<Result<Vec<UdpSocket>>>()?;
    let pattern = Pattern::default();
    let mut buffers = vec![vec![0; order.bytes]; BURST];
    let mut headers = MultiHeaders::<()>::preallocate(BURST, None);
    let mut pace = Pace::start(order.rate);
    loop {
        let mut all_done = true;
        let is_held = shared.held.load(Ordering::Relaxed);
        let share = pace.due().div_ceil(sockets.len());
        for (flow, socket) in sockets.iter().enumerate() {
            let first = shared.sent[flow].load(Ordering::Relaxed);
            let left = shared.limit.load(Ordering::Relaxed).saturating_sub(first);
            all_done &= left == 0;
            let share = match (is_held, first) {
                (true, 0) => 1,
                (true, _) => 0,
                (false, _) => share,
            };
            let count = share.min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 {
                continue;
            }
            let sent_ns = Some(now_ns());
            for (buffer, sequence) in buffers[..count].iter_mut().zip(first..) {
                // CAST: the number of flows is a u16.
                let flow = flow as u16;
                let head = Head {
                    flow,
                    sequence,
                    sent_ns,
                };
                datagram::encode(&pattern, head, buffer);
                if let Some(disguise) = disguise {
                    disguise.put_on(sequence, buffer);
                }
            }
            let sent = hand_over(socket, &mut headers, &buffers[..count])?;
            pace.sent(sent);
            shared.sent[flow].fetch_add(sent as u64, Ordering::Relaxed);
            shared.last_send_ns.store(now_ns(), Ordering::Relaxed);
        }
        if all_done {
            return Ok(());
        }
        pace.wait();
    }
}

fn connect(order: &SendOrder, to: &SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((order.from, 0))
        .with_context(|| format!("cannot bind to {}", order.from))?;
    socket
        .connect(to)
        .with_context(|| format!("cannot connect to {to}"))?;
    // The wire has flow control: a sender must end even if frames are not taken off it any more.
    socket.set_write_timeout(Some(STUCK))?;
    Ok(socket)
}

/// Gives datagrams to the kernel, which blocks while its buffers are full; returns how many it took.
fn hand_over(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<()>,
    datagrams: &[Vec<u8>],
) -> Result<usize> {
    let slices: Vec<[IoSlice<'_>; 1]> = datagrams
        .iter()
        .map(|datagram| [IoSlice::new(datagram)])
        .collect();
    let addresses = vec![None::<()>; datagrams.len()];
    let controls: [ControlMessage<'_>; 0] = [];
    let fd = socket.as_raw_fd();
    match sendmmsg(
        fd,
        headers,
        &slices,
        &addresses,
        controls,
        MsgFlags::empty(),
    ) {
        Ok(results) => Ok(results.count()),
        // The receiver is gone, or its device: cases that take them away want the sender to go on.
        Err(Errno::ECONNREFUSED | Errno::EINTR | Errno::EAGAIN) => Ok(0),
        Err(error) => Err(error).context("cannot send"),
    }
}

/// Keeps an offered rate without ever making up for lost time in one burst.
struct Pace {
    rate: Option<f64>,
    start_ns: u64,
    sent: f64,
}

impl Pace {
    fn start(rate: Option<f64>) -> Self {
        Self {
            rate,
            start_ns: now_ns(),
            sent: 0.0,
        }
    }

    fn due(&mut self) -> usize {
        let Some(rate) = self.rate else {
            return BURST;
        };
        let due = (now_ns() - self.start_ns) as f64 * 1e-9 * rate - self.sent;
        let most = BURST as f64;
        if due > most {
            // This thread was away: what it missed is gone.
            self.sent += due - most;
        }
        due.clamp(0.0, most) as usize
    }

    fn sent(&mut self, count: usize) {
        self.sent += count as f64;
    }

    fn wait(&self) {
        if self.rate.is_some() {
            thread::sleep(TICK);
        }
    }
}
