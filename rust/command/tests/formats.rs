// SPDX-License-Identifier: GPL-2.0

//! The texts that the command reads are those that the module writes: the module's own code makes them here.

use std::collections::BTreeSet;

use mflow_algo::algo::headers::flow_key::IPPROTO_TCP;
use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::report::flow_list::FlowList as Written;
use mflow_algo::algo::report::flow_report::{FlowLine, FlowNow, FlowReport, Found, Rate, Standing};
use mflow_algo::algo::report::reason::Reason;
use mflow_algo::algo::text::Text;
use mflow_command::metrics::is_known;
use mflow_command::module::text::{Flow, FlowList, Why};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

#[path = "../../host/tests/support/drawn_flow.rs"]
mod drawn_flow;

use drawn_flow::{name, now, work};

/// The size of the module's files.
const FILE_BYTES: usize = 64 << 10;
const NOW_MS: u32 = 3_000_000_000;

/// A flow, and what the line says besides.
#[derive(Clone, Debug)]
struct Listed {
    report: FlowReport,
    device: String,
    lanes: CpuSet,
    parked_pkts: u32,
}

fn report() -> impl Strategy<Value = FlowReport> {
    let rate = (any::<Option<u32>>(), 0..5_000u32).prop_map(|(pps, age_ms)| Rate {
        pps,
        at_ms: NOW_MS - age_ms,
    });
    // Times are told from now on, and lanes by their numbers beside the report.
    let held = prop::option::of((-5_000..i32::MAX).prop_map(|ms| NOW_MS.wrapping_add_signed(ms)));
    let now = (now(), held).prop_map(|(now, held_until_ms)| FlowNow {
        held_until_ms,
        lanes: 0,
        ..now
    });
    (name(), rate, work(), now).prop_map(|(name, rate, work, now)| FlowReport {
        name,
        rate,
        work,
        now,
    })
}

/// Any name that the kernel lets a device have, with those that look like the text around them.
fn device() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[!-.0-9;-~]{1,15}".prop_filter("no name", |name| !matches!(&**name, "." | "..")),
        1 => prop::sample::select(vec!["#", "none", "reason", "-", "state", "device"])
            .prop_map(str::to_owned),
    ]
}

fn listed() -> impl Strategy<Value = Listed> {
    let lanes = prop::collection::btree_set(0..1024u32, 0..=16usize).prop_map(|cpus| {
        let mut set = CpuSet::EMPTY;
        cpus.into_iter().for_each(|cpu| assert!(set.insert(cpu)));
        set
    });
    (report(), device(), lanes, any::<u32>()).prop_map(|(report, device, lanes, parked_pkts)| {
        Listed {
            report,
            device,
            lanes,
            parked_pkts,
        }
    })
}

/// Returns the text that the module makes.
fn written(flows: &[Listed], changing: usize) -> String {
    let mut buffer = vec![0; FILE_BYTES];
    let mut text = Text::new(&mut buffer);
    let mut list = Written::new(&mut text);
    for one in flows {
        list.add(&Found::Flow(one.report), |report| FlowLine {
            report,
            device: &one.device,
            lane_cpus: one.lanes,
            parked_pkts: one.parked_pkts,
            now_ms: NOW_MS,
        });
    }
    for _ in 0..changing {
        list.add(&Found::Changing, |_| -> FlowLine<'_, CpuSet> {
            unreachable!("there is nothing to write")
        });
    }
    list.end();
    String::from_utf8(text.as_bytes().to_vec()).expect("text")
}

/// Returns what is to be read of a flow's line.
fn expected(one: &Listed) -> Flow {
    let FlowReport {
        name,
        rate,
        work,
        now,
    } = one.report;
    let is_split = now.standing == Standing::Split;
    let if_split = |value: u32| is_split.then_some(value);
    let state = match now.standing {
        Standing::Whole => "whole",
        Standing::Probing => "probing",
        Standing::Split => "split",
        Standing::Stopping => "stopping",
        Standing::Draining => "draining",
    };
    let left_ms = now.held_until_ms.map(|until| {
        // CAST: not less than 0.
        (until.wrapping_sub(NOW_MS) as i32).max(0) as u32
    });
    Flow {
        device: one.device.clone(),
        queue: name.rx_queue,
        proto: name.wire.map(|wire| {
            let proto = if wire.protocol == IPPROTO_TCP {
                "tcp"
            } else {
                "udp"
            };
            proto.to_owned()
        }),
        from: name.wire.map(|wire| wire.source),
        to: name.wire.map(|wire| wire.destination),
        cpu: now.cpu,
        pps: if one.report.is_silent(NOW_MS) {
            Some(0)
        } else {
            rate.pps
        },
        state: state.to_owned(),
        hint: now.hint.name().map(str::to_owned),
        slot: one.report.has_slot().then_some(now.slot),
        lanes: is_split.then(|| one.lanes.to_string()),
        batch_pkts: is_split.then_some(now.batch_pkts),
        gain: work
            .gain_pct()
            .filter(|_| is_split)
            // CAST: far below where f64 loses whole numbers.
            .map(|hundredths| hundredths as f64 / 100.0),
        parked_pkts: if_split(one.parked_pkts),
        late_pkts: if_split(work.late_pkts),
        given_up_batches: if_split(work.given_up_batches),
        why: (!is_split).then(|| Why {
            reason: now.reason.name().to_owned(),
            words: now.reason.words().to_owned(),
        }),
        again_in_ms: left_ms.filter(|_| !is_split),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Each list that the module can write is read as what it was made of.
    #[test]
    fn flows_are_read_as_they_were_written(
        flows in prop::collection::vec(listed(), 0..20),
        changing in 0..3usize,
    ) {
        let text = written(&flows, changing);
        let list = FlowList::parse(&text).expect("a list");
        let expected: Vec<Flow> = flows
            .iter()
            .filter(|one| one.report.is_listed(NOW_MS))
            .map(expected)
            .collect();
        prop_assert_eq!(&list.flows, &expected);
        prop_assert_eq!(list.changing as usize, changing);
        prop_assert_eq!((list.left_out, list.none_split), (0, None));
    }
}

#[test]
fn flows_without_room_are_counted() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut one = listed().new_tree(&mut runner).expect("a flow").current();
    one.report.now.standing = Standing::Whole;
    one.report.rate.at_ms = NOW_MS;
    let flows = vec![one; 2_000];
    let list = FlowList::parse(&written(&flows, 0)).expect("a list");
    assert!(list.left_out > 0);
    assert_eq!(list.flows.len() + list.left_out as usize, flows.len());
}

#[test]
fn the_reason_why_none_is_split_is_read() {
    for reason in Reason::ALL {
        let mut buffer = [0; 400];
        let mut text = Text::new(&mut buffer);
        Written::new(&mut text).none_is_split(*reason);
        let text = std::str::from_utf8(text.as_bytes()).expect("text");
        let list = FlowList::parse(text).expect("a list");
        let why = Why {
            reason: reason.name().to_owned(),
            words: reason.words().to_owned(),
        };
        assert_eq!(list.none_split, Some(why));
        assert!(list.flows.is_empty());
    }
}

/// Each line that the module's code writes to `stats` besides the counters has a description here.
#[test]
fn every_line_of_stats_is_known() {
    let sources = [
        include_str!("../../glue/operator/files.rs"),
        include_str!("../../glue/control/balancing.rs"),
    ];
    let mut names = BTreeSet::new();
    for source in sources {
        // Such as `writeln!(to, "parked_pkts {}"`, and names that a loop writes.
        for (place, _) in source.match_indices('"') {
            let text = source[place + 1..].split('"').next().unwrap_or_default();
            let name = text.split(' ').next().unwrap_or_default();
            let is_line = text.split(' ').count() == 2 && text.contains(" {");
            let is_name = ["_pkts", "_bytes"].iter().any(|end| text.ends_with(end));
            if name.contains('_') && (is_line || is_name) {
                names.insert(name.replace("{cpu}", "7"));
            }
        }
    }
    for name in [
        "freed_pkts",
        "lane_cpu7_pkts",
        "parked_bytes",
        "stage_cpu7_loaded",
    ] {
        assert!(names.contains(name), "this test finds only {names:?}");
    }
    for name in names {
        assert!(is_known(&name), "{name} has no description");
    }
}
