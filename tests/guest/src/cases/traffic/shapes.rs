// SPDX-License-Identifier: GPL-2.0

//! Traffic of every shape: number of lanes, batch size, datagram size, address families, several flows.

use mflow_protocol::datagram::{MAX_BYTES, MIN_BYTES};

use crate::cases::{Case, Run};
use crate::mflow::Knobs;
use crate::network::topology::Family::{self, V4, V6};
use crate::traffic::datagrams::run::Datagrams;
use crate::traffic::streams::run::Streams;
use crate::traffic::{Load, Plan};

pub(crate) fn datagrams() -> Vec<Case> {
    let mut cases = vec![main_case::<Datagrams>(
        "a long run loses and reorders nothing",
    )];
    cases.extend([1, 2, 4].map(lanes::<Datagrams>));
    cases.extend([1, 16, 256, 1024].map(batches::<Datagrams>));
    // The third still fits into one frame, the fourth is the first that does not.
    cases.extend([MIN_BYTES, 512, 1422, 1423, 8_192, MAX_BYTES].map(size));
    for (inner, outer) in [(V4, V4), (V6, V4), (V4, V6), (V6, V6)] {
        for bytes in [MIN_BYTES, 4_000] {
            cases.push(family::<Datagrams>(
                (inner, outer),
                format!("/{bytes}"),
                format!(", {bytes} bytes"),
                Run::always_if((inner, outer, bytes) == (V6, V6, MIN_BYTES)),
                move |load| load.sized(bytes),
            ));
        }
    }
    cases.extend([(2, false), (3, true), (8, false), (8, true)].map(datagram_flows));
    cases
}

pub(crate) fn streams() -> Vec<Case> {
    let mut cases = vec![main_case::<Streams>(
        "a long stream arrives byte by byte, and TCP sees no segment out of order",
    )];
    cases.extend([1, 4].map(lanes::<Streams>));
    cases.extend([1, 16, 1024].map(batches::<Streams>));
    for families in [(V6, V4), (V4, V6), (V6, V6)] {
        cases.push(family::<Streams>(
            families,
            String::new(),
            String::new(),
            Run::always_if(families == (V6, V6)),
            |load| load,
        ));
    }
    cases.extend([2, 8].map(stream_flows));
    cases.push(strict::<Streams>(
        "flows/one-outer",
        "four streams that look like one flow from outside each keep their order",
        Run::Always,
        |plan, _| {
            plan.flows = 4;
            plan.one_outer = true;
        },
    ));
    cases
}

/// Returns a case that sends the plainest plan but for what `change` makes of it, and demands everything.
pub(crate) fn strict<L: Load>(
    name: impl AsRef<str>,
    proves: impl Into<String>,
    when: Run,
    change: impl Fn(&mut Plan<L>, &mut Knobs) + 'static,
) -> Case {
    let name = format!("{}{}", L::GROUP, name.as_ref());
    Case::of_traffic(name, proves, when, move |rig| {
        let (mut plan, mut knobs) = (rig.plan(), Knobs::default());
        change(&mut plan, &mut knobs);
        rig.strict(&plan, &knobs, |_| Ok(()))
    })
}

fn main_case<L: Load>(proves: &str) -> Case {
    Case::of_traffic(format!("{}main", L::GROUP), proves, Run::Always, |rig| {
        let mut plan = rig.plan::<L>();
        plan.load = plan.load.main(&rig.scale);
        rig.strict(&plan, &Knobs::default(), |_| Ok(()))
    })
}

fn lanes<L: Load>(lanes: usize) -> Case {
    strict::<L>(
        format!("lanes/{lanes}"),
        format!(
            "{lanes} lane(s) share the {} evenly and keep its order",
            L::FLOW
        ),
        Run::always_if(lanes == 4),
        move |_, knobs| knobs.lanes = lanes,
    )
}

fn batches<L: Load>(batch_pkts: u32) -> Case {
    strict::<L>(
        format!("batch/{batch_pkts}"),
        format!("order holds with {batch_pkts} packet(s) per batch"),
        Run::always_if(batch_pkts == 1),
        move |plan, knobs| {
            (knobs.lanes, knobs.batch_pkts) = (4, batch_pkts);
            plan.load.send_at_least(turns(knobs));
        },
    )
}

fn turns(knobs: &Knobs) -> u64 {
    u64::from(knobs.batch_pkts) * knobs.lanes as u64 * 4
}

fn size(bytes: usize) -> Case {
    strict::<Datagrams>(
        format!("size/{bytes}"),
        format!("order and content hold for datagrams of {bytes} bytes"),
        Run::always_if(bytes == 1423),
        move |plan, _| plan.load = plan.load.clone().sized(bytes),
    )
}

fn family<L: Load>(
    (inner, outer): (Family, Family),
    suffix: String,
    what: String,
    when: Run,
    change: impl Fn(L) -> L + 'static,
) -> Case {
    let (inside, outside) = (inner.number(), outer.number());
    strict::<L>(
        format!("family/{inside}-in-{outside}{suffix}"),
        format!("order holds for IPv{inside} in IPv{outside}{what}"),
        when,
        move |plan, _| {
            (plan.inner, plan.outer) = (inner, outer);
            plan.load = change(plan.load.clone());
        },
    )
}

fn datagram_flows((flows, one_socket): (u16, bool)) -> Case {
    let (name, sockets) = if one_socket {
        ("one-socket", "one socket")
    } else {
        ("own-sockets", "a socket each")
    };
    strict::<Datagrams>(
        format!("flows/{flows}/{name}"),
        format!("{flows} flows at once into {sockets} each keep their order"),
        Run::always_if(one_socket && flows == 3),
        move |plan, knobs| {
            knobs.lanes = 4;
            knobs.batch_pkts = if flows == 2 { 256 } else { 64 };
            plan.flows = flows;
            plan.load.one_socket = one_socket;
            // Each flow deals out its own batches where it has a channel of its own: it takes several turns of each until
            // the lanes' shares can be told from what one batch more of each flow makes.
            plan.load.send_at_least(u64::from(flows) * turns(knobs));
        },
    )
}

fn stream_flows(flows: u16) -> Case {
    strict::<Streams>(
        format!("flows/{flows}"),
        format!("{flows} streams at once each keep their order"),
        Run::Plain,
        move |plan, knobs| {
            plan.flows = flows;
            knobs.lanes = 4;
            // So small that the lanes' shares can be told from what one batch more of each stream makes.
            knobs.batch_pkts = 128 / u32::from(flows);
        },
    )
}
