// SPDX-License-Identifier: GPL-2.0

//! The wire from a card to a program outside the machine: a stream socket, with the framing of QEMU's.
//!
//! The program may stop reading until what it writes is read, so nothing here ever waits for it. Bytes that the socket does not
//! take yet are kept, and frames that the card has no room for stay in the socket.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, Result};
use mflow_frames::wire::{self, Arriving};
use rustix::io::Errno;
use rustix::net::SendFlags;

pub(crate) struct Outside {
    /// None once the wire is cut.
    stream: Option<UnixStream>,
    arriving: Arriving,
    /// Frames that are being written, and how many bytes of them have been.
    leaving: Vec<u8>,
    written: usize,
}

impl Outside {
    /// Connects to the program, which listens on this socket.
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        let stream = UnixStream::connect(path);
        let stream = stream.with_context(|| format!("cannot connect to {}", path.display()))?;
        Ok(Self::new(stream))
    }

    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream: Some(stream),
            arriving: Arriving::new(),
            leaving: Vec::new(),
            written: 0,
        }
    }

    /// Returns whether the program is still there, as far as is known.
    pub(crate) fn is_whole(&self) -> bool {
        self.stream.is_some()
    }

    /// Adds frames that have come until there are `most`, as far as there are any.
    pub(crate) fn fill(&mut self, frames: &mut VecDeque<Vec<u8>>, most: usize) {
        if let Err(error) = self.receive(frames, most) {
            self.cut(&error);
        }
    }

    /// Sends frames, unless earlier ones are still to be written; returns whether anything has moved. Once the wire is cut,
    /// frames are lost.
    pub(crate) fn drain(&mut self, frames: &mut VecDeque<Vec<u8>>) -> bool {
        self.send(frames).unwrap_or_else(|error| {
            self.cut(&error);
            true
        })
    }

    fn receive(&mut self, frames: &mut VecDeque<Vec<u8>>, most: usize) -> Result<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        while frames.len() < most {
            if let Some(frame) = self.arriving.next_frame()? {
                frames.push_back(frame.to_vec());
            } else if !self.arriving.read(stream)? {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, frames: &mut VecDeque<Vec<u8>>) -> Result<bool> {
        let Some(stream) = &self.stream else {
            let lost = !frames.is_empty();
            frames.clear();
            return Ok(lost);
        };
        let mut moved = false;
        loop {
            if self.written == self.leaving.len() {
                self.written = 0;
                self.leaving.clear();
                if frames.is_empty() {
                    return Ok(moved);
                }
                for frame in frames.drain(..) {
                    wire::add(&mut self.leaving, frame.len()).copy_from_slice(&frame);
                }
                moved = true;
            }
            let rest = &self.leaving[self.written..];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(stream, rest, flags) {
                Ok(bytes) => {
                    self.written += bytes;
                    moved = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(moved),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn cut(&mut self, error: &anyhow::Error) {
        eprintln!("the wire to the outside carries nothing more: {error:#}");
        self.stream = None;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn pair() -> (Outside, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a wire");
        (Outside::new(near), far)
    }

    fn framed(count: u8, bytes: usize) -> Vec<u8> {
        let mut stream = Vec::new();
        for mark in 0..count {
            wire::add(&mut stream, bytes).fill(mark);
        }
        stream
    }

    fn marks(frames: &VecDeque<Vec<u8>>) -> Vec<u8> {
        frames.iter().map(|frame| frame[0]).collect()
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let (mut outside, mut far) = pair();
        let mut frames = VecDeque::new();
        outside.fill(&mut frames, 3);
        assert!(frames.is_empty() && outside.is_whole());
        far.write_all(&framed(5, 60)).expect("room");
        outside.fill(&mut frames, 3);
        assert_eq!(marks(&frames), [0, 1, 2]);
        outside.fill(&mut frames, 3);
        assert_eq!(frames.len(), 3);
        frames.pop_front();
        outside.fill(&mut frames, 9);
        assert_eq!(marks(&frames), [1, 2, 3, 4]);
        // Without room, a program that writes for ever has to wait.
        far.set_nonblocking(true).expect("a socket");
        let mut written = 0;
        while far.write(&framed(100, 1_500)).is_ok() {
            outside.fill(&mut frames, 4);
            written += 1;
            assert!(written < 10_000, "the socket takes everything");
        }
        assert_eq!(frames.len(), 4);
    }

    #[test]
    fn what_the_program_does_not_read_yet_is_kept_in_order() {
        const COUNT: u8 = 200;
        let (mut outside, far) = pair();
        let mut arriving = Arriving::new();
        let mut arrived = VecDeque::new();
        // Until the socket is full: it never waits, and takes no more frames then.
        let mut frames = VecDeque::new();
        let (mut sent, mut stuck) = (0, false);
        while usize::from(COUNT) > arrived.len() {
            if sent < COUNT {
                frames.push_back(vec![sent; 9_000]);
                sent += 1;
            }
            let moved = outside.drain(&mut frames);
            stuck |= !moved && !frames.is_empty();
            if sent == COUNT {
                while let Some(frame) = arriving.next_frame().expect("good frames") {
                    arrived.push_back(frame.to_vec());
                }
                arriving.read(&far).expect("a whole wire");
            }
        }
        assert!(stuck, "the socket took everything");
        assert_eq!(marks(&arrived), (0..COUNT).collect::<Vec<_>>());
        assert!(arrived.iter().all(|frame| frame.len() == 9_000));
    }

    #[test]
    fn everything_is_lost_once_the_program_has_gone() {
        let frame = || VecDeque::from([vec![7; 60]]);
        // The first user of the wire notices it.
        let (mut outside, far) = pair();
        drop(far);
        outside.fill(&mut VecDeque::new(), 9);
        assert!(!outside.is_whole());
        let (mut outside, far) = pair();
        drop(far);
        outside.drain(&mut frame());
        assert!(!outside.is_whole());
        let mut frames = frame();
        assert!(outside.drain(&mut frames) && frames.is_empty());
        assert!(!outside.drain(&mut frames));
        outside.fill(&mut frames, 9);
        assert!(frames.is_empty());
    }
}
