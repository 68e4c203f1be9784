// SPDX-License-Identifier: GPL-2.0

//! The answers of a driver to the question which core builds packets.

use mflow_algo::algo::source::builder::Builder;

#[test]
fn numbers_name_each_in_turn_and_nothing_beyond() {
    for (number, builder) in (0..).zip(Builder::ALL) {
        assert_eq!(Builder::of_number(number), builder);
    }
    assert_eq!(
        Builder::of_number(Builder::ALL.len() as u8),
        Builder::Unasked
    );
}

#[test]
fn the_manual_explains_each_name() {
    let manual = include_str!("../../../../README.md");
    let row = manual.lines().find(|line| line.contains("`builders` |"));
    let row = row.expect("a row for `builders`");
    for builder in Builder::ALL {
        let name = format!("`{}`", builder.name());
        assert!(row.contains(&name), "rust/README.md says nothing of {name}");
    }
}
