// SPDX-License-Identifier: GPL-2.0

//! Polls that pass unseen.

use mflow_algo::algo::source::poll_sampling::Rest;

#[test]
fn every_poll_is_looked_at_unless_it_may_rest() {
    let mut rest = Rest::default();
    assert_eq!(rest.stands_for(), 1);
    for _ in 0..20 {
        assert!(!rest.end_poll(false));
        assert_eq!(rest.stands_for(), 1);
    }
}

#[test]
fn one_poll_in_thirteen_is_looked_at_and_stands_for_all() {
    let mut rest = Rest::default();
    let unseen: Vec<bool> = (0..39).map(|_| rest.end_poll(true)).collect();
    let looks: Vec<usize> = (0..39).filter(|&poll| !unseen[poll]).collect();
    assert_eq!(looks, [12, 25, 38]);
    assert_eq!(rest.stands_for(), 13);
    // In the middle of it, too, the next poll is looked at when that is over.
    assert!(rest.end_poll(true));
    assert!(!rest.end_poll(false));
    assert_eq!(rest.stands_for(), 1);
}
