// SPDX-License-Identifier: GPL-2.0

//! Connection tracking's table of the caller's namespace. That of the first one outlives the devices of a case.

use std::os::fd::AsRawFd as _;

use anyhow::{ensure, Context as _, Result};
use nix::sys::socket::{
    recv, send, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType,
};

/// `NFNL_SUBSYS_CTNETLINK` and `IPCTNL_MSG_CT_DELETE`.
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// Two headers, and nothing that says which entry.
const REQUEST_BYTES: u32 = 20;

/// Forgets all connections, as `conntrack -F` does.
pub(crate) fn forget() -> Result<()> {
    let netfilter = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )
    .context("no netlink socket of netfilter")?;
    let mut request = Vec::new();
    request.extend(REQUEST_BYTES.to_ne_bytes());
    request.extend(DELETE.to_ne_bytes());
    request.extend(FLAGS.to_ne_bytes());
    // Number and sender, then family, version and resource.
    request.extend([0; 12]);
    send(netfilter.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(netfilter.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let error = answer[..length].get(16..20);
    ensure!(
        error == Some(&[0; 4]),
        "connections are not forgotten: the kernel says {:?}",
        &answer[..length]
    );
    Ok(())
}
