// SPDX-License-Identifier: GPL-2.0

//! Where flows are split: behind the NIC's GRO instead of before it, and on the overlay's device instead of the NIC.

use std::time::Duration;

use anyhow::Result;

use super::{Case, Run};
use crate::datagrams::run;
use crate::mflow::{self, Knobs};
use crate::outcome::Outcome;
use crate::rig::{self, Rig};

/// How long packets flow between two changes.
const PAUSE: Duration = Duration::from_millis(150);

/// A place to split flows at, other than the usual one.
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) proves: &'static str,
    device: &'static str,
    scaling: &'static str,
}

/// All of them.
pub(super) const PLACES: &[Place] = &[
    Place {
        name: "device",
        proves: "split behind the NIC's GRO, a flow keeps its order",
        device: "eth0",
        scaling: "device",
    },
    Place {
        name: "overlay",
        proves: "split on the VXLAN device, a flow keeps its order",
        device: "vxlan0",
        scaling: "path",
    },
    Place {
        name: "overlay-device",
        proves: "split behind the VXLAN device's GRO, a flow keeps its order",
        device: "vxlan0",
        scaling: "device",
    },
];

impl Place {
    /// Returns the knobs that choose this place.
    pub(super) fn knobs(&self) -> Knobs {
        Knobs {
            device: self.device,
            scaling: self.scaling,
            ..Knobs::default()
        }
    }

    /// Returns in which runs its cases are.
    pub(super) fn when(&self) -> Run {
        if self.name == "overlay-device" {
            Run::Plain
        } else {
            Run::Always
        }
    }
}

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = PLACES
        .iter()
        .map(|place| {
            Case::of_module(
                format!("scaling/{}", place.name),
                place.proves,
                place.when(),
                |rig| {
                    rig.strict(&rig.plan(), &place.knobs(), |_| Ok(()))
                        .map(Some)
                },
            )
        })
        .collect();
    cases.push(Case::of_module(
        "scaling/move",
        "splitting moves from the NIC to the VXLAN device and back under load without loss or reordering",
        Run::Plain,
        |rig| to_and_fro(rig).map(Some),
    ));
    cases
}

fn to_and_fro(rig: &Rig) -> Result<Outcome> {
    let plan = rig.plan();
    rig.prepare(&plan, &Knobs::default())?;
    let outcome = run::measure(&plan, |live| {
        for (there, here) in [("vxlan0", "eth0"), ("eth0", "vxlan0")] {
            live.flow_for(PAUSE)?;
            mflow::write("devices", &format!("+{there}"))?;
            live.flow_for(PAUSE)?;
            let before = mflow::flows_split()?;
            mflow::write("devices", &format!("-{here}"))?;
            live.wait_split_since(before)?;
        }
        Ok(())
    })?;
    outcome.judge(|outcome| {
        outcome.require_whole()?;
        outcome.require_order()?;
        outcome.require_no_deadline()?;
        rig::settle()
    })
}
