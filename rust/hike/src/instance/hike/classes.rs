// SPDX-License-Identifier: GPL-2.0

//! Classes of destinations.

use std::fmt;

use anyhow::{anyhow, bail, ensure, Context as _, Result};

use super::{BehaviourId, Class, Hike};
use crate::config::chain::Chain;
use crate::config::destination::Destination;
use crate::config::lanes::Lanes;
use crate::layout::{self, Address};
use crate::limits::CLASSES;
use crate::maps::or_full;

/// A class, the behaviour of the local SIDs that it is for, and whether it is for packets from inside alone.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) class: Class,
    pub(super) behaviour: Option<BehaviourId>,
    pub(super) inside: bool,
}

impl Hike {
    /// Says what is done with packets of a destination.
    pub fn set_class(&mut self, destination: Destination, class: Class) -> Result<()> {
        let entry = Entry {
            class,
            behaviour: None,
            inside: false,
        };
        self.set_entry(destination, entry)
    }

    /// Says what is done with packets of local SIDs: the chain has the program of this behaviour.
    pub fn set_local_sid(
        &mut self,
        sids: Destination,
        class: Class,
        behaviour: BehaviourId,
    ) -> Result<()> {
        let entry = Entry {
            class,
            behaviour: Some(behaviour),
            inside: false,
        };
        self.set_entry(sids, entry)
    }

    /// Says what is done with packets of a destination, or of local SIDs, that come by a device inside (`add_inside`). Those that come
    /// by any other device are dropped, as RFC 8754, 5.1, has it for SIDs.
    pub fn set_class_inside(
        &mut self,
        destination: Destination,
        class: Class,
        behaviour: Option<BehaviourId>,
    ) -> Result<()> {
        let entry = Entry {
            class,
            behaviour,
            inside: true,
        };
        self.set_entry(destination, entry)
    }

    /// Fails with what a program of the chain needs, if the class does not have it.
    pub(super) fn check_needs(&self, chain: &Chain, entry: &Entry) -> Result<()> {
        if let (Some(program), None) = (chain.needs_path(), entry.class.path) {
            bail!("{} needs a path", program.name);
        }
        if let Some(program) = chain.needs_behaviour() {
            let behaviour = entry.behaviour.and_then(|id| self.behaviour(id));
            ensure!(
                behaviour.is_some_and(|behaviour| behaviour.program() == program.name),
                "{} needs a behaviour that it can do",
                program.name
            );
        }
        Ok(())
    }

    pub(super) fn set_entry(&mut self, destination: Destination, entry: Entry) -> Result<()> {
        let destination = destination.checked()?;
        let _moves = self.epoch.moves_behind();
        let mut value = self.value_of(&destination, &entry)?;
        if let Destination::Address(address) = destination {
            value.chain |= self.exact_flows.bits(address);
            let written = self
                .tables
                .classes
                .insert(Address::whole(address), value, 0);
            or_full(written, "addresses with a class", CLASSES)?;
        } else {
            let key = Address::prefix(destination);
            let written = self.tables.prefixes.insert(key, value, 0);
            or_full(written, "prefixes with a class", CLASSES)?;
        }
        if !self.classes.contains_key(&destination) {
            self.lengths.add(destination)?;
        }
        self.classes.insert(destination, entry);
        Ok(())
    }

    /// Returns a class as the dispatcher reads it; fails if it cannot be.
    pub(super) fn value_of(&self, of: &dyn fmt::Display, entry: &Entry) -> Result<layout::Class> {
        let Entry {
            class,
            behaviour,
            inside,
        } = entry;
        let inside = if *inside { layout::Class::INSIDE } else { 0 };
        let chain = self.chains.get(class.chain.0).context("no such chain")?;
        self.check_needs(chain, entry)
            .map_err(|needs| anyhow!("{needs}, and the class of {of} has none"))?;
        if let Some(path) = class.path {
            self.paths.get(path.0).context("no such path")?;
        }
        if let Some(id) = behaviour {
            self.behaviour(*id).context("no such behaviour")?;
        }
        Ok(layout::Class {
            // CAST: there are 1024.
            chain: class.chain.0 as u16 | inside,
            behaviour: behaviour.map_or(0, |id| id.0)
                | class.lanes.map_or(0, Lanes::number) << layout::Class::LANES_SHIFT,
            path: class.path.map_or(u32::MAX, |path| path.0),
        })
    }

    /// Removes the class of a destination: its packets then take the class of a shorter prefix or the default, or else the
    /// kernel's path.
    pub fn remove_class(&mut self, destination: Destination) -> Result<()> {
        let destination = destination.checked()?;
        ensure!(
            self.classes.contains_key(&destination),
            "{destination} has no class"
        );
        let _moves = self.epoch.moves_behind();
        if let Destination::Address(address) = destination {
            self.put_exact_bits(address, None)?;
        } else {
            let key = Address::prefix(destination);
            self.tables.prefixes.remove(&key)?;
        }
        self.classes.remove(&destination);
        self.lengths.remove(destination)
    }

    /// Returns what has a class like this, if there is one.
    pub(super) fn user(&self, is: impl Fn(&Entry) -> bool) -> Option<String> {
        let mut users = self.entries().filter(|(_, entry)| is(entry));
        users.next().map(|(of, _)| of.to_string())
    }

    /// Returns all that has a class.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&dyn fmt::Display, &Entry)> {
        let exact = self.exact_flows.iter();
        let exact = exact.map(|(flow, entry)| (flow as &dyn fmt::Display, entry));
        let destinations = self.classes.iter();
        destinations
            .map(|(destination, entry)| (destination as &dyn fmt::Display, entry))
            .chain(exact)
    }
}
