// SPDX-License-Identifier: GPL-2.0

//! The devices that packets leave through at XDP.
//!
//! Most drivers send the frames that XDP redirects to them only while they have an XDP program themselves: that makes the queues for
//! these frames (drivers/net/virtio_net.c: virtnet_xdp_xmit, and ixgbe_xdp_xmit, i40e_xdp_xmit, ice_xdp_xmit, mlx5e_xdp_xmit). A port
//! without a program gets one that lets all packets pass. It stays as long as somebody keeps its link, and instances that share the port
//! all do. A veth and a tap send without one: what counts for a veth is what its other end has (drivers/net/veth.c: veth_xdp_xmit).

use anyhow::{bail, ensure, Context as _, Result};
use aya::programs::links::FdLink;
use aya::programs::xdp::XdpMode;
use aya::programs::{loaded_links, loaded_programs, Program, ProgramInfo};
use netlink_packet_route::link::InfoKind;

use super::kept_link::KeptLink;
use super::loader::{self, PASS_PROGRAM};
use crate::host::features::Features;
use crate::host::links::{Link, Links};
use crate::host::Host;

/// A device that sends frames of XDP.
pub(crate) struct Port {
    /// The link of our program, if that is the program that it has.
    pub(crate) program: Option<KeptLink>,
    /// True if it sends frames in several buffers.
    pub(crate) is_wide: bool,
}

impl Port {
    /// Makes a device of the calling thread's network namespace send frames of XDP; fails with the reason if it cannot.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let host = Host::read()?;
        let link = host.links.get(&index).context("there is no such device")?;
        // It takes programs in the stack, but still sends nothing.
        ensure!(
            link.kind != Some(InfoKind::Vlan),
            refusal(&host.links, link)
        );
        let program = match link.program {
            Some(program) => shared(program)?,
            None if sends_without_program(link) => None,
            None => Some(attach(link).with_context(|| refusal(&host.links, link))?),
        };
        let features = Features::of(index)?;
        if features.is_some_and(|features| !features.sends()) {
            bail!(refusal(&host.links, link));
        }
        Ok(Self {
            program,
            is_wide: features.is_some_and(Features::sends_in_buffers),
        })
    }
}

impl Port {
    /// Returns what stands for a device that needs nothing of this.
    pub(crate) fn without_program() -> Self {
        Self {
            program: None,
            is_wide: false,
        }
    }
}

/// Returns whether a port has lost the program without which its driver does not send.
pub(crate) fn is_closed(link: &Link) -> bool {
    link.program.is_none() && !sends_without_program(link)
}

fn sends_without_program(link: &Link) -> bool {
    matches!(link.kind, Some(InfoKind::Veth | InfoKind::Tun))
}

/// Takes our program off a device that is to have an entry instead.
pub(crate) fn make_way(index: u32) -> Result<()> {
    let host = Host::read()?;
    let program = host.links.get(&index).and_then(|link| link.program);
    let ours = program.map(shared).transpose()?.flatten();
    ours.map_or(Ok(()), |link| link.detach())
        .context("cannot take the program of a port off")
}

/// Keeps a program where it is, if it is ours, together with the one who has put it there.
fn shared(program: u32) -> Result<Option<KeptLink>> {
    let mut programs = loaded_programs().flatten();
    let found = programs.find(|one| one.id() == program);
    let is_ours = found.map(|found| is_pass(&found)).transpose()?;
    let is_ours = is_ours.unwrap_or(false);
    if !is_ours {
        return Ok(None);
    }
    // Each link has a program of its own.
    let mut links = loaded_links().flatten();
    let Some(link) = links.find(|link| link.program_id() == program) else {
        return Ok(None);
    };
    let link = KeptLink::open(link.id()).context("cannot share the program of a port")?;
    Ok(Some(link))
}

/// Returns whether a program is that of ports. Kernels without BPF for events have programs without names, of which the instructions tell.
fn is_pass(program: &ProgramInfo) -> Result<bool> {
    if let Some(name) = program.name_as_str() {
        return Ok(name == PASS_PROGRAM);
    }
    let mut object = loader::pass()?;
    let own = loader::program(&mut object, PASS_PROGRAM)?.info()?;
    Ok(program.tag() == own.tag())
}

/// Attaches our program in the driver of a device.
fn attach(link: &Link) -> Result<KeptLink> {
    let mut object = loader::pass()?;
    let Program::Xdp(program) = loader::program(&mut object, PASS_PROGRAM)? else {
        bail!("{PASS_PROGRAM} is for XDP");
    };
    let attached = program.attach_to_if_index(link.index, XdpMode::Driver)?;
    let attached = FdLink::try_from(program.take_link(attached)?)?;
    let kept = KeptLink::open(attached.info()?.id());
    kept.context("cannot open the link of a program")
}

/// Says why a device does not send frames of XDP, and what to do.
fn refusal(links: &Links, link: &Link) -> String {
    let name = &link.name;
    let lower = link.lower.and_then(|lower| links.get(&lower));
    let below = lower.map(|lower| lower.name.as_str());
    let instead = "or let the kernel forward (fw-kernel)";
    match (&link.kind, below) {
        (Some(InfoKind::Veth), _) => format!(
            "{name} sends nothing for XDP while its other end has neither GRO nor an XDP program; try there: ethtool -K DEVICE gro on"
        ),
        (Some(InfoKind::Vlan), Some(below)) => format!(
            "{name} is the device of a VLAN, which sends nothing for XDP; make {below} the port, by which fw-fib sends with the VLAN's tag, \
             {instead}"
        ),
        (_, Some(below)) => {
            format!("{name} sends nothing for XDP; make {below} below it the port, {instead}")
        }
        _ => format!(
            "{name} sends nothing for XDP, as its driver cannot; take another device as the port, {instead}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_send_is_refused_with_what_to_do_instead() {
        let link = |index, name: &str, kind, lower| Link {
            index,
            name: name.to_owned(),
            kind,
            lower,
            ..Link::default()
        };
        let eth0 = link(1, "eth0", None, None);
        let vlan = link(2, "eth0.7", Some(InfoKind::Vlan), Some(1));
        let veth = link(3, "veth0", Some(InfoKind::Veth), None);
        let links = Links::from([(1, eth0.clone()), (2, vlan.clone()), (3, veth.clone())]);
        assert!(refusal(&links, &vlan).contains("make eth0 the port"));
        assert!(refusal(&links, &veth).contains("ethtool"));
        assert!(refusal(&links, &eth0).contains("take another device"));
        assert!(is_closed(&eth0) && !is_closed(&veth));
    }
}
