// SPDX-License-Identifier: GPL-2.0

//! The placement of lanes: tables, properties against a sort of all CPUs, and the choices that stay while uses come and go.

use mflow_algo::algo::knobs::cpulist::CpuSet;
use mflow_algo::algo::knobs::Layout;
use mflow_algo::algo::limits::MAX_LANES;
use mflow_algo::algo::placement::change_limit::{ChangeLimit, CHANGE_LOOKS, MOST_CHANGES};
use mflow_algo::algo::placement::occupancy::{
    is_at_home, mean_use, Occupancy, FREE_LOOKS, TAKEN_LOOKS,
};
use mflow_algo::algo::placement::Nearness::{self, Cache, Far, Node, Sibling};
use mflow_algo::algo::placement::{choose, Candidate, ENOUGH_LANES, LEAST_LANES};
use proptest::prelude::*;

use crate::common::cases;

type Candidates = Vec<Option<Candidate>>;

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list.as_bytes()).expect("a list")
}

fn free(nearness: Nearness) -> Option<Candidate> {
    Some(Candidate {
        nearness,
        reading: None,
    })
}

fn read(nearness: Nearness, reading: u8) -> Option<Candidate> {
    Some(Candidate {
        nearness,
        reading: Some(reading),
    })
}

fn chosen(candidates: &Candidates, previous: &CpuSet, layout: Layout) -> CpuSet {
    let candidate = |cpu: u32| candidates.get(cpu as usize).copied().flatten();
    choose(candidate, previous, layout)
}

#[test]
fn nearest_first() {
    // Of each rank, which CPUs are there; and what is chosen.
    type Row<'a> = (&'a [(Nearness, &'a str)], &'a str, &'a str);
    let table: &[Row<'_>] = &[
        (&[], "", ""),
        (&[(Cache, "2-7"), (Node, "8-15"), (Far, "16-31")], "", "2-7"),
        // Few in the same cache: the node's, too, but nobody else's.
        (
            &[(Cache, "2-3"), (Node, "8-9"), (Far, "16-31")],
            "",
            "2-3,8-9",
        ),
        (&[(Cache, "2-5"), (Node, "8-9")], "", "2-5"),
        (&[(Node, "8"), (Far, "16-31"), (Sibling, "9")], "", "8"),
        (&[(Far, "16-18"), (Sibling, "9")], "", "16-18"),
        (&[(Sibling, "9-10")], "", "9-10"),
        // The lowest of many, or those that have been lanes before.
        (&[(Node, "2-40")], "", "2-17"),
        (&[(Node, "2-40")], "30-33", "2-13,30-33"),
        (&[(Cache, "2-3"), (Node, "4-40")], "5-20", "2-3,5-18"),
        // Of those before only what is as near as others are.
        (&[(Cache, "2-9"), (Far, "16")], "9,16,20", "2-9"),
    ];
    for (row, (there, previous, expected)) in table.iter().enumerate() {
        let mut ranks = vec![None; 64];
        for (rank, cpus) in *there {
            set(cpus)
                .iter()
                .for_each(|cpu| ranks[cpu as usize] = free(*rank));
        }
        let lanes = chosen(&ranks, &set(previous), Layout::Lane);
        assert_eq!(lanes, set(expected), "row {row}");
    }
}

#[test]
fn pairs_leave_the_last_one_out() {
    let mut ranks = vec![None, free(Node), free(Node), free(Node), free(Cache)];
    let pairs =
        |ranks: &Candidates, previous: &str| chosen(ranks, &set(previous), Layout::LaneStage);
    assert_eq!(pairs(&ranks, ""), set("1-4"));
    ranks[4] = None;
    assert_eq!(pairs(&ranks, ""), set("1-2"));
    assert_eq!(pairs(&ranks, "2-3"), set("2-3"));
    ranks = vec![None, free(Cache)];
    assert_eq!(pairs(&ranks, "1"), set(""));
    assert_eq!(chosen(&ranks, &set(""), Layout::Lane), set("1"));
}

#[test]
fn readers_cpus_are_taken_where_too_few_others_are_left() {
    // What each CPU is, from 0 on; the lanes before; and what is chosen.
    type Row<'a> = (&'a [Option<Candidate>], &'a str, &'a str);
    let table: &[Row<'_>] = &[
        // Two others are enough.
        (&[read(Cache, 9), free(Node), free(Node)], "", "1-2"),
        (&[read(Cache, 9), free(Far), free(Far)], "", "1-2"),
        // The least read, but those that have been lanes stay.
        (&[read(Node, 9), read(Node, 7), read(Node, 8)], "", "1-2"),
        (&[read(Node, 9), read(Node, 7), read(Node, 8)], "0", "0-1"),
        (&[read(Node, 9), read(Node, 7), read(Node, 8)], "0-2", "1-2"),
        (&[read(Far, 0), read(Node, 9), read(Cache, 9)], "", "1-2"),
        // One that is nobody's comes first.
        (&[read(Node, 9), read(Node, 7), free(Node)], "0-1", "1-2"),
        (&[free(Cache), read(Node, 9)], "", "0-1"),
        // Where there are not this many in reach, they are left to readers.
        (&[None, read(Node, 9)], "1", ""),
        (&[free(Node), read(Far, 9), read(Sibling, 9)], "", "0"),
        (&[read(Node, 9), read(Far, 9)], "", ""),
    ];
    for (row, (candidates, previous, expected)) in table.iter().enumerate() {
        let lanes = chosen(&candidates.to_vec(), &set(previous), Layout::Lane);
        assert_eq!(lanes, set(expected), "row {row}");
    }
}

/// Chooses by sorting: what is nearer, then what is nobody's, then what was there before, then where less is read, then the lower
/// number.
fn sorted(candidates: &Candidates, previous: &CpuSet, most: usize) -> Vec<u32> {
    let numbered = (0u32..).zip(candidates);
    let mut all: Vec<_> = numbered
        .filter_map(|(cpu, candidate)| {
            let Candidate { nearness, reading } = (*candidate)?;
            Some((
                nearness,
                reading.is_some(),
                !previous.contains(cpu),
                reading,
                cpu,
            ))
        })
        .collect();
    all.sort();
    let near = all.iter().filter(|(rank, ..)| *rank == Cache).count();
    let furthest = match all.first() {
        Some((Cache, ..)) if near < ENOUGH_LANES => Node,
        Some((rank, ..)) => *rank,
        None => return Vec::new(),
    };
    all.retain(|(rank, ..)| *rank <= furthest);
    all.truncate(most);
    all.iter().map(|(.., cpu)| *cpu).collect()
}

fn oracle(candidates: &Candidates, previous: &CpuSet, layout: Layout) -> CpuSet {
    let is_free = |candidate: &Candidate| candidate.reading.is_none();
    let free = candidates
        .iter()
        .map(|candidate| candidate.filter(is_free))
        .collect();
    let mut lanes = sorted(&free, previous, MAX_LANES);
    let with_readers = sorted(candidates, previous, LEAST_LANES);
    if lanes.len() < LEAST_LANES && with_readers.len() == LEAST_LANES {
        lanes = with_readers;
    }
    if layout == Layout::LaneStage && lanes.len() % 2 == 1 {
        lanes.pop();
    }
    let mut set = CpuSet::EMPTY;
    lanes.iter().for_each(|cpu| {
        set.insert(*cpu);
    });
    set
}

fn candidates() -> impl Strategy<Value = Candidates> {
    let rank = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Cache)),
        1 => Just(Some(Node)),
        1 => Just(Some(Far)),
        1 => Just(Some(Sibling)),
    ];
    let reading = prop::option::of(0u8..4);
    let cpu = (rank, reading);
    // Where some ranks or all that is nobody's are missing, others have their turn.
    (
        prop::collection::vec(cpu, 0..80),
        any::<[bool; 4]>(),
        0usize..40,
    )
        .prop_map(|(cpus, has, most_free)| {
            let mut left_free = most_free;
            let candidate = |(rank, reading): (Option<Nearness>, Option<u8>)| {
                let nearness = rank.filter(|rank| has[*rank as usize])?;
                if reading.is_none() && left_free == 0 {
                    return None;
                }
                left_free -= usize::from(reading.is_none());
                Some(Candidate { nearness, reading })
            };
            cpus.into_iter().map(candidate).collect()
        })
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    prop::collection::vec(0u32..80, 0..20).prop_map(|cpus| {
        let mut set = CpuSet::EMPTY;
        cpus.iter().for_each(|cpu| {
            set.insert(*cpu);
        });
        set
    })
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Lane), Just(Layout::LaneStage)]
}

#[test]
fn taken_after_two_looks_and_free_after_sixteen() {
    let mut occupancy = Occupancy::NONE;
    let mut looks = |seen: &str, looks: u16| {
        (0..looks).for_each(|_| occupancy.look(&set(seen)));
        *occupancy.taken()
    };
    assert_eq!(looks("3", TAKEN_LOOKS - 1), set(""));
    // One that passes by is not taken, however often it comes.
    for _ in 0..10 {
        assert_eq!(looks("4", TAKEN_LOOKS - 1), set(""));
        assert_eq!(looks("3", TAKEN_LOOKS - 1), set(""));
    }
    assert_eq!(looks("3-4", TAKEN_LOOKS), set("3-4"));
    // One look that shows it again, and the time begins again.
    assert_eq!(looks("4", FREE_LOOKS - 1), set("3-4"));
    assert_eq!(looks("3-4", 1), set("3-4"));
    assert_eq!(looks("4", FREE_LOOKS - 1), set("3-4"));
    assert_eq!(looks("4", 1), set("4"));
    // A reader that comes back has to be away twice as long.
    assert_eq!(looks("3", TAKEN_LOOKS), set("3-4"));
    assert_eq!(looks("", 2 * FREE_LOOKS - 1), set("3"));
    assert_eq!(looks("", 1), set(""));
}

#[test]
fn mean_of_use_follows_slowly_and_is_bounded() {
    assert_eq!(mean_use(0, 250, 250), 31);
    assert_eq!(mean_use(255, 0, 250), 223);
    assert_eq!(mean_use(255, 250, 250), 255);
    // Ticks may have been counted late, or there were none.
    assert_eq!(mean_use(255, u32::MAX, 1), 255);
    assert_eq!(mean_use(8, u32::MAX, 0), 7);
    let after = |looks| (0..looks).fold(0, |mean, _| mean_use(mean, 250, 250));
    assert!(after(8) > 127 && after(64) > 240);
}

#[test]
fn changes_are_few_at_once_and_one_in_a_minute() {
    let mut changes = ChangeLimit::ALL;
    let taken = |changes: &mut ChangeLimit| (0..100).filter(|_| changes.take()).count();
    assert_eq!(taken(&mut changes), usize::from(MOST_CHANGES));
    let looks = |changes: &mut ChangeLimit, looks: u32| (0..looks).for_each(|_| changes.look());
    looks(&mut changes, u32::from(CHANGE_LOOKS) - 1);
    assert_eq!(taken(&mut changes), 0);
    looks(&mut changes, 1);
    assert_eq!(taken(&mut changes), 1);
    looks(&mut changes, 100 * u32::from(CHANGE_LOOKS));
    assert_eq!(taken(&mut changes), usize::from(MOST_CHANGES));
}

#[test]
fn at_home_is_a_quarter_of_the_ticks() {
    for (seen, ticks, expected) in [
        (0, 0, false),
        (0, 250, false),
        (1, 0, true),
        (62, 250, false),
        (63, 250, true),
        (250, 250, true),
        (u32::MAX, u32::MAX, true),
        (u32::MAX / 4, u32::MAX, false),
    ] {
        assert_eq!(is_at_home(seen, ticks), expected, "{seen} of {ticks}");
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn choice_is_that_of_a_sort(ranks in candidates(), previous in cpus(), layout in layout()) {
        let lanes = chosen(&ranks, &previous, layout);
        prop_assert_eq!(lanes, oracle(&ranks, &previous, layout));
        // What has been chosen is chosen again.
        prop_assert_eq!(chosen(&ranks, &lanes, layout), lanes);
    }

    /// A CPU that goes, or becomes somebody's, moves no other lane as long as lanes are on CPUs that are nobody's.
    #[test]
    fn only_what_has_to_change_does(ranks in candidates(), previous in cpus(), gone in 0usize..80) {
        let lanes = chosen(&ranks, &previous, Layout::Lane);
        let mut left = ranks.clone();
        if let Some(rank) = left.get_mut(gone) {
            *rank = None;
        }
        let after = chosen(&left, &lanes, Layout::Lane);
        // Readers get their CPUs back, both, as soon as two others are in reach; and lend both as soon as there are not.
        let has_readers = |lanes: &CpuSet| {
            lanes.iter().any(|cpu| ranks[cpu as usize].is_some_and(|candidate| candidate.reading.is_some()))
        };
        if has_readers(&lanes) || has_readers(&after) || after.len() < LEAST_LANES {
            return Ok(());
        }
        for cpu in lanes.iter().filter(|cpu| *cpu as usize != gone) {
            prop_assert!(after.contains(cpu), "{lanes} became {after} without {gone}");
        }
        prop_assert!(!after.contains(gone as u32));
    }
}

proptest! {
    #![proptest_config(cases(512))]

    /// Any readers, anywhere: as long as there are two CPUs in reach there are two lanes.
    #[test]
    fn readers_leave_two_lanes(all in candidates(), reads in any::<u128>(), previous in cpus()) {
        let nobody_reads = all.iter().map(|cpu| cpu.and_then(|cpu| free(cpu.nearness))).collect();
        let read = all.iter().enumerate().map(|(cpu, candidate)| {
            let reading = (reads >> cpu & 1 == 1).then_some(cpu as u8);
            candidate.map(|candidate| Candidate { reading, ..candidate })
        });
        let with_readers = chosen(&read.collect(), &previous, Layout::Lane);
        let without = chosen(&nobody_reads, &previous, Layout::Lane);
        prop_assert!(without.len() < LEAST_LANES || with_readers.len() >= LEAST_LANES);
    }
}

proptest! {
    // Each look is one at all CPUs.
    #![proptest_config(cases(64))]

    /// However a use moves among some CPUs, each is taken and freed ever more rarely.
    #[test]
    fn who_goes_to_and_fro_is_followed_ever_more_rarely(
        stays in prop::collection::vec((0u32..4, 1u16..50), 1..60)
    ) {
        let mut occupancy = Occupancy::NONE;
        let (mut looks, mut changes) = (0u32, 0u32);
        for (cpu, stay) in stays {
            let mut seen = CpuSet::EMPTY;
            seen.insert(cpu);
            for _ in 0..stay {
                let before = *occupancy.taken();
                occupancy.look(&seen);
                looks += 1;
                changes += u32::from(*occupancy.taken() != before);
            }
            // Where it has been for two looks is no lane.
            prop_assert!(stay < TAKEN_LOOKS || occupancy.taken().contains(cpu));
        }
        // Each CPU is free after 16 looks the first time, and every other time after 32 at least; each is taken once more.
        let frees = 4 * (1 + looks / (2 * u32::from(FREE_LOOKS)));
        prop_assert!(changes <= 2 * frees + 4, "{changes} changes in {looks} looks");
    }
}
