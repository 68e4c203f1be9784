// SPDX-License-Identifier: GPL-2.0

//! A source of frames inside the model: a card receives them without a sender, as fast as its driver posts buffers.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{ensure, Context as _, Result};
use mflow_frames::Stream;
use pcap_file::pcap::PcapReader;

/// The frames that a source sends.
pub(crate) enum Content {
    /// Numbered datagrams, without end.
    Stream(Box<Stream>),
    /// Frames that were captured somewhere.
    Replay(Replay),
}

/// Frames that are sent again and again.
pub(crate) struct Replay {
    frames: Vec<Vec<u8>>,
    next: usize,
    left: u64,
}

#[derive(Default)]
pub(crate) struct Source(Mutex<Option<(usize, Content)>>);

impl Replay {
    /// Reads a capture, to be sent this many times.
    pub(crate) fn read(path: &Path, times: u64) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut reader = PcapReader::new(BufReader::new(file))
            .with_context(|| format!("{} is no capture (pcap)", path.display()))?;
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.with_context(|| format!("{} is damaged", path.display()))?;
            frames.push(packet.data.into_owned());
        }
        ensure!(!frames.is_empty(), "{} has no frames", path.display());
        let left = times.saturating_mul(frames.len() as u64);
        Ok(Self {
            frames,
            next: 0,
            left,
        })
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        self.left = self.left.checked_sub(1)?;
        let frame = self.frames.get(self.next).cloned();
        self.next = (self.next + 1) % self.frames.len();
        frame
    }
}

impl Source {
    /// Changes what a card receives; `None`: nothing more.
    pub(crate) fn set(&self, what: Option<(usize, Content)>) {
        *self.lock() = what;
    }

    /// Returns the card that frames are for, if there are any.
    pub(crate) fn card(&self) -> Option<usize> {
        self.lock().as_ref().map(|(card, _)| *card)
    }

    /// Adds frames until there are `most`, as far as there are any.
    pub(crate) fn fill(&self, frames: &mut VecDeque<Vec<u8>>, most: usize) {
        let mut now = self.lock();
        while frames.len() < most {
            let more = match &mut *now {
                None => false,
                Some((_, Content::Replay(replay))) => {
                    let frame = replay.next();
                    let more = frame.is_some();
                    frames.extend(frame);
                    more
                }
                Some((_, Content::Stream(stream))) => {
                    // Nobody says how far the receiver is: it gets the credit again each second.
                    let made = stream.next(0, |frame| frames.push_back(frame.to_vec()));
                    made.unwrap_or_else(|error| {
                        eprintln!("the source has ended: {error:#}");
                        false
                    })
                }
            };
            if !more {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(usize, Content)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mflow_frames::Frames;

    use super::*;

    fn filled(source: &Source, most: usize) -> Vec<Vec<u8>> {
        let mut frames = VecDeque::new();
        source.fill(&mut frames, most);
        frames.into()
    }

    #[test]
    fn a_capture_is_sent_so_many_times() {
        // Magic, version 2.4, no offset, no accuracy, longest packet, Ethernet; then two packets.
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1] {
            bytes.extend(u32::to_le_bytes(word));
        }
        for packet in [[1_u8; 60], [2; 60]] {
            for word in [0_u32, 0, 60, 60] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(packet);
        }
        let path = std::env::temp_dir().join(format!("mlx5-model-{}.pcap", std::process::id()));
        std::fs::write(&path, bytes).expect("a file");
        let replay = Replay::read(&path, 2);
        std::fs::remove_file(&path).expect("a file");
        let source = Source::default();
        source.set(Some((0, Content::Replay(replay.expect("a capture")))));
        let marks: Vec<u8> = filled(&source, 9).iter().map(|frame| frame[0]).collect();
        assert_eq!(marks, [1, 2, 1, 2]);
        assert!(Replay::read(Path::new("/no such file"), 1).is_err());
    }

    #[test]
    fn a_stream_is_as_long_as_its_credit() {
        let order = |flows| Frames {
            nic_mac: "02:c0:ff:ee:00:01".to_owned(),
            overlay: true,
            flows,
            bytes: 16,
            credit: 100,
        };
        assert!(Stream::new(order(0)).is_err());
        let source = Source::default();
        let stream = Stream::new(order(64)).expect("good order");
        source.set(Some((2, Content::Stream(Box::new(stream)))));
        assert_eq!(source.card(), Some(2));
        assert_eq!(filled(&source, 60).len(), 60);
        assert_eq!(filled(&source, 60).len(), 40);
        assert_eq!(filled(&source, 60).len(), 0);
        source.set(None);
        assert_eq!((filled(&source, 60).len(), source.card()), (0, None));
    }
}
