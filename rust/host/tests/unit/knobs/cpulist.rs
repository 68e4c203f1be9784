// SPDX-License-Identifier: GPL-2.0

//! CPU lists: tables of texts, and properties against a set of numbers from the standard library.

use std::collections::BTreeSet;

use mflow_algo::algo::knobs::cpulist::{
    CpuListError,
    CpuListErrorKind::{self, Range, Syntax},
    CpuSet,
};
use mflow_algo::algo::limits::MAX_CPUS;
use proptest::prelude::*;

use crate::common::cases;

fn parse(text: &str) -> Result<Vec<u32>, (CpuListErrorKind, usize)> {
    CpuSet::parse(text.as_bytes())
        .map(|set| set.iter().collect())
        .map_err(|CpuListError { kind, at }| (kind, at))
}

fn set_of(cpus: &BTreeSet<u32>) -> CpuSet {
    let mut set = CpuSet::EMPTY;
    for cpu in cpus {
        assert!(set.insert(*cpu));
    }
    set
}

#[test]
fn accepted_lists() {
    let table: &[(&str, &[u32])] = &[
        ("", &[]),
        (" \t\r\n", &[]),
        ("0", &[0]),
        ("1023", &[1023]),
        ("2-5,8", &[2, 3, 4, 5, 8]),
        ("  2-5,8\n", &[2, 3, 4, 5, 8]),
        ("8,2-5", &[2, 3, 4, 5, 8]),
        ("3-3", &[3]),
        ("1,1,0-1", &[0, 1]),
        ("007", &[7]),
        ("63-64", &[63, 64]),
        ("0-9:1/4", &[0, 4, 8]),
        ("0-1023:2/256", &[0, 1, 256, 257, 512, 513, 768, 769]),
        ("5-6:1024/1024", &[5, 6]),
        ("2-9:3/4,1", &[1, 2, 3, 4, 6, 7, 8]),
    ];
    for (text, cpus) in table {
        assert_eq!(parse(text), Ok(cpus.to_vec()), "{text:?}");
    }
}

#[test]
fn refused_lists() {
    let table: &[(&str, CpuListErrorKind, usize)] = &[
        ("x", Syntax, 0),
        ("-1", Syntax, 0),
        ("+1", Syntax, 0),
        (",", Syntax, 0),
        ("1,", Syntax, 2),
        ("1,,2", Syntax, 2),
        ("1, 2", Syntax, 2),
        ("1 2", Syntax, 1),
        ("1;2", Syntax, 1),
        ("  1x", Syntax, 3),
        ("0x3", Syntax, 1),
        ("2-", Syntax, 2),
        ("5-2", Syntax, 2),
        ("1-2-3", Syntax, 3),
        ("1:1/2", Syntax, 1),
        ("0-9:", Syntax, 4),
        ("0-9:2", Syntax, 5),
        ("0-9:2/", Syntax, 6),
        ("0-9:0/4", Syntax, 4),
        ("0-9:5/4", Syntax, 4),
        ("0-9:0/0", Syntax, 4),
        ("all", Syntax, 0),
        ("1\0", Syntax, 1),
        ("1024", Range, 0),
        ("0-1024", Range, 2),
        ("3,4294967297", Range, 2),
        ("99999999999999999999999999", Range, 0),
        ("0-9:1/1025", Range, 6),
        ("0-9:1025/1025", Range, 4),
    ];
    for (text, kind, at) in table {
        assert_eq!(parse(text), Err((*kind, *at)), "{text:?}");
    }
}

#[test]
fn printed_lists() {
    for list in ["", "0", "2-5,8", "0-1", "31-32", "64", "0,63-64,100"] {
        let set = CpuSet::parse(list.as_bytes()).unwrap();
        assert_eq!(set.to_string(), list);
        assert_eq!(format!("{set:?}"), format!("CpuSet({list})"));
    }
    let mut all = CpuSet::EMPTY;
    assert!((0..MAX_CPUS).all(|cpu| all.insert(cpu)));
    assert_eq!(all.to_string(), "0-1023");
}

#[test]
fn cpus_beyond_the_set() {
    let mut set = CpuSet::EMPTY;
    for cpu in [MAX_CPUS, MAX_CPUS + 1, u32::MAX] {
        assert!(!set.insert(cpu));
        assert!(!set.contains(cpu));
        assert!(!set.remove(cpu));
    }
    assert!(set.is_empty());
}

/// Prints a set the slow way: runs of neighbours, found by looking at each number.
fn list_of(cpus: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let texts = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

fn cpus() -> impl Strategy<Value = BTreeSet<u32>> {
    prop_oneof![
        prop::collection::btree_set(0..MAX_CPUS, 0..40),
        prop::collection::btree_set(0..70u32, 0..70),
    ]
}

/// Returns one item of a list, as text and as the numbers that it means.
fn item() -> impl Strategy<Value = (String, Vec<u32>)> {
    let single = (0..MAX_CPUS).prop_map(|cpu| (cpu.to_string(), vec![cpu]));
    let bounds = (0..MAX_CPUS, 0..MAX_CPUS).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let range = bounds
        .clone()
        .prop_map(|(first, last)| (format!("{first}-{last}"), (first..=last).collect()));
    let pattern = (bounds, 1..=MAX_CPUS, 1..=MAX_CPUS).prop_map(|((first, last), a, b)| {
        let (used, group) = (a.min(b), a.max(b));
        let cpus = (first..=last).filter(|cpu| (cpu - first) % group < used);
        (format!("{first}-{last}:{used}/{group}"), cpus.collect())
    });
    prop_oneof![single, range, pattern]
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn set_agrees_with_model(cpus in cpus(), cpu in 0..MAX_CPUS + 2) {
        let set = set_of(&cpus);
        prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.iter().copied().collect::<Vec<_>>());
        prop_assert_eq!(set.len(), cpus.len());
        prop_assert_eq!(set.is_empty(), cpus.is_empty());
        prop_assert_eq!(set.contains(cpu), cpus.contains(&cpu));

        let (mut set, mut cpus) = (set, cpus);
        prop_assert_eq!(set.remove(cpu), cpus.remove(&cpu));
        prop_assert_eq!(set, set_of(&cpus));
    }

    #[test]
    fn printed_list_is_read_back(cpus in cpus()) {
        let set = set_of(&cpus);
        prop_assert_eq!(set.to_string(), list_of(&cpus));
        prop_assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Ok(set));
    }

    #[test]
    fn list_means_the_union_of_its_items(items in prop::collection::vec(item(), 0..6)) {
        let text = items.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(",");
        let cpus: BTreeSet<u32> = items.into_iter().flat_map(|(_, cpus)| cpus).collect();
        prop_assert_eq!(CpuSet::parse(text.as_bytes()), Ok(set_of(&cpus)));
    }

    #[test]
    fn any_bytes_are_read_or_refused_in_place(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            "[0-9,:/ \n-]{0,20}".prop_map(String::into_bytes),
        ]
    ) {
        match CpuSet::parse(&text) {
            Ok(set) => prop_assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Ok(set)),
            Err(error) => prop_assert!(error.at <= text.len()),
        }
    }
}
