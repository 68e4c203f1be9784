// SPDX-License-Identifier: GPL-2.0

//! New connections and new flows of datagrams beside an elephant: how many the client makes, and whether each is answered.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use socket2::SockRef;

use super::elephant::unspecified;
use crate::machine::{cpu, proc_net, threads};
use crate::network::netns;
use crate::network::topology::{Family, CLIENT, CONTAINER};
use crate::traffic::streams::connection::accept_all;

/// The number of clients that connect at the same time, and the number of connections that each makes.
const CLIENTS: usize = 4;
const CONNECTIONS_EACH: u64 = 40;
/// One more is made before all others: rules that remember a client know it then.
pub(super) const CONNECTIONS: u64 = CLIENTS as u64 * CONNECTIONS_EACH + 1;
/// The number of flows of some datagrams and their answers.
pub(super) const FLOWS: usize = 150;
/// A SYN is sent again after a second.
const CONNECT: Duration = Duration::from_millis(2_500);
/// After this many failures in a row a client sees that it is in vain.
const MOST_FAILURES: u64 = 3;
/// The time that the answer to a datagram may take.
const ANSWER: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// Between two new flows of datagrams.
const EVERY: Duration = Duration::from_millis(3);
/// Connections that may wait for the server.
const PLACES: i32 = 1024;

/// The results of connections and flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made {
    /// Connections over which the server has said to which address and port it was spoken.
    pub(super) connections: u64,
    /// SYNs that were sent again.
    pub(super) syns_again: u64,
    /// Datagrams that were answered from where they were sent to.
    pub(super) answers: u64,
    /// Flows of datagrams that more than one server has answered.
    pub(super) torn: u64,
    /// Datagrams of the servers' namespaces for a port that has no socket.
    pub(super) no_port: u64,
}

impl Made {
    /// Fails unless everything has come about, as it has to with `enabled` 0.
    pub(super) fn require_all(&self) -> Result<()> {
        self.require_all_of(1)
    }

    /// Does the same where each flow has this many datagrams.
    pub(super) fn require_all_of(&self, rounds: usize) -> Result<()> {
        let all = Self {
            connections: CONNECTIONS,
            syns_again: 0,
            // CAST: some hundred.
            answers: (FLOWS * rounds) as u64,
            torn: 0,
            no_port: 0,
        };
        ensure!(*self == all, "{self:?}, and it has to be {all:?}");
        Ok(())
    }
}

/// A server that takes connections and datagrams.
pub(super) struct Server {
    pub(super) namespace: &'static str,
    pub(super) listener: TcpListener,
    /// The address that the listener has to say it was spoken to at.
    pub(super) told: SocketAddr,
    pub(super) echo: UdpSocket,
}

impl Server {
    /// Returns one at two ports of any address of a namespace, which is told to be spoken to at this one.
    pub(super) fn bind(
        namespace: &'static str,
        address: IpAddr,
        tcp: u16,
        udp: u16,
    ) -> Result<Self> {
        let any = match address {
            IpAddr::V4(_) => unspecified(Family::V4),
            IpAddr::V6(_) => unspecified(Family::V6),
        };
        let (listener, echo) = netns::within(namespace, || {
            Ok((TcpListener::bind((any, tcp))?, UdpSocket::bind((any, udp))?))
        })?;
        Ok(Self {
            namespace,
            listener,
            told: (address, tcp).into(),
            echo,
        })
    }

    fn accept(&self, stop: &AtomicBool) -> Result<()> {
        accept_all(&self.listener, stop, |mut socket, _| {
            let told = socket.local_addr()?.to_string();
            // A client that has given up hears nothing.
            let _ = socket.write_all(told.as_bytes());
            Ok(())
        })
    }

    /// Answers each datagram with one that begins with the server's place among all.
    fn answer(&self, place: u8, stop: &AtomicBool) -> Result<()> {
        cpu::pin(cpu::READER)?;
        self.echo.set_read_timeout(Some(LOOK))?;
        let mut buffer = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            match self.echo.recv_from(&mut buffer) {
                Ok((count, from)) => {
                    buffer[0] = place;
                    self.echo.send_to(&buffer[..count], from)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot take a datagram"),
            }
        }
        Ok(())
    }
}

/// The services that new connections and datagrams are for, and the servers that may take them.
pub(super) struct Services {
    pub(super) client: IpAddr,
    pub(super) connect: SocketAddr,
    pub(super) send: SocketAddr,
    /// The number of datagrams of each flow. The next one is sent when the one before has been answered.
    pub(super) rounds: usize,
    pub(super) servers: Vec<Server>,
}

impl Services {
    /// Returns those that the client sees at two ports of the container's own address, while the server is at these ports.
    pub(super) fn of_container(
        inner: Family,
        [tcp, udp]: [u16; 2],
        [server_tcp, server_udp]: [u16; 2],
    ) -> Result<Self> {
        let address = inner.container();
        Ok(Self {
            client: inner.client(),
            connect: (address, tcp).into(),
            send: (address, udp).into(),
            rounds: 1,
            servers: vec![Server::bind(CONTAINER, address, server_tcp, server_udp)?],
        })
    }

    /// Makes all connections and flows from the client, one after the other, and says what has come of them.
    pub(super) fn make(&self) -> Result<Made> {
        self.make_in(CLIENT)
    }

    /// Does the same from another namespace.
    pub(super) fn make_in(&self, namespace: &str) -> Result<Made> {
        for server in &self.servers {
            SockRef::from(&server.listener).listen(PLACES)?;
        }
        let (again, no_port) = (syns_again(namespace)?, self.no_port()?);
        let serve = |stop: &AtomicBool| self.serve(stop);
        let ((), (connections, (answers, torn))) = threads::beside(serve, || {
            Ok((
                self.connect_all(namespace)?,
                netns::within(namespace, || self.ask_all())?,
            ))
        })?;
        Ok(Made {
            connections,
            syns_again: syns_again(namespace)? - again,
            answers,
            torn,
            no_port: self.no_port()? - no_port,
        })
    }

    fn serve(&self, stop: &AtomicBool) -> Result<()> {
        thread::scope(|scope| {
            let servers = (0_u8..).zip(&self.servers);
            let running: Vec<_> = servers
                .flat_map(|(place, server)| {
                    [
                        scope.spawn(move || server.answer(place, stop)),
                        scope.spawn(|| server.accept(stop)),
                    ]
                })
                .collect();
            let joined = running.into_iter().map(|thread| thread.join());
            threads::results(joined).map(drop)
        })
    }

    fn no_port(&self) -> Result<u64> {
        let servers = self.servers.iter();
        servers.map(|server| no_port(server.namespace)).sum()
    }

    fn connect_all(&self, namespace: &str) -> Result<u64> {
        let first = netns::within(namespace, || self.connect_once())?;
        let others = threads::each(CLIENTS, |_| self.connect_some(namespace))?;
        Ok(u64::from(first) + others.into_iter().sum::<u64>())
    }

    fn connect_some(&self, namespace: &str) -> Result<u64> {
        netns::enter(namespace)?;
        cpu::pin(cpu::SENDER)?;
        let (mut made, mut failed) = (0, 0);
        for _ in 0..CONNECTIONS_EACH {
            if self.connect_once()? {
                (made, failed) = (made + 1, 0);
            } else {
                failed += 1;
            }
            if failed == MOST_FAILURES {
                break;
            }
        }
        Ok(made)
    }

    /// Returns whether a connection was made over which the server has said what it is to say.
    fn connect_once(&self) -> Result<bool> {
        let Ok(mut socket) = TcpStream::connect_timeout(&self.connect, CONNECT) else {
            return Ok(false);
        };
        socket.set_read_timeout(Some(CONNECT))?;
        let mut told = String::new();
        let heard = socket.read_to_string(&mut told).is_ok();
        let mut servers = self.servers.iter();
        Ok(heard && servers.any(|server| told == server.told.to_string()))
    }

    /// Returns how many datagrams were answered, and how many flows more than one server has answered.
    fn ask_all(&self) -> Result<(u64, u64)> {
        cpu::pin(cpu::SENDER)?;
        let mut sockets = Vec::new();
        for _ in 0..FLOWS {
            let socket = UdpSocket::bind((self.client, 0))?;
            // What comes from elsewhere is not heard.
            socket.connect(self.send)?;
            sockets.push((socket, BTreeSet::new()));
        }
        let (mut answers, mut silent) = (0, 0);
        for _ in 0..self.rounds {
            for (place, (socket, _)) in sockets.iter().enumerate() {
                let _refused = socket.send(&[0; 16]);
                if place == 0 {
                    // As with connections; the answer stays there.
                    socket.set_read_timeout(Some(ANSWER))?;
                    let _silent = socket.peek(&mut [0; 16]);
                }
                thread::sleep(EVERY);
            }
            for (socket, places) in &mut sockets {
                let patience = if silent < MOST_FAILURES {
                    ANSWER
                } else {
                    EVERY
                };
                socket.set_read_timeout(Some(patience))?;
                let mut answer = [0; 16];
                if socket.recv(&mut answer).is_ok() {
                    answers += 1;
                    places.insert(answer[0]);
                } else {
                    silent += 1;
                }
            }
        }
        let torn = sockets.iter().filter(|(_, places)| places.len() > 1);
        // CAST: some hundred.
        Ok((answers, torn.count() as u64))
    }
}

fn syns_again(namespace: &str) -> Result<u64> {
    let text = proc_net::read(Some(namespace), "netstat")?;
    let mut counters = proc_net::counters(&text, "TcpExt")?;
    let found = counters.find(|(name, _)| *name == "TCPSynRetrans");
    Ok(found.context("TCPSynRetrans is not counted")?.1)
}

fn no_port(namespace: &str) -> Result<u64> {
    Ok(proc_net::counter6(Some(namespace), "Udp6NoPorts")?
        + proc_net::counter(Some(namespace), "Udp", "NoPorts")?)
}
