// SPDX-License-Identifier: GPL-2.0

//! The packets of a batch are treated alike, and each slot's batch by itself.

use mflow_algo::algo::join::DatagramForm;
use mflow_algo::algo::lanes::carried_batches::CarriedBatches;

/// A datagram that goes without a list would overtake those of its batch that are in one.
#[test]
fn lists_are_as_at_the_first_packet_of_a_batch() {
    let mut batches = CarriedBatches::default();
    assert_eq!(
        batches.datagram_form(3, || DatagramForm::List),
        DatagramForm::List
    );
    assert_eq!(
        batches.datagram_form(3, || DatagramForm::Aggregate),
        DatagramForm::List
    );
    assert_eq!(
        batches.datagram_form(4, || DatagramForm::Single),
        DatagramForm::Single
    );
    batches.end(3);
    assert_eq!(
        batches.datagram_form(3, || DatagramForm::Aggregate),
        DatagramForm::Aggregate
    );
    assert_eq!(
        batches.datagram_form(4, || DatagramForm::List),
        DatagramForm::Single
    );
}

#[test]
fn requests_are_counted_for_each_slot() {
    let mut batches = CarriedBatches::default();
    batches.note_request(3, false);
    batches.note_request(4, false);
    batches.note_request(4, false);
    batches.note_request(5, false);
    batches.note_request(3, true);
    batches.note_request(3, false);
    assert_eq!(batches.end(4), Some(false));
    assert_eq!(batches.end(3), Some(true));
    assert_eq!(batches.end(3), None);
    // One request has nothing before it.
    assert_eq!(batches.end(5), None);
}

/// More requests than are counted are many.
#[test]
fn many_requests_tell() {
    let mut batches = CarriedBatches::default();
    for _ in 0..1_000 {
        batches.note_request(0, false);
    }
    assert_eq!(batches.end(0), Some(false));
}
