// SPDX-License-Identifier: GPL-2.0

//! System calls for which there is no safe wrapper: a socket's disconnection, and `io_uring`.
#![allow(
    unsafe_code,
    reason = "the crates that wrap these calls leave the safety of buffers and descriptors to the caller"
)]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use anyhow::{bail, ensure, Context as _, Result};
use io_uring::{opcode, types, IoUring};
use nix::errno::Errno;
use nix::libc;

/// Takes a connected socket back to where it was before it was connected.
pub(crate) fn disconnect(socket: &TcpStream) -> Result<()> {
    let nowhere = libc::sockaddr {
        // CAST: 0.
        sa_family: libc::AF_UNSPEC as libc::sa_family_t,
        sa_data: [0; 14],
    };
    let length = size_of_val(&nowhere) as libc::socklen_t;
    // SAFETY: The kernel reads the address, which outlives the call.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, length) };
    Errno::result(result)
        .map(drop)
        .context("connect to AF_UNSPEC")
}

/// A ring of its own for each reader, with one request at a time in it.
pub(crate) struct Ring(IoUring);

impl Ring {
    pub(crate) fn new() -> Result<Self> {
        let ring = IoUring::new(4).context("this kernel has no io_uring")?;
        Ok(Self(ring))
    }

    /// Receives into `buffer`, waits for it, and returns how many bytes came.
    pub(crate) fn receive(&mut self, socket: &TcpStream, buffer: &mut [u8]) -> Result<usize> {
        let length = u32::try_from(buffer.len()).context("the buffer is too long")?;
        let socket = types::Fd(socket.as_raw_fd());
        let request = opcode::Recv::new(socket, buffer.as_mut_ptr(), length).build();
        // SAFETY: The socket and the buffer are borrowed until this function returns, and it does not return before
        // the request has ended: waiting is repeated until there is a completion, and a failure to wait ends the
        // process with the buffer still there.
        let pushed = unsafe { self.0.submission().push(&request) };
        ensure!(pushed.is_ok(), "the ring is full");
        loop {
            match self.0.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    eprintln!("io_uring_enter: {error}");
                    std::process::abort();
                }
            }
            if let Some(done) = self.0.completion().next() {
                let Ok(bytes) = usize::try_from(done.result()) else {
                    bail!(
                        "io_uring: cannot receive: {}",
                        io::Error::from_raw_os_error(-done.result())
                    );
                };
                return Ok(bytes);
            }
        }
    }
}
