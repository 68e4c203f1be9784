// SPDX-License-Identifier: GPL-2.0

//! Wires between NICs, and what a measurement adds to a machine.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Result;

use crate::setup::qemu::Wish;

/// What a measurement adds to a machine.
#[derive(Debug)]
pub struct Instruments {
    /// A plug-in of QEMU, with its arguments.
    pub(super) plugin: OsString,
    /// QEMU's end of the wire of a third NIC; a ConnectX makes its frames by itself.
    pub(super) wire: Option<UnixStream>,
    /// The socket that a fourth serial port connects to.
    pub(super) credit: PathBuf,
    /// Programs of the host that no other guest needs.
    pub(super) programs: Vec<&'static str>,
    /// The QEMU that has the plug-in's interface.
    pub(super) qemu: Wish,
}

/// Returns the two ends of a wire for QEMU to inherit.
///
/// It is a stream with flow control rather than a QEMU hub: a hub that is asked to deliver to a NIC without room puts the
/// frame into a queue, and later frames may overtake it there. What this wire carries stays in order and is never lost.
pub(super) fn wire() -> Result<[UnixStream; 2]> {
    let (one, other) = UnixStream::pair()?;
    for end in [&one, &other] {
        inherit(end)?;
    }
    Ok([one, other])
}

/// Lets QEMU have this end of a wire.
fn inherit(end: &UnixStream) -> Result<()> {
    rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
    Ok(())
}

impl Instruments {
    /// Returns the instruments for a guest whose third NIC is a ConnectX.
    pub fn without_wire(
        plugin: OsString,
        credit: PathBuf,
        programs: Vec<&'static str>,
        qemu: Wish,
    ) -> Self {
        Self {
            plugin,
            wire: None,
            credit,
            programs,
            qemu,
        }
    }

    /// Returns the instruments, and our end of the third NIC's wire.
    pub fn new(
        plugin: OsString,
        credit: PathBuf,
        programs: Vec<&'static str>,
        qemu: Wish,
    ) -> Result<(Self, UnixStream)> {
        let (ours, wire) = UnixStream::pair()?;
        inherit(&wire)?;
        let instruments = Self {
            wire: Some(wire),
            ..Self::without_wire(plugin, credit, programs, qemu)
        };
        Ok((instruments, ours))
    }
}
