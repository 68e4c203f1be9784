// SPDX-License-Identifier: GPL-2.0

//! A router: frames from outside the guest come in on the NIC and leave by another device, where they are counted.
//!
//! ```text
//!   outside ───▶ eth2 ─── the kernel, a BPF program or HIKE ───▶ out0 ─── nothing
//!                CPU 1                                  CPU 1
//! ```
//!
//! Behind `out0` is the least that can be, so that what is measured is the router: a dummy device for what the kernel forwards, which
//! takes no frames from XDP; for those, a veth whose other end drops them at XDP. The NIC's core does that, too. The first thing that
//! is full is the NIC's ring, where frames wait for their turn outside.

mod forwarder;
mod packets;

use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use mflow_protocol::bench::{Case, End, Outside, Packets, Stack};
use mflow_protocol::guest::Message;

use self::forwarder::Forwarder;
use self::packets::Traffic;
use super::{frames, sink, window, SETTLE};
use crate::machine::{command, threads};
use crate::network::topology::{self, FEED};
use crate::verdict;

/// The device that packets leave by.
const OUT: &str = "out0";
/// Frames between the NIC's counter and that of [`OUT`], at most: those of a veth's ring.
const RING_PKTS: u64 = 256;
const STILL: Duration = Duration::from_millis(50);

pub(super) fn measure(case: &Case, packets: Packets, flows: u16) -> Result<End> {
    let Stack::Router(router) = &case.stack else {
        bail!("only a router forwards packets, and no {:?}", case.stack);
    };
    let traffic = Traffic::new(packets, flows, &topology::feed_up()?)?;
    let order = |credit| Some(Outside::Copies(traffic.copies(credit)));
    frames::settle_interrupts(order(1))?;
    let forwarder = Forwarder::up(router, &traffic)?;
    let begin = Passed::read()?;
    let passed = || Ok(Passed::read()?.since(&begin));
    verdict::say(&Message::Load(order(frames::CREDIT_PKTS)));
    let tell = |stop: &_| sink::tell(stop, || Ok(passed()?.reached()));
    let measured = threads::beside(tell, || {
        command::wait_until("packets are forwarded", || Ok(passed()?.left_pkts > 100))?;
        thread::sleep(SETTLE);
        window::measure(case, || Ok(passed()?.counts()))
    });
    verdict::say(&Message::Load(None));
    measured
        .and_then(|_| forwarder.check(&until_still(&passed)?, &traffic))
        .with_context(|| format!("{:?} {:?}", case.stack, case.load))?;
    Ok(End::default())
}

/// Packets that have come and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    arrived_pkts: u64,
    left_pkts: u64,
    left_bytes: u64,
}

impl Passed {
    fn read() -> Result<Self> {
        // In this order: what leaves meanwhile is not taken for lost.
        let arrived_pkts = topology::received_pkts(FEED)?;
        Ok(Self {
            arrived_pkts,
            left_bytes: topology::sent_bytes(OUT)?,
            left_pkts: topology::sent_pkts(OUT)?,
        })
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            arrived_pkts: self.arrived_pkts - earlier.arrived_pkts,
            left_pkts: self.left_pkts - earlier.left_pkts,
            left_bytes: self.left_bytes - earlier.left_bytes,
        }
    }

    /// Returns how many are lost for sure.
    fn lost_pkts(&self) -> u64 {
        let missing = self.arrived_pkts.saturating_sub(self.left_pkts);
        missing.saturating_sub(RING_PKTS)
    }

    /// Returns how many need not be waited for any more.
    fn reached(&self) -> u64 {
        self.left_pkts + self.lost_pkts()
    }

    fn counts(&self) -> window::Counts {
        window::Counts {
            delivered: self.left_pkts,
            packets: self.left_pkts,
            lost: self.lost_pkts(),
            arrived: Some(self.arrived_pkts),
            ..window::Counts::default()
        }
    }

    /// Fails if packets are missing that no window has shown, or if they were not as long as the traffic's become.
    fn check(&self, frame_bytes: u64) -> Result<()> {
        let missing = self.arrived_pkts.saturating_sub(self.left_pkts);
        ensure!(
            missing == 0 || self.lost_pkts() > 0,
            "{missing} packets were lost, too few for a window to show them"
        );
        // The kernel may have sent some of its own.
        let bytes = (self.left_bytes + self.left_pkts / 2) / self.left_pkts.max(1);
        ensure!(
            bytes == frame_bytes,
            "frames that left had {bytes} bytes, and not {frame_bytes}"
        );
        Ok(())
    }
}

/// Returns what has come and left when nothing does so any more.
fn until_still(passed: &impl Fn() -> Result<Passed>) -> Result<Passed> {
    let mut last = passed()?;
    command::wait_until("no more packets come", || {
        thread::sleep(STILL);
        let before = std::mem::replace(&mut last, passed()?);
        Ok(before == last)
    })?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(arrived_pkts: u64, left_pkts: u64, left_bytes: u64) -> Passed {
        Passed {
            arrived_pkts,
            left_pkts,
            left_bytes,
        }
    }

    #[test]
    fn packets_that_may_still_be_on_their_way_are_not_lost() {
        assert_eq!(passed(1_000, 900, 0).counts().lost, 0);
        assert_eq!(passed(1_000, 500, 0).counts().lost, 500 - RING_PKTS);
        assert_eq!(passed(1_000, 500, 0).reached(), 1_000 - RING_PKTS);
        assert_eq!(passed(900, 910, 0).reached(), 910);
    }

    #[test]
    fn in_the_end_all_packets_must_be_there_and_as_long_as_they_shall_be() {
        assert!(passed(1_000, 1_000, 78_000).check(78).is_ok());
        assert!(passed(1_000, 1_001, 78_090).check(78).is_ok());
        assert!(passed(1_000, 999, 77_922).check(78).is_err());
        assert!(passed(1_000, 1_000, 78_000).check(142).is_err());
        // These a window has shown.
        assert!(passed(2_000, 1_000, 78_000).check(78).is_ok());
    }
}
