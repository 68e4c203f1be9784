// SPDX-License-Identifier: GPL-2.0

//! The wire between two NICs, and the parts that a measurement adds to a machine.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Result;

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
/// It is a stream with flow control rather than a QEMU hub: a hub that is asked to deliver to a NIC without room puts the
/// frame into a queue, and later frames may overtake it there. What this wire carries stays in order and is never lost.
pub(super) fn wire() -> Result<[UnixStream; 2]> {
    let (one, other) = UnixStream::pair()?;
    for end in [&one, &other] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
    }
    Ok([one, other])
}
