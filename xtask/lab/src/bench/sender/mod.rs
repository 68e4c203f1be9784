// SPDX-License-Identifier: GPL-2.0

//! The sender outside the guest: a thread that puts frames on the wire as fast as the guest takes them.
//!
//! They are numbered datagrams, or the segments of a TCP connection ([`connection`] moves the frames of an [`endpoint`], whose
//! packets go through a [`tunnel`]). Two things limit them: the wire, which has flow control, and for datagrams the credit: the
//! guest's application says how many it has received. Whatever plays the guest's NIC connects to the wire: QEMU, or the model of
//! a ConnectX (`tests/mlx5-model`).

mod connection;
mod endpoint;
#[cfg(test)]
mod fixture;
mod tunnel;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mflow_frames::{wire, Stream};
use mflow_protocol::bench::Outside;

/// Datagrams written to the wire at once.
const BURST: usize = 32;
/// The interval at which more credit is looked for.
const LOOK: Duration = Duration::from_micros(200);

pub(super) struct Feed {
    orders: Sender<Option<Outside>>,
    sent_again: Arc<AtomicU64>,
}

impl Feed {
    /// Starts the sender before the guest boots; `wire` and `credit` are the sockets that the guest's NIC and port connect to.
    pub(super) fn start(wire: &Path, credit: &Path) -> Result<Self> {
        let [wire, credit] = [bind(wire)?, bind(credit)?];
        let reached = Arc::new(AtomicU64::new(0));
        thread::spawn({
            let reached = Arc::clone(&reached);
            // It ends with the guest, which closes the port.
            move || listen(&credit, &reached)
        });
        let (orders, order) = mpsc::channel();
        let sent_again = Arc::new(AtomicU64::new(0));
        thread::spawn({
            let sent_again = Arc::clone(&sent_again);
            // It ends with the guest, which closes the wire, or with this process.
            move || {
                if let Ok((wire, _)) = wire.accept() {
                    send(wire, &order, &reached, &sent_again);
                }
            }
        });
        Ok(Self { orders, sent_again })
    }

    /// Changes what is sent; `None` stops it.
    pub(super) fn order(&self, order: Option<Outside>) {
        // The thread ends only with the guest, which then needs no frames.
        let _guest_is_gone = self.orders.send(order);
    }

    /// Returns how many segments of TCP connections have been sent again.
    pub(super) fn sent_again(&self) -> u64 {
        self.sent_again.load(Ordering::Relaxed)
    }
}

fn bind(path: &Path) -> Result<UnixListener> {
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
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

fn send(
    mut wire: UnixStream,
    orders: &Receiver<Option<Outside>>,
    reached: &AtomicU64,
    sent_again: &AtomicU64,
) {
    let mut next = orders.recv().ok();
    let mut connections = 0;
    while let Some(order) = next {
        let sent = match order {
            None => Ok(orders.recv().ok()),
            Some(Outside::Frames(frames)) => {
                Stream::new(frames).and_then(|stream| datagrams(&mut wire, stream, orders, reached))
            }
            Some(Outside::Copies(copies)) => Stream::of_copies(copies)
                .and_then(|stream| datagrams(&mut wire, stream, orders, reached)),
            Some(Outside::Connection(order)) => {
                connections += 1;
                connection::run(&mut wire, &order, connections, orders, sent_again)
            }
        };
        // The guest says itself what it misses; other cases can still be measured, unless the wire is cut.
        next = sent.unwrap_or_else(|error| {
            eprintln!("the sender has stopped: {error:#}");
            orders.recv().ok()
        });
    }
}

/// Sends until another order comes, and returns it; `None` if the orders have ended.
fn datagrams(
    socket: &mut UnixStream,
    mut stream: Stream,
    orders: &Receiver<Option<Outside>>,
    reached: &AtomicU64,
) -> Result<Option<Option<Outside>>> {
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
                wire::add(&mut buffer, frame.len()).copy_from_slice(frame);
            })?;
            if !more {
                break;
            }
        }
        if buffer.is_empty() {
            thread::sleep(LOOK);
        }
        socket.write_all(&buffer).context("the wire is cut")?;
    }
}

#[cfg(test)]
mod tests {
    use mflow_frames::wire::Arriving;
    use mflow_frames::Frames;

    use super::*;

    /// The time for which the test waits for frames that must not come.
    const STILL: Duration = Duration::from_millis(50);

    #[test]
    fn what_is_ordered_before_the_guest_is_there_comes_as_far_as_the_credit_goes() {
        let dir = tempfile::tempdir().expect("a folder");
        let [wire, credit] = ["wire", "credit"].map(|name| dir.path().join(name));
        let feed = Feed::start(&wire, &credit).expect("sockets");
        feed.order(Some(Outside::Frames(Frames {
            nic_mac: "02:00:00:00:00:01".to_owned(),
            overlay: true,
            flows: 2,
            bytes: 16,
            credit: 5,
        })));
        let wire = UnixStream::connect(wire).expect("a listener");
        let mut port = UnixStream::connect(credit).expect("a listener");
        let (mut arriving, mut frames) = (Arriving::new(), 0);
        let mut wait_for = |most| {
            while frames < most {
                arriving.read(&wire).expect("a whole wire");
                while arriving.next_frame().expect("good frames").is_some() {
                    frames += 1;
                }
            }
            thread::sleep(STILL);
            assert!(!arriving.read(&wire).expect("a whole wire"));
            frames
        };
        assert_eq!(wait_for(5), 5);
        port.write_all(b"2\n").expect("a reader");
        assert_eq!(wait_for(7), 7);
    }
}
