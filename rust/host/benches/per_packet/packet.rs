// SPDX-License-Identifier: GPL-2.0

//! Packets that cost nothing by themselves: nodes made once, used again when they have been delivered.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use intrusive_collections::{intrusive_adapter, KeyAdapter, RBTreeLink, UnsafeRef};
use mflow_algo::algo::queue::Packet;
use mflow_algo::algo::tag::Tag;

/// Memory of a packet of 1,500 bytes.
pub(crate) const PACKET_BYTES: u32 = 2_304;

/// Packets in existence: more than can be under way, and few enough to stay in the second-level cache.
pub(crate) const NR_NODES: u64 = 4096;

/// The memory of a packet, a cache line of its own as in the kernel.
#[repr(align(64))]
pub(crate) struct Node {
    next: Cell<*mut Node>,
    last: Cell<*mut Node>,
    older: Cell<*mut Node>,
    tag: Cell<Tag>,
    pub(crate) seq: Cell<u64>,
    link: RBTreeLink,
}

intrusive_adapter!(pub(crate) NodeAdapter = UnsafeRef<Node>: Node { link => RBTreeLink });

impl<'a> KeyAdapter<'a> for NodeAdapter {
    type Key = u64;

    fn get_key(&self, node: &'a Node) -> u64 {
        node.seq.get()
    }
}

/// A packet in use. It is given back by being forgotten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BenchPacket(NonNull<Node>);

// SAFETY: All benchmarks run on one thread; the queues ask for it.
unsafe impl Send for BenchPacket {}

impl BenchPacket {
    pub(crate) fn node(&self) -> &'static Node {
        // SAFETY: Nodes are never freed.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn from_ref(node: &Node) -> Self {
        Self(NonNull::from(node))
    }

    pub(crate) fn seq(&self) -> u64 {
        self.node().seq.get()
    }
}

// SAFETY: Nodes are never freed, have three links that only the queues use, and are aligned to 64 bytes.
unsafe impl Packet for BenchPacket {
    type Node = Node;
    type Request = ();

    fn discard(_request: &()) {}

    fn into_node(self) -> NonNull<Node> {
        self.0
    }

    unsafe fn from_node(node: NonNull<Node>) -> Self {
        Self(node)
    }

    unsafe fn next(node: NonNull<Node>) -> *mut *mut Node {
        Self(node).node().next.as_ptr()
    }

    unsafe fn last(node: NonNull<Node>) -> *mut *mut Node {
        Self(node).node().last.as_ptr()
    }

    unsafe fn older(node: NonNull<Node>) -> *mut *mut Node {
        Self(node).node().older.as_ptr()
    }

    fn set_tag(&mut self, tag: Tag) {
        self.node().tag.set(tag);
    }

    fn memory_bytes(&self) -> u32 {
        PACKET_BYTES
    }
}

impl BenchPacket {
    pub(crate) fn tag(&self) -> Tag {
        self.node().tag.get()
    }
}

/// Makes packets with rising numbers.
pub(crate) struct Packets {
    nodes: &'static [Node],
    next_seq: u64,
}

impl Packets {
    pub(crate) fn new() -> Self {
        let node = |_| Node {
            next: Cell::new(ptr::null_mut()),
            last: Cell::new(ptr::null_mut()),
            older: Cell::new(ptr::null_mut()),
            tag: Cell::new(Tag::NONE),
            seq: Cell::new(0),
            link: RBTreeLink::new(),
        };
        Self {
            nodes: Vec::leak((0..NR_NODES).map(node).collect()),
            next_seq: 0,
        }
    }

    /// Returns the next packet. The one [`NR_NODES`] before it has been delivered.
    #[inline]
    pub(crate) fn next(&mut self) -> BenchPacket {
        let node = &self.nodes[(self.next_seq % NR_NODES) as usize];
        node.seq.set(self.next_seq);
        self.next_seq += 1;
        BenchPacket(NonNull::from(node))
    }
}

/// Takes packets, and checks that they come in order.
#[derive(Default)]
pub(crate) struct Receiver {
    pub(crate) next_seq: u64,
}

impl Receiver {
    #[inline]
    pub(crate) fn deliver(&mut self, packet: BenchPacket) {
        assert!(packet.seq() == self.next_seq, "out of order");
        self.next_seq += 1;
    }
}
