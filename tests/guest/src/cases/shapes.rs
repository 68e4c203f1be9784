// SPDX-License-Identifier: GPL-2.0

//! Traffic of every shape: number of lanes, batch size, datagram size, address families, several flows.

use super::{Case, Run};
use crate::datagrams::run::Plan;
use crate::mflow::Knobs;
use crate::rig::Rig;
use crate::topology::Family;
use mflow_protocol::datagram::{MAX_BYTES, MIN_BYTES};

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![main_case()];
    cases.extend(lanes());
    cases.extend(batches());
    cases.extend(sizes());
    cases.extend(families());
    cases.extend(flows());
    cases
}

fn main_case() -> Case {
    strict(
        "main",
        "a long run loses and reorders nothing",
        Run::Always,
        |rig| {
            let count = rig.scale.main;
            (
                Plan {
                    count,
                    ..rig.plan()
                },
                Knobs::default(),
            )
        },
    )
}

fn lanes() -> impl Iterator<Item = Case> {
    [1, 2, 4].into_iter().map(|lanes| {
        strict(
            format!("lanes/{lanes}"),
            format!("{lanes} lane(s) share the flow evenly and keep its order"),
            if lanes == 4 { Run::Always } else { Run::Plain },
            move |rig| {
                (
                    rig.plan(),
                    Knobs {
                        lanes,
                        ..Knobs::default()
                    },
                )
            },
        )
    })
}

fn batches() -> impl Iterator<Item = Case> {
    [1, 16, 256, 1024].into_iter().map(|batch_pkts: u32| {
        strict(
            format!("batch/{batch_pkts}"),
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
                let count = rig.scale.other.max(u64::from(batch_pkts) * 4 * 4);
                (
                    Plan {
                        count,
                        ..rig.plan()
                    },
                    knobs,
                )
            },
        )
    })
}

fn sizes() -> impl Iterator<Item = Case> {
    // The third still fits into one frame, the fourth is the first that does not.
    [MIN_BYTES, 512, 1422, 1423, 8_192, MAX_BYTES]
        .into_iter()
        .map(|bytes| {
            strict(
                format!("size/{bytes}"),
                format!("order and content hold for datagrams of {bytes} bytes"),
                if bytes == 1423 {
                    Run::Always
                } else {
                    Run::Plain
                },
                move |rig| (rig.plan_of(bytes), Knobs::default()),
            )
        })
}

fn families() -> impl Iterator<Item = Case> {
    use Family::{V4, V6};
    [(V4, V4), (V6, V4), (V4, V6), (V6, V6)]
        .into_iter()
        .flat_map(|families| [(families, MIN_BYTES), (families, 4_000)])
        .map(|((inner, outer), bytes)| {
            let (inside, outside) = (inner.number(), outer.number());
            strict(
                format!("family/{inside}-in-{outside}/{bytes}"),
                format!("order holds for IPv{inside} in IPv{outside}, {bytes} bytes"),
                if (inner, outer, bytes) == (V6, V6, MIN_BYTES) {
                    Run::Always
                } else {
                    Run::Plain
                },
                move |rig| {
                    let plan = Plan {
                        inner,
                        outer,
                        ..rig.plan_of(bytes)
                    };
                    (plan, Knobs::default())
                },
            )
        })
}

fn flows() -> impl Iterator<Item = Case> {
    [(2, false), (3, true), (8, false), (8, true)]
        .into_iter()
        .map(|(flows, one_socket)| {
            let (name, sockets) = if one_socket {
                ("one-socket", "one socket")
            } else {
                ("own-sockets", "a socket each")
            };
            strict(
                format!("flows/{flows}/{name}"),
                format!("{flows} flows at once into {sockets} each keep their order"),
                if one_socket && flows == 3 {
                    Run::Always
                } else {
                    Run::Plain
                },
                move |rig| {
                    let knobs = Knobs {
                        lanes: 4,
                        batch_pkts: if flows == 8 { 64 } else { 256 },
                        ..Knobs::default()
                    };
                    // Each flow deals out its own batches where it has a channel of its own: it takes several turns of
                    // each until the lanes' shares can be told from what one batch more of each flow makes.
                    let turns = u64::from(flows) * u64::from(knobs.batch_pkts) * 4 * 4;
                    let plan = Plan {
                        flows,
                        one_socket,
                        count: rig.scale.other.max(turns),
                        ..rig.plan()
                    };
                    (plan, knobs)
                },
            )
        })
}

/// Returns a case that sends one plan and demands everything.
fn strict(
    name: impl Into<String>,
    proves: impl Into<String>,
    when: Run,
    make: impl Fn(&Rig) -> (Plan, Knobs) + 'static,
) -> Case {
    Case::of_traffic(name, proves, when, move |rig| {
        let (plan, knobs) = make(rig);
        rig.strict(&plan, &knobs, |_| Ok(()))
    })
}
