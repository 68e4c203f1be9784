// SPDX-License-Identifier: GPL-2.0

//! The choice of the next datagram, and the decision whether it may be sent yet.
//!
//! The receiver says how far it is, so that frames queue up in front of its bottleneck, wherever that is, and none is lost there.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::bench::{Copies, Frames};

use super::maker::Maker;

/// Datagrams on their way count as lost after this time without news.
const SILENCE: Duration = Duration::from_secs(1);

/// The source of frames.
enum Source {
    /// Numbered datagrams.
    Maker(Maker),
    /// A frame, and the offset of its flow's number.
    Copies {
        frame: Vec<u8>,
        flow_at: Option<usize>,
    },
}

impl Source {
    fn make(&mut self, flow: u16, sequence: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
        let (frame, flow_at) = match self {
            Self::Maker(maker) => return maker.make(flow, sequence, take),
            Self::Copies { frame, flow_at } => (frame, flow_at),
        };
        if let Some(at) = *flow_at {
            frame
                .get_mut(at..at + 2)
                .context("a frame ends before its flow's number")?
                .copy_from_slice(&flow.to_be_bytes());
        }
        take(frame);
        Ok(())
    }
}

/// Flows of datagrams that take turns, without end.
pub struct Stream {
    source: Source,
    flows: u64,
    /// The number of datagrams that may be on their way.
    credit: u64,
    sent: u64,
    given_up: u64,
    /// The progress of the receiver when it was last heard of, and the time of that.
    news: (u64, Instant),
}

impl Stream {
    /// Returns the stream that was ordered.
    pub fn new(order: Frames) -> Result<Self> {
        let (flows, credit) = (order.flows, order.credit);
        Ok(Self::of(Source::Maker(Maker::new(order)?), flows, credit))
    }

    /// Returns the stream that has the same frame again and again.
    pub fn of_copies(order: Copies) -> Result<Self> {
        let Copies {
            frame,
            flows,
            flow_at,
            credit,
        } = order;
        ensure!(flows > 0, "frames of no flow cannot be made");
        ensure!(
            flow_at.is_none_or(|at| at + 2 <= frame.len()),
            "a frame of {} bytes has no flow's number at {flow_at:?}",
            frame.len()
        );
        let source = Source::Copies { frame, flow_at };
        Ok(Self::of(source, flows, credit))
    }

    fn of(source: Source, flows: u16, credit: u64) -> Self {
        Self {
            source,
            flows: u64::from(flows),
            credit,
            sent: 0,
            given_up: 0,
            news: (0, Instant::now()),
        }
    }

    /// Hands the frames of the next datagram to `take`, unless as many as may be are on their way; returns whether it did.
    ///
    /// `reached` is how far the receiver is, over all flows.
    pub fn next(&mut self, reached: u64, take: impl FnMut(&[u8])) -> Result<bool> {
        if self.sent >= reached + self.given_up + self.credit {
            if reached != self.news.0 {
                self.news = (reached, Instant::now());
            } else if self.news.1.elapsed() > SILENCE {
                self.given_up = self.sent.saturating_sub(reached);
                self.news.1 = Instant::now();
            }
            return Ok(false);
        }
        // CAST: the number of flows is a u16.
        let flow = (self.sent % self.flows) as u16;
        self.source.make(flow, self.sent / self.flows, take)?;
        self.sent += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_on_their_way_than_may_be() {
        let mut stream = Stream::new(Frames {
            nic_mac: "02:00:00:00:00:01".to_owned(),
            overlay: true,
            flows: 3,
            bytes: 16,
            credit: 5,
        })
        .expect("good order");
        let mut frames = 0;
        let mut send = |reached| {
            while stream.next(reached, |_| frames += 1).expect("a frame") {}
            frames
        };
        assert_eq!(send(0), 5);
        assert_eq!(send(2), 7);
        assert_eq!(send(2), 7);
    }

    #[test]
    fn copies_differ_in_their_flow_s_number() {
        let order = |flow_at| Copies {
            frame: vec![9; 6],
            flows: 2,
            flow_at,
            credit: 3,
        };
        let frames = |flow_at| {
            let mut stream = Stream::of_copies(order(flow_at)).expect("good order");
            let mut frames = Vec::new();
            while stream
                .next(0, |frame| frames.push(frame.to_vec()))
                .expect("a frame")
            {}
            frames
        };
        assert_eq!(frames(None), vec![vec![9; 6]; 3]);
        let (even, odd) = ([9, 9, 9, 9, 0, 0], [9, 9, 9, 9, 0, 1]);
        assert_eq!(frames(Some(4)), [even, odd, even]);
        assert!(Stream::of_copies(order(Some(5))).is_err());
    }
}
