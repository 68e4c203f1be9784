// SPDX-License-Identifier: GPL-2.0

//! The hosts that packets of an instance come from: network namespaces, each with devices of its own.

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use anyhow::{bail, ensure, Context as _, Result};

use super::Hike;
use crate::host::{namespace, Host};
use crate::instance::hook::Hook;
use crate::instance::host_tables::{Facts, HostTables};

/// The tables about hosts, and what they are made of.
pub(super) struct Hosts {
    tables: HostTables,
    /// By the number of the namespace.
    namespaces: BTreeMap<u64, Namespace>,
    /// The devices inside of the SR domain, each with the number of its namespace.
    inside: BTreeMap<u32, u64>,
    /// The devices of test runs.
    by_hand: BTreeMap<u32, [u8; 6]>,
}

#[derive(Default)]
struct Namespace {
    host: Host,
    /// The devices whose packets come to the instance.
    devices: BTreeMap<String, u32>,
}

impl Hosts {
    /// Opens the tables of an instance to which no packets come yet.
    pub(super) fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            tables: HostTables::open(folder)?,
            namespaces: BTreeMap::new(),
            inside: BTreeMap::new(),
            by_hand: BTreeMap::new(),
        })
    }

    /// Notes a device of the calling thread's namespace, before packets come from it; returns its index.
    pub(super) fn receive(&mut self, device: &str) -> Result<u32> {
        let host = Host::read()?;
        let number = host.namespace;
        let link = host.named(device)?;
        let index = link.index;
        ensure!(
            link.mac.is_some(),
            "{device} has no Ethernet headers, which HIKE needs"
        );
        let others = self.namespaces.iter();
        let mut others = others.filter(|(other, _)| **other != number);
        if let Some(twin) = others.find_map(|(_, one)| one.name(index)) {
            bail!(
                "{device} has the number {index}, which {twin} of another network namespace has, too; take another instance for one of them"
            );
        }
        let namespace = self.namespaces.entry(number).or_default();
        namespace.host = host;
        namespace.devices.insert(device.to_owned(), index);
        self.write()?;
        Ok(index)
    }

    /// Forgets a device, from which no packets come any more.
    pub(super) fn forget(&mut self, device: &str) -> Result<()> {
        for namespace in self.namespaces.values_mut() {
            namespace.devices.remove(device);
        }
        self.namespaces.retain(|_, one| !one.devices.is_empty());
        self.write()
    }

    /// Returns the names of the devices of a namespace whose packets come to the instance.
    pub(super) fn names(&self, namespace: u64) -> impl Iterator<Item = &str> {
        let devices = self.namespaces.get(&namespace);
        let devices = devices.map(|one| one.devices.keys().map(String::as_str));
        devices.into_iter().flatten()
    }

    /// Returns whether no packets come from another namespace.
    pub(super) fn are_all_in(&self, namespace: u64) -> bool {
        let mut others = self.namespaces.iter();
        others.all(|(number, one)| *number == namespace || one.devices.is_empty())
    }

    /// Notes what the host of the calling thread's namespace is now.
    fn follow(&mut self) -> Result<()> {
        let host = Host::read()?;
        let namespace = host.namespace;
        self.namespaces.entry(namespace).or_default().host = host;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let mut facts = Facts::default();
        for (&index, &mac) in &self.by_hand {
            facts.add_device(index, mac);
        }
        for namespace in self.namespaces.values() {
            facts.add(&namespace.host, namespace.devices.values().copied());
        }
        for (&device, number) in &self.inside {
            let namespace = self.namespaces.get(number);
            facts.add_inside(namespace.map(|one| &one.host), device);
        }
        self.tables.write(&facts)
    }
}

impl Namespace {
    fn name(&self, index: u32) -> Option<&str> {
        let mut devices = self.devices.iter();
        let (name, _) = devices.find(|(_, one)| **one == index)?;
        Some(name)
    }
}

impl Hike {
    /// Reads again what the calling thread's network namespace is, after devices or addresses have changed there. Until then, packets
    /// for a new Ethernet address of a device are left to the kernel, as those for other hosts are. Also opens ports again whose
    /// program others have taken off.
    pub fn follow(&mut self) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        self.hosts.follow()?;
        self.ports.mend()
    }

    /// Says that a device of the calling thread's network namespace is inside of the SR domain, with its devices if it is a bond: classes
    /// that are for packets from inside are for those that come by it.
    pub fn add_inside(&mut self, device: u32) -> Result<()> {
        self.hosts.inside.insert(device, namespace()?);
        let written = self.hosts.write();
        if written.is_err() {
            self.hosts.inside.remove(&device);
        }
        written
    }

    /// Says that a device is outside again.
    pub fn remove_inside(&mut self, device: u32) -> Result<()> {
        let removed = self.hosts.inside.remove(&device);
        removed.with_context(|| format!("device {device} is not inside"))?;
        self.hosts.write()
    }

    /// Says of a device, by its index, which Ethernet address it has, if its packets come by other ways than [`Self::attach`]: by
    /// test runs, which seem to come from the loopback device.
    pub fn set_device(&mut self, index: u32, mac: [u8; 6]) -> Result<()> {
        self.hosts.by_hand.insert(index, mac);
        self.hosts.write()
    }
}
