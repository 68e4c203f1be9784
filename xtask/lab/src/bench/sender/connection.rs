// SPDX-License-Identifier: GPL-2.0

//! A connection on the wire: carries the endpoint's frames until there is another order.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_frames::wire::Arriving;
use mflow_protocol::bench::{Connection, Outside};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::endpoint::{now, Endpoint};

/// The interval at which another order is looked for while nothing arrives.
const LOOK: Duration = Duration::from_millis(10);
/// The time limit for the last data to arrive; the guest waits for longer.
const END_MAX: Duration = Duration::from_secs(10);

/// Sends until another order comes, then ends the connection and returns that order. Returns `None` if the
/// orders have ended.
///
/// `sent_again` goes up by the number of segments that are sent again.
pub(super) fn run(
    wire: &mut UnixStream,
    order: &Connection,
    number: u16,
    orders: &Receiver<Option<Outside>>,
    sent_again: &AtomicU64,
) -> Result<Option<Option<Outside>>> {
    let mut endpoint = Endpoint::connect(order, number, now())?;
    let mut arriving = Arriving::new();
    let mut frames = Vec::new();
    let before = sent_again.load(Ordering::Relaxed);
    // The next order, and the time when it came.
    let mut next = None;
    loop {
        match &next {
            None => match orders.try_recv() {
                Ok(order) => {
                    next = Some((order, Instant::now()));
                    endpoint.end();
                }
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => ensure!(!endpoint.is_over(), "the guest hangs up"),
            },
            Some((_, since)) if since.elapsed() > END_MAX => endpoint.abort(),
            Some(_) => {}
        }
        let arrived = arriving.read(&*wire)?;
        while let Some(frame) = arriving.next_frame()? {
            endpoint.receive(frame, now());
        }
        endpoint.send(now(), &mut frames);
        sent_again.store(before + endpoint.sent_again(), Ordering::Relaxed);
        if !frames.is_empty() {
            wire.write_all(&frames).context("the wire is cut")?;
        } else if let Some((order, _)) = next.take_if(|_| endpoint.is_over()) {
            return Ok(Some(order));
        } else if !arrived {
            wait(&*wire, endpoint.wait(now()).map_or(LOOK, Into::into))?;
        }
    }
}

/// Waits until something arrives, but neither longer than `longest` nor longer than [`LOOK`].
fn wait(wire: impl AsFd, longest: Duration) -> Result<()> {
    let timeout = Timespec::try_from(longest.min(LOOK))?;
    poll(&mut [PollFd::new(&wire, PollFlags::IN)], Some(&timeout))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use mflow_frames::wire as framing;
    use smoltcp::socket::tcp::State;

    use super::super::fixture::{order, Server};
    use super::*;

    const SEGMENTS: usize = 500;
    const RING_BYTES: usize = SEGMENTS * 1398;
    const BYTES: usize = 3 << 20;

    /// The guest's end of a wire.
    struct Guest {
        wire: UnixStream,
        arriving: Arriving,
        server: Server,
    }

    impl Guest {
        fn new(wire: UnixStream, overlay: bool) -> Self {
            Self {
                wire,
                arriving: Arriving::new(),
                server: Server::new(overlay, 1 << 20, now()),
            }
        }

        /// Receives and answers until `until` returns true, or the wire is cut.
        fn serve(&mut self, until: impl Fn(&Server) -> bool) {
            while !until(&self.server) {
                let Ok(arrived) = self.arriving.read(&self.wire) else {
                    return;
                };
                while let Some(frame) = self.arriving.next_frame().expect("good frames") {
                    self.server.receive(frame);
                }
                let mut answers = Vec::new();
                for answer in self.server.run(RING_BYTES, now()) {
                    framing::add(&mut answers, answer.len()).copy_from_slice(&answer);
                }
                if self.wire.write_all(&answers).is_err() {
                    return;
                }
                if !arrived {
                    wait(&self.wire, LOOK).expect("a wire");
                }
            }
        }
    }

    #[test]
    fn a_connection_ends_with_all_of_its_data_when_there_is_another_order() {
        let (mut near, far) = UnixStream::pair().expect("a wire");
        let (sender, orders) = channel();
        let client = thread::spawn(move || {
            let again = AtomicU64::new(7);
            let next = run(&mut near, &order(true, SEGMENTS), 0, &orders, &again);
            (next.expect("a good end"), again.into_inner())
        });
        let mut guest = Guest::new(far, true);
        guest.serve(|server| server.read > BYTES);
        sender.send(None).expect("a client");
        guest.serve(|server| server.state() == State::Closed);
        let (next, again) = client.join().expect("no panic");
        assert_eq!((next, again), (Some(None), 7));
        assert_eq!(guest.server.odd_segments, 1);
    }

    #[test]
    fn a_guest_that_hangs_up_or_is_gone_is_an_error() {
        let (mut near, far) = UnixStream::pair().expect("a wire");
        let (_sender, orders) = channel();
        let mut error = move || {
            let again = AtomicU64::new(0);
            let ended = run(&mut near, &order(false, SEGMENTS), 0, &orders, &again);
            ended.expect_err("no good end").to_string()
        };
        let mut guest = Guest::new(far, false);
        thread::scope(|scope| {
            let client = scope.spawn(&mut error);
            // Nothing listens.
            guest.server.abort();
            guest.serve(|_| client.is_finished());
            assert_eq!(client.join().expect("no panic"), "the guest hangs up");
        });
        drop(guest);
        assert_eq!(error(), "the wire is cut");
    }
}
