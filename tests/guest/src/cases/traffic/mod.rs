// SPDX-License-Identifier: GPL-2.0

//! Traffic of each kind, and in each tunnel.

pub(crate) mod aggregates;
pub(crate) mod capture;
pub(crate) mod datagrams;
pub(crate) mod deadline;
pub(crate) mod disguised;
pub(crate) mod gro;
pub(crate) mod join_trial;
pub(crate) mod joined_frames;
pub(crate) mod joining;
pub(crate) mod shapes;
pub(crate) mod streams;
pub(crate) mod tunnels;
pub(crate) mod watched;
