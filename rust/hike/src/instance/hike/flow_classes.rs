// SPDX-License-Identifier: GPL-2.0

//! Classes of exact flows: entries of a table of their own, which packets look at if the class of their destination says so.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{ensure, Result};

use super::{Class, Entry, Hike};
use crate::config::destination::Destination;
use crate::config::exact_flow::ExactFlow;
use crate::layout::{self, Address};
use crate::limits::CLASSES;
use crate::maps::{is_not_there, or_full};

/// The flows that have a class of their own, and the number of flows of both kinds to each destination.
#[derive(Default)]
pub(super) struct FlowClasses {
    entries: BTreeMap<ExactFlow, Entry>,
    /// By the bit that the class of the destination has for them.
    counts: BTreeMap<(IpAddr, u16), usize>,
}

impl FlowClasses {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ExactFlow, &Entry)> {
        self.entries.iter()
    }

    fn has(&self, flow: &ExactFlow) -> bool {
        self.entries.contains_key(flow)
    }

    fn insert(&mut self, flow: ExactFlow, entry: Entry) -> Option<Entry> {
        let old = self.entries.insert(flow, entry);
        if old.is_none() {
            *self
                .counts
                .entry((flow.destination(), flow.bit()))
                .or_default() += 1;
        }
        old
    }

    fn remove(&mut self, flow: &ExactFlow) {
        let kind = (flow.destination(), flow.bit());
        if self.entries.remove(flow).is_none() {
            return;
        }
        if let Some(count) = self.counts.get_mut(&kind) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&kind);
            }
        }
    }

    /// Returns the bits for all exact flows to an address.
    pub(super) fn bits(&self, address: IpAddr) -> u16 {
        let kinds = [layout::Class::HAS_PORTS, layout::Class::HAS_LABELS];
        let known = kinds
            .into_iter()
            .filter(|&bit| self.counts.contains_key(&(address, bit)));
        known.fold(0, |bits, bit| bits | bit)
    }
}

impl Hike {
    /// Says what is done with packets of one flow, whatever the class of their destination is.
    pub fn set_flow_class(&mut self, flow: &ExactFlow, class: Class) -> Result<()> {
        self.set_flow_entry(flow, class, false)
    }

    /// Says what is done with packets of one flow that come by a device inside (`add_inside`). Those that come by any other device are
    /// dropped.
    pub fn set_flow_class_inside(&mut self, flow: &ExactFlow, class: Class) -> Result<()> {
        self.set_flow_entry(flow, class, true)
    }

    fn set_flow_entry(&mut self, flow: &ExactFlow, class: Class, inside: bool) -> Result<()> {
        let entry = Entry {
            class,
            behaviour: None,
            inside,
        };
        let _moves = self.epoch.moves_behind();
        let (key, value) = (flow.layout()?, self.value_of(flow, &entry)?);
        let written = self.tables.exact_flows.insert(key, value, 0);
        or_full(written, "flows with a class", CLASSES)?;
        let old = self.exact_flows.insert(*flow, entry);
        // Only now packets look for it.
        let told = self.tell_of_flows(flow.destination());
        if old.is_some() {
            return told;
        }
        if told.is_err() {
            self.exact_flows.remove(flow);
            let _gone = self.tables.exact_flows.remove(&key);
            return told;
        }
        self.lengths.add(Destination::Address(flow.destination()))
    }

    /// Removes the class of a flow: its packets take the class of their destination again.
    pub fn remove_flow_class(&mut self, flow: &ExactFlow) -> Result<()> {
        ensure!(self.exact_flows.has(flow), "{flow} has no class of its own");
        let _moves = self.epoch.moves_behind();
        self.tables.exact_flows.remove(&flow.layout()?)?;
        self.exact_flows.remove(flow);
        self.tell_of_flows(flow.destination())?;
        self.lengths
            .remove(Destination::Address(flow.destination()))
    }

    /// Writes into the class of an address which kinds of exact flows there are.
    fn tell_of_flows(&mut self, address: IpAddr) -> Result<()> {
        let entry = self.classes.get(&Destination::Address(address)).copied();
        let value = match entry {
            Some(entry) => Some(self.value_of(&address, &entry)?),
            None => None,
        };
        self.put_exact_bits(address, value)
    }

    /// Writes a class of an address with the bits for its exact flows, which need one even if there is no other.
    pub(super) fn put_exact_bits(
        &mut self,
        address: IpAddr,
        value: Option<layout::Class>,
    ) -> Result<()> {
        let (key, bits) = (Address::whole(address), self.exact_flows.bits(address));
        if value.is_none() && bits == 0 {
            return match self.tables.classes.remove(&key) {
                Err(error) if !is_not_there(&error) => Err(error.into()),
                _ => Ok(()),
            };
        }
        let mut value = value.unwrap_or(layout::Class::OF_FLOWS);
        value.chain |= bits;
        let written = self.tables.classes.insert(key, value, 0);
        or_full(written, "addresses with a class", CLASSES)
    }
}
