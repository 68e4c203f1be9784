// SPDX-License-Identifier: GPL-2.0

//! Networks of containers that are not a bridge and a veth, and what else than a container a host's network leads to.

mod mixed;
mod openvswitch;
mod sharing;

use anyhow::Result;

use super::elephant::receiver::Arrived;
use super::elephant::Elephant;
use super::host::{Host, Rules};
use super::new_flows::{Made, Services};
use super::Case;
use crate::network::topology::Family;

const TCP: u16 = 6_101;
const UDP: u16 = 6_102;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = openvswitch::cases();
    cases.extend(sharing::cases());
    cases.extend(mixed::cases());
    cases
}

/// Takes away what cases leave behind on the host, and what the network is built of cannot be there beside.
pub(super) fn clear() -> Result<()> {
    openvswitch::clear();
    Ok(())
}

#[derive(Debug)]
struct Seen {
    arrived: Arrived,
    made: Made,
}

/// Demands that an elephant to the container is split and whole, and that all connections and flows beside it come about.
fn require_unnoticed(host: &Host, set_up: impl Fn() -> Result<()>) -> Result<()> {
    let compared = host.compare(Family::V4, Rules::First, set_up, seen)?;
    compared.each(|seen| {
        seen.made.require_all()?;
        seen.arrived.require_whole()
    })?;
    let (on, off) = (&compared.on.arrived, &compared.off.arrived);
    on.require_looks_of(off)?;
    on.require_nothing_given_up()?;
    on.require_split()
}

fn seen(host: &Host) -> Result<Seen> {
    let services = Services::of_container(Family::V4, [TCP, UDP], [TCP, UDP])?;
    let (arrived, made) =
        Elephant::plain(host, Family::V4)?.run(host.datagrams / 4, |_| services.make())?;
    Ok(Seen { arrived, made })
}
