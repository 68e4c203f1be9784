// SPDX-License-Identifier: GPL-2.0

//! UDP in ready-made frames from outside the guest: no sender in the guest is the bottleneck.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context as _, Result};
use mflow_protocol::bench::{Case, End, Frames, Load, Stack, PORT};

use super::sink::Sink;
use super::{place, stack, window, Place, SETTLE};
use crate::topology::{self, Family};
use crate::{command, mflow, verdict};

/// Packets that may be on their way for each lane: more than the NIC's ring and less than a lane's, so that a lane that is
/// kept from running by a busy host does not make the NIC core do its work.
const CREDIT_PKTS: u64 = 6_144;

/// Measures a case; the application is [`Sink`].
pub(super) fn measure(case: &Case, flows: u16, bytes: usize) -> Result<End> {
    let nic_mac = topology::feed_up()?;
    stack::prepare(&case.stack, topology::FEED)?;
    let Place {
        namespace,
        address,
        mtu,
    } = place(&case.stack);
    let before = mflow::flows_split()?;
    let sink = Sink::start(namespace, SocketAddr::from((address, PORT)), flows, bytes)?;
    let per_datagram = Family::V4.frames(bytes, mtu) as u64;
    let load = Load::Frames { flows, bytes };
    verdict::say(
        "load",
        &Some(Frames {
            nic_mac,
            overlay: case.stack != Stack::Native,
            flows,
            bytes,
            credit: (credit_pkts(&case.stack) / per_datagram).max(u64::from(flows)),
        }),
    );
    let measured = (|| {
        command::wait_until("frames arrive", || Ok(sink.counts().delivered > 100))?;
        stack::wait_split(&case.stack, u64::from(flows), before)?;
        thread::sleep(SETTLE);
        window::measure(case, || {
            let counts = sink.counts();
            Ok(window::Counts {
                packets: counts.delivered * per_datagram,
                ..counts
            })
        })
        .with_context(|| format!("{:?} {load:?}", case.stack))
    })();
    verdict::say("load", &None::<Frames>);
    sink.stop()?;
    measured.map(|()| End::default())
}

fn credit_pkts(stack: &Stack) -> u64 {
    match stack {
        // Twice as much keeps any number of lanes busy.
        Stack::Mflow { lanes, .. } => CREDIT_PKTS * (*lanes).clamp(1, 2) as u64,
        _ => CREDIT_PKTS,
    }
}

#[cfg(test)]
mod tests {
    use mflow_protocol::network;

    use super::*;

    #[test]
    fn the_network_is_the_one_frames_are_made_for() {
        assert_eq!(Family::V4.container(), network::CONTAINER);
        assert_eq!(Family::V4.client(), network::CLIENT);
        assert_eq!(Family::V4.overlay_mtu(), network::OVERLAY_MTU);
    }
}
