// SPDX-License-Identifier: GPL-2.0

//! UDP in ready-made frames from outside the guest: no sender in the guest is the bottleneck.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{bail, Context as _, Result};
use mflow_protocol::bench::{Case, End, Frames, Outside, Reading, Stack, PORT};
use mflow_protocol::guest::Message;

use super::sink::Sink;
use super::{app_endpoint, stack, window, AppEndpoint, SETTLE};
use crate::machine::softnet::Softnet;
use crate::machine::{command, cpu};
use crate::network::topology::{self, Family};
use crate::{mflow, verdict};

/// Packets that may be on their way for each lane: more than the NIC's ring and less than a lane's, so that a lane that is
/// kept from running by a busy host does not make the NIC core do its work.
pub(super) const CREDIT_PKTS: u64 = 6_144;

/// The number of trials within which the NIC's interrupt has to move, and the time for which the packets of one trial are on
/// their way.
const MOVES_MAX: u32 = 5;
const STILL: Duration = Duration::from_millis(50);

pub(super) fn measure(case: &Case, flows: u16, bytes: usize, reading: Reading) -> Result<End> {
    let nic_mac = topology::feed_up()?;
    let frames = |credit| {
        Some(Outside::Frames(Frames {
            nic_mac: nic_mac.clone(),
            overlay: case.stack.has_overlay(),
            flows,
            bytes,
            credit,
        }))
    };
    let AppEndpoint {
        namespace,
        address,
        mtu,
    } = prepare(&case.stack, frames(1))?;
    let before = mflow::flows_split()?;
    let sink = Sink::start(
        namespace,
        SocketAddr::from((address, PORT)),
        flows,
        bytes,
        reading,
    )?;
    let per_datagram = Family::V4.frames(bytes, mtu) as u64;
    let credit = credit_pkts(&case.stack) / per_datagram;
    verdict::say(&Message::Load(frames(credit.max(u64::from(flows)))));
    let measured = (|| {
        command::wait_until("frames arrive", || Ok(sink.counts().delivered > 100))?;
        stack::wait_split(&case.stack, u64::from(flows), before)?;
        thread::sleep(SETTLE);
        window::measure(case, || {
            let counts = sink.counts();
            Ok(window::Counts {
                packets: counts.delivered * per_datagram,
                arrived: Some(topology::received_pkts(topology::FEED)?),
                ..counts
            })
        })
        .with_context(|| format!("{:?} {:?}", case.stack, case.load))
    })();
    verdict::say(&Message::Load(None));
    sink.stop()?;
    measured.map(|()| End::default())
}

/// Prepares the stack for a load from outside, after the NIC's interrupts have moved to their CPU. There are so few `frames` that
/// nothing is measured by them. Returns the application's endpoint.
pub(super) fn prepare(stack: &Stack, frames: Option<Outside>) -> Result<AppEndpoint> {
    settle_interrupts(frames)?;
    stack::prepare(stack, topology::FEED)?;
    Ok(app_endpoint(stack))
}

/// Makes the NIC receive until its interrupts come to their CPU: an interrupt moves when the next one comes, and under load, when
/// the NIC is polled, none comes for long.
pub(super) fn settle_interrupts(frames: Option<Outside>) -> Result<()> {
    for _ in 0..MOVES_MAX {
        let before = (Softnet::read()?, topology::received_pkts(topology::FEED)?);
        verdict::say(&Message::Load(frames.clone()));
        command::wait_until("the NIC receives", || {
            Ok(topology::received_pkts(topology::FEED)? > before.1)
        })?;
        verdict::say(&Message::Load(None));
        thread::sleep(STILL);
        let received = topology::received_pkts(topology::FEED)? - before.1;
        let here = Softnet::read()?.since(&before.0).processed;
        if here.get(&cpu::NIC).is_some_and(|&pkts| pkts >= received) {
            return Ok(());
        }
    }
    bail!(
        "{}'s packets do not come in on CPU {}",
        topology::FEED,
        cpu::NIC
    )
}

/// Returns how many packets may be on their way.
pub(super) fn credit_pkts(stack: &Stack) -> u64 {
    match stack {
        // Twice as much keeps any number of lanes busy.
        Stack::Mflow { lanes, .. }
        | Stack::Falcon { cpus: lanes, .. }
        | Stack::HostPlus { cpus: lanes } => CREDIT_PKTS * (*lanes).clamp(1, 2) as u64,
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
