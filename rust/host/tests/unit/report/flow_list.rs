// SPDX-License-Identifier: GPL-2.0

//! The file `flows`: its lines, and what becomes of those for which there is no room.

use mflow_algo::algo::headers::flow_key::IPPROTO_TCP;
use mflow_algo::algo::headers::flow_name::{FlowName, WireName};
use mflow_algo::algo::headers::hint::Hint;
use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::limits::FLOW_PLACES;
use mflow_algo::algo::limits::MAX_LANES;
use mflow_algo::algo::merge::slot_pool::NR_SLOTS;
use mflow_algo::algo::report::flow_list::{FlowList, MOST_LINE_BYTES};
use mflow_algo::algo::report::flow_report::Work;
use mflow_algo::algo::report::flow_report::{
    FlowBoard, FlowLine, FlowNews, FlowNow, FlowReport, Found, Rate, Standing,
};
use mflow_algo::algo::report::reason::Reason;
use mflow_algo::algo::text::Text;
use proptest::prelude::*;

use crate::common::cases;
use crate::drawn_flow::{name, now, work};
use crate::support::packet::name_of_flow;
use crate::zeroed::zeroed;

const NOW_MS: u32 = 100_000;
/// The size of the file.
const FILE_BYTES: usize = 64 << 10;

fn report() -> FlowReport {
    FlowReport {
        name: name_of_flow(50_000),
        rate: Rate {
            pps: Some(31_250),
            at_ms: NOW_MS - 90,
        },
        work: Work {
            all_pkts: 30_000,
            busiest_pkts: 15_100,
            late_pkts: 2,
            given_up_batches: 1,
        },
        now: FlowNow {
            standing: Standing::Split,
            reason: Reason::New,
            hint: Hint::None,
            slot: 5,
            held_until_ms: None,
            cpu: 1,
            lanes: 0b11,
            batch_pkts: 256,
        },
    }
}

fn whole(reason: Reason, held_until_ms: Option<u32>) -> FlowReport {
    FlowReport {
        now: FlowNow {
            standing: Standing::Whole,
            reason,
            slot: 0,
            held_until_ms,
            lanes: 0,
            batch_pkts: 0,
            ..report().now
        },
        ..report()
    }
}

fn line<'a>(report: &'a FlowReport) -> FlowLine<'a, CpuSet> {
    FlowLine {
        report,
        device: "eth0",
        lane_cpus: CpuSet::parse(b"2-3").unwrap(),
        parked_pkts: 7,
        now_ms: NOW_MS,
    }
}

fn list(found: &[Found]) -> String {
    list_in(found, FILE_BYTES)
}

fn list_in(found: &[Found], bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    let mut text = Text::new(&mut buffer);
    let mut list = FlowList::new(&mut text);
    for found in found {
        list.add(found, line);
    }
    list.end();
    String::from_utf8(text.as_bytes().to_vec()).unwrap()
}

#[test]
fn sentences_are_whole_and_apart() {
    let mut buffer = [0; 12];
    let mut text = Text::new(&mut buffer);
    assert!(text.write_sentence("one"));
    assert!(!text.write_sentence("too long"));
    assert!(text.write_sentence("seven77"));
    assert_eq!(text.as_bytes(), b"one; seven77");
}

#[test]
fn lines_say_where_flows_stand() {
    let path = whole(Reason::PathQueues, Some(NOW_MS + 4_321));
    let over = whole(Reason::PathQueues, Some(NOW_MS - 1));
    let mut asked = whole(Reason::Asked, None);
    asked.now.standing = Standing::Probing;
    asked.now.slot = 9;
    asked.rate.pps = None;
    let mut stopping = whole(Reason::Slow, None);
    stopping.now.standing = Standing::Stopping;
    stopping.rate.at_ms = NOW_MS - 1_000;
    let mut never = whole(Reason::HintNever, None);
    never.now.hint = Hint::Never;
    let mut begun = report();
    begun.work = Work::default();
    begun.name = FlowName::default();
    let found = [report(), path, over, asked, stopping, never, begun].map(Found::Flow);
    let device = "device eth0 queue 3 proto udp from 192.0.2.1:50000 to 192.0.2.2:4789 cpu 1";
    let words = Reason::PathQueues.words();
    let expected = [
        format!(
            "{device} pps 31250 state split slot 5 lanes 2-3 batch_pkts 256 gain 1.98 parked_pkts 7 late_pkts 2 \
             given_up_batches 1"
        ),
        format!("{device} pps 31250 state whole reason path_queues again_in_ms 4321 # {words}"),
        format!("{device} pps 31250 state whole reason path_queues again_in_ms 0 # {words}"),
        format!(
            "{device} pps - state probing slot 9 reason asked # {}",
            Reason::Asked.words()
        ),
        format!(
            "{device} pps 0 state stopping slot 0 reason slow # {}",
            Reason::Slow.words()
        ),
        format!(
            "{device} pps 31250 state whole hint never reason hint_never # {}",
            Reason::HintNever.words()
        ),
        "device eth0 queue - proto - from - to - cpu 1 pps 31250 state split slot 5 lanes 2-3 batch_pkts 256 gain - \
         parked_pkts 7 late_pkts 0 given_up_batches 0"
            .to_owned(),
    ];
    assert_eq!(list(&found).lines().collect::<Vec<_>>(), expected);
}

/// Returns the keys of a line, in order; what follows is for people.
fn keys(line: &str) -> Vec<&str> {
    let pairs = line.split(" # ").next().unwrap();
    pairs.split(' ').step_by(2).collect()
}

#[test]
fn the_manual_shows_such_lines() {
    let manual = include_str!("../../../../README.md");
    let (_, behind) = manual.split_once("## Why is a flow not split?").unwrap();
    let shown: Vec<_> = behind.split("```").nth(1).unwrap().trim().lines().collect();
    let held = whole(Reason::PathQueues, Some(NOW_MS));
    let lines = list(&[report(), held, whole(Reason::Slow, None)].map(Found::Flow));
    let known: Vec<_> = lines.lines().map(keys).collect();
    assert!(shown.len() > 1);
    for line in shown {
        assert!(known.contains(&keys(line)), "there is no such line: {line}");
    }
}

#[test]
fn flows_without_packets_are_listed_while_they_have_a_slot() {
    for (age_ms, is_listed) in [
        (0, true),
        (999, true),
        (1_000, false),
        (3_000_000_000, false),
    ] {
        let mut flow = whole(Reason::ProbeUnseen, None);
        flow.rate.at_ms = NOW_MS.wrapping_sub(age_ms);
        assert_eq!(
            !list(&[Found::Flow(flow)]).is_empty(),
            is_listed,
            "{age_ms}"
        );
        flow.now.standing = Standing::Draining;
        assert!(!list(&[Found::Flow(flow)]).is_empty());
    }
    // It was reported after the reader had looked at the clock.
    let mut flow = whole(Reason::ProbeUnseen, None);
    flow.rate.at_ms = NOW_MS + 4;
    assert!(list(&[Found::Flow(flow)]).contains("pps 31250"));
}

#[test]
fn nothing_found_is_an_empty_file() {
    assert_eq!(list(&[Found::Nothing]), "");
}

#[test]
fn why_none_is_split_is_one_line() {
    let mut buffer = [0; 200];
    let mut text = Text::new(&mut buffer);
    FlowList::new(&mut text).none_is_split(Reason::NotEnabled);
    assert_eq!(
        text.as_bytes(),
        b"none split reason not_enabled # enabled is 0\n"
    );
}

/// However many flows there are: those with a slot are all listed, and those that are not are counted.
#[test]
fn what_finds_no_room_is_counted() {
    let many = [Found::Flow(whole(Reason::NoSlot, Some(NOW_MS + 100)))];
    let split = [Found::Flow(report())];
    let found: Vec<_> = many
        .iter()
        .cycle()
        .take(1_000)
        .chain(split.iter().cycle().take(NR_SLOTS))
        .chain(&[Found::Changing, Found::Changing])
        .copied()
        .collect();
    let text = list(&found);
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    let whole = count("state whole");
    assert!((100..1_000).contains(&whole), "{whole}");
    assert_eq!(count("state split"), NR_SLOTS);
    let end: Vec<_> = text.lines().skip(whole + NR_SLOTS).collect();
    let left_out = format!("# {} more, for which there is no room", 1_000 - whole);
    assert_eq!(end, [&left_out, "# 2 more, which changed just now"]);
}

/// A line is all there, or not at all, in a file of any size.
#[test]
fn lines_are_never_cut() {
    let found = [Found::Flow(report()); 8];
    let whole = list(&found);
    let line = whole.lines().next().unwrap();
    for bytes in 2 * MOST_LINE_BYTES..4 * MOST_LINE_BYTES {
        let text = list_in(&found, bytes);
        let listed = text.lines().filter(|listed| *listed == line).count();
        let last = format!("# {} more, for which there is no room\n", 8 - listed);
        assert!(text == whole || text.ends_with(&last), "{text}");
    }
}

#[test]
fn no_line_is_longer_than_there_is_room_for() {
    let address = "[1111:2222:3333:4444:5555:6666:7777:8888]:65535";
    let most = FlowReport {
        name: FlowName {
            wire: Some(WireName {
                protocol: IPPROTO_TCP,
                source: address.parse().unwrap(),
                destination: address.parse().unwrap(),
            }),
            rx_queue: Some(u16::MAX - 1),
        },
        rate: Rate {
            pps: Some(u32::MAX - 1),
            at_ms: NOW_MS,
        },
        work: Work {
            all_pkts: u32::MAX,
            busiest_pkts: 1,
            late_pkts: u32::MAX,
            given_up_batches: u32::MAX,
        },
        now: FlowNow {
            cpu: u32::MAX,
            hint: Hint::Split,
            slot: NR_SLOTS as u8 - 1,
            batch_pkts: 4096,
            ..report().now
        },
    };
    // No two of them are neighbours.
    let lanes: Vec<_> = (0..MAX_LANES)
        .map(|lane| (1000 + lane * 2).to_string())
        .collect();
    let bytes = |report: &FlowReport| {
        let line = FlowLine {
            report,
            device: "name-of-15-char",
            lane_cpus: lanes.join(","),
            parked_pkts: u32::MAX,
            now_ms: NOW_MS,
        };
        line.to_string().len() + 1
    };
    assert!(bytes(&most) <= MOST_LINE_BYTES, "{}", bytes(&most));
    for reason in Reason::ALL {
        let mut held = most;
        held.now.standing = Standing::Stopping;
        held.now.reason = *reason;
        held.now.held_until_ms = Some(NOW_MS + i32::MAX as u32);
        assert!(bytes(&held) <= MOST_LINE_BYTES, "{}", bytes(&held));
    }
}

fn news() -> impl Strategy<Value = FlowNews> {
    let rate = (any::<Option<u32>>(), any::<u32>()).prop_map(|(pps, at_ms)| Rate {
        pps: pps.filter(|pps| *pps != u32::MAX),
        at_ms,
    });
    (
        prop::option::of(name()),
        prop::option::of(rate),
        prop::option::of(work()),
        now(),
    )
        .prop_map(|(name, rate, work, now)| FlowNews {
            name,
            rate,
            work,
            now,
        })
}

proptest! {
    #![proptest_config(cases(256))]

    /// A reader finds the last report of each kind, in each place by itself.
    #[test]
    fn boards_keep_what_is_reported(
        all_news in prop::collection::vec((0..3u8, news()), 1..30),
    ) {
        let board: Box<FlowBoard> = zeroed();
        let mut expected = [None; 3];
        let unknown = Rate { pps: None, at_ms: 0 };
        for (place, news) in all_news {
            board.report(place, &news);
            let before: Option<FlowReport> = expected[usize::from(place)];
            // Of a place that was never named, zeros are known.
            let before = before.filter(|_| news.name.is_none());
            let no_rate = if news.name.is_some() { unknown } else { Rate { pps: Some(0), at_ms: 0 } };
            expected[usize::from(place)] = Some(FlowReport {
                name: news.name.or(before.map(|report| report.name)).unwrap_or_default(),
                rate: news.rate.or(before.map(|report| report.rate)).unwrap_or(no_rate),
                work: news.work.or(before.map(|report| report.work)).unwrap_or_default(),
                now: news.now,
            });
        }
        let found: Vec<_> = board.read().collect();
        prop_assert_eq!(found.len(), FLOW_PLACES);
        for (found, expected) in found.into_iter().zip(expected) {
            prop_assert_eq!(found, expected.map_or(Found::Nothing, Found::Flow));
        }
    }
}
