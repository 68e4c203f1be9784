// SPDX-License-Identifier: GPL-2.0

//! Devices, addresses and neighbours over netlink. Each case has its network built again, and on the checking kernel every
//! program that is started instead takes a third of a second.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};

use anyhow::{ensure, Context as _, Result};
use mflow_protocol::network::mac_bytes;
use netlink_packet_core::{
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL,
    NLM_F_REPLACE, NLM_F_REQUEST,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::sys::socket::{recv, send, socket, MsgFlags, SockFlag, SockProtocol, SockType};

use crate::network::netns;

/// Longer than what the kernel says of one device.
const ANSWER_BYTES: usize = 32 << 10;

/// The place where a bridge or a VXLAN device finds an Ethernet address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behind<'a> {
    /// Behind this port of its bridge.
    Port(&'a str),
    /// Behind a VXLAN device, on this machine.
    Machine(&'a str, IpAddr),
}

/// The network devices of a namespace, which stays for as long as this does.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens those of a namespace, or of the calling thread's.
    pub(crate) fn open(namespace: Option<&str>) -> Result<Self> {
        let open = || {
            let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
            let family = nix::sys::socket::AddressFamily::Netlink;
            socket(family, kind, flags, SockProtocol::NetlinkRoute).context("no netlink socket")
        };
        match namespace {
            Some(name) => netns::within(name, open),
            None => open(),
        }
        .map(Self)
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.index(name).is_ok()
    }

    /// Adds a device.
    pub(crate) fn add(
        &self,
        name: &str,
        mtu: usize,
        kind: InfoKind,
        data: InfoData,
        more: impl IntoIterator<Item = LinkAttribute>,
    ) -> Result<()> {
        let what = format!("cannot add {name}, {kind:?}");
        let mut link = device(name, mtu)?;
        let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
        link.attributes.push(LinkAttribute::LinkInfo(info));
        link.attributes.extend(more);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.ask(RouteNetlinkMessage::NewLink(link), flags)
            .context(what)
            .map(drop)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.ask(RouteNetlinkMessage::DelLink(named(name)), 0)
            .with_context(|| format!("cannot delete {name}"))
            .map(drop)
    }

    pub(crate) fn up(&self, name: &str) -> Result<()> {
        let mut link = named(name);
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
            .with_context(|| format!("cannot bring {name} up"))
            .map(drop)
    }

    /// Brings a device up as a port of a bridge.
    pub(crate) fn enslave(&self, name: &str, bridge: &str) -> Result<()> {
        let mut link = named(name);
        link.attributes
            .push(LinkAttribute::Controller(self.index(bridge)?));
        self.ask(RouteNetlinkMessage::SetLink(link), 0)
            .with_context(|| format!("cannot make {name} a port of {bridge}"))?;
        self.up(name)
    }

    /// Gives a device an address, which is in use at once.
    pub(crate) fn address(&self, name: &str, address: IpAddr, prefix_len: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = self.index(name)?;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(RouteNetlinkMessage::NewAddress(message), flags)
            .with_context(|| format!("cannot give {name} the address {address}"))
            .map(drop)
    }

    /// Says for good which Ethernet address an address has.
    pub(crate) fn neighbour(&self, name: &str, address: IpAddr, mac: &str) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name)?;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(address.into()),
            NeighbourAttribute::LinkLayerAddress(ethernet(mac)?),
        ];
        self.replace_neighbour(message)
            .with_context(|| format!("cannot say of {address} that it is {mac} on {name}"))
    }

    /// Says for good where frames for an Ethernet address go.
    pub(crate) fn forward(&self, mac: &str, behind: Behind<'_>) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Bridge;
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(ethernet(mac)?)];
        let name = match behind {
            Behind::Port(name) => {
                message.header.state = NeighbourState::Noarp;
                message.header.flags = NeighbourFlags::Controller;
                name
            }
            Behind::Machine(name, address) => {
                message.header.state = NeighbourState::Permanent;
                message.header.flags = NeighbourFlags::Own;
                message
                    .attributes
                    .push(NeighbourAttribute::Destination(address.into()));
                name
            }
        };
        message.header.ifindex = self.index(name)?;
        self.replace_neighbour(message)
            .with_context(|| format!("cannot say of {mac} that it is {behind:?}"))
    }

    fn replace_neighbour(&self, message: NeighbourMessage) -> Result<()> {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(RouteNetlinkMessage::NewNeighbour(message), flags)
            .map(drop)
    }

    pub(crate) fn index(&self, name: &str) -> Result<u32> {
        Ok(self.link(name)?.header.index)
    }

    /// Returns the kind of queueing discipline that a device sends through.
    pub(crate) fn discipline(&self, name: &str) -> Result<String> {
        let attributes = self.link(name)?.attributes;
        let found = attributes
            .into_iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Qdisc(kind) => Some(kind),
                _ => None,
            });
        found.with_context(|| format!("{name} has no queueing discipline"))
    }

    fn link(&self, name: &str) -> Result<LinkMessage> {
        let answer = self.ask(RouteNetlinkMessage::GetLink(named(name)), 0);
        match answer.with_context(|| format!("no device {name}"))? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            other => anyhow::bail!("asked for {name}, the kernel says {other:?}"),
        }
    }

    /// Asks the kernel for something, and waits until it is done; returns what the kernel says beside that.
    fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> Result<Option<RouteNetlinkMessage>> {
        let mut request =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut said = None;
        let mut answers = vec![0; ANSWER_BYTES];
        loop {
            let length = recv(self.0.as_raw_fd(), &mut answers, MsgFlags::empty())?;
            let mut left = &answers[..length];
            while !left.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(left)?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                ensure!(length > 0, "netlink said nothing");
                left = left.get(length..).unwrap_or_default();
                match answer.payload {
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(said),
                    NetlinkPayload::Error(error) => return Err(error.to_io().into()),
                    NetlinkPayload::InnerMessage(message) => said = Some(message),
                    _ => {}
                }
            }
        }
    }
}

/// Returns the first part of a message about a device that is to have this name and MTU.
pub(crate) fn device(name: &str, mtu: usize) -> Result<LinkMessage> {
    let mut link = named(name);
    link.attributes
        .push(LinkAttribute::Mtu(u32::try_from(mtu)?));
    Ok(link)
}

/// Returns the attribute of a device that is to be in a namespace; the file stays open until it is.
pub(crate) fn namespace(name: &str) -> Result<(File, LinkAttribute)> {
    let file = netns::open(name)?;
    let attribute = LinkAttribute::NetNsFd(file.as_raw_fd());
    Ok((file, attribute))
}

/// Returns the six bytes of an Ethernet address.
pub(crate) fn ethernet(mac: &str) -> Result<Vec<u8>> {
    let bytes = mac_bytes(mac).with_context(|| format!("{mac} is no Ethernet address"))?;
    Ok(bytes.to_vec())
}

fn named(name: &str) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::IfName(name.to_owned()));
    link
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
