// SPDX-License-Identifier: GPL-2.0

//! The traffic while steps are taken: numbered datagrams, and for most sequences a stream beside them.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::SockRef;

use super::sequence::Setting;
use super::step::Effect;
use crate::machine::command::{self, within};
use crate::machine::threads;
use crate::mflow;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::datagrams::run::{Datagrams, LiveDatagrams};
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::connection::{self, End, Pair};
use crate::traffic::streams::verifier::ReadProgress;
use crate::traffic::{Live as _, Plan};

/// The part of the rate without loss that each load has: the steps need CPUs, too.
const SHARE: f64 = 0.25;
/// The time for which the loads flow between two steps, at their rate, and the least number of datagrams in that time.
const PAUSE: Duration = Duration::from_millis(30);
const LEAST_PKTS: u64 = 16;
/// Bytes of a stream that are written at once.
const CHUNK_BYTES: usize = 16 << 10;
/// The time limit for a stream to go on. Longer than a step holds packets on a busy host, and shorter than the host waits for a step.
const STUCK: Duration = Duration::from_secs(200);
/// Payload of a segment, roughly.
const SEGMENT_BYTES: f64 = 1_300.0;

pub(super) struct Loads {
    datagrams: LiveDatagrams,
    stream: Option<Stream>,
    inner: Family,
    pkts_per_s: f64,
}

impl Loads {
    pub(super) fn start(rig: &Rig, setting: &Setting) -> Result<Self> {
        let pkts_per_s = rig.frames_per_s() * SHARE;
        let load = Datagrams::smallest(0, Some(pkts_per_s)).sized(setting.datagram_bytes);
        let pkts_per_s = load.frames_per_s.unwrap_or(pkts_per_s);
        let plan = Plan {
            inner: setting.inner,
            one_outer: setting.one_outer,
            ..Plan::one_flow(setting.outer, load)
        };
        let stream = if setting.stream {
            Some(Stream::start(setting.inner, pkts_per_s * SEGMENT_BYTES)?)
        } else {
            None
        };
        Ok(Self {
            datagrams: LiveDatagrams::start(&plan)?,
            stream,
            inner: setting.inner,
            pkts_per_s,
        })
    }

    /// Lets the datagrams flow for as many of them as take a moment.
    pub(super) fn flow(&self) -> Result<()> {
        self.flow_for(PAUSE)
    }

    pub(super) fn flow_for(&self, time: Duration) -> Result<()> {
        // CAST: thousands.
        let pkts = (self.pkts_per_s * time.as_secs_f64()) as u64;
        self.datagrams.send_more(pkts.max(LEAST_PKTS))
    }

    /// Fails unless both loads arrive, after whatever has happened before.
    pub(super) fn require_arrivals(&self) -> Result<()> {
        let datagrams = self.datagrams.arrivals();
        let read = self.stream.as_ref().map(Stream::read_bytes);
        command::wait_until("datagrams arrive again", || {
            Ok(self.datagrams.arrivals() > datagrams)
        })?;
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        let goes_on = threads::until_ok(STUCK, || {
            let has_read = Some(stream.read_bytes()) > read;
            ensure!(has_read, "the stream does not go on");
            Ok(())
        });
        goes_on.with_context(|| {
            let sockets = [CLIENT, CONTAINER].map(|namespace| {
                let line = within(namespace, "ss -H -t -i -m -n -o");
                format!("{namespace}: {}", command::run(&line).unwrap_or_default())
            });
            let reader = match stream.reader.is_finished() {
                true => "has ended",
                false => "waits",
            };
            format!(
                "its reader {reader}; {}\n{}",
                sockets.concat(),
                mflow::reasons()
            )
        })
    }

    /// Closes the datagrams' socket, and returns what it has received.
    pub(super) fn close_socket(&mut self) -> Result<Outcome> {
        self.datagrams.close()
    }

    pub(super) fn open_socket(&mut self) -> Result<()> {
        self.datagrams.reopen()
    }

    /// Closes the stream's socket with bytes unread, and begins another stream.
    pub(super) fn another_stream(&mut self) -> Result<()> {
        if let Some(stream) = self.stream.take() {
            stream.abandon()?;
            self.stream = Some(Stream::start(self.inner, self.pkts_per_s * SEGMENT_BYTES)?);
        }
        Ok(())
    }

    /// Ends the loads, of which packets may be missing or not; returns what arrived.
    pub(super) fn end(self, loses: bool) -> Result<Outcome> {
        let drained = self.datagrams.drain(loses);
        let datagrams = self.datagrams.end();
        let read = self.stream.map_or(Ok(0), Stream::finish);
        drained?;
        Ok(Outcome {
            stream_bytes: read?,
            ..datagrams?
        })
    }

    /// Ends the loads where their path may be gone; returns what arrived of the datagrams.
    pub(super) fn abandon(self) -> Result<Outcome> {
        let datagrams = self.datagrams.end();
        let stream = self.stream.map_or(Ok(()), Stream::abandon);
        stream?;
        datagrams
    }
}

/// The effects that the steps up to now may have had on the loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    pub(super) effect: Effect,
    /// The number of packets that the module has counted as late: each may be out of order.
    pub(super) late_pkts: u64,
}

impl Allowed {
    /// Fails if what arrived is not what the steps allow.
    pub(super) fn judge(&self, outcome: &Outcome, loses: bool) -> Result<()> {
        if loses {
            outcome.require_intact()?;
        } else {
            outcome.require_whole()?;
        }
        let most = self.effect.reorders_pkts + self.late_pkts;
        ensure!(
            outcome.reordered <= most,
            "{} of {} datagrams out of order, and {most} may be",
            outcome.reordered,
            outcome.delivered
        );
        Ok(())
    }
}

/// A stream over a connection of its own.
struct Stream {
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
    progress: Arc<ReadProgress>,
    stop: Arc<AtomicBool>,
    writer: JoinHandle<Result<(u64, End)>>,
    reader: JoinHandle<Result<(u64, End)>>,
}

impl Stream {
    fn start(inner: Family, bytes_per_s: f64) -> Result<Self> {
        let Pair { client, server } = connection::connect(inner)?;
        for socket in [&client, &server] {
            socket.set_read_timeout(Some(STUCK))?;
            socket.set_write_timeout(Some(STUCK))?;
        }
        let (client, server) = (Arc::new(client), Arc::new(server));
        let progress = Arc::new(ReadProgress::default());
        let stop = Arc::new(AtomicBool::new(false));
        let pause = Duration::from_secs_f64(CHUNK_BYTES as f64 / bytes_per_s);
        let writer = thread::spawn({
            let (client, stop) = (Arc::clone(&client), Arc::clone(&stop));
            move || {
                connection::write_while(&client, |_| {
                    thread::sleep(pause);
                    (!stop.load(Ordering::Relaxed)).then_some(CHUNK_BYTES)
                })
            }
        });
        let reader = thread::spawn({
            let (server, progress) = (Arc::clone(&server), Arc::clone(&progress));
            move || connection::read_to_end(&server, &progress)
        });
        Ok(Self {
            client,
            server,
            progress,
            stop,
            writer,
            reader,
        })
    }

    fn read_bytes(&self) -> u64 {
        self.progress.bytes()
    }

    /// Ends the stream; fails unless all that was written has been read. Returns how much that was.
    fn finish(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let written = threads::result(self.writer.join());
        // After a reset there is nothing left to shut down, and the reader says so.
        let _already_reset = self.client.shutdown(Shutdown::Write);
        let read = threads::result(self.reader.join());
        let ((read, reader), (written, writer)) = (read?, written?);
        ensure!(
            (writer, reader) == (End::Orderly, End::Orderly),
            "the stream was reset: its writer saw it end {writer:?}, its reader {reader:?}"
        );
        ensure!(read == written, "{written} bytes written, {read} read");
        Ok(read)
    }

    /// Resets the connection from both ends; fails if what was read until then is wrong.
    fn abandon(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for socket in [&self.server, &self.client] {
            // Nothing shall be sent again once the socket is closed.
            SockRef::from(&**socket).set_linger(Some(Duration::ZERO))?;
            let _already_reset = socket.shutdown(Shutdown::Both);
        }
        let read = threads::result(self.reader.join());
        let written = threads::result(self.writer.join());
        read.context("the stream that was abandoned")?;
        written.map(drop)
    }
}
