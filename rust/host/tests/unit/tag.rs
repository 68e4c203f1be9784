// SPDX-License-Identifier: GPL-2.0

//! Tags: what goes in comes out, and batch numbers compare across every wrap.

use mflow_algo::algo::limits::MAX_SLOTS;
use mflow_algo::algo::tag::{is_before, Tag, TagKind, BATCH_BITS};
use proptest::prelude::*;

use crate::common::cases;

/// The layout that C code shares (`include/net/mflow.h`).
#[test]
fn words() {
    let table = [
        (Tag::NONE, 0),
        (Tag::new(TagKind::Split, 0, 0), 0x2000_0000),
        (Tag::new(TagKind::Split, 63, u32::MAX), 0x3fff_ffff),
        (Tag::new(TagKind::Fence, 1, 2), 0x4080_0002),
        (Tag::new(TagKind::Probe, 5, 0x1234_5678), 0x62b4_5678),
        (Tag::new(TagKind::Queued, 0, 1), 0x8000_0001),
    ];
    for (tag, word) in table {
        assert_eq!(tag.word(), word);
    }
}

fn kind() -> impl Strategy<Value = TagKind> {
    prop_oneof![
        Just(TagKind::None),
        Just(TagKind::Split),
        Just(TagKind::Fence),
        Just(TagKind::Probe),
        Just(TagKind::Queued),
    ]
}

proptest! {
    #![proptest_config(cases(1024))]

    #[test]
    fn parts_are_kept(kind in kind(), slot in 0..MAX_SLOTS, batch: u32) {
        let tag = Tag::from_word(Tag::new(kind, slot, batch).word());
        prop_assert_eq!((tag.kind(), tag.slot()), (kind, slot));
        prop_assert_eq!(tag.batch_bits(), batch % (1 << BATCH_BITS));
    }

    #[test]
    fn any_word_has_a_slot(word: u32) {
        prop_assert!(Tag::from_word(word).slot() < MAX_SLOTS);
    }

    #[test]
    fn batch_is_the_nearest(slot in 0..MAX_SLOTS, near: u32, distance in -(1i32 << (BATCH_BITS - 1))..1 << (BATCH_BITS - 1)) {
        let batch = near.wrapping_add_signed(distance);
        prop_assert_eq!(Tag::new(TagKind::Split, slot, batch).batch_near(near), batch);
    }

    #[test]
    fn order_is_that_of_the_distance(a: u32, distance in 1..=i32::MAX as u32) {
        let b = a.wrapping_add(distance);
        prop_assert!(is_before(a, b));
        prop_assert!(!is_before(b, a));
        prop_assert!(!is_before(a, a));
    }
}
