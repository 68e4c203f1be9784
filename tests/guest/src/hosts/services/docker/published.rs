// SPDX-License-Identifier: GPL-2.0

//! Docker: ports of the host that are published for a container behind a bridge, and the resolver that Docker has in each container.

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Result;

use crate::hosts::elephant::Fate;
use crate::hosts::host::{Change, Host, Rules};
use crate::hosts::services::balancer::{Balancer, Choice};
use crate::hosts::services::cluster::{self, Addresses, Front, Port, DNS, LOGS, PORTS, WEB};
use crate::hosts::{router, Case};
use crate::network::topology::{Family, CONTAINER};
use crate::network::{iptables, netns};

const BRIDGE: &str = "br0";
/// The address at which containers take their resolver to be, and the ports that it really has.
const RESOLVER: (&str, u16) = ("127.0.0.11", 53);
const RESOLVER_OWN: (&str, u16) = ("127.0.0.11", 40_002);
const QUESTIONS: usize = 50;
const ANSWER: Duration = Duration::from_secs(2);

pub(super) fn cases() -> Vec<Case> {
    let case = |name, family| {
        Case::new(
            name,
            "ports that Docker publishes for a container behind its bridge, and Docker's resolver in the container",
            "what goes to ports that Docker publishes comes to the container beside a split flow as with enabled 0, and the container's \
             resolver answers",
            move |host| published(host, family),
        )
    };
    let during = |name, family| {
        Case::new(
            name,
            "such ports that are published, given up and published again while a flow to another one is split",
            "what goes to newly published ports comes to the container, and a flow that is split loses nothing and stays in order, also as \
             these ports are given up and published again",
            move |host| published_during(host, family),
        )
    };
    vec![
        case("docker/published", Family::V4),
        case("docker/published/v6", Family::V6),
        during("docker/published/during", Family::V4),
        during("docker/published/during/v6", Family::V6),
    ]
}

fn published(host: &Host, family: Family) -> Result<()> {
    balancer(family).compare(host, || set_up(family, &PORTS))
}

fn published_during(host: &Host, family: Family) -> Result<()> {
    let change = Change {
        when: Rules::During,
        make: &|| publish(family, "-I DOCKER", "-A DOCKER"),
        undo: &|| publish(family, "-D DOCKER", "-D DOCKER"),
    };
    balancer(family).compare_changed(host, || set_up(family, &[LOGS]), &change)
}

/// Publishes ports as Docker does when a container starts, or gives them up. The words put rules at their place in the two
/// tables.
fn publish(family: Family, filter: &str, nat: &str) -> Result<()> {
    let (mut accepted, mut translated) = (String::new(), String::new());
    for port in [WEB, DNS] {
        let (accept, translate) = of_port(family, port);
        writeln!(accepted, "{filter} {accept}")?;
        writeln!(translated, "{nat} {translate}")?;
    }
    let rules = format!("*filter\n{accepted}COMMIT\n*nat\n{translated}COMMIT\n");
    iptables::restore(None, family, &rules)
}

fn balancer(family: Family) -> Balancer {
    let of = Addresses::of(family);
    Balancer {
        address: of.node,
        front: Front::NodePort,
        namespace: None,
        endpoints: vec![(CONTAINER, of.endpoints[0])],
        choice: Choice::Any,
        is_masquerading: false,
        fate: Fate::Split,
        ask: resolve,
    }
}

fn set_up(family: Family, ports: &[Port]) -> Result<()> {
    router::set_up_before(BRIDGE)?;
    router::answer_by_host(CONTAINER, BRIDGE)?;
    cluster::reach_node(family)?;
    // With `"ip6tables": true`, which is the default since Docker 27, rules of both families are there.
    for both in [Family::V4, Family::V6] {
        iptables::restore(None, both, &rules(both, ports)?)?;
    }
    iptables::restore(CONTAINER, Family::V4, OF_CONTAINER)
}

/// Returns the rules by which a published port is let through and translated, without the words that put them at their place.
fn of_port(family: Family, port: Port) -> (String, String) {
    let address = Addresses::of(family).endpoints[0];
    let (protocol, target, own) = (port.protocol, port.target, port.node);
    let matches = format!("-p {protocol} -m {protocol}");
    (
        format!("-d {address} ! -i {BRIDGE} -o {BRIDGE} {matches} --dport {target} -j ACCEPT"),
        format!(
            "! -i {BRIDGE} {matches} --dport {own} -j DNAT --to-destination {}",
            SocketAddr::new(address, target)
        ),
    )
}

/// Returns the host's rules.
fn rules(family: Family, ports: &[Port]) -> Result<String> {
    let address = Addresses::of(family).endpoints[0];
    let (loopback, network) = match family {
        Family::V4 => ("127.0.0.0/8", "10.0.1.0/24"),
        Family::V6 => ("::1/128", "fd00:1::/64"),
    };
    let (mut accepted, mut translated) = (String::new(), String::new());
    for port in ports {
        let (accept, translate) = of_port(family, *port);
        writeln!(accepted, "-A DOCKER {accept}")?;
        writeln!(translated, "-A DOCKER {translate}")?;
    }
    Ok(format!(
        "\
*raw
-A PREROUTING -d {address} ! -i {BRIDGE} -j DROP
COMMIT
*filter
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
:FORWARD DROP [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
{accepted}-A DOCKER ! -i {BRIDGE} -o {BRIDGE} -j DROP
-A DOCKER-BRIDGE -o {BRIDGE} -j DOCKER
-A DOCKER-CT -o {BRIDGE} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i {BRIDGE} -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i {BRIDGE} ! -o {BRIDGE} -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o {BRIDGE} -j DROP
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d {loopback} -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s {network} ! -o {BRIDGE} -j MASQUERADE
{translated}COMMIT
"
    ))
}

const OF_CONTAINER: &str = "\
*nat
:DOCKER_OUTPUT - [0:0]
:DOCKER_POSTROUTING - [0:0]
-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
-A POSTROUTING -d 127.0.0.11/32 -j DOCKER_POSTROUTING
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:40001
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:40002
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p tcp -m tcp --sport 40001 -j SNAT --to-source :53
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p udp -m udp --sport 40002 -j SNAT --to-source :53
COMMIT
";

/// Returns how many questions of the container's to its resolver are answered from where they were sent to.
fn resolve() -> Result<u64> {
    netns::within(CONTAINER, || {
        let resolver = UdpSocket::bind(RESOLVER_OWN)?;
        resolver.set_read_timeout(Some(ANSWER))?;
        let mut answered = 0;
        for _ in 0..QUESTIONS {
            let asking = UdpSocket::bind("127.0.0.1:0")?;
            asking.connect(RESOLVER)?;
            asking.set_read_timeout(Some(ANSWER))?;
            asking.send(&[0; 16])?;
            let (count, from) = resolver.recv_from(&mut [0; 16])?;
            resolver.send_to(&[0; 16][..count], from)?;
            answered += u64::from(asking.recv(&mut [0; 16]).is_ok());
        }
        Ok(answered)
    })
}
