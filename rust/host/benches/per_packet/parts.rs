// SPDX-License-Identifier: GPL-2.0

//! Split and merge from general parts: a queue per lane, and packets put back in order one by one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crossbeam::queue::{ArrayQueue, SegQueue};
use intrusive_collections::{RBTree, UnsafeRef};
use mflow_algo::algo::queue::ring::RING_ITEMS;

use crate::packet::{BenchPacket, NodeAdapter, Packets, Receiver};
use crate::whole_way::{Way, BATCH_PKTS, POLL_PKTS};

pub(crate) trait Queue {
    fn new() -> Self;
    fn push(&self, packet: BenchPacket);
    fn pop(&self) -> Option<BenchPacket>;
}

impl Queue for ArrayQueue<BenchPacket> {
    fn new() -> Self {
        ArrayQueue::new(RING_ITEMS)
    }

    fn push(&self, packet: BenchPacket) {
        assert!(ArrayQueue::push(self, packet).is_ok());
    }

    fn pop(&self) -> Option<BenchPacket> {
        ArrayQueue::pop(self)
    }
}

impl Queue for SegQueue<BenchPacket> {
    fn new() -> Self {
        SegQueue::new()
    }

    fn push(&self, packet: BenchPacket) {
        SegQueue::push(self, packet);
    }

    fn pop(&self) -> Option<BenchPacket> {
        SegQueue::pop(self)
    }
}

pub(crate) trait Reorder {
    fn new() -> Self;
    fn insert(&mut self, packet: BenchPacket);
    /// Takes the first packet out if it is this one.
    fn take(&mut self, seq: u64) -> Option<BenchPacket>;
}

pub(crate) struct Heap(BinaryHeap<Reverse<(u64, BenchPacket)>>);

impl Reorder for Heap {
    fn new() -> Self {
        Self(BinaryHeap::new())
    }

    fn insert(&mut self, packet: BenchPacket) {
        self.0.push(Reverse((packet.seq(), packet)));
    }

    fn take(&mut self, seq: u64) -> Option<BenchPacket> {
        let Reverse((first, _)) = self.0.peek()?;
        if *first != seq {
            return None;
        }
        self.0.pop().map(|Reverse((_, packet))| packet)
    }
}

/// A B-tree: like a red-black tree, but kind to caches.
pub(crate) struct BTree(BTreeMap<u64, BenchPacket>);

impl Reorder for BTree {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    fn insert(&mut self, packet: BenchPacket) {
        self.0.insert(packet.seq(), packet);
    }

    fn take(&mut self, seq: u64) -> Option<BenchPacket> {
        let first = self.0.first_entry()?;
        (*first.key() == seq).then(|| first.remove())
    }
}

/// A red-black tree through the packets themselves, as the kernel keeps TCP segments that come out of order.
pub(crate) struct RedBlackTree(RBTree<NodeAdapter>);

impl Reorder for RedBlackTree {
    fn new() -> Self {
        Self(RBTree::new(NodeAdapter::new()))
    }

    fn insert(&mut self, packet: BenchPacket) {
        // SAFETY: Nodes are never freed.
        self.0.insert(unsafe { UnsafeRef::from_raw(packet.node()) });
    }

    fn take(&mut self, seq: u64) -> Option<BenchPacket> {
        let mut first = self.0.front_mut();
        if first.get()?.seq.get() != seq {
            return None;
        }
        first.remove().map(|node| BenchPacket::from_ref(&node))
    }
}

pub(crate) struct Parts<Q, R> {
    packets: Packets,
    lanes: Vec<Q>,
    reorder: R,
    receiver: Receiver,
    seq: u64,
}

impl<Q: Queue, R: Reorder> Way for Parts<Q, R> {
    fn new(nr_lanes: usize) -> Self {
        Self {
            packets: Packets::new(),
            lanes: (0..nr_lanes).map(|_| Q::new()).collect(),
            reorder: R::new(),
            receiver: Receiver::default(),
            seq: 0,
        }
    }

    #[inline]
    fn receive(&mut self) {
        let lane = (self.seq / u64::from(BATCH_PKTS)) as usize % self.lanes.len();
        self.lanes[lane].push(self.packets.next());
        self.seq += 1;
    }

    #[inline]
    fn poll(&mut self, lane: usize) -> bool {
        let mut work = 0;
        while work < POLL_PKTS {
            let Some(packet) = self.lanes[lane].pop() else {
                break;
            };
            work += 1;
            self.reorder.insert(packet);
        }
        while let Some(packet) = self.reorder.take(self.receiver.next_seq) {
            self.receiver.deliver(packet);
        }
        work > 0
    }

    fn nr_delivered(&self) -> u64 {
        self.receiver.next_seq
    }
}
