// SPDX-License-Identifier: GPL-2.0

//! Docker itself: its daemon sets two hosts up, which are a swarm. In the other cases about Docker, rules are what Docker would write.
//!
//! The guest of these cases has Docker, and more memory; the layer runs them if all of it is wanted, or one of them.

mod control_group;
mod daemon;
mod resolver;
mod stream;
mod swarm;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::{CLIENT_HOST, SERVER_HOST};

use self::resolver::resolve;
use self::stream::{Stream, BUFFER_BYTES};
use self::swarm::{
    address_in, Receiver, Swarm, OF_CLIENT, OF_GATEWAY, OF_INGRESS, OF_SERVER, OUTER_PORT, SERVICE,
};
use crate::hosts::elephant::receiver::{seeing, Arrived};
use crate::hosts::elephant::{is_enabled, Elephant, Fate};
use crate::hosts::host::{Compared, Host, Rules};
use crate::hosts::new_flows::{Made, Server, Services, CONNECTIONS, FLOWS};
use crate::hosts::services::balancer::{remember, IN_ORDER};
use crate::hosts::services::cluster::{Port, DNS, LOGS, PORTS, WEB};
use crate::hosts::services::conntrack_ports::{Endpoints, Tracked};
use crate::hosts::Case;
use crate::machine::{command, threads};
use crate::network::topology::{Family, CLIENT};
use crate::network::{conntrack, netns};
use crate::traffic::streams::readers::listen;
use crate::{flows, mflow};

/// Datagrams of each new flow.
const ROUNDS: usize = 2;
/// Questions to the resolver beside each elephant.
const QUESTIONS: u64 = 50;
/// The time that hosts may take to tell each other of a container.
const GOSSIP: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_millis(500);

/// A way from a sender to the receiving container.
struct Way {
    name: &'static str,
    /// The namespace of the sender, and its address there.
    from: &'static str,
    sender: IpAddr,
    /// The address that it sends to, and which of the services' ports.
    address: IpAddr,
    port: fn(Port) -> u16,
    /// A flag: Docker's tunnel leads to the container.
    is_tunnelled: bool,
    /// The address of the container that this way ends at.
    end: IpAddr,
    /// The sender's address as the container sees it, unless a balancer has put its own there.
    seen: Option<IpAddr>,
    /// The namespace that translates, and what is sent to in it.
    tracked: Option<&'static str>,
    tracked_port: fn(Port) -> u16,
}

fn published(port: Port) -> u16 {
    port.node
}

fn target(port: Port) -> u16 {
    port.target
}

pub(super) fn cases() -> Vec<Case> {
    let case = |name, host, proves, receiver, fate, ways: fn(&Swarm) -> Result<Vec<Way>>| {
        Case::new(name, host, proves, move |host| {
            compare(host, receiver, fate, ways)
        })
        .with_fate(fate)
    };
    vec![
        case(
            "docker/swarm/container",
            "Docker itself: a container on an overlay network of its Swarm, and ports that it publishes for the container",
            "what is sent to a container of Docker's, in the overlay and by published ports, comes as with enabled 0",
            Receiver::Container,
            Fate::Split,
            to_container,
        ),
        case(
            "docker/swarm/service",
            "Docker itself: a service of its Swarm, by the service's address and by ports of another host",
            "what other hosts of Docker's balance to a service's container here comes as with enabled 0",
            Receiver::Service,
            Fate::Split,
            to_service,
        ),
        case(
            "docker/swarm/ingress",
            "Docker itself: a service of its Swarm, by ports of this host",
            "what Docker's sandbox balances on this host comes to the service's container as with enabled 0",
            Receiver::Service,
            IN_ORDER,
            by_ingress,
        ),
    ]
}

fn to_container(swarm: &Swarm) -> Result<Vec<Way>> {
    let (sender, receiver) = (swarm.address(OF_CLIENT)?, swarm.address(OF_SERVER)?);
    Ok(vec![
        Way {
            name: "the overlay network",
            from: OF_CLIENT,
            sender,
            address: resolved(OF_SERVER)?,
            port: target,
            is_tunnelled: true,
            end: receiver,
            seen: Some(sender),
            tracked: Some(OF_SERVER),
            tracked_port: target,
        },
        Way {
            name: "published ports",
            from: CLIENT,
            sender: CLIENT_HOST.into(),
            address: SERVER_HOST.into(),
            port: published,
            is_tunnelled: false,
            end: address_in(OF_SERVER, OF_GATEWAY)?,
            seen: Some(CLIENT_HOST.into()),
            tracked: None,
            tracked_port: published,
        },
    ])
}

fn to_service(swarm: &Swarm) -> Result<Vec<Way>> {
    let sender = swarm.address(OF_CLIENT)?;
    Ok(vec![
        Way {
            name: "the service's address",
            from: OF_CLIENT,
            sender,
            address: resolved(SERVICE)?,
            port: target,
            is_tunnelled: true,
            end: resolved(&format!("tasks.{SERVICE}"))?,
            seen: None,
            tracked: Some(OF_SERVER),
            tracked_port: target,
        },
        Way {
            name: "ports of the other host",
            from: CLIENT,
            sender: CLIENT_HOST.into(),
            address: CLIENT_HOST.into(),
            port: published,
            is_tunnelled: true,
            end: address_in(OF_SERVER, OF_INGRESS)?,
            seen: None,
            tracked: Some(OF_SERVER),
            tracked_port: published,
        },
    ])
}

fn by_ingress(_swarm: &Swarm) -> Result<Vec<Way>> {
    Ok(vec![Way {
        name: "ports of this host",
        from: CLIENT,
        sender: CLIENT_HOST.into(),
        address: SERVER_HOST.into(),
        port: published,
        is_tunnelled: false,
        end: address_in(OF_SERVER, OF_INGRESS)?,
        seen: None,
        tracked: Some(OF_SERVER),
        tracked_port: published,
    }])
}

/// Returns the address of a name as the client's container sees it, once the hosts have told each other.
fn resolved(name: &str) -> Result<IpAddr> {
    let mut address = None;
    threads::until_ok(GOSSIP, || {
        address = Some(netns::within(OF_CLIENT, || resolve(name))?);
        Ok(())
    })?;
    Ok(address.context("a name has an address")?.into())
}

#[derive(Debug)]
struct Seen {
    way: &'static str,
    arrived: Arrived,
    made: Made,
    tracked: Tracked,
    endpoints: Endpoints,
    resolved: u64,
    /// TTLs and classes of the elephant's datagrams.
    marks: Vec<(Option<u8>, Option<u8>)>,
    stream: Stream,
}

fn compare(
    host: &Host,
    receiver: Receiver,
    fate: Fate,
    ways: fn(&Swarm) -> Result<Vec<Way>>,
) -> Result<()> {
    let running = RefCell::new(None);
    let set_up = || {
        *running.borrow_mut() = Some(Swarm::start(receiver)?);
        Ok(())
    };
    let compared = host.compare(Family::V4, Rules::First, set_up, |host| {
        let mut swarm = running.take().context("the swarm runs")?;
        let mut all = Vec::new();
        for way in ways(&swarm)? {
            let seen = way.wait_open().and_then(|()| {
                // All tunnels are there now.
                swarm.one_outer_flow()?;
                way.seen(host, fate)
            });
            all.push(seen.with_context(|| format!("by {}", way.name))?);
        }
        swarm.end()?;
        Ok(all)
    })?;
    judge(&compared, fate)
}

fn judge(compared: &Compared<Vec<Seen>>, fate: Fate) -> Result<()> {
    compared.each(|all| {
        let mut all = all.iter();
        all.try_for_each(|seen| seen.require().with_context(|| format!("by {}", seen.way)))
    })?;
    for (on, off) in compared.on.iter().zip(&compared.off) {
        ensure!(
            on.marks == off.marks,
            "by {} the receiver sees {:?}, and with enabled 0 it is {:?}",
            on.way,
            on.marks,
            off.marks
        );
        match fate {
            Fate::Split => on.arrived.require_split(),
            Fate::Kept(_) => on.arrived.require_kept(),
            Fate::Either => Ok(()),
        }
        .and_then(|()| on.stream.require_fate(fate))
        .with_context(|| format!("by {}", on.way))?;
    }
    Ok(())
}

impl Seen {
    /// Demands what has to be, whether `enabled` is 0 or 1.
    fn require(&self) -> Result<()> {
        let (made, tracked) = (&self.made, &self.tracked);
        made.require_all_of(ROUNDS)
            .with_context(|| format!("{tracked:?}, {}", self.arrived.counters()))?;
        let wanted = Tracked {
            // CAST: some hundred; the elephant is one more.
            entries: CONNECTIONS + FLOWS as u64 + 1,
            // Nobody answers the elephant.
            unreplied: 1,
            ..Tracked::default()
        };
        ensure!(
            *tracked == wanted,
            "{tracked:?} of {:?}, and it has to be {wanted:?}",
            self.endpoints
        );
        ensure!(
            self.resolved == QUESTIONS,
            "of {QUESTIONS} questions {} are answered",
            self.resolved
        );
        self.arrived.require_whole()?;
        self.arrived.require_nothing_given_up()
    }
}

impl Way {
    fn at(&self, port: Port) -> SocketAddr {
        (self.address, (self.port)(port)).into()
    }

    /// Sends an elephant, and all that goes beside it.
    fn seen(&self, host: &Host, fate: Fate) -> Result<Seen> {
        wait_whole()?;
        let ports = PORTS.map(self.tracked_port);
        let forget = || {
            remember()?;
            conntrack::forget()
        };
        match self.tracked {
            Some(namespace) => netns::within(namespace, forget)?,
            None => forget()?,
        }
        let server = Server::bind(OF_SERVER, self.end, WEB.target, DNS.target)?;
        let socket = netns::within(OF_SERVER, || {
            seeing(UdpSocket::bind((self.end, LOGS.target))?)
        })?;
        let services = Services {
            client: self.sender,
            connect: self.at(WEB),
            send: self.at(DNS),
            rounds: ROUNDS,
            servers: vec![server],
        };
        let elephant = Elephant {
            from: self.sender,
            to: vec![self.at(LOGS)],
            sockets: vec![socket],
            pps: host.elephant_pps,
            fate,
        };
        let earlier = Tracked::read(self.tracked, &ports)?;
        let (arrived, (made, resolved)) = elephant.run_in(self.from, host.datagrams / 4, |_| {
            self.require_outer_flow()?;
            Ok((services.make_in(self.from)?, ask()?))
        })?;
        let (tracked, endpoints) = Tracked::read_with_endpoints(self.tracked, &ports)?;
        let marks = self.marks(&arrived)?;
        // Its ports are the stream's now.
        drop(services);
        Ok(Seen {
            way: self.name,
            arrived,
            made,
            tracked: tracked.since(&earlier),
            endpoints,
            resolved,
            marks,
            stream: self.stream(fate)?,
        })
    }

    /// Sends a stream, with nothing beside it.
    fn stream(&self, fate: Fate) -> Result<Stream> {
        wait_whole()?;
        let to = SocketAddr::from((self.end, WEB.target));
        let listener = netns::within(OF_SERVER, || listen(to, Some(BUFFER_BYTES)))?;
        let fate = is_enabled()?.then_some(fate);
        let stream = Stream::send(self.from, self.at(WEB), &listener, fate)?;
        stream.require(to)?;
        ensure!(
            self.seen.is_none_or(|sender| sender == stream.from.ip()),
            "a stream from {:?} is one from {}",
            self.seen,
            stream.from
        );
        Ok(stream)
    }

    /// Fails if a flow is split that is not the tunnel's only one.
    fn require_outer_flow(&self) -> Result<()> {
        let outer = format!("{CLIENT_HOST}:{OUTER_PORT}");
        if !self.is_tunnelled || !is_enabled()? {
            return Ok(());
        }
        let mut split = flows::read()?;
        split.retain(|flow| flow.has(&[("state", "split")]));
        ensure!(
            split.iter().all(|flow| flow.text("from") == outer),
            "flows are split that are not from {outer}: {split:?}"
        );
        Ok(())
    }

    /// Waits until a datagram comes to the container.
    fn wait_open(&self) -> Result<()> {
        let listener = netns::within(OF_SERVER, || Ok(UdpSocket::bind((self.end, DNS.target))?))?;
        listener.set_read_timeout(Some(ANSWER))?;
        let probe = netns::within(self.from, || {
            let socket = UdpSocket::bind((self.sender, 0))?;
            socket.connect(self.at(DNS))?;
            Ok(socket)
        })?;
        threads::until_ok(GOSSIP, || {
            // An answer that there is nobody yet is an error of the next call.
            let _refused = probe.send(&[0; 16]);
            listener.recv(&mut [0; 16]).context("nothing comes")?;
            Ok(())
        })
    }

    /// Returns how the elephant's datagrams are marked; fails if they have other addresses than they are to have.
    fn marks(&self, arrived: &Arrived) -> Result<Vec<(Option<u8>, Option<u8>)>> {
        let own = SocketAddr::from((self.end, LOGS.target));
        let mut looks = arrived.looks.keys();
        let is_wrong = looks.find(|look| {
            look.to != Some(own) || self.seen.is_some_and(|sender| sender != look.from)
        });
        ensure!(
            is_wrong.is_none(),
            "datagrams for {own} from {:?} look like {:?}",
            self.seen,
            arrived.looks
        );
        let senders = arrived.looks.keys().map(|look| look.from);
        let mut senders: Vec<_> = senders.collect();
        senders.dedup();
        ensure!(senders.len() == 1, "datagrams come from {senders:?}");
        Ok(arrived
            .looks
            .keys()
            .map(|look| (look.hops, look.tos))
            .collect())
    }
}

/// Waits until no flow is split: the elephant before had the same outer flow.
fn wait_whole() -> Result<()> {
    command::wait_until("no flow is split", || {
        Ok(!mflow::loaded() || !flows::any(&[("state", "split")])?)
    })
}

/// Returns how many questions of the receiving container to Docker's resolver are answered.
fn ask() -> Result<u64> {
    netns::within(OF_SERVER, || {
        let mut answered = 0;
        for _ in 0..QUESTIONS {
            answered += u64::from(resolve(OF_CLIENT).is_ok());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(answered)
    })
}
