// SPDX-License-Identifier: GPL-2.0

//! The host that an instance runs on, as its kernel tells over netlink: its devices ([`links`]), what their drivers can do
//! ([`features`]), and its own addresses ([`addresses`]), in the network namespace of the thread that asks.

pub(crate) mod addresses;
pub(crate) mod features;
pub(crate) mod links;
mod netlink;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result};
use netlink_sys::protocols::NETLINK_ROUTE;

use self::addresses::OwnedBy;
use self::links::{Link, Links};
use self::netlink::Netlink;
use crate::config::destination::Destination;

/// The calling thread's network namespace.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Returns the number of the calling thread's network namespace.
pub(crate) fn namespace() -> Result<u64> {
    Ok(fs::metadata(NAMESPACE).context(NAMESPACE)?.ino())
}

/// The state of a network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The number of the namespace.
    pub(crate) namespace: u64,
    pub(crate) links: Links,
    /// The destinations that are its own.
    pub(crate) own: BTreeMap<Destination, OwnedBy>,
}

impl Host {
    /// Asks the kernel about the calling thread's network namespace.
    pub fn read() -> Result<Self> {
        let netlink = Netlink::open(NETLINK_ROUTE)?;
        let links = links::read(&netlink)?;
        let vrfs: Vec<u32> = links.values().filter_map(|link| link.table).collect();
        let own = addresses::read(&netlink, &vrfs)?;
        Ok(Self {
            namespace: namespace()?,
            links,
            own,
        })
    }

    /// Returns the index of a device, if there is one with this name.
    pub fn index(&self, name: &str) -> Option<u32> {
        Some(self.named(name).ok()?.index)
    }

    /// Returns the device with this name.
    pub(crate) fn named(&self, name: &str) -> Result<&Link> {
        let mut all = self.links.values();
        let link = all.find(|link| link.name == name);
        link.with_context(|| format!("there is no device {name}"))
    }
}
