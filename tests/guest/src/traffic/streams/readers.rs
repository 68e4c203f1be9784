// SPDX-License-Identifier: GPL-2.0

//! The container's end of the streams: a listening socket and a thread for each.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};

use super::read_style::ReadStyle;
use super::verifier::{ReadProgress, Verifier};
use crate::machine::{cpu, threads};
use crate::network::{netns, topology};

/// The interval at which a thread that waits for a connection looks whether one will still come.
const LOOK: Duration = Duration::from_millis(2);
const STUCK: Duration = Duration::from_secs(15);

pub(crate) struct Readers {
    progress: Arc<ReadProgress>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<u64>>>,
}

impl Readers {
    /// Starts to listen at the addresses, one stream each; returns when all sockets listen.
    pub(crate) fn start(addresses: Vec<SocketAddr>, read_style: ReadStyle) -> Result<Self> {
        let progress = Arc::new(ReadProgress::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut readers = Self {
            progress: Arc::clone(&progress),
            stop: Arc::clone(&stop),
            threads: Vec::new(),
        };
        for (address, flow) in addresses.into_iter().zip(0..) {
            let (progress, stop) = (Arc::clone(&progress), Arc::clone(&stop));
            let started = threads::start(move |ready| {
                cpu::pin(cpu::READER)?;
                netns::enter(topology::CONTAINER)?;
                let listener = listen(address, read_style.buffer_bytes())?;
                let _receiver_gone = ready.send(());
                let Some(socket) = accept(&listener, &stop)? else {
                    return Ok(0);
                };
                let mut verifier = Verifier::new(flow, &progress);
                read_style.read(&socket, &mut verifier)?;
                Ok(verifier.taken())
            });
            match started {
                Ok((thread, ())) => readers.threads.push(thread),
                Err(error) => {
                    readers.join()?;
                    return Err(error);
                }
            }
        }
        Ok(readers)
    }

    /// Returns how far the readers are, to be looked at also after their end.
    pub(crate) fn progress(&self) -> Arc<ReadProgress> {
        Arc::clone(&self.progress)
    }

    /// Waits for the end of every stream and returns how many bytes were read; what is not connected yet never will be.
    pub(crate) fn join(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let read = threads::results(self.threads.into_iter().map(JoinHandle::join))?;
        Ok(read.iter().sum())
    }
}

/// Returns a listening socket; the buffer is set before, because the window's scale depends on it.
pub(crate) fn listen(address: SocketAddr, buffer_bytes: Option<usize>) -> Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if let Some(bytes) = buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket
        .bind(&address.into())
        .with_context(|| format!("cannot bind to {address}"))?;
    socket.listen(16)?;
    Ok(socket.into())
}

/// Waits for a connection, unless it is told that there will be none.
fn accept(listener: &TcpListener, stop: &AtomicBool) -> Result<Option<TcpStream>> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(Some(STUCK))?;
                return Ok(Some(socket));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                thread::sleep(LOOK);
            }
            Err(error) => return Err(error).context("cannot accept"),
        }
    }
}
