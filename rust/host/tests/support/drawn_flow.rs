// SPDX-License-Identifier: GPL-2.0

//! Parts of any flow's report, as property tests draw them: those of the module's texts, and those of the command that reads them.

use std::net::{Ipv6Addr, SocketAddrV4};

use mflow_algo::algo::headers::flow_key::{IPPROTO_TCP, IPPROTO_UDP};
use mflow_algo::algo::headers::flow_name::{FlowName, WireName};
use mflow_algo::algo::headers::hint::Hint;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::report::flow_report::{FlowNow, Standing, Work};
use mflow_algo::algo::report::reason::Reason;
use proptest::prelude::*;

pub(crate) fn name() -> impl Strategy<Value = FlowName> {
    let protocol = prop::sample::select(vec![IPPROTO_TCP, IPPROTO_UDP]);
    let ends = any::<(bool, [SocketAddrV4; 2], [Ipv6Addr; 2])>();
    let wire = (protocol, ends).prop_map(|(protocol, (is_v6, v4, v6))| {
        let [source, destination] = match is_v6 {
            false => v4.map(Into::into),
            true => [(v6[0], v4[0].port()).into(), (v6[1], v4[1].port()).into()],
        };
        WireName {
            protocol,
            source,
            destination,
        }
    });
    (prop::option::of(wire), any::<Option<u16>>())
        .prop_map(|(wire, rx_queue)| FlowName { wire, rx_queue })
}

pub(crate) fn work() -> impl Strategy<Value = Work> {
    any::<[u32; 4]>().prop_map(
        |[all_pkts, busiest_pkts, late_pkts, given_up_batches]| Work {
            all_pkts,
            busiest_pkts,
            late_pkts,
            given_up_batches,
        },
    )
}

pub(crate) fn now() -> impl Strategy<Value = FlowNow> {
    (
        prop::sample::select(vec![
            Standing::Whole,
            Standing::Probing,
            Standing::Split,
            Standing::Stopping,
            Standing::Draining,
        ]),
        prop::sample::select(Reason::ALL),
        prop::sample::select(vec![Hint::None, Hint::Split, Hint::Never]),
        0..NR_SLOTS as u8,
        any::<Option<u32>>(),
        any::<(u32, u16, u16)>(),
    )
        .prop_map(
            |(standing, reason, hint, slot, held_until_ms, (cpu, lanes, batch_pkts))| FlowNow {
                standing,
                reason,
                hint,
                slot,
                held_until_ms,
                cpu,
                lanes,
                batch_pkts,
            },
        )
}
