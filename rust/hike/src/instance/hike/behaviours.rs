// SPDX-License-Identifier: GPL-2.0

//! Behaviours of local SIDs, and the counts of the packets that they were done to.

use anyhow::{bail, Context as _, Result};

use super::{BehaviourId, Hike};
use crate::config::behaviour::Behaviour;
use crate::counters::sids::{self, Traffic};
use crate::instance::probe;
use crate::layout;
use crate::tables::packets;

/// A behaviour, and the number of its counts.
pub(super) struct Counted {
    behaviour: Behaviour,
    number: u64,
}

impl Hike {
    /// Adds a behaviour of local SIDs, which counts its packets from 0 on. SIDs with a behaviour of their own are counted by
    /// themselves.
    pub fn add_behaviour(&mut self, behaviour: &Behaviour) -> Result<BehaviourId> {
        self.add_behaviour_counted(behaviour, 0)
    }

    /// Adds a behaviour that goes on with the counts of a number, if there are any.
    pub fn add_behaviour_counted(
        &mut self,
        behaviour: &Behaviour,
        number: u64,
    ) -> Result<BehaviourId> {
        let layout = behaviour.layout()?;
        probe::check_table(behaviour, layout.table)?;
        let place = self.behaviours.free().context("no behaviour is free")?;
        let number = sids::add(&self.folder, number)?;
        let written = self
            .tables
            .behaviours
            .set(place, layout::Behaviour { number, ..layout }, 0);
        if written.is_err() {
            sids::remove(&self.folder, number)?;
        }
        written?;
        let behaviour = *behaviour;
        let counted = Counted { behaviour, number };
        self.behaviours.put(place, Some(counted));
        // CAST: there are 16384.
        Ok(BehaviourId(place as u16))
    }

    /// Removes a behaviour that no class has, and its counts.
    pub fn remove_behaviour(&mut self, id: BehaviourId) -> Result<()> {
        let number = self.count_number(id)?;
        if let Some(destination) = self.user(|entry| entry.behaviour == Some(id)) {
            bail!("the class of {destination} has this behaviour; change that first");
        }
        packets::wait()?;
        let place = u32::from(id.0);
        self.tables
            .behaviours
            .set(place, layout::Behaviour::NONE, 0)?;
        self.behaviours.take(place);
        sids::remove(&self.folder, number)
    }

    /// Returns the packets that a behaviour was done to.
    pub fn traffic(&self, id: BehaviourId) -> Result<Traffic> {
        sids::read(&self.folder, self.count_number(id)?)
    }

    /// Returns the number of a behaviour's counts; 0: it has none.
    pub fn count_number(&self, id: BehaviourId) -> Result<u64> {
        Ok(self.counted(id).context("no such behaviour")?.number)
    }

    pub(super) fn behaviour(&self, id: BehaviourId) -> Option<&Behaviour> {
        Some(&self.counted(id)?.behaviour)
    }

    fn counted(&self, id: BehaviourId) -> Option<&Counted> {
        self.behaviours.get(id.0.into())?.as_ref()
    }
}
