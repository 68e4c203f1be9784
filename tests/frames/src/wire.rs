// SPDX-License-Identifier: GPL-2.0

//! Frames on one end of a wire: in the stream of a `-netdev stream` of QEMU, each has its length in front of it.

use std::os::fd::AsFd;

use anyhow::{bail, ensure, Result};
use rustix::io::Errno;
use rustix::net::RecvFlags;

const LENGTH_BYTES: usize = 4;
/// Room for many frames.
const ROOM_BYTES: usize = 64 << 10;

/// Adds a frame, which is filled in afterwards.
pub fn add(frames: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    // CAST: no frame is as long as 4 GiB.
    frames.extend_from_slice(&(bytes as u32).to_be_bytes());
    let begin = frames.len();
    frames.resize(begin + bytes, 0);
    &mut frames[begin..]
}

/// Frames that arrive, in pieces of any length.
pub struct Arriving {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Default for Arriving {
    fn default() -> Self {
        Self::new()
    }
}

impl Arriving {
    /// Returns the end of a wire on which nothing has arrived.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; ROOM_BYTES],
            begin: 0,
            end: 0,
        }
    }

    /// Takes what is on the wire, without waiting for more; returns whether there was anything. Whole frames have to be taken
    /// out first, as they take up the room.
    pub fn read(&mut self, wire: impl AsFd) -> Result<bool> {
        self.buffer.copy_within(self.begin..self.end, 0);
        self.end -= self.begin;
        self.begin = 0;
        let room = &mut self.buffer[self.end..];
        match rustix::net::recv(wire, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => bail!("the wire is cut"),
            Ok((bytes, _)) => {
                self.end += bytes;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next frame that is there as a whole.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>> {
        let there = &self.buffer[self.begin..self.end];
        let Some((length, rest)) = there.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        // CAST: usize has at least 32 bits.
        let length = u32::from_be_bytes(*length) as usize;
        ensure!(
            length <= ROOM_BYTES - LENGTH_BYTES,
            "a frame of {length} bytes is on the wire"
        );
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.begin += LENGTH_BYTES + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn frames_arrive_whole_however_they_are_cut() {
        let sent: Vec<Vec<u8>> = (0..200_u8).map(|n| vec![n; usize::from(n) * 7]).collect();
        let mut stream = Vec::new();
        for frame in &sent {
            add(&mut stream, frame.len()).copy_from_slice(frame);
        }
        for piece in [1, 3, 1000, 60_000] {
            let (mut near, far) = UnixStream::pair().expect("a wire");
            let (mut arriving, mut arrived) = (Arriving::new(), Vec::new());
            assert!(!arriving.read(&far).expect("nothing is no error"));
            for bytes in stream.chunks(piece) {
                near.write_all(bytes).expect("room");
                while arriving.read(&far).expect("whole wire") {
                    while let Some(frame) = arriving.next_frame().expect("good frames") {
                        arrived.push(frame.to_vec());
                    }
                }
            }
            assert_eq!(arrived, sent);
            drop(near);
            assert!(arriving.read(&far).is_err());
        }
    }

    #[test]
    fn a_frame_that_cannot_be_is_an_error() {
        let (mut near, far) = UnixStream::pair().expect("a wire");
        near.write_all(&[0xff; 8]).expect("room");
        let mut arriving = Arriving::new();
        assert!(arriving.read(&far).expect("whole wire"));
        assert!(arriving.next_frame().is_err());
    }
}
