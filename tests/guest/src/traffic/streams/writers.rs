// SPDX-License-Identifier: GPL-2.0

//! The client's end of the streams: a thread for each, as fast as TCP lets it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use nix::sys::sendfile::sendfile64;

use super::{pattern, tls};
use crate::machine::{cpu, threads};
use crate::network::{netns, topology};

const CHUNK_BYTES: usize = 64 << 10;
const STUCK: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriteStyle {
    /// From memory.
    #[default]
    Write,
    /// From memory, encrypted by the kernel.
    Tls,
    /// With `sendfile`, from a file of this many bytes: the stream has no more.
    Sendfile(u64),
}

#[derive(Debug)]
struct Shared {
    /// The number of bytes after which every stream ends; may be lowered while it is written.
    limit: AtomicU64,
    written: AtomicU64,
}

pub(crate) struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<u64>>>,
}

impl Writers {
    pub(crate) fn start(to: Vec<SocketAddr>, write_style: WriteStyle) -> Self {
        let shared = Arc::new(Shared {
            limit: AtomicU64::new(u64::MAX),
            written: AtomicU64::new(0),
        });
        let threads = to
            .into_iter()
            .zip(0..)
            .map(|(to, flow)| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || write(to, flow, write_style, &shared))
            })
            .collect();
        Self { shared, threads }
    }

    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Lets every stream come to at least `bytes` (exactly, if it is not there yet), then ends it.
    pub(crate) fn stop_at(&self, bytes: u64) {
        self.shared.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits for the end and returns how many bytes were written.
    pub(crate) fn join(self) -> Result<u64> {
        let written = threads::results(self.threads.into_iter().map(JoinHandle::join))?;
        Ok(written.iter().sum())
    }
}

fn write(to: SocketAddr, flow: u16, write_style: WriteStyle, shared: &Shared) -> Result<u64> {
    cpu::pin(cpu::SENDER)?;
    netns::enter(topology::CLIENT)?;
    let file = match write_style {
        WriteStyle::Write | WriteStyle::Tls => None,
        WriteStyle::Sendfile(bytes) => Some((prepare_file(flow, bytes)?, bytes)),
    };
    let mut socket = TcpStream::connect_timeout(&to, STUCK)
        .with_context(|| format!("cannot connect to {to}"))?;
    socket.set_write_timeout(Some(STUCK))?;
    socket.set_read_timeout(Some(STUCK))?;
    if write_style == WriteStyle::Tls {
        tls::encrypt(&socket)?;
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    let (start, mut written) = (pattern::start(flow), 0);
    loop {
        let left = shared.limit.load(Ordering::Relaxed).saturating_sub(written);
        // CAST: not more than fits a buffer.
        let wanted = left.min(CHUNK_BYTES as u64) as usize;
        if wanted == 0 {
            break;
        }
        let taken = match &file {
            None => {
                pattern::fill(start + written, &mut buffer[..wanted]);
                socket.write(&buffer[..wanted]).context("cannot send")?
            }
            Some((file, bytes)) => {
                ensure!(
                    written < *bytes,
                    "the stream came to the end of its file of {bytes} bytes"
                );
                let mut offset = i64::try_from(written)?;
                sendfile64(&socket, file, Some(&mut offset), wanted).context("cannot sendfile")?
            }
        };
        written += taken as u64;
        shared.written.fetch_add(taken as u64, Ordering::Relaxed);
    }
    socket
        .shutdown(Shutdown::Write)
        .context("cannot shut down")?;
    // The other end closes once it has read everything.
    let answer = socket.read(&mut buffer).context("the stream's end")?;
    ensure!(answer == 0, "the reader sent {answer} bytes");
    Ok(written)
}

fn prepare_file(flow: u16, bytes: u64) -> Result<File> {
    let path = format!("/tmp/stream-{flow}");
    let mut file = File::create(&path).with_context(|| format!("cannot create {path}"))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < bytes {
        pattern::fill(pattern::start(flow) + offset, &mut chunk);
        file.write_all(&chunk)?;
        offset += CHUNK_BYTES as u64;
    }
    let file = File::open(&path)?;
    // It lives for as long as it is open.
    std::fs::remove_file(&path)?;
    Ok(file)
}
