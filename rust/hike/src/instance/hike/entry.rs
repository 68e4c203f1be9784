// SPDX-License-Identifier: GPL-2.0

//! The entry of an instance, and the devices that it is attached to.

use anyhow::{ensure, Context as _, Result};
use aya::programs::{Program, SchedClassifier, Xdp};

use super::Hike;
use crate::instance::hook::{self, Hook, XdpMode};
use crate::instance::loader::{self, DISPATCHER_PROGRAM};
use crate::instance::ports::make_way;
use crate::routing::{Facts, Routing};

impl Hike {
    /// Returns where it gets packets.
    pub fn hook(&self) -> Hook {
        self.hook
    }

    /// Leaves all of it in the kernel, with the entry pinned by this name, too.
    pub(crate) fn stay(mut self, entry: &str) -> Result<()> {
        let pin = self.folder.join(entry);
        self.ports.stay(&self.folder)?;
        if let Some(tracing) = self.tracing.take() {
            tracing.stay(&self.folder)?;
        }
        self.entry()?.pin(pin)?;
        self.stays = true;
        Ok(())
    }

    /// Directs packets of a device, in the calling thread's network namespace, to this instance. At XDP, that is in the driver, and the
    /// cache learns of changes in this network namespace. At tcx, it is the packets that leave by the device, behind all other programs
    /// there.
    ///
    /// At XDP, the device's address, the host's own addresses and its routing are noted, as they are then. When the first two change,
    /// [follow](Self::follow) them; when routing does, [tell it](Self::tell_routing).
    pub fn attach(&mut self, device: &str) -> Result<()> {
        self.attach_in(device, XdpMode::Native)
    }

    /// Does the same in this mode, which says nothing at tcx.
    pub fn attach_in(&mut self, device: &str, mode: XdpMode) -> Result<()> {
        ensure!(
            !self.links.contains_key(device),
            "packets of {device} come here already"
        );
        self.watch()?;
        let ready = self.make_ready(device);
        let attached = ready.and_then(|()| hook::attach(self.entry()?, device, mode));
        let attached = match attached {
            Ok(attached) => attached,
            Err(error) => {
                self.leave(device)?;
                return Err(error);
            }
        };
        self.links.insert(device.to_owned(), attached);
        Ok(())
    }

    /// Notes a device, before packets come from it.
    fn make_ready(&mut self, device: &str) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        let facts = Facts::read()?;
        let index = self.hosts.receive(device)?;
        self.tell_routing(&facts)?;
        make_way(index)
    }

    /// Gives packets of a device back to the kernel's path.
    pub fn detach(&mut self, device: &str) -> Result<()> {
        let attached = self.links.remove(device);
        let attached = attached.with_context(|| format!("packets of {device} do not come here"))?;
        hook::detach(self.entry()?, attached)?;
        self.leave(device)
    }

    /// Forgets a device, which may be a port and then needs another program.
    fn leave(&mut self, device: &str) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        self.hosts.forget(device)?;
        let hosts = &self.hosts;
        self.routings
            .retain(|namespace, _| hosts.names(*namespace).next().is_some());
        self.write_routings()?;
        self.ports.mend()
    }

    /// Tells the programs what there is of a host's routing now, for the devices that are attached in its network namespace: to be called
    /// whenever that has changed, as a [`Follower`](crate::Follower) says. At tcx, where the kernel has routed packets, nothing has to be
    /// told. Packets from several namespaces are all left to the kernel where those of one are.
    pub fn tell_routing(&mut self, facts: &Facts) -> Result<()> {
        if self.hook == Hook::Tcx {
            return Ok(());
        }
        let namespace = facts.namespace;
        let routing = facts.routing(self.hosts.names(namespace));
        self.routings.insert(namespace, routing);
        self.trust_kernel(!facts.host.is_untraced);
        self.write_routings()
    }

    fn write_routings(&self) -> Result<()> {
        let mut all = Routing::default();
        for routing in self.routings.values() {
            all.add(routing);
        }
        self.set_routing(&all)
    }

    /// Tells the programs of a routing, whatever the host's is.
    pub fn set_routing(&self, routing: &Routing) -> Result<()> {
        routing.write(&self.folder)
    }

    fn entry(&mut self) -> Result<&mut Program> {
        loader::program(&mut self.dispatcher, DISPATCHER_PROGRAM)
    }

    /// Returns the entry, which is attached to devices, of an instance at XDP; for test runs.
    pub fn dispatcher(&mut self) -> Result<&mut Xdp> {
        Ok(self.entry()?.try_into()?)
    }

    /// Returns that of an instance at tcx.
    pub fn classifier(&mut self) -> Result<&mut SchedClassifier> {
        Ok(self.entry()?.try_into()?)
    }
}
