// SPDX-License-Identifier: GPL-2.0

//! Two hosts that Docker has made a swarm of, with an overlay network, and a container on each. The server is the first namespace, to
//! which the NIC that the module is for belongs. The client is the namespace behind the other NIC.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::{CLIENT_HOST, SERVER_HOST};
use nix::ifaddrs::getifaddrs;

use super::control_group;
use super::daemon::{Daemon, Node};
use crate::hosts::services::cluster::{Port, PORTS};
use crate::machine::{command, threads};
use crate::network::netns;
use crate::network::topology::{self, CLIENT};

/// The names of the containers, and of their network namespaces here.
pub(super) const OF_CLIENT: &str = "sender";
pub(super) const OF_SERVER: &str = "receiver";
/// The name of the service.
pub(super) const SERVICE: &str = "service";
/// The overlay network, and its addresses.
const NETWORK: &str = "apps";
const ADDRESSES: &str = "10.77.0.0/24";
/// The first bytes of the addresses of the networks that Docker makes itself: of the one between a host and its containers, and of
/// that of published ports.
pub(super) const OF_GATEWAY: &[u8] = &[172];
pub(super) const OF_INGRESS: &[u8] = &[10, 0, 0];
/// The source port of the client's tunnels.
pub(super) const OUTER_PORT: u16 = 50_000;
/// The image: nothing but the guest program.
const IMAGE: &str = "mflow";
const PROGRAM: &str = "usr/bin/mflow-guest";
const ARCHIVE: &str = "/run/image.tar";
/// The time after some of which a host that is silent has lost its containers: emulated CPUs are away for seconds.
const HEARTBEAT: &str = "60s";
/// The time that a container may take to run: Docker gives a host that is slow to join the network few seconds, and fails.
const SCHEDULE: Duration = Duration::from_secs(180);

const SERVER_NODE: Node = Node {
    name: "server",
    namespace: None,
    address: SERVER_HOST,
};
const CLIENT_NODE: Node = Node {
    name: "client",
    namespace: Some(CLIENT),
    address: CLIENT_HOST,
};

/// A container of the server that takes what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// One that was started by itself, with ports that the host publishes.
    Container,
    /// One of a service, with ports that all hosts publish.
    Service,
}

/// The swarm. What it has started ends when it is dropped.
pub(super) struct Swarm {
    server: Daemon,
    client: Daemon,
}

impl Swarm {
    /// Makes the swarm.
    pub(super) fn start(receiver: Receiver) -> Result<Self> {
        // The rig's own tunnel has the same port.
        topology::overlay_down()?;
        control_group::mount_top()?;
        command::run(&format!("tar -C / -cf {ARCHIVE} {PROGRAM}"))?;
        let start = |node| {
            let daemon = Daemon::start(node)?;
            daemon.docker(&format!("import {ARCHIVE} {IMAGE}"))?;
            Ok(daemon)
        };
        let (server, client) = thread::scope(|scope| {
            let server = scope.spawn(|| start(SERVER_NODE));
            let client = start(CLIENT_NODE);
            (threads::result(server.join()), client)
        });
        let swarm = Self {
            server: server?,
            client: client?,
        };
        fs::remove_file(ARCHIVE)?;
        swarm.join()?;
        swarm.run_containers(receiver)?;
        Ok(swarm)
    }

    /// Joins the hosts, and makes the network.
    fn join(&self) -> Result<()> {
        let Self { server, client } = self;
        server.docker(&format!(
            "swarm init --advertise-addr {} --dispatcher-heartbeat {HEARTBEAT}",
            server.node.address
        ))?;
        let token = server.docker("swarm join-token --quiet worker")?;
        client.docker(&format!(
            "swarm join --advertise-addr {} --token {token} {}:2377",
            client.node.address, server.node.address
        ))?;
        server
            .docker(&format!(
                "network create --driver overlay --attachable --subnet {ADDRESSES} {NETWORK}"
            ))
            .map(drop)
    }

    fn run_containers(&self, receiver: Receiver) -> Result<()> {
        let run = |daemon: &Daemon, name: &str, options: &str| {
            threads::until_ok(SCHEDULE, || {
                daemon.docker(&format!("rm --force {name}"))?;
                daemon
                    .docker(&format!(
                        "run --detach --init --name {name} --network {NETWORK} {options} {IMAGE} /{PROGRAM} wait"
                    ))
                    .map(drop)
            })?;
            name_namespace(daemon, name, name)
        };
        match receiver {
            Receiver::Container => {
                let publish = |port: &Port| {
                    format!("--publish {}:{}/{}", port.node, port.target, port.protocol)
                };
                let publish: Vec<_> = PORTS.iter().map(publish).collect();
                run(&self.server, OF_SERVER, &publish.join(" "))?;
            }
            Receiver::Service => self.run_service()?,
        }
        run(&self.client, OF_CLIENT, "")
    }

    fn run_service(&self) -> Result<()> {
        let publish = |port: &Port| {
            format!(
                "--publish published={},target={},protocol={}",
                port.node, port.target, port.protocol
            )
        };
        let publish: Vec<_> = PORTS.iter().map(publish).collect();
        let Node { name, .. } = self.server.node;
        self.server.docker(&format!(
            "service create --detach --init --no-resolve-image --name {SERVICE} --network {NETWORK} --constraint node.hostname=={name} \
             {} {IMAGE} /{PROGRAM} wait",
            publish.join(" ")
        ))?;
        let mut container = String::new();
        threads::until_ok(SCHEDULE, || {
            let listed = format!(
                "ps --quiet --filter status=running --filter label=com.docker.swarm.service.name={SERVICE}"
            );
            container = self.server.docker(&listed)?;
            ensure!(!container.is_empty(), "the service does not run");
            Ok(())
        })
        .with_context(|| {
            let tasks = self
                .server
                .docker(&format!("service ps --no-trunc {SERVICE}"));
            format!(
                "{}\n{}",
                tasks.unwrap_or_default(),
                self.server.node.last_words()
            )
        })?;
        name_namespace(&self.server, &container, OF_SERVER)
    }

    /// Returns the address of a container that was started by itself.
    pub(super) fn address(&self, container: &str) -> Result<IpAddr> {
        let daemon = match container {
            OF_CLIENT => &self.client,
            _ => &self.server,
        };
        let template = format!("{{{{.NetworkSettings.Networks.{NETWORK}.IPAddress}}}}");
        let address = daemon.inspect(container, &template)?;
        address
            .parse()
            .with_context(|| format!("{container} has the address {address:?}"))
    }

    /// Gives all that the client's tunnels send from now on one outer flow, as [`topology::one_outer_flow`] does for the rig's.
    pub(super) fn one_outer_flow(&self) -> Result<()> {
        self.client.within_overlays(|| {
            // A tunnel takes its source ports from the range of the namespace that it is in.
            let range = format!("{OUTER_PORT} {OUTER_PORT}");
            topology::sysctl("net/ipv4/ip_local_port_range", &range)
        })
    }

    /// Ends all that was started.
    pub(super) fn end(&mut self) -> Result<()> {
        for name in [OF_CLIENT, OF_SERVER] {
            if netns::exists(name) {
                netns::delete(name)?;
            }
        }
        let ends = [&mut self.server, &mut self.client].map(Daemon::end);
        // Docker makes each of its hosts a router.
        netns::within(CLIENT, || topology::sysctl("net/ipv4/ip_forward", "0"))?;
        ends.into_iter().collect()
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("Docker's hosts do not end: {error:#}");
        }
    }
}

fn name_namespace(daemon: &Daemon, container: &str, name: &str) -> Result<()> {
    let process = daemon.inspect(container, "{{.State.Pid}}")?;
    let process = process
        .parse()
        .ok()
        .filter(|&process| process != 0)
        .with_context(|| format!("the container {name} has ended"))?;
    netns::name(process, name)
}

/// Returns the address, of those that begin like that, which is for a whole network in a container.
pub(super) fn address_in(namespace: &str, begin: &[u8]) -> Result<IpAddr> {
    let all = netns::within(namespace, || {
        let v4 = |address: nix::sys::socket::SockaddrStorage| Some(address.as_sockaddr_in()?.ip());
        let interfaces = getifaddrs()?.filter_map(|one| {
            let (address, mask) = (v4(one.address?)?, v4(one.netmask?)?);
            (mask != Ipv4Addr::BROADCAST).then_some(address)
        });
        Ok(interfaces.collect::<Vec<_>>())
    })?;
    let found = all
        .iter()
        .find(|address| address.octets().starts_with(begin));
    let found = found.with_context(|| format!("none of {all:?} begins with {begin:?}"))?;
    Ok((*found).into())
}
