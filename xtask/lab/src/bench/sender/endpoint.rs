// SPDX-License-Identifier: GPL-2.0

//! The end of a TCP connection that is outside the guest: it sends without end to a server that only reads.
//!
//! The sender must never hold up the receiver, so it has no congestion control and no slow start: it sends whatever fits in the
//! receiver's window and its own buffer.

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Connection, PORT};
use mflow_protocol::network::TCP_HEADS;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::tunnel::Tunnel;

/// The source port of the first connection, and how many ports later ones take turns on.
const SOURCE_PORT: u16 = 41_001;
const SOURCE_PORTS: u16 = 1_000;
/// The server sends no data.
const RECEIVE_BYTES: usize = 2_048;
/// Every address is on the other end of the tunnel.
const PREFIX_LEN: u8 = 0;
/// The number of bytes after which the data begins again; a prime number, so that no segment looks like the next one.
const PERIOD: usize = 251;

pub(super) struct Endpoint {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    tunnel: Tunnel,
    ending: bool,
}

/// Returns the time as the stack counts it.
pub(super) fn now() -> Instant {
    std::time::Instant::now().into()
}

/// Returns the clock of TCP's time stamps: milliseconds, as Linux has them.
fn milliseconds() -> u32 {
    // CAST: a time stamp is the low half of the clock.
    now().total_millis() as u32
}

impl Endpoint {
    /// Begins the connection of this number.
    pub(super) fn connect(order: &Connection, number: u16, now: Instant) -> Result<Self> {
        ensure!(
            order.segments > 0,
            "a connection without room for a segment sends nothing"
        );
        let mut tunnel = Tunnel::new(&order.nic_mac, order.overlay)?;
        let path = tunnel.envelope().path();
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut tunnel, now);
        interface.update_ip_addrs(|addresses| {
            let client = IpCidr::new(IpAddress::Ipv4(path.client), PREFIX_LEN);
            // PANIC: there is room for one.
            addresses.push(client).expect("room for an address");
        });
        // A number of whole segments, so that none is cut where the ring ends. One byte of it always stays free: the last
        // segment is then never full and waits for more, so that none asks to be delivered at once (PSH), which ends a
        // batch of GRO.
        let segment_bytes = path.mtu - TCP_HEADS;
        let ring: Vec<u8> = (0..order.segments * segment_bytes).map(byte).collect();
        let mut socket = Socket::new(
            SocketBuffer::new(vec![0; RECEIVE_BYTES]),
            SocketBuffer::new(ring),
        );
        socket.set_tsval_generator(Some(milliseconds));
        let port = SOURCE_PORT + number % SOURCE_PORTS;
        socket
            .connect(
                interface.context(),
                (IpAddress::Ipv4(path.server), PORT),
                port,
            )
            .with_context(|| format!("cannot connect to port {PORT} of {}", path.server))?;
        let mut sockets = SocketSet::new(Vec::new());
        Ok(Self {
            interface,
            socket: sockets.add(socket),
            sockets,
            tunnel,
            ending: false,
        })
    }

    /// Takes a frame from the wire.
    pub(super) fn receive(&mut self, frame: &[u8], now: Instant) {
        if self.tunnel.arrive(frame) {
            self.interface
                .poll_ingress_single(now, &mut self.tunnel, &mut self.sockets);
        }
    }

    /// Fills a buffer with the frames that are to be sent now; another call may have more.
    pub(super) fn send(&mut self, now: Instant, frames: &mut Vec<u8>) {
        if self.ending {
            // Only when nothing is left: an end that comes with lost data may be forgotten with it.
            let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
            if socket.send_queue() == 0 {
                socket.close();
            }
        } else {
            self.refill();
        }
        while self
            .interface
            .poll_egress(now, &mut self.tunnel, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
        self.tunnel.exchange(frames);
    }

    /// Makes all of the ring but one byte data that is to be sent. Its bytes are never written again: a full ring goes on
    /// where it began.
    fn refill(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        // Twice, as free space goes over the ring's end.
        for _ in 0..2 {
            let free = socket.send_capacity() - socket.send_queue() - 1;
            // Before there is a connection, nothing is taken.
            let _not_yet = socket.send(|room| (room.len().min(free), ()));
        }
    }

    /// Returns the time after which there is something to do even if nothing arrives.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.interface.poll_delay(now, &self.sockets)
    }

    /// Makes the endpoint send the rest of its buffer, and then end the connection.
    pub(super) fn end(&mut self) {
        self.ending = true;
    }

    /// Ends the connection at once.
    pub(super) fn abort(&mut self) {
        self.ending = true;
        self.sockets.get_mut::<Socket<'_>>(self.socket).abort();
    }

    /// Returns whether the connection has ended here; its end at the server may still wait for data.
    pub(super) fn is_over(&self) -> bool {
        let state = self.sockets.get::<Socket<'_>>(self.socket).state();
        matches!(state, State::Closed | State::TimeWait)
    }

    /// Returns how many segments have been sent again.
    pub(super) fn sent_again(&self) -> u64 {
        self.tunnel.sent_again()
    }
}

/// Returns the byte at a place of the ring.
pub(super) fn byte(place: usize) -> u8 {
    // CAST: less than 251.
    (place % PERIOD) as u8
}

#[cfg(test)]
mod tests {
    use mflow_protocol::network;

    use super::super::fixture::{order, Server};
    use super::*;

    const SEGMENTS: usize = 1_000;
    const WINDOW_BYTES: usize = 4 << 20;
    const BYTES: usize = 3 << 20;
    const STEPS_MAX: i64 = 300_000;

    /// A wire on which frames vanish or change places, one of this many.
    struct Wire {
        lost: u64,
        late: u64,
        count: u64,
        held: Option<Vec<u8>>,
    }

    impl Wire {
        fn new(lost: u64, late: u64) -> Self {
            let (count, held) = (0, None);
            Self {
                lost,
                late,
                count,
                held,
            }
        }

        /// Carries a frame; returns what arrives.
        fn carry(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
            self.count += 1;
            if self.count.is_multiple_of(self.lost) {
                return Vec::new();
            }
            if self.count.is_multiple_of(self.late) && self.held.is_none() {
                self.held = Some(frame.to_vec());
                return Vec::new();
            }
            let mut arrived = vec![frame.to_vec()];
            arrived.extend(self.held.take());
            arrived
        }
    }

    struct Talk {
        endpoint: Endpoint,
        server: Server,
        ring_bytes: usize,
        now: Instant,
        there: Wire,
        back: Wire,
        /// The most bytes in frames that were sent before the server had answered.
        most_unanswered: usize,
    }

    impl Talk {
        fn new(overlay: bool, [there, back]: [Wire; 2]) -> Self {
            let now = Instant::from_millis(0);
            let endpoint = Endpoint::connect(&order(overlay, SEGMENTS), 1, now).expect("good");
            let ring_bytes = SEGMENTS * (endpoint.tunnel.envelope().path().mtu - TCP_HEADS);
            Self {
                endpoint,
                server: Server::new(overlay, WINDOW_BYTES, now),
                ring_bytes,
                now,
                there,
                back,
                most_unanswered: 0,
            }
        }

        /// Passes a millisecond: all that can be sent goes there, and all answers come back.
        fn step(&mut self) {
            self.now += Duration::from_millis(1);
            let (mut frames, mut unanswered) = (Vec::new(), 0);
            loop {
                self.endpoint.send(self.now, &mut frames);
                if frames.is_empty() {
                    break;
                }
                unanswered += frames.len();
                let mut left = &frames[..];
                while let Some((length, rest)) = left.split_first_chunk::<4>() {
                    let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
                    left = rest;
                    for frame in self.there.carry(frame) {
                        self.server.receive(&frame);
                    }
                }
            }
            self.most_unanswered = self.most_unanswered.max(unanswered);
            for answer in self.server.run(self.ring_bytes, self.now) {
                for frame in self.back.carry(&answer) {
                    self.endpoint.receive(&frame, self.now);
                }
            }
        }

        /// Returns how many bytes the server has not acknowledged.
        fn left_bytes(&self) -> usize {
            let socket = self
                .endpoint
                .sockets
                .get::<Socket<'_>>(self.endpoint.socket);
            socket.send_queue()
        }

        fn until(&mut self, mut reached: impl FnMut(&Self) -> bool) {
            let end = self.now + Duration::from_millis(STEPS_MAX as u64);
            while !reached(self) {
                assert!(
                    self.now < end,
                    "{:?} after {} bytes",
                    self.server.state(),
                    self.server.read
                );
                self.step();
            }
        }
    }

    fn good() -> Wire {
        Wire::new(u64::MAX, u64::MAX)
    }

    #[test]
    fn on_a_good_wire_nothing_is_sent_again_and_all_segments_are_full() {
        for overlay in [true, false] {
            let mut talk = Talk::new(overlay, [good(), good()]);
            talk.until(|talk| talk.server.read > BYTES);
            assert_eq!(talk.server.odd_segments, 0);
            assert_eq!(talk.endpoint.sent_again(), 0);
            // All but the last segment, which waits, is under way at once: windows are scaled.
            assert_eq!(
                talk.most_unanswered,
                (SEGMENTS - 1) * (4 + 14 + network::WIRE_MTU)
            );
            talk.endpoint.end();
            talk.until(|talk| talk.endpoint.is_over());
            // Then also what had to wait has arrived, and nothing is left to be said.
            talk.step();
            assert_eq!(talk.server.state(), State::Closed);
            assert_eq!(talk.left_bytes(), 0);
            assert_eq!(talk.server.odd_segments, 1);
            assert_eq!(talk.endpoint.sent_again(), 0);
        }
    }

    #[test]
    fn what_is_lost_or_late_arrives_in_the_end() {
        for overlay in [true, false] {
            for (lost, late) in [(997, u64::MAX), (u64::MAX, 53), (311, 97)] {
                let wires = [Wire::new(lost, late), Wire::new(lost, late)];
                let mut talk = Talk::new(overlay, wires);
                talk.until(|talk| talk.server.read > BYTES);
                // A frame that changes places with its neighbour is not sent again.
                assert_eq!(talk.endpoint.sent_again() > 0, lost < u64::MAX);
                talk.endpoint.end();
                talk.until(|talk| talk.endpoint.is_over());
                assert_eq!(talk.left_bytes(), 0);
            }
        }
    }

    #[test]
    fn a_connection_that_the_server_refuses_or_resets_is_over() {
        let mut talk = Talk::new(true, [good(), good()]);
        talk.until(|talk| talk.server.read > 0);
        talk.server.abort();
        talk.until(|talk| talk.endpoint.is_over());
        let mut talk = Talk::new(true, [good(), good()]);
        // It does not listen any more.
        talk.server.abort();
        talk.until(|talk| talk.endpoint.is_over());
    }

    #[test]
    fn a_connection_that_is_aborted_is_over_on_both_ends() {
        let mut talk = Talk::new(true, [good(), good()]);
        talk.until(|talk| talk.server.read > 0);
        talk.endpoint.abort();
        talk.step();
        assert!(talk.endpoint.is_over());
        assert_eq!(talk.server.state(), State::Closed);
    }
}
