// SPDX-License-Identifier: GPL-2.0

//! Datagrams for a socket of the host, in no tunnel, of which some begin as a tunnel's header does. GRO may find more checksums behind
//! such a header, so lanes do not verify these, and give them to GRO. The others of their flow go past it.

use anyhow::{ensure, Result};
use mflow_protocol::network::SERVER_HOST;

use crate::cases::{Case, Run};
use crate::mflow::{self, Knobs};
use crate::traffic::datagrams::disguise::Disguise;
use crate::traffic::datagrams::receiver::{self, Receiver};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::outcome::Outcome;
use crate::traffic::rig::Rig;
use crate::traffic::Load as _;

/// As for the cases of what goes past GRO.
const DATAGRAMS: u64 = 6_000;
/// At least one of so many goes to GRO: half of those that are disguised.
const TO_GRO: u64 = 50;
const PORT: u16 = 5_201;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, tunnel: &str, disguise| {
        Case::of_module(
            format!("gro/disguised/{name}"),
            format!(
                "of a flow in no tunnel, whose datagrams go past GRO, some begin as a header of {tunnel} does: in order, and none is late"
            ),
            Run::Plain,
            move |rig| disguised(rig, disguise),
        )
    };
    vec![
        case("vxlan", "VXLAN", Disguise::Vxlan),
        case("geneve", "Geneve", Disguise::Geneve),
    ]
}

fn disguised(rig: &Rig, disguise: Disguise) -> Result<Outcome> {
    let mut plan = rig.datagrams();
    plan.load.send_at_least(DATAGRAMS);
    plan.load.disguise = Some(disguise);
    let knobs = Knobs::default();
    rig.prepare(&plan, &knobs)?;
    // So that GRO joins nothing, and each lane goes past it after its first trial.
    mflow::write("join", "0")?;
    let to = (SERVER_HOST, PORT).into();
    let receiver = Receiver::of(vec![receiver::bind(&to)?], 1, plan.load.bytes);
    Datagrams::measure_at(&plan, vec![to], receiver, |_| Ok(()))?.judge(|outcome| {
        rig.require_strict(&plan, &knobs, outcome)?;
        let (all, past) = (
            outcome.counter("lane_pkts")?,
            outcome.counter("past_gro_pkts")?,
        );
        ensure!(
            past > all / 2 && past <= all - all / TO_GRO,
            "{past} of {all} datagrams went past GRO: all but those that begin as a tunnel's header are to do so"
        );
        Ok(())
    })
}
