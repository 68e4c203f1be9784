// SPDX-License-Identifier: GPL-2.0

//! A socket that sends one test packet after the other, and looks at each answer.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use anyhow::{ensure, Context as _, Result};
use mflow_hike::stamp::packet::BYTES;
use mflow_hike::stamp::{Answer, Clock, ErrorEstimate, Format, Question, Stamp};
use nix::sys::socket::{setsockopt, sockopt};

use crate::network::netns;

/// The hop limit of its packets: none that anybody else has.
const HOP_LIMIT: u8 = 77;
const SESSION: u16 = 0xabcd;
/// The time after which an answer does not come any more.
const PATIENCE: Duration = Duration::from_secs(20);
/// The clock of programs may be behind that of processes by a part of a tick.
const TICK: Duration = Duration::from_millis(20);
/// An extension behind the base packet, which nobody has understood yet (RFC 8972, 4): padding of eight bytes.
const EXTENSION: [u8; 12] = [0x80, 1, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];

/// The socket, in a node.
pub(crate) struct Asker {
    pub(crate) socket: UdpSocket,
    to: SocketAddr,
    next: u32,
    /// Reflectors say that their clock may be wrong by this at least.
    pub(crate) least_error: Duration,
}

impl Asker {
    /// Opens one that sends to a reflector.
    pub(crate) fn open(node: &str, reflector: IpAddr, port: u16) -> Result<Self> {
        let any = match reflector.is_ipv4() {
            true => "0.0.0.0:0",
            false => "[::]:0",
        };
        let socket = netns::within(node, || Ok(UdpSocket::bind(any)?))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let hop_limit = i32::from(HOP_LIMIT);
        match reflector.is_ipv4() {
            true => setsockopt(&socket, sockopt::Ipv4Ttl, &hop_limit)?,
            false => setsockopt(&socket, sockopt::Ipv6Ttl, &hop_limit)?,
        }
        Ok(Self {
            socket,
            to: SocketAddr::new(reflector, port),
            next: 0,
            least_error: Duration::ZERO,
        })
    }

    /// Returns the next packet, with an extension.
    pub(crate) fn question(&mut self, format: Format) -> Result<(Question, Vec<u8>)> {
        let clock = Clock::read()?;
        let question = Question {
            sequence: self.next,
            sent: Stamp::write(format, now(), clock.tai_ahead_s),
            error: ErrorEstimate::new(true, format, Duration::from_micros(3)),
        };
        self.next += 1;
        let mut bytes = question.to_bytes(SESSION).to_vec();
        bytes.extend(EXTENSION);
        Ok((question, bytes))
    }

    /// Sends a packet.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<()> {
        let sent = self.socket.send_to(bytes, self.to)?;
        ensure!(sent == bytes.len(), "{sent} bytes were sent");
        Ok(())
    }

    /// Sends a question, and fails unless its answer comes next, from the reflector, and says the truth. `routers` are between both.
    pub(crate) fn ask(&mut self, format: Format, routers: u8) -> Result<()> {
        let (question, bytes) = self.question(format)?;
        self.send(&bytes)?;
        let mut came = [0; 128];
        let (length, from) = self.socket.recv_from(&mut came).context("no answer")?;
        let came = came.get(..length).context("it is too long")?;
        ensure!(from == self.to, "{from} has answered");
        ensure!(
            length == bytes.len() && came[BYTES..] == EXTENSION,
            "the extension of {came:?} is another one"
        );
        let answer = Answer::of_bytes(came).context("it is too short")?;
        let expected = Answer {
            sequence: question.sequence,
            session: SESSION,
            question,
            hop_limit: HOP_LIMIT - routers,
            ..answer
        };
        ensure!(answer == expected, "{answer:?}, and not {expected:?}");
        let zeros = [&came[38..40], &came[41..BYTES]].concat();
        ensure!(zeros == [0; 5], "zeros are {zeros:?}");
        ensure!(
            answer.error.format() == format,
            "times of {:?} to a question with times of {format:?}",
            answer.error.format()
        );
        let (after, clock) = (now(), Clock::read()?);
        self.holds_error(answer.error, clock)?;
        let tai_ahead_s = clock.tai_ahead_s;
        let read = |stamp: Stamp| {
            let time = stamp.read(format, tai_ahead_s, after);
            time.context("no time")
        };
        let (sent, received) = (read(question.sent)?, read(answer.received)?);
        let answered = read(answer.sent)?;
        ensure!(
            sent <= received + TICK && received <= answered && answered <= after + TICK,
            "sent at {sent:?}, received at {received:?}, answered at {answered:?}, read at {after:?}"
        );
        Ok(())
    }
}

impl Asker {
    /// Holds what a reflector says of its clock against what the kernel says of the same clock now: the error of one that nobody sets
    /// grows.
    fn holds_error(&self, said: ErrorEstimate, clock: Clock) -> Result<()> {
        // The seconds of PTP are those of TAI, of which nobody has told.
        let is_known = said.format() == Format::Ntp || clock.tai_ahead_s > 0;
        let is_synchronized = clock.error.is_synchronized() && is_known;
        let (least, most) = (self.least_error, clock.error.error());
        let error = said.error();
        ensure!(
            said.is_synchronized() == is_synchronized && error >= Some(least) && error <= most,
            "the reflector says {said:?}, and the clock is {clock:?}, wrong by {least:?} at least"
        );
        Ok(())
    }
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}
