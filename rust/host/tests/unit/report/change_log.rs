// SPDX-License-Identifier: GPL-2.0

//! The log of flows' changes, by itself and behind a board.

use std::thread;

use mflow_algo::algo::headers::hint::Hint;
use mflow_algo::algo::report::change_log::{ChangeLog, LOG_RECORDS};
use mflow_algo::algo::report::flow_report::{FlowBoard, FlowNews, FlowNow, Noted, Rate, Standing};
use mflow_algo::algo::report::reason::Reason;

use crate::support::packet::name_of_flow;
use crate::zeroed::zeroed;

const WRITES: u64 = if cfg!(miri) { 100 } else { 100_000 };
/// Of the flow that changes.
const PLACE: u8 = 7;

#[test]
fn what_finds_no_room_is_counted_with_the_next_record() {
    let log = ChangeLog::<1>::new();
    assert_eq!(log.take(), None);
    let last = LOG_RECORDS as u64;
    for number in 0..last {
        assert!(log.push(&[number]));
    }
    assert!(!log.push(&[last]));
    assert!(!log.push(&[last + 1]));
    for number in 0..last {
        let record = log.take().expect("it was kept");
        assert_eq!((record.words, record.lost), ([number], 0));
    }
    assert_eq!(log.take(), None);
    for lost in [2, 0] {
        assert!(log.push(&[9]));
        assert_eq!(log.take().map(|record| record.lost), Some(lost));
    }
}

#[test]
fn a_reader_gets_each_record_whole_and_in_order() {
    let log = ChangeLog::<3>::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let kept = (1..=WRITES).filter(|number| log.push(&[*number; 3]));
            kept.count()
        });
        let (mut read, mut before) = (0, 0);
        loop {
            let is_over = writer.is_finished();
            while let Some(record) = log.take() {
                let number = record.words[0];
                assert_eq!(record.words, [number; 3]);
                assert_eq!(number, before + u64::from(record.lost) + 1);
                (read, before) = (read + 1, number);
            }
            if is_over {
                break;
            }
        }
        assert_eq!(writer.join().expect("it writes"), read);
    });
}

fn news(standing: Standing, reason: Reason) -> FlowNews {
    FlowNews {
        name: Some(name_of_flow(50_000)),
        rate: Some(Rate {
            pps: Some(31_250),
            at_ms: 100,
        }),
        work: None,
        now: FlowNow {
            standing,
            reason,
            hint: Hint::None,
            slot: 5,
            held_until_ms: None,
            cpu: 1,
            lanes: 0,
            batch_pkts: 0,
        },
    }
}

#[test]
fn a_flow_that_begins_or_stops_is_a_change_and_no_other_news_is() {
    let board: Box<FlowBoard> = zeroed();
    for (standing, reason, expected) in [
        (Standing::Whole, Reason::New, Noted::Not),
        (Standing::Probing, Reason::Asked, Noted::Not),
        (Standing::Split, Reason::Asked, Noted::Kept),
        (Standing::Split, Reason::Asked, Noted::Not),
        (Standing::Stopping, Reason::Slow, Noted::Kept),
        (Standing::Draining, Reason::Slow, Noted::Not),
        (Standing::Whole, Reason::Slow, Noted::Not),
    ] {
        let noted = board.report(PLACE, &news(standing, reason));
        assert_eq!(noted, expected, "{standing:?}");
    }
    let begin = board.take_change().expect("it has begun");
    assert!(begin.is_begin());
    assert_eq!(begin.report.name, name_of_flow(50_000));
    assert_eq!(begin.report.rate.pps, Some(31_250));
    let end = board.take_change().expect("it has stopped");
    assert!(!end.is_begin());
    assert_eq!(end.report.now.reason, Reason::Slow);
    assert_eq!((begin.lost, end.lost), (0, 0));
    assert_eq!(board.take_change(), None);
}

#[test]
fn a_full_log_stops_no_report() {
    let board: Box<FlowBoard> = zeroed();
    let states = [Standing::Split, Standing::Stopping].into_iter().cycle();
    let noted: Vec<_> = states
        .take(LOG_RECORDS + 3)
        .map(|standing| board.report(PLACE, &news(standing, Reason::Slow)))
        .collect();
    let (kept, lost) = noted.split_at(LOG_RECORDS);
    assert!(kept.iter().all(|one| *one == Noted::Kept));
    assert_eq!(lost, [Noted::Lost; 3]);
    while board.take_change().is_some() {}
    // The last one was the beginning of a split.
    let noted = board.report(PLACE, &news(Standing::Stopping, Reason::Slow));
    assert_eq!(noted, Noted::Kept);
    assert_eq!(board.take_change().map(|change| change.lost), Some(3));
}
