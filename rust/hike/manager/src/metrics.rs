// SPDX-License-Identifier: GPL-2.0

//! Counters, monitors and local SIDs as OpenMetrics text.
//!
//! What grows is a counter (`_total`), of which no scrape misses anything, however rare scrapes are. Blocks are gauges: a scrape sees the
//! last one that is settled.

use std::sync::atomic::AtomicU64;

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
}

/// Returns the text.
pub fn text(counted: &Counted<'_>) -> Result<String> {
    let Counted {
        revision,
        reasons,
        rules,
        monitors,
        sids,
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
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
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
        let text = text(&Counted {
            revision: 9,
            reasons: &reasons,
            rules: &[(Action::Allow, 3), (Action::Deny, 4)],
            monitors: &[counts],
            sids: &[sid],
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
                    assert!(number.parse::<u64>().is_ok(), "{line}");
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
