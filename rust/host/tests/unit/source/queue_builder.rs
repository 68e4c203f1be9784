// SPDX-License-Identifier: GPL-2.0

//! The answers of a driver to the question which core builds packets.

use mflow_algo::algo::source::queue_builder::{QueueBuilder, WATCHED};

#[test]
fn numbers_name_each_in_turn_and_nothing_beyond() {
    for (number, builder) in (0..).zip(QueueBuilder::ALL) {
        assert_eq!(QueueBuilder::of_number(number), builder);
    }
    assert_eq!(
        QueueBuilder::of_number(QueueBuilder::ALL.len() as u8),
        QueueBuilder::Unasked
    );
}

#[test]
fn the_manual_explains_each_name() {
    let manual = include_str!("../../../../README.md");
    let row = manual.lines().find(|line| line.contains("`builders` |"));
    let row = row.expect("a row for `builders`");
    let names = QueueBuilder::ALL.map(QueueBuilder::name);
    for name in names.into_iter().chain([WATCHED]) {
        let name = format!("`{name}`");
        assert!(row.contains(&name), "rust/README.md says nothing of {name}");
    }
}
