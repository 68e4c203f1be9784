// SPDX-License-Identifier: GPL-2.0

//! A lane that finds a packet finds one that its GRO holds, with the template of that packet, whatever GRO has let go meanwhile.

use std::cell::Cell;

use mflow_algo::algo::join::known_packets::{Gro, KnownPackets};
use mflow_algo::algo::tag::{Tag, TagKind};
use proptest::prelude::*;

use crate::common::cases;

/// A packet that GRO holds. The template that is read of it is its number, which no other packet has.
#[derive(Clone, Copy, Debug)]
struct Packet {
    tag: Tag,
    address: usize,
    number: u64,
}

/// GRO, with few places in memory: a packet soon gets the address of one that is gone.
#[derive(Debug, Default)]
struct Model {
    held: Vec<Packet>,
    numbers: u64,
    reads: Cell<u32>,
}

const ADDRESSES: usize = 6;

impl Model {
    fn receive(&mut self, tag: Tag, is_held: bool, gone: usize) {
        // GRO lets go any packets, among them one with the same tag, or joins the packet with that.
        self.held.truncate(self.held.len().saturating_sub(gone));
        if self.held.iter().any(|packet| packet.tag == tag) || !is_held {
            return;
        }
        let is_free = |address: &usize| self.held.iter().all(|held| held.address != *address);
        if let Some(address) = (1..=ADDRESSES).find(is_free) {
            self.numbers += 1;
            let number = self.numbers;
            self.held.insert(
                0,
                Packet {
                    tag,
                    address,
                    number,
                },
            );
        }
    }
}

impl Gro<u64> for Model {
    fn holds(&self, address: usize, tag: Tag) -> bool {
        let mut held = self.held.iter();
        held.any(|packet| (packet.address, packet.tag) == (address, tag))
    }

    fn read(&self, tag: Tag, template: &mut u64) -> Option<usize> {
        self.reads.set(self.reads.get() + 1);
        let packet = self.held.iter().find(|packet| packet.tag == tag)?;
        *template = packet.number;
        Some(packet.address)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Receive {
        tag: Tag,
        is_held: bool,
        gone: usize,
    },
    Find(Tag),
    Flush,
}

/// Tags of flows that share places, and of two batches of each.
fn tags() -> impl Strategy<Value = Tag> {
    (0..12_usize, 0..2_u32).prop_map(|(slot, batch)| Tag::new(TagKind::Split, slot, batch))
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (tags(), any::<bool>(), 0..3_usize)
            .prop_map(|(tag, is_held, gone)| Step::Receive { tag, is_held, gone }),
        8 => tags().prop_map(Step::Find),
        1 => Just(Step::Flush),
    ]
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn packet_that_is_found_is_held_and_its_template_is_its_own(
        steps in proptest::collection::vec(steps(), 1..60),
    ) {
        let (mut model, mut known) = (Model::default(), KnownPackets::default());
        for step in steps {
            match step {
                Step::Receive { tag, is_held, gone } => {
                    model.receive(tag, is_held, gone);
                    known.note_received(tag);
                }
                Step::Find(tag) => {
                    let found = known.find(tag, &model).map(|(address, number)| (address, *number));
                    let held = model.held.iter().find(|packet| packet.tag == tag);
                    prop_assert_eq!(found, held.map(|packet| (packet.address, packet.number)));
                    if let Some((address, number)) = found {
                        let (again, template) = known.found(tag);
                        prop_assert_eq!((again, *template), (address, number));
                    }
                }
                Step::Flush => {
                    model.held.clear();
                    known.note_flushed();
                }
            }
        }
    }
}

/// To read a template is what the places are there to spare.
#[test]
fn flows_that_take_turns_are_read_once_each() {
    let (mut model, mut known) = (Model::default(), KnownPackets::default());
    let tags = [0, 1, 2].map(|slot| Tag::new(TagKind::Split, slot, 0));
    for tag in tags {
        model.receive(tag, true, 0);
        known.note_received(tag);
    }
    for _ in 0..10 {
        for tag in tags {
            assert!(known.find(tag, &model).is_some());
        }
    }
    assert_eq!(model.reads.get(), 3);
    // A packet of another flow leaves them as they are.
    let other = Tag::new(TagKind::Split, 3, 0);
    model.receive(other, true, 0);
    known.note_received(other);
    assert!(tags.iter().all(|tag| known.find(*tag, &model).is_some()));
    assert_eq!(model.reads.get(), 3);
}
