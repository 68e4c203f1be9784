// SPDX-License-Identifier: GPL-2.0

//! The rows that make up one figure of the papers, and the label of a row in it.

use std::collections::BTreeMap;

use crate::bench::suites::kind::Kind;
use xtask::results::row::Row;

#[derive(Debug)]
pub(crate) struct Figure<'a> {
    pub(crate) kind: Kind,
    /// By name, numbers by value.
    pub(crate) cases: Vec<Case<'a>>,
}

/// The rows of one case, in the order in which they were measured.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) rows: Vec<&'a Row>,
}

/// Sorts rows into figures; a figure without rows is left out.
pub(crate) fn group(rows: &[Row]) -> Vec<Figure<'_>> {
    let mut figures: BTreeMap<Kind, Vec<Case<'_>>> = BTreeMap::new();
    for row in rows {
        let cases = figures.entry(Kind::of(&row.case)).or_default();
        match cases.iter_mut().find(|case| case.name == row.case) {
            Some(case) => case.rows.push(row),
            None => cases.push(Case {
                name: &row.case,
                rows: vec![row],
            }),
        }
    }
    figures
        .into_iter()
        .map(|(kind, mut cases)| {
            cases.sort_by_key(|case| by_value(case.name));
            Figure { kind, cases }
        })
        .collect()
}

/// Returns the label of a row: the mode, how it splits, and the number of lanes.
pub(crate) fn label(row: &Row) -> String {
    let mut label = row.mode.clone();
    if let Some(split) = &row.split {
        label = format!("{label} {split}");
    }
    if row.lanes > 0 {
        label = format!("{label} {}", row.lanes);
    }
    label
}

/// Returns the number at the end of a case's name.
pub(crate) fn number(case: &str) -> Option<u32> {
    case.rsplit('-').next()?.parse().ok()
}

/// Returns a key by which `batch-4` goes before `batch-16`.
fn by_value(case: &str) -> (String, u32) {
    let stem = case.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem.to_owned(), number(case).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::fixture;

    #[test]
    fn every_row_is_in_one_figure() {
        let rows = fixture::rows();
        let figures = group(&rows);
        let grouped: usize = figures
            .iter()
            .flat_map(|figure| &figure.cases)
            .map(|case| case.rows.len())
            .sum();
        assert_eq!(grouped, rows.len());
        assert!(figures.iter().all(|figure| !figure.cases.is_empty()));
        assert!(group(&[]).is_empty());
    }

    #[test]
    fn cases_are_in_the_order_of_their_numbers() {
        let rows = fixture::rows();
        let order = group(&rows)
            .into_iter()
            .find(|figure| figure.kind == Kind::Order)
            .expect("order cases in the fixture");
        let names: Vec<&str> = order.cases.iter().map(|case| case.name).collect();
        assert_eq!(
            names,
            ["order-batch-1", "order-batch-16", "order-batch-256"]
        );
    }

    #[test]
    fn a_case_belongs_where_its_name_says() {
        assert_eq!(Kind::of("overhead-udp-16"), Kind::Overhead);
        assert_eq!(Kind::of("stream-65536"), Kind::Tcp);
        assert_eq!(Kind::of("latency-tcp-65536"), Kind::Latency);
        assert_eq!(Kind::of("rate-udp-16-1000"), Kind::Rates);
        assert_eq!(Kind::of("memcached"), Kind::Applications);
        assert_eq!(Kind::of("hike-sids-10"), Kind::Hike);
        assert_eq!(Kind::of("something-new"), Kind::Other);
        assert_eq!(number("flows-20"), Some(20));
        assert_eq!(number("memcached"), None);
        assert_eq!(number("latency-tcp-65536"), Some(65536));
    }
}
