// SPDX-License-Identifier: GPL-2.0

//! The rules that Istio's init container writes into a pod for a sidecar that takes all TCP, in the form that `iptables-save` prints.
//! `istio-iptables` of Istio 1.2x writes them, with its default ports, marks and user.

use anyhow::Result;

use crate::network::topology::{self, Family, CONTAINER};
use crate::network::{iptables, netns};

/// The proxy's port for incoming connections, and the user it runs as.
pub(super) const INBOUND: u16 = 15_006;
pub(super) const USER: u32 = 1_337;
/// The mark of what is for the proxy, and the table of routes that such packets have.
const MARK: u32 = 1_337;
const TABLE: u32 = 133;

/// The way in which a sidecar gets connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interception {
    Redirect,
    Tproxy,
}

/// Writes the rules, addresses and routes of a pod.
pub(super) fn set_up(interception: Interception, inner: Family) -> Result<()> {
    let family = inner.number();
    if inner == Family::V6 {
        topology::container_ip("addr add ::6/128 dev lo nodad")?;
    }
    let mut rules = of_nat(interception, inner);
    if interception == Interception::Tproxy {
        rules += &of_mangle(inner);
        netns::run(
            CONTAINER,
            &format!("ip -{family} rule add fwmark {MARK} lookup {TABLE}"),
        )?;
        let all = match inner {
            Family::V4 => "0.0.0.0/0",
            Family::V6 => "::/0",
        };
        topology::container_ip(&format!("route add local {all} dev lo table {TABLE}"))?;
    }
    iptables::restore(CONTAINER, inner, &rules)
}

/// Returns the address that is this host's, with its length, and the one from which the proxy talks to the application.
fn own(inner: Family) -> (&'static str, &'static str) {
    match inner {
        Family::V4 => ("127.0.0.1/32", "127.0.0.6/32"),
        Family::V6 => ("::1/128", "::6/128"),
    }
}

/// Returns the chains that send what leaves and, unless another table does, what comes to the proxy's ports.
fn of_nat(interception: Interception, inner: Family) -> String {
    let (local, passthrough) = own(inner);
    let inbound = match interception {
        Interception::Redirect => {
            "-A PREROUTING -p tcp -j ISTIO_INBOUND\n-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT\n"
        }
        Interception::Tproxy => "",
    };
    let of_proxy: String = ["uid", "gid"]
        .iter()
        .map(|who| {
            format!(
                "-A ISTIO_OUTPUT ! -d {local} -o lo -p tcp -m tcp ! --dport 15008 -m owner --{who}-owner {USER} -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --{who}-owner {USER} -j RETURN
-A ISTIO_OUTPUT -m owner --{who}-owner {USER} -j RETURN
"
            )
        })
        .collect();
    format!(
        "*nat
:ISTIO_INBOUND - [0:0]
:ISTIO_IN_REDIRECT - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN
{inbound}-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports {INBOUND}
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_OUTPUT -s {passthrough} -o lo -j RETURN
{of_proxy}-A ISTIO_OUTPUT -d {local} -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
COMMIT
"
    )
}

/// Returns the chains that give what comes to the proxy's socket, and answers of the application, too.
///
/// Envoy marks its connections to the application itself. The first rule does it for a proxy that does not.
fn of_mangle(inner: Family) -> String {
    let (local, passthrough) = own(inner);
    format!(
        "*mangle
:ISTIO_DIVERT - [0:0]
:ISTIO_INBOUND - [0:0]
:ISTIO_TPROXY - [0:0]
-A OUTPUT -o lo -p tcp -m owner --gid-owner {USER} -j MARK --set-xmark {MARK}
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A PREROUTING -p tcp -m mark --mark {MARK} -j CONNMARK --save-mark
-A OUTPUT -o lo -p tcp -m mark --mark {MARK} -j RETURN
-A OUTPUT ! -d {local} -o lo -p tcp -m owner --uid-owner {USER} -j MARK --set-xmark 1338
-A OUTPUT ! -d {local} -o lo -p tcp -m owner --gid-owner {USER} -j MARK --set-xmark 1338
-A OUTPUT -p tcp -m connmark --mark {MARK} -j CONNMARK --restore-mark
-A ISTIO_DIVERT -j MARK --set-xmark {MARK}
-A ISTIO_DIVERT -j ACCEPT
-A ISTIO_INBOUND -p tcp -m mark --mark {MARK} -j RETURN
-A ISTIO_INBOUND -s {passthrough} -i lo -p tcp -j RETURN
-A ISTIO_INBOUND -i lo -p tcp -m mark ! --mark 1338 -j RETURN
-A ISTIO_INBOUND -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT
-A ISTIO_INBOUND -p tcp -j ISTIO_TPROXY
-A ISTIO_TPROXY ! -d {local} -p tcp -j TPROXY --on-port {INBOUND} --tproxy-mark {MARK}/0xffffffff
COMMIT
"
    )
}
