// SPDX-License-Identifier: GPL-2.0

//! The sender outside the guest: a thread that puts frames on the wire as fast as the guest takes them.
//!
//! Two things limit it: the wire, which has flow control, and the credit: the guest's application says how many datagrams it has
//! received.
//! A ConnectX makes its frames by itself, from the same stream (`tests/mlx5-model`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mflow_frames::{Frames, Stream};

/// Datagrams written to the wire at once.
const BURST: usize = 32;
/// How often to check for more credit.
const LOOK: Duration = Duration::from_micros(200);

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
        // It ends with the guest, which closes the wire, or with this process.
        thread::spawn(move || send(wire, &order, &reached));
        Ok(Self { orders })
    }

    /// Changes what is sent; `None` stops it.
    pub(super) fn order(&self, order: Option<Frames>) {
        // The thread ends only with the guest, which then needs no frames.
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

/// Sends until another order comes, and returns it; `None` if the orders have ended.
fn stream(
    wire: &mut UnixStream,
    order: Frames,
    orders: &Receiver<Option<Frames>>,
    reached: &AtomicU64,
) -> Result<Option<Option<Frames>>> {
    let mut stream = Stream::new(order)?;
    let mut buffer = Vec::new();
    // The count of an earlier application does not matter.
    reached.store(0, Ordering::Relaxed);
    loop {
        match orders.try_recv() {
            Ok(order) => return Ok(Some(order)),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => {}
        }
        buffer.clear();
        for _ in 0..BURST {
            let more = stream.next(reached.load(Ordering::Relaxed), |frame| {
                // CAST: a frame has at most 1514 bytes. The length before it is how QEMU's stream separates frames.
                buffer.extend_from_slice(&(frame.len() as u32).to_be_bytes());
                buffer.extend_from_slice(frame);
            })?;
            if !more {
                break;
            }
        }
        if buffer.is_empty() {
            thread::sleep(LOOK);
        }
        wire.write_all(&buffer).context("the wire is cut")?;
    }
}
