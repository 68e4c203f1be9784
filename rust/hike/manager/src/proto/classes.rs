// SPDX-License-Identifier: GPL-2.0

//! Classes, of destinations and of flows, and rules as messages, and back.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Error, Result};
use mflow_hike::config::fields as library;
use mflow_hike::{Action, Destination, Lanes, Rule};

use super::{given, read, Numbered as _};
use crate::configuration::{fields, Classed, Fast, Origin, Way};
use crate::v1;

/// Returns the chain that a way leads to, and what its programs need.
fn fast(way: &Way) -> Option<v1::FastPath> {
    let Way::Fast(fast) = way else {
        return None;
    };
    let lanes = fast.lanes.map_or(v1::Lanes::Unspecified, Lanes::into);
    let from = fast.from.map_or(v1::Origin::Unspecified, Origin::into);
    Some(v1::FastPath {
        chain: fast.chain.clone(),
        path: fast.path.clone(),
        behaviour: fast.behaviour.clone(),
        lanes: lanes.into(),
        from: from.into(),
    })
}

impl TryFrom<Option<v1::FastPath>> for Way {
    type Error = Error;

    fn try_from(message: Option<v1::FastPath>) -> Result<Self> {
        let Some(message) = message else {
            return Ok(Self::Kernel);
        };
        Ok(Self::Fast(Fast {
            chain: message.chain,
            path: message.path,
            behaviour: message.behaviour,
            lanes: Lanes::or_none(message.lanes)?,
            from: Origin::or_none(message.from)?,
        }))
    }
}

pub(super) fn class(destination: String, way: &Way) -> v1::Class {
    use v1::class::Way::{Fast, Kernel};
    let way = Some(fast(way).map_or(Kernel(v1::KernelPath {}), Fast));
    v1::Class { destination, way }
}

impl TryFrom<v1::Class> for Way {
    type Error = Error;

    fn try_from(message: v1::Class) -> Result<Self> {
        use v1::class::Way::{Fast, Kernel};
        let fast = match message.way.context("a class is kernel or fast")? {
            Kernel(_) => None,
            Fast(fast) => Some(fast),
        };
        fast.try_into()
    }
}

pub(super) fn flow(name: String, classed: &Classed) -> v1::FlowClass {
    use v1::flow_class::{By, Way};
    let by = match classed.flow_label {
        Some(label) => By::FlowLabel(label),
        None => By::Transport(v1::Transport {
            protocol: classed.protocol.unwrap_or_default().into(),
            source_port: classed.source_port.into(),
            destination_port: classed.destination_port.into(),
        }),
    };
    let way = fast(&classed.class).map_or(Way::Kernel(v1::KernelPath {}), Way::Fast);
    v1::FlowClass {
        name,
        source: classed.source.to_string(),
        destination: classed.destination.to_string(),
        by: Some(by),
        way: Some(way),
    }
}

impl TryFrom<v1::FlowClass> for Classed {
    type Error = Error;

    fn try_from(message: v1::FlowClass) -> Result<Self> {
        use v1::flow_class::{By, Way};
        let missing = "the class of a flow is kernel or fast";
        let fast = match message.way.context(missing)? {
            Way::Kernel(_) => None,
            Way::Fast(fast) => Some(fast),
        };
        let (by, flow_label) = match message.by {
            Some(By::Transport(by)) => (Some(by), None),
            Some(By::FlowLabel(label)) => (None, Some(label)),
            None => (None, None),
        };
        let protocol = by.as_ref().map(|by| by.protocol);
        let by = by.unwrap_or_default();
        Ok(Self {
            source: read(message.source, fields::ip_source)?,
            destination: read(message.destination, fields::ip_destination)?,
            protocol: given(protocol, library::protocol, None)?,
            source_port: read(by.source_port, fields::source_port)?,
            destination_port: read(by.destination_port, fields::destination_port)?,
            flow_label: given(flow_label, library::flow_label, None)?,
            class: fast.try_into()?,
        })
    }
}

impl From<&Rule> for v1::Rule {
    fn from(rule: &Rule) -> Self {
        let end = |end: Destination| (end != Destination::Default).then(|| end.to_string());
        let ports = |ports: &RangeInclusive<u16>| v1::Ports {
            first: (*ports.start()).into(),
            last: (*ports.end()).into(),
        };
        Self {
            action: v1::RuleAction::from(rule.action).into(),
            source: end(rule.source),
            destination: end(rule.destination),
            protocol: rule.protocol.map(u32::from),
            source_ports: rule.source_ports.as_ref().map(ports),
            destination_ports: rule.destination_ports.as_ref().map(ports),
        }
    }
}

impl TryFrom<v1::Rule> for Rule {
    type Error = Error;

    fn try_from(message: v1::Rule) -> Result<Self> {
        let end = |end: Option<String>| end.map_or(Ok(Destination::Default), |end| end.parse());
        let ports = |ports: v1::Ports| format!("{}-{}", ports.first, ports.last);
        let (from, to) = (
            message.source_ports.map(ports),
            message.destination_ports.map(ports),
        );
        Ok(Self {
            action: Action::some(message.action)?,
            source: end(message.source)?,
            destination: end(message.destination)?,
            protocol: given(message.protocol, library::protocol, None)?,
            source_ports: given(from, library::source_ports, None)?,
            destination_ports: given(to, library::destination_ports, None)?,
        })
    }
}
