// SPDX-License-Identifier: GPL-2.0

//! The ports of an instance: devices that its packets leave through.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path as FilePath;

use anyhow::{Context as _, Result};
use aya::maps::xdp::XdpMapError;
use aya::maps::{DevMapHash, HashMap, MapData};

use super::Hike;
use crate::host::{namespace, Host};
use crate::instance::drops::Drops;
use crate::instance::hook::Hook;
use crate::instance::kept_link::KeptLink;
use crate::instance::ports::{is_closed, Port};
use crate::limits::PORTS;
use crate::maps::{is_not_there, open, or_full};

/// The value of what is there.
const THERE: u32 = 1;

/// The tables of ports, and what keeps their programs.
pub(crate) struct Ports {
    table: DevMapHash<MapData>,
    wide: HashMap<MapData, u32, u32>,
    open: BTreeMap<u32, OpenPort>,
}

struct OpenPort {
    /// The number of the network namespace that it is in.
    namespace: u64,
    program: Option<KeptLink>,
}

impl Ports {
    /// Opens the tables of an instance; which programs are whose is in other hands.
    pub(crate) fn open(folder: &FilePath) -> Result<Self> {
        Ok(Self {
            table: open(folder, "ports")?.try_into()?,
            wide: open(folder, "wide_ports")?.try_into()?,
            open: BTreeMap::new(),
        })
    }

    /// Lets packets leave through a device that is open for them.
    fn add(&mut self, device: u32, port: Port) -> Result<()> {
        let namespace = namespace()?;
        let written = self.table.insert(device, device, None, 0);
        let written = written.map_err(|error| match error {
            XdpMapError::MapError(error) => error,
            error => unreachable!("no program is chained: {error}"),
        });
        or_full(written, "ports", PORTS)?;
        self.widen(device, port.is_wide)?;
        let program = port.program;
        self.open.insert(device, OpenPort { namespace, program });
        Ok(())
    }

    fn widen(&mut self, device: u32, is_wide: bool) -> Result<()> {
        match is_wide {
            true => Ok(self.wide.insert(device, THERE, 0)?),
            false => match self.wide.remove(&device) {
                Err(error) if !is_not_there(&error) => Err(error.into()),
                _ => Ok(()),
            },
        }
    }

    fn remove(&mut self, device: u32) -> Result<()> {
        self.table.remove(device)?;
        self.widen(device, false)?;
        self.open.remove(&device);
        Ok(())
    }

    /// Opens those of the calling thread's network namespace again that have lost their program.
    pub(super) fn mend(&mut self) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let host = Host::read()?;
        let number = host.namespace;
        let lost = self.open.iter().filter(|(device, port)| {
            let link = host.links.get(*device);
            port.namespace == number && link.is_some_and(is_closed)
        });
        let lost: Vec<u32> = lost.map(|(device, _)| *device).collect();
        for device in lost {
            let port = Port::open(device).with_context(|| format!("port {device}"))?;
            self.widen(device, port.is_wide)?;
            let program = port.program;
            let namespace = number;
            self.open.insert(device, OpenPort { namespace, program });
        }
        Ok(())
    }

    /// Opens a port, whose program then stays by a file in a folder, in the place of what has kept one before.
    pub(crate) fn keep(&mut self, folder: &FilePath, device: u32) -> Result<()> {
        let port = Port::open(device)?;
        self.widen(device, port.is_wide)?;
        let pin = folder.join(pin_name(device));
        match fs::remove_file(&pin) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let pinned = port.program.map_or(Ok(()), |program| program.pin(&pin));
        pinned.context("cannot pin the program of a port")
    }

    /// Makes the programs of ports stay when their process ends, by files in a folder.
    pub(super) fn stay(&self, folder: &FilePath) -> Result<()> {
        for (device, port) in &self.open {
            if let Some(program) = &port.program {
                program
                    .pin(&folder.join(pin_name(*device)))
                    .context("cannot pin the program of a port")?;
            }
        }
        Ok(())
    }
}

/// Returns the name by which the program of a port is pinned.
fn pin_name(device: u32) -> String {
    format!("port-{device}")
}

impl Hike {
    /// Lets packets leave through a device of the calling thread's network namespace. At XDP, its driver must take frames from there,
    /// and a veth's other end must have a program or GRO. If the device has no XDP program, it gets one that lets all packets pass, as
    /// most drivers send nothing for XDP without; it stays until all instances that have this port are gone. At tcx, any device is
    /// good, and a packet may leave by the one that it is at without this.
    pub fn add_port(&mut self, device: u32) -> Result<()> {
        let port = match self.hook {
            Hook::Xdp => Port::open(device),
            Hook::Tcx => Ok(Port::without_program()),
        };
        let _moves = self.epoch.moves_behind();
        port.and_then(|port| self.ports.add(device, port))
            .with_context(|| format!("device {device} cannot be a port"))?;
        if self.counts_by_itself && self.drops.is_none() {
            // A port is good without.
            self.drops = Drops::count(&self.folder).ok().flatten();
        }
        Ok(())
    }

    /// Returns whether what ports drop is counted as `port-dropped`, which takes a kernel with BTF. Where it is not, these packets are
    /// counted as forwarded.
    pub fn counts_drops(&self) -> bool {
        self.drops.is_some()
    }

    /// Does the same for a device that is about to get the entry of a generation, and so needs no other program. When it has that,
    /// [open](crate::Generation::open_port) the port.
    pub fn add_port_with_entry(&mut self, device: u32) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        let added = self.ports.add(device, Port::without_program());
        added.with_context(|| format!("device {device} cannot be a port"))
    }

    /// Lets no more packets leave through a device: the kernel gets them.
    pub fn remove_port(&mut self, device: u32) -> Result<()> {
        let _moves = self.epoch.moves_behind();
        let removed = self.ports.remove(device);
        removed.with_context(|| format!("device {device} is no port"))
    }
}
