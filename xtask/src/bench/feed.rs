// SPDX-License-Identifier: GPL-2.0

//! The sender outside the guest: a thread that puts frames on the wire as fast as the guest takes them.
//!
//! Two things hold it back: the wire, which has flow control, and the credit: the guest's application says how far it is,
//! so that frames queue up in front of the guest's bottleneck, wherever that is, without being lost there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mflow_protocol::bench::Frames;

use super::frames::Maker;

/// Datagrams written to the wire at once.
const BURST: usize = 32;
/// How long to wait for more credit between two looks.
const LOOK: Duration = Duration::from_micros(200);
/// After this time without news what is on its way counts as lost.
const SILENCE: Duration = Duration::from_secs(1);

/// The running sender.
pub(super) struct Feed {
    orders: Sender<Option<Frames>>,
}

impl Feed {
    /// Starts the sender on one end of a wire; `credit` is the socket that the guest's port connects to.
    pub(super) fn start(wire: UnixStream, credit: &Path) -> Result<Self> {
        let listener = UnixListener::bind(credit)
            .with_context(|| format!("cannot listen on {}", credit.display()))?;
        let reached = Arc::new(AtomicU64::new(0));
        thread::spawn({
            let reached = Arc::clone(&reached);
            // It ends with the guest, which closes the port.
            move || listen(&listener, &reached)
        });
        let (orders, order) = mpsc::channel();
        // It ends with the guest, which closes the wire, or with us.
        thread::spawn(move || send(wire, &order, &reached));
        Ok(Self { orders })
    }

    /// Changes what is sent; `None`: nothing.
    pub(super) fn order(&self, order: Option<Frames>) {
        // The thread is only gone if the guest is, and then nobody waits for frames.
        let _guest_is_gone = self.orders.send(order);
    }
}

fn listen(listener: &UnixListener, reached: &AtomicU64) {
    let Ok((port, _)) = listener.accept() else {
        return;
    };
    for line in BufReader::new(port).lines().map_while(Result::ok) {
        if let Ok(count) = line.trim().parse() {
            reached.store(count, Ordering::Relaxed);
        }
    }
}

fn send(mut wire: UnixStream, orders: &Receiver<Option<Frames>>, reached: &AtomicU64) {
    let mut next = orders.recv().ok();
    while let Some(order) = next {
        next = match order {
            None => orders.recv().ok(),
            Some(frames) => stream(&mut wire, frames, orders, reached).unwrap_or_else(|error| {
                eprintln!("the sender has ended: {error:#}");
                None
            }),
        };
    }
}

/// Sends until another order comes, and returns that; `None`: nobody orders any more.
fn stream(
    wire: &mut UnixStream,
    order: Frames,
    orders: &Receiver<Option<Frames>>,
    reached: &AtomicU64,
) -> Result<Option<Option<Frames>>> {
    let (flows, credit) = (u64::from(order.flows), order.credit);
    let mut maker = Maker::new(order)?;
    let mut buffer = Vec::new();
    // The count of an earlier application is none of ours.
    reached.store(0, Ordering::Relaxed);
    let (mut sent, mut given_up) = (0_u64, 0_u64);
    let mut news = (0, Instant::now());
    loop {
        match orders.try_recv() {
            Ok(order) => return Ok(Some(order)),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => {}
        }
        let arrived = reached.load(Ordering::Relaxed);
        if arrived != news.0 {
            news = (arrived, Instant::now());
        } else if news.1.elapsed() > SILENCE {
            given_up = sent.saturating_sub(arrived);
            news.1 = Instant::now();
        }
        if sent >= arrived + given_up + credit {
            thread::sleep(LOOK);
            continue;
        }
        buffer.clear();
        for _ in 0..BURST {
            // CAST: the number of flows is a u16.
            let flow = (sent % flows) as u16;
            maker.make(flow, sent / flows, |frame| {
                // CAST: a frame has at most 1514 bytes. The length before it is how QEMU's stream tells frames apart.
                buffer.extend_from_slice(&(frame.len() as u32).to_be_bytes());
                buffer.extend_from_slice(frame);
            })?;
            sent += 1;
        }
        wire.write_all(&buffer).context("the wire is cut")?;
    }
}
