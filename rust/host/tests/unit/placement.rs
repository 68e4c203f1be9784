// SPDX-License-Identifier: GPL-2.0

//! Where lanes are placed: tables, properties against a sort of all CPUs, and what holds on while uses come and go.

use mflow_algo::algo::cpulist::CpuSet;
use mflow_algo::algo::knobs::Layout;
use mflow_algo::algo::lane_set::MAX_LANES;
use mflow_algo::algo::placement::occupancy::{is_at_home, Occupancy, FREE_LOOKS, TAKEN_LOOKS};
use mflow_algo::algo::placement::Nearness::{self, Cache, Far, Node, Sibling};
use mflow_algo::algo::placement::{choose, ENOUGH_LANES};
use proptest::prelude::*;

use crate::common::cases;

type Ranks = Vec<Option<Nearness>>;

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list.as_bytes()).expect("a list")
}

fn chosen(ranks: &Ranks, previous: &CpuSet, layout: Layout) -> CpuSet {
    let rank = |cpu: u32| ranks.get(cpu as usize).copied().flatten();
    choose(rank, previous, layout)
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
                .for_each(|cpu| ranks[cpu as usize] = Some(*rank));
        }
        let lanes = chosen(&ranks, &set(previous), Layout::Lane);
        assert_eq!(lanes, set(expected), "row {row}");
    }
}

#[test]
fn pairs_leave_the_last_one_out() {
    let mut ranks = vec![None, Some(Node), Some(Node), Some(Node), Some(Cache)];
    let pairs = |ranks: &Ranks, previous: &str| chosen(ranks, &set(previous), Layout::LaneStage);
    assert_eq!(pairs(&ranks, ""), set("1-4"));
    ranks[4] = None;
    assert_eq!(pairs(&ranks, ""), set("1-2"));
    assert_eq!(pairs(&ranks, "2-3"), set("2-3"));
    ranks = vec![None, Some(Cache)];
    assert_eq!(pairs(&ranks, "1"), set(""));
    assert_eq!(chosen(&ranks, &set(""), Layout::Lane), set("1"));
}

/// Chooses by sorting all CPUs: what is nearer, then what was there before, then the lower number.
fn oracle(ranks: &Ranks, previous: &CpuSet, layout: Layout) -> CpuSet {
    let mut all: Vec<_> = ranks
        .iter()
        .enumerate()
        .filter_map(|(cpu, rank)| {
            let cpu = cpu as u32;
            rank.map(|rank| (rank, !previous.contains(cpu), cpu))
        })
        .collect();
    all.sort();
    let near = all.iter().filter(|(rank, ..)| *rank == Cache).count();
    let furthest = match all.first() {
        Some((Cache, ..)) if near < ENOUGH_LANES => Node,
        Some((rank, ..)) => *rank,
        None => return CpuSet::EMPTY,
    };
    all.retain(|(rank, ..)| *rank <= furthest);
    all.truncate(MAX_LANES);
    if layout == Layout::LaneStage && all.len() % 2 == 1 {
        all.pop();
    }
    let mut lanes = CpuSet::EMPTY;
    all.iter().for_each(|(.., cpu)| {
        lanes.insert(*cpu);
    });
    lanes
}

fn ranks() -> impl Strategy<Value = Ranks> {
    let rank = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Cache)),
        1 => Just(Some(Node)),
        1 => Just(Some(Far)),
        1 => Just(Some(Sibling)),
    ];
    // Where some ranks are missing others have their turn.
    (prop::collection::vec(rank, 0..80), any::<[bool; 4]>()).prop_map(|(mut ranks, has)| {
        for rank in &mut ranks {
            *rank = rank.filter(|rank| has[*rank as usize]);
        }
        ranks
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
    // One look that shows it again, and the time begins anew.
    assert_eq!(looks("4", FREE_LOOKS - 1), set("3-4"));
    assert_eq!(looks("3-4", 1), set("3-4"));
    assert_eq!(looks("4", FREE_LOOKS - 1), set("3-4"));
    assert_eq!(looks("4", 1), set("4"));
    // Whoever comes back has to be away twice as long.
    assert_eq!(looks("3", TAKEN_LOOKS), set("3-4"));
    assert_eq!(looks("", 2 * FREE_LOOKS - 1), set("3"));
    assert_eq!(looks("", 1), set(""));
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
    fn choice_is_that_of_a_sort(ranks in ranks(), previous in cpus(), layout in layout()) {
        let lanes = chosen(&ranks, &previous, layout);
        prop_assert_eq!(lanes, oracle(&ranks, &previous, layout));
        // What has been chosen is chosen again.
        prop_assert_eq!(chosen(&ranks, &lanes, layout), lanes);
    }

    /// A CPU that goes, or becomes somebody's, moves no other lane as long as its place can be taken by one that is as near.
    #[test]
    fn only_what_has_to_change_does(ranks in ranks(), previous in cpus(), gone in 0usize..80) {
        let lanes = chosen(&ranks, &previous, Layout::Lane);
        let mut left = ranks;
        if let Some(rank) = left.get_mut(gone) {
            *rank = None;
        }
        let after = chosen(&left, &lanes, Layout::Lane);
        for cpu in lanes.iter().filter(|cpu| *cpu as usize != gone) {
            prop_assert!(after.contains(cpu), "{lanes} became {after} without {gone}");
        }
        prop_assert!(!after.contains(gone as u32));
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
