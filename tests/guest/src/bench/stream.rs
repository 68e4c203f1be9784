// SPDX-License-Identifier: GPL-2.0

//! One TCP connection from outside the guest, to an application that reads and forgets: no sender in the guest is the bottleneck.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use mflow_protocol::bench::{Case, Connection, End, Frames, Outside, PORT};
use mflow_protocol::datagram::MIN_BYTES;
use mflow_protocol::guest::Message;
use mflow_protocol::network::TCP_HEADS;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::hike_front::Front;
use super::window::Counts;
use super::{frames, stack, window, AppEndpoint, SETTLE};
use crate::machine::{command, cpu, threads};
use crate::network::netns;
use crate::network::topology::{self, FEED};
use crate::traffic::streams::readers;
use crate::{mflow, verdict};

/// Room for every segment that may be on its way, with what the kernel adds to each.
const SOCKET_BYTES: usize = 48 << 20;
/// The longest time without arrivals. A connection that is to end does so, or is reset, within half of it.
const SILENCE: Duration = Duration::from_secs(20);

pub(super) fn measure(case: &Case, bytes: usize) -> Result<End> {
    let nic_mac = topology::feed_up()?;
    let front = case.front.map(Front::up).transpose()?;
    let overlay = case.stack.has_overlay();
    let few = Outside::Frames(Frames {
        nic_mac: nic_mac.clone(),
        overlay,
        flows: 1,
        bytes: MIN_BYTES,
        credit: 1,
    });
    let AppEndpoint {
        namespace,
        address,
        mtu,
    } = frames::prepare(&case.stack, Some(few))?;
    let before = mflow::flows_split()?;
    let sink = Sink::start(namespace, SocketAddr::from((address, PORT)), bytes)?;
    // CAST: some thousands.
    let segments = frames::credit_pkts(&case.stack) as usize;
    let segment_bytes = (mtu - TCP_HEADS) as u64;
    topology::with_client_outside(|| {
        verdict::say(&Message::Load(Some(Outside::Connection(Connection {
            nic_mac,
            overlay,
            segments,
        }))));
        let measured = (|| {
            command::wait_until("a stream arrives", || {
                Ok(sink.read_bytes() > 1_000 * segment_bytes)
            })?;
            stack::wait_split(&case.stack, 1, before)?;
            thread::sleep(SETTLE);
            window::measure(case, || {
                let packets = sink.read_bytes() / segment_bytes;
                Ok(Counts {
                    delivered: packets,
                    packets,
                    arrived: Some(topology::received_pkts(FEED)?),
                    // What is lost the client sends again, and the host counts that.
                    ..Counts::default()
                })
            })
        })();
        verdict::say(&Message::Load(None));
        // The sink's error goes first: what is waited for does not happen because of it.
        sink.wait().and(measured)
    })
    .and_then(|()| front.as_ref().map_or(Ok(()), Front::check))
    .with_context(|| format!("{:?}, {:?}, reads of {bytes} bytes", case.stack, case.front))?;
    Ok(End::default())
}

/// The receiving application: one system call for as many bytes as fit in its buffer.
struct Sink {
    read_bytes: Arc<AtomicU64>,
    reader: JoinHandle<Result<()>>,
}

impl Sink {
    /// Starts to listen in a namespace.
    fn start(namespace: Option<&'static str>, address: SocketAddr, bytes: usize) -> Result<Self> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let (reader, ()) = threads::start({
            let read_bytes = Arc::clone(&read_bytes);
            move |ready| {
                cpu::pin(cpu::READER)?;
                if let Some(namespace) = namespace {
                    netns::enter(namespace)?;
                }
                let listener = readers::listen(address, Some(SOCKET_BYTES))?;
                let _receiver_gone = ready.send(());
                read(&listener, &read_bytes, bytes, SILENCE)
            }
        })?;
        Ok(Self { read_bytes, reader })
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Waits until the client has ended the connection.
    fn wait(self) -> Result<()> {
        threads::result(self.reader.join())
    }
}

/// Accepts one connection, and reads until it ends, as it must without an error; `silence` is how long nothing may arrive.
fn read(
    listener: &TcpListener,
    read_bytes: &AtomicU64,
    bytes: usize,
    silence: Duration,
) -> Result<()> {
    let none = |what: &str| format!("{what} for {} s", silence.as_secs_f64());
    // CAST: some seconds.
    let limit = TimeVal::milliseconds(silence.as_millis() as i64);
    // It holds for the connection, too.
    setsockopt(listener, sockopt::ReceiveTimeout, &limit)?;
    let (mut stream, _) = listener
        .accept()
        .with_context(|| none("no connection has been made"))?;
    let mut buffer = vec![0; bytes];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                read_bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(error).with_context(|| none("nothing has arrived"));
            }
            Err(error) => return Err(error).context("the connection has not ended well"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(60);

    fn listen() -> (TcpListener, SocketAddr) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = readers::listen(address, Some(1 << 20)).expect("a port");
        let address = listener.local_addr().expect("bound");
        (listener, address)
    }

    /// Returns the result of a reader as text, and the number of bytes that it has read.
    fn said_by_reader(listener: &TcpListener, silence: Duration) -> (String, u64) {
        let count = AtomicU64::new(0);
        let read = read(listener, &count, 1_000, silence);
        let said = read.map_or_else(|error| error.to_string(), |()| "ended".to_owned());
        (said, count.into_inner())
    }

    #[test]
    fn a_stream_is_read_to_its_end() {
        let (listener, address) = listen();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(&[1; 300_000]).expect("a reader");
        });
        let said = said_by_reader(&listener, LONG);
        client.join().expect("no panic");
        assert_eq!(said, ("ended".to_owned(), 300_000));
    }

    #[test]
    fn a_client_that_does_not_come_or_goes_on_or_end_well_is_an_error() {
        let (listener, address) = listen();
        let (said, _) = said_by_reader(&listener, SHORT);
        assert_eq!(said, "no connection has been made for 0.1 s");
        // All of these wait to be accepted, so that no thread can be late.
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(&[1; 10]).expect("room");
        let (said, bytes) = said_by_reader(&listener, SHORT);
        assert_eq!(
            (said.as_str(), bytes),
            ("nothing has arrived for 0.1 s", 10)
        );
        let stream = TcpStream::connect(address).expect("a connection");
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).expect("an option");
        drop(stream);
        let (said, _) = said_by_reader(&listener, LONG);
        assert_eq!(said, "the connection has not ended well");
    }
}
