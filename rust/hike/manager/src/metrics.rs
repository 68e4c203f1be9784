// SPDX-License-Identifier: GPL-2.0

//! Counters, monitors, local SIDs and sessions as OpenMetrics text.
//!
//! What grows is a counter (`_total`), of which no scrape misses anything, however rare scrapes are. Blocks are gauges: a scrape sees the
//! last one that is settled.

use std::sync::atomic::{AtomicI64, AtomicU64};

use anyhow::Result;
use mflow_hike::counters::reason::Reason;
use mflow_hike::{Action, Direction};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::configuration::file::word;
use crate::proto::word_of;
use crate::v1;

type Labels = [(&'static str, String); 2];
type Gauges = Family<Labels, Gauge<u64, AtomicU64>>;

/// The counts of a host.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The number of transactions.
    pub revision: u64,
    /// Packets by reason.
    pub reasons: &'a [(&'a Reason, u64)],
    /// The actions of the rules of the access list, and packets by rule.
    pub rules: &'a [(Action, u64)],
    /// Packets of monitored flows.
    pub monitors: &'a [v1::Result],
    /// Packets of local SIDs.
    pub sids: &'a [v1::LocalSid],
    /// Test packets.
    pub sessions: &'a [v1::SessionResult],
}

/// Returns the text.
pub fn text(counted: &Counted<'_>) -> Result<String> {
    let Counted {
        revision,
        reasons,
        rules,
        monitors,
        sids,
        sessions,
    } = *counted;
    let mut registry = Registry::with_prefix("hike");
    let revisions = Gauge::<u64, AtomicU64>::default();
    revisions.set(revision);
    registry.register("revision", "Transactions so far", revisions);
    let packets = Family::<Labels, Counter>::default();
    for (reason, count) in reasons {
        let labels = [
            ("reason", reason.name.to_owned()),
            ("fate", word(&reason.fate)),
        ];
        packets.get_or_create(&labels).inc_by(*count);
    }
    registry.register("packets", "Packets by what has become of them", packets);
    let hits = Family::<Labels, Counter>::default();
    for ((action, count), number) in rules.iter().zip(1..) {
        let number: usize = number;
        let labels = [("rule", number.to_string()), ("action", word(action))];
        hits.get_or_create(&labels).inc_by(*count);
    }
    let decided = "Packets that a rule of the access list has decided on";
    registry.register("rule_packets", decided, hits);
    let (numbers, pkts) = (Gauges::default(), Gauges::default());
    let totals = Family::<Labels, Counter>::default();
    for one in monitors {
        let labels = [
            ("monitor", one.monitor.clone()),
            ("direction", word_of::<Direction>(one.direction)),
        ];
        totals.get_or_create(&labels).inc_by(one.total_packets);
        numbers.get_or_create(&labels).set(one.last_settled);
        let block = one
            .blocks
            .iter()
            .find(|block| block.number == one.last_settled);
        pkts.get_or_create(&labels)
            .set(block.map_or(0, |block| block.packets));
    }
    let all = "Packets of a monitored flow since its monitor was added";
    registry.register("monitored_packets", all, totals);
    let number = "Number of the last block of a monitored flow that nothing is added to any more";
    registry.register("block_number", number, numbers);
    registry.register("block_packets", "Packets of this block", pkts);
    let (pkts, bytes) = (
        Family::<Labels, Counter>::default(),
        Family::<Labels, Counter>::default(),
    );
    for one in sids {
        let labels = [
            ("sid", one.destination.clone()),
            ("behaviour", one.behaviour.clone()),
        ];
        pkts.get_or_create(&labels).inc_by(one.packets);
        bytes.get_or_create(&labels).inc_by(one.bytes);
    }
    let done = "Packets that the behaviour of a local SID was done to";
    registry.register("sid_packets", done, pkts);
    let came = "Bytes of these IPv6 packets as they came";
    registry.register_with_unit("sid", came, Unit::Bytes, bytes);
    register_sessions(&mut registry, sessions);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Registers the counts of test packets, and the delays of the last ones.
fn register_sessions(registry: &mut Registry, sessions: &[v1::SessionResult]) {
    let packets = Family::<Labels, Counter>::default();
    let (sums, measured) = (
        Family::<[(&'static str, String); 1], Counter>::default(),
        Family::<[(&'static str, String); 1], Counter>::default(),
    );
    let delays = Family::<[(&'static str, String); 3], Gauge<i64, AtomicI64>>::default();
    for one in sessions {
        let name = || ("session", one.session.clone());
        let counts = one.counts.unwrap_or_default();
        for (fate, count) in [
            ("sent", counts.sent),
            ("answered", counts.answered),
            ("lost", counts.lost),
            ("late", counts.late),
            ("duplicate", counts.duplicates),
            ("refused", counts.refused),
            ("unsent", counts.unsent),
        ] {
            let labels = [name(), ("fate", fate.to_owned())];
            packets.get_or_create(&labels).inc_by(count);
        }
        sums.get_or_create(&[name()]).inc_by(one.two_way_sum_ns);
        let count = counts.answered - counts.unmeasured;
        measured.get_or_create(&[name()]).inc_by(count);
        for (of, delay) in [
            ("two-way", one.two_way),
            ("forward", one.forward),
            ("backward", one.backward),
        ] {
            let Some(delay) = delay else {
                continue;
            };
            for (quantile, ns) in [
                ("0", delay.min_ns),
                ("0.5", delay.median_ns),
                ("0.9", delay.p90_ns),
                ("0.99", delay.p99_ns),
                ("1", delay.max_ns),
            ] {
                let labels = [
                    name(),
                    ("way", of.to_owned()),
                    ("quantile", quantile.to_owned()),
                ];
                delays.get_or_create(&labels).set(ns);
            }
        }
    }
    let what = "Test packets by what has become of them, and packets that came back";
    registry.register("session_packets", what, packets);
    let nanoseconds = || Unit::Other("nanoseconds".to_owned());
    let sum = "Sum of the two-way delays of test packets that were measured";
    registry.register_with_unit("session_two_way_sum", sum, nanoseconds(), sums);
    let count = "Test packets whose delay was measured";
    registry.register("session_measured_packets", count, measured);
    let last = "Delays of the last test packets, 1024 at most: one-way delays are right as far as both clocks agree";
    registry.register_with_unit("session_delay", last, nanoseconds(), delays);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mflow_hike::counters::reason;

    use super::*;

    #[test]
    fn the_text_has_counters_and_the_last_settled_block() {
        let reasons: Vec<_> = reason::reasons().iter().zip(5..).collect();
        let block = |number, packets| v1::Block {
            number,
            packets,
            settled: number <= 42,
        };
        let counts = v1::Result {
            monitor: "berlin".to_owned(),
            direction: v1::Direction::In.into(),
            flow: None,
            period_ns: 1_000_000_000,
            blocks: vec![block(41, 3), block(42, 8), block(43, 1)],
            last_settled: 42,
            total_packets: 1_012,
        };
        let sid = v1::LocalSid {
            destination: "fc00:3::/64".to_owned(),
            behaviour: "exit".to_owned(),
            packets: 7,
            bytes: 1_400,
        };
        let delay = v1::Delay {
            min_ns: -1_000,
            p99_ns: 25_000_000,
            ..v1::Delay::default()
        };
        let session = v1::SessionResult {
            session: "munich".to_owned(),
            counts: Some(v1::SessionCounts {
                sent: 10,
                answered: 8,
                lost: 1,
                unmeasured: 1,
                ..v1::SessionCounts::default()
            }),
            two_way: Some(delay),
            forward: Some(delay),
            two_way_sum_ns: 175_000_000,
            ..v1::SessionResult::default()
        };
        let text = text(&Counted {
            revision: 9,
            reasons: &reasons,
            rules: &[(Action::Allow, 3), (Action::Deny, 4)],
            monitors: &[counts],
            sids: &[sid],
            sessions: &[session],
        })
        .expect("text");
        for line in [
            "hike_revision 9",
            "hike_packets_total{reason=\"no-class\",fate=\"passed\"} 5",
            "hike_monitored_packets_total{monitor=\"berlin\",direction=\"in\"} 1012",
            "hike_block_number{monitor=\"berlin\",direction=\"in\"} 42",
            "hike_block_packets{monitor=\"berlin\",direction=\"in\"} 8",
            "hike_rule_packets_total{rule=\"2\",action=\"deny\"} 4",
            "hike_sid_packets_total{sid=\"fc00:3::/64\",behaviour=\"exit\"} 7",
            "hike_session_packets_total{session=\"munich\",fate=\"lost\"} 1",
            "hike_session_two_way_sum_nanoseconds_total{session=\"munich\"} 175000000",
            "hike_session_measured_packets_total{session=\"munich\"} 7",
            "hike_session_delay_nanoseconds{session=\"munich\",way=\"two-way\",quantile=\"0.99\"} 25000000",
            "hike_session_delay_nanoseconds{session=\"munich\",way=\"forward\",quantile=\"0\"} -1000",
            "hike_sid_bytes_total{sid=\"fc00:3::/64\",behaviour=\"exit\"} 1400",
            "# EOF",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line} is not in {text}"
            );
        }
        assert_is_openmetrics(&text);
    }

    /// Fails unless each sample belongs to a family with its type and help in front, counters end with `_total`, no family comes
    /// twice, and the last line says that it is the last: OpenMetrics 1.0.
    fn assert_is_openmetrics(text: &str) {
        let mut families = BTreeMap::new();
        let (mut lines, mut helped) = (text.lines().peekable(), None);
        while let Some(line) = lines.next() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "EOF"] => assert_eq!(lines.peek(), None),
                ["#", "HELP", name, help] => {
                    assert!(!help.is_empty());
                    helped = Some(name);
                }
                ["#", "TYPE", name, kind] => {
                    assert_eq!(helped, Some(name));
                    assert_eq!(families.insert(name, kind), None, "{name} comes twice");
                }
                ["#", "UNIT", name, unit] => {
                    assert!(helped == Some(name) && name.ends_with(&format!("_{unit}")));
                }
                _ => {
                    let (name, number) = line.rsplit_once(' ').expect("a number");
                    let name = name.split('{').next().expect("a name");
                    assert!(number.parse::<i64>().is_ok(), "{line}");
                    let family = match helped.map(|family| (family, families[family])) {
                        Some((family, "counter")) => format!("{family}_total"),
                        Some((family, "gauge")) => family.to_owned(),
                        other => panic!("{line} is in {other:?}"),
                    };
                    assert_eq!(name, family);
                }
            }
        }
        assert!(text.ends_with("\n# EOF\n") && families.len() > 3);
    }
}
