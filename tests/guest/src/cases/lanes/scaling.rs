// SPDX-License-Identifier: GPL-2.0

//! Places where flows are split: behind the NIC's GRO instead of before it, and on the overlay's device instead of the NIC.

use std::time::Duration;

use anyhow::Result;

use crate::cases::traffic::shapes;
use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Live as _, Load};

/// The number of times that `scaling` changes there and back under a stream.
const ROUNDS: usize = 5;
const PAUSE: Duration = Duration::from_millis(150);

/// A place where flows are split, other than on the NIC before its GRO.
struct SplitPoint {
    name: &'static str,
    place: &'static str,
    device: &'static str,
    scaling: &'static str,
}

const SPLIT_POINTS: &[SplitPoint] = &[
    SplitPoint {
        name: "device",
        place: "behind the NIC's GRO",
        device: "eth0",
        scaling: "device",
    },
    SplitPoint {
        name: "overlay",
        place: "on the VXLAN device",
        device: "vxlan0",
        scaling: "path",
    },
    SplitPoint {
        name: "overlay-device",
        place: "behind the VXLAN device's GRO",
        device: "vxlan0",
        scaling: "device",
    },
];

pub(crate) fn datagrams() -> Vec<Case> {
    let mut cases = split_points::<Datagrams>("");
    cases.push(Case::of_module(
        "scaling/move",
        "splitting moves from the NIC to the VXLAN device and back under load without loss or reordering",
        Run::Plain,
        to_and_fro,
    ));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
    let mut cases = split_points::<Streams>(Streams::UNNOTICED);
    cases.push(Case::of_module(
        "tcp/scaling/switch",
        "scaling changes between path and device under a running stream: TCP does not notice",
        Run::Always,
        switch,
    ));
    cases
}

fn split_points<L: Load>(unnoticed: &str) -> Vec<Case> {
    let case = |point: &'static SplitPoint| Case {
        vanilla: false,
        any_mode: false,
        ..shapes::strict::<L>(
            format!("scaling/{}", point.name),
            format!("split {}, a flow keeps its order{unnoticed}", point.place),
            Run::always_if(point.name != "overlay-device"),
            |_, knobs| (knobs.device, knobs.scaling) = (point.device, point.scaling),
        )
    };
    SPLIT_POINTS.iter().map(case).collect()
}

fn to_and_fro(rig: &Rig) -> Result<Outcome> {
    rig.unnoticed(&rig.datagrams(), &Knobs::default(), |live| {
        for (there, here) in [("vxlan0", "eth0"), ("eth0", "vxlan0")] {
            live.flow_for(PAUSE)?;
            mflow::write("devices", &format!("+{there}"))?;
            live.flow_for(PAUSE)?;
            let before = mflow::flows_split()?;
            mflow::write("devices", &format!("-{here}"))?;
            live.wait_split_since(before)?;
        }
        Ok(())
    })
}

fn switch(rig: &Rig) -> Result<Outcome> {
    rig.unnoticed(&rig.streams(), &Knobs::default(), |live| {
        for scaling in ["device", "path"].into_iter().cycle().take(2 * ROUNDS) {
            live.flow_for(PAUSE)?;
            let before = mflow::flows_split()?;
            mflow::write("scaling", scaling)?;
            live.wait_split_since(before)?;
        }
        Ok(())
    })
}
