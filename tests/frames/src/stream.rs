// SPDX-License-Identifier: GPL-2.0

//! Which datagram comes next, and whether it may be sent yet.
//!
//! The receiver says how far it is, so that frames queue up in front of its bottleneck, wherever that is, without being lost
//! there.

use std::time::{Duration, Instant};

use anyhow::Result;
use mflow_protocol::bench::Frames;

use super::maker::Maker;

/// Datagrams on their way count as lost after this time without news.
const SILENCE: Duration = Duration::from_secs(1);

/// Flows of numbered datagrams that take turns, without end.
pub struct Stream {
    maker: Maker,
    flows: u64,
    /// How many datagrams may be on their way.
    credit: u64,
    sent: u64,
    given_up: u64,
    /// How far the receiver was when it was heard of last, and when that was.
    news: (u64, Instant),
}

impl Stream {
    /// Returns the stream that was ordered.
    pub fn new(order: Frames) -> Result<Self> {
        let (flows, credit) = (u64::from(order.flows), order.credit);
        Ok(Self {
            maker: Maker::new(order)?,
            flows,
            credit,
            sent: 0,
            given_up: 0,
            news: (0, Instant::now()),
        })
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
        self.maker.make(flow, self.sent / self.flows, take)?;
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
}
