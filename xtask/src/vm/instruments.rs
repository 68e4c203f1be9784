// SPDX-License-Identifier: GPL-2.0

//! The wire between two NICs, and the parts that a measurement adds to a machine.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::Result;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};

use crate::setup::qemu::Wish;

/// The parts that a measurement adds to a machine.
#[derive(Debug)]
pub struct Instruments {
    /// A plug-in of QEMU, with its arguments.
    pub plugin: OsString,
    /// The socket that a third NIC connects to: its wire.
    pub wire: PathBuf,
    /// The socket that a fourth serial port connects to.
    pub credit: PathBuf,
    /// Programs of the host that no other guest needs.
    pub programs: Vec<&'static str>,
    /// The QEMU that has the plug-in's interface.
    pub qemu: Wish,
}

/// Returns the two ends of a wire for QEMU to inherit.
///
/// What the wire carries stays in order and is never lost. QEMU reads one frame at a time from it, and none while the NIC has no
/// room. From a stream of bytes it reads many: those for which there is no room wait in a queue, and if the guest makes room
/// meanwhile, the next one overtakes them (`qemu_net_queue_send()` in `net/queue.c`). The same happens at a hub.
pub(super) fn wire() -> Result<[OwnedFd; 2]> {
    // Without a flag: QEMU inherits them.
    let (one, other) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::empty(),
        None,
    )?;
    Ok([one, other])
}
