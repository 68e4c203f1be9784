// SPDX-License-Identifier: GPL-2.0

//! Streams of every shape: number of lanes, batch size, address families, several streams.

use super::strict;
use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::streams::run::Plan;
use crate::topology::{self, Family};

/// Payload of a segment, roughly; less than what it really is.
const SEGMENT_BYTES: u64 = 1_300;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![main_case()];
    cases.extend(lanes());
    cases.extend(batches());
    cases.extend(families());
    cases.extend(flows());
    cases.push(one_outer_flow());
    cases
}

fn main_case() -> Case {
    strict(
        "tcp/main",
        "a long stream arrives byte by byte, and TCP sees no segment out of order",
        Run::Always,
        |rig| {
            let bytes = rig.scale.tcp_main_bytes;
            (
                Plan {
                    bytes,
                    ..rig.tcp_plan()
                },
                Knobs::default(),
            )
        },
    )
}

fn lanes() -> impl Iterator<Item = Case> {
    [1, 4].into_iter().map(|lanes| {
        strict(
            format!("tcp/lanes/{lanes}"),
            format!("{lanes} lane(s) share the stream evenly and keep its order"),
            if lanes == 4 { Run::Always } else { Run::Plain },
            move |rig| {
                let knobs = Knobs {
                    lanes,
                    ..Knobs::default()
                };
                (rig.tcp_plan(), knobs)
            },
        )
    })
}

fn batches() -> impl Iterator<Item = Case> {
    [1, 16, 1024].into_iter().map(|batch_pkts: u32| {
        strict(
            format!("tcp/batch/{batch_pkts}"),
            format!("order holds with {batch_pkts} packet(s) per batch"),
            if batch_pkts == 1 {
                Run::Always
            } else {
                Run::Plain
            },
            move |rig| {
                let knobs = Knobs {
                    lanes: 4,
                    batch_pkts,
                    ..Knobs::default()
                };
                // Enough that every lane has had its turn several times.
                let least = u64::from(batch_pkts) * 4 * 4 * SEGMENT_BYTES;
                let bytes = rig.scale.tcp_bytes.max(least);
                (
                    Plan {
                        bytes,
                        ..rig.tcp_plan()
                    },
                    knobs,
                )
            },
        )
    })
}

fn families() -> impl Iterator<Item = Case> {
    use Family::{V4, V6};
    [(V6, V4), (V4, V6), (V6, V6)]
        .into_iter()
        .map(|(inner, outer)| {
            let (inside, outside) = (inner.number(), outer.number());
            strict(
                format!("tcp/family/{inside}-in-{outside}"),
                format!("order holds for IPv{inside} in IPv{outside}"),
                if (inner, outer) == (V6, V6) {
                    Run::Always
                } else {
                    Run::Plain
                },
                move |rig| {
                    let plan = Plan {
                        inner,
                        outer,
                        ..rig.tcp_plan()
                    };
                    (plan, Knobs::default())
                },
            )
        })
}

fn flows() -> impl Iterator<Item = Case> {
    [2, 8].into_iter().map(|flows| {
        strict(
            format!("tcp/flows/{flows}"),
            format!("{flows} streams at once each keep their order"),
            Run::Plain,
            move |rig| {
                let plan = Plan {
                    flows,
                    split: if rig.mflow { flows } else { 0 },
                    ..rig.tcp_plan()
                };
                // So small that the lanes' shares can be told from what one batch more of each stream makes.
                let knobs = Knobs {
                    lanes: 4,
                    batch_pkts: 128 / u32::from(flows),
                    ..Knobs::default()
                };
                (plan, knobs)
            },
        )
    })
}

fn one_outer_flow() -> Case {
    Case::of_traffic(
        "tcp/flows/one-outer",
        "four streams that look like one flow from outside each keep their order",
        Run::Always,
        |rig| {
            let plan = Plan {
                flows: 4,
                ..rig.tcp_plan()
            };
            let knobs = Knobs::default();
            rig.prepare_tcp(&plan, &knobs)?;
            topology::one_outer_flow(plan.outer)?;
            topology::patient_tcp()?;
            rig.strict_tcp_here(&plan, &knobs, |_| Ok(()))
        },
    )
}
