// SPDX-License-Identifier: GPL-2.0

//! IPsec for the datagrams of one run, with keys that both ends have from the start: authenticated and not encrypted, so that
//! an emulated CPU carries many of them.

use std::net::UdpSocket;

use anyhow::{Context as _, Result};
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetUsize;

use crate::machine::proc_net;
use crate::network::netns;
use crate::network::topology::{self, CLIENT, CONTAINER};

/// The port that IPsec in UDP goes to (RFC 3948).
const UDP_PORT: u16 = 4500;
/// From `linux/udp.h`.
const UDP_ENCAP_ESPINUDP: usize = 2;
const KEY: &str = "0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The way in which the datagrams are wrapped, and the addresses between which they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrap {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// `transport` or `tunnel`.
    pub(crate) mode: &'static str,
    pub(crate) in_udp: bool,
}

impl Wrap {
    /// Sets up one end for what is sent to the container's first port: `direction` is `out`, `in` or `fwd`.
    pub(crate) fn set_up(&self, namespace: Option<&str>, direction: &str) -> Result<()> {
        let Self { from, to, mode, .. } = self;
        let encapsulation = if self.in_udp {
            format!("encap espinudp {UDP_PORT} {UDP_PORT} 0.0.0.0")
        } else {
            String::new()
        };
        // A guest has no table of protocols' names: 17 is UDP.
        topology::ip_in(
            namespace,
            &format!(
                "xfrm state add src {from} dst {to} proto esp spi 0x1000 mode {mode} replay-window 32 {encapsulation} enc ecb(cipher_null) \"\" auth-trunc hmac(sha256) {KEY} 128
                 xfrm policy add src 10.0.1.1 dst 10.0.1.2 proto 17 dport 5001 dir {direction} tmpl src {from} dst {to} proto esp mode {mode}"
            ),
        )
    }
}

/// Ends IPsec in a namespace that is used again.
pub(crate) fn flush(namespace: Option<&str>) -> Result<()> {
    topology::ip_in(namespace, "xfrm policy flush\nxfrm state flush")
}

/// Ends it at the client.
pub(crate) fn flush_client() -> Result<()> {
    flush(Some(CLIENT))
}

/// Returns the socket that unwraps what comes to the container in UDP, for as long as it is open.
pub(crate) fn unwrapping_socket() -> Result<UdpSocket> {
    #[derive(Clone, Copy, Debug)]
    struct UdpEncap;
    nix::setsockopt_impl!(
        UdpEncap,
        libc::IPPROTO_UDP,
        libc::UDP_ENCAP,
        usize,
        SetUsize
    );
    netns::within(CONTAINER, || {
        let socket = UdpSocket::bind(("0.0.0.0", UDP_PORT)).context("cannot bind")?;
        setsockopt(&socket, UdpEncap, &UDP_ENCAP_ESPINUDP).context("UDP_ENCAP")?;
        Ok(socket)
    })
}

/// Returns a counter of a namespace's IPsec, such as `XfrmInStateSeqError`.
pub(crate) fn counter(namespace: &str, name: &str) -> Result<u64> {
    let text = proc_net::read(Some(namespace), "xfrm_stat")?;
    find(&text, name).with_context(|| format!("no counter {name} in:\n{text}"))
}

fn find(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_counter_is_read() {
        let text = "XfrmInError             \t0\nXfrmInStateSeqError     \t17\n";
        assert_eq!(super::find(text, "XfrmInStateSeqError"), Some(17));
        assert_eq!(super::find(text, "XfrmInState"), None);
    }
}
