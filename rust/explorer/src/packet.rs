// SPDX-License-Identifier: GPL-2.0

//! Packets, whose memory is a part of the explored state.
//!
//! Each packet has a place of its own among the [`Nodes`], so that two sequences of events which lead to the same state leave the same
//! bytes. A node knows whether its packet is there: one that the algorithm drops, or gives out twice, is noticed.

use std::cell::Cell;
use std::ptr::{self, NonNull};

use crate::algo::lanes::queue::Packet;
use crate::algo::parked_amount::Amount;
use crate::algo::tag::Tag;

/// The most packets of a source.
pub(crate) const MOST_PKTS: usize = 12;
/// The most copies of packets at a time.
const COPIES: usize = 4;
/// The number of nodes.
pub(crate) const NODES: usize = crate::SOURCES * MOST_PKTS + COPIES;

/// The memory of most packets in bytes, as the merge point counts it; and that of a large one.
const BYTES: u32 = 256;
const LARGE_BYTES: u32 = 3 * BYTES;

/// One in so many packets is a large one.
const LARGE_ONE_OF: u8 = 4;

/// The memory of a packet. Zeros are a node without one.
#[repr(C)]
pub(crate) struct Node {
    next: *mut Node,
    last: *mut Node,
    older: *mut Node,
    tag: Tag,
    pub(crate) source: u8,
    pub(crate) number: u8,
    pub(crate) inner_flow: u8,
    /// True if the surroundings have kept it back, so that others may overtake it.
    pub(crate) is_excused: bool,
    state: State,
    _padding: [u8; 7],
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// It has no packet.
    Free = 0,
    /// Its packet is somewhere.
    Used,
    /// The surroundings let go of its packet, which may be dropped.
    Finished,
    /// Its packet was dropped by the algorithm.
    Lost,
}

thread_local! {
    static IS_TAKEN_TWICE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a packet has been given out twice since the last call.
pub(crate) fn take_taken_twice() -> bool {
    IS_TAKEN_TWICE.replace(false)
}

/// Owns the packet of a node.
pub(crate) struct TestPacket(NonNull<Node>);

impl TestPacket {
    fn node(&self) -> &Node {
        // SAFETY: Nodes are there as long as the state, and the packet is this node's.
        unsafe { self.0.as_ref() }
    }

    /// Returns what is known of the packet.
    pub(crate) fn node_mut(&mut self) -> &mut Node {
        // SAFETY: As above.
        unsafe { self.0.as_mut() }
    }

    pub(crate) fn tag(&self) -> Tag {
        self.node().tag
    }

    /// Returns as how much it counts where it is parked.
    pub(crate) fn amount(&self) -> Amount {
        Amount::of(1, self.memory_bytes())
    }

    /// Drops the packet, whose way has ended.
    pub(crate) fn finish(mut self) {
        self.node_mut().state = State::Finished;
    }
}

impl Drop for TestPacket {
    fn drop(&mut self) {
        let node = self.node_mut();
        match node.state {
            State::Finished => {
                // SAFETY: Zeros are a node without a packet, and nobody else knows the node.
                unsafe { ptr::from_mut(node).write_bytes(0, 1) };
            }
            State::Used => node.state = State::Lost,
            State::Free | State::Lost => IS_TAKEN_TWICE.set(true),
        }
    }
}

// SAFETY: Nodes are there as long as the state, have three links that only the queues use, and are word-aligned.
unsafe impl Packet for TestPacket {
    type Node = Node;
    type Request = TestRequest;

    fn into_node(self) -> NonNull<Node> {
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_node(node: NonNull<Node>) -> Self {
        let packet = Self(node);
        if packet.node().state != State::Used {
            IS_TAKEN_TWICE.set(true);
        }
        packet
    }

    unsafe fn next(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract the caller owns the node.
        unsafe { &raw mut (*node.as_ptr()).next }
    }

    unsafe fn last(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: As above.
        unsafe { &raw mut (*node.as_ptr()).last }
    }

    unsafe fn older(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: As above.
        unsafe { &raw mut (*node.as_ptr()).older }
    }

    fn discard(_request: &TestRequest) {
        unreachable!("no ring is dropped");
    }

    fn set_tag(&mut self, tag: Tag) {
        self.node_mut().tag = tag;
    }

    fn memory_bytes(&self) -> u32 {
        if self.node().number % LARGE_ONE_OF == LARGE_ONE_OF - 1 {
            LARGE_BYTES
        } else {
            BYTES
        }
    }

    fn inner_flow(&self) -> u64 {
        u64::from(self.node().inner_flow) + 1
    }
}

/// A packet that is not built yet: null, or its node. Zeros are one without contents.
pub(crate) struct TestRequest(Cell<*mut Node>);

impl Default for TestRequest {
    fn default() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }
}

impl TestRequest {
    pub(crate) fn fill(&self, packet: TestPacket) {
        let before = self.0.replace(packet.into_node().as_ptr());
        assert!(before.is_null(), "a place is filled twice");
    }

    pub(crate) fn build(tag: Tag, request: &Self) -> TestPacket {
        let node = NonNull::new(request.0.replace(ptr::null_mut()))
            .expect("a request that was not filled");
        // SAFETY: `fill` gave the node up, and the place is empty now.
        let mut packet = unsafe { TestPacket::from_node(node) };
        packet.set_tag(tag);
        packet
    }
}

/// All nodes.
#[derive(Clone, Copy)]
pub(crate) struct Nodes(NonNull<Node>);

impl Nodes {
    /// Returns those that begin at an address.
    ///
    /// # Safety
    ///
    /// There are [`NODES`] of them, used through packets and this value only.
    pub(crate) unsafe fn at(first: NonNull<Node>) -> Self {
        Self(first)
    }

    fn node(self, index: u8) -> NonNull<Node> {
        assert!(usize::from(index) < NODES);
        // SAFETY: There are so many.
        unsafe { self.0.add(usize::from(index)) }
    }

    fn state(self, index: usize) -> State {
        // SAFETY: The node is there, and nobody borrows it for longer than a call.
        unsafe { (*self.node(index as u8).as_ptr()).state }
    }

    /// Returns the next packet of a source.
    pub(crate) fn packet(self, source: u8, number: u8, inner_flow: u8) -> TestPacket {
        let index = usize::from(source) * MOST_PKTS + usize::from(number);
        self.packet_in(index, source, number, inner_flow)
    }

    fn packet_in(self, index: usize, source: u8, number: u8, inner_flow: u8) -> TestPacket {
        assert!(self.state(index) == State::Free, "the node has a packet");
        let mut packet = TestPacket(self.node(index as u8));
        let node = packet.node_mut();
        (node.source, node.number, node.inner_flow) = (source, number, inner_flow);
        node.state = State::Used;
        packet
    }

    /// Returns a copy of a packet, if there is memory for one.
    pub(crate) fn copy(self, packet: &TestPacket) -> Option<TestPacket> {
        let index = (NODES - COPIES..NODES).find(|index| self.state(*index) == State::Free)?;
        let Node {
            source,
            number,
            inner_flow,
            ..
        } = *packet.node();
        let mut copy = self.packet_in(index, source, number, inner_flow);
        copy.set_tag(packet.tag());
        Some(copy)
    }

    /// Puts a packet aside, to be taken back by the number that is returned.
    pub(crate) fn put(self, packet: TestPacket) -> u8 {
        let node = packet.into_node();
        // SAFETY: Both are among the nodes.
        let index = unsafe { node.offset_from(self.0) };
        u8::try_from(index).expect("a packet of these nodes")
    }

    /// Takes a packet back.
    pub(crate) fn take(self, index: u8) -> TestPacket {
        // SAFETY: `put` gave it up.
        unsafe { TestPacket::from_node(self.node(index)) }
    }

    /// Returns the tag of a packet that was put aside, or handed over.
    pub(crate) fn tag(self, index: u8) -> Tag {
        // SAFETY: The node is there, and nobody borrows it for longer than a call.
        unsafe { (*self.node(index).as_ptr()).tag }
    }

    /// Notes that others may overtake a packet that was put aside.
    pub(crate) fn excuse(self, index: u8) {
        // SAFETY: As above.
        unsafe { (*self.node(index).as_ptr()).is_excused = true }
    }

    /// Returns how many packets are somewhere.
    pub(crate) fn used(self) -> usize {
        let states = (0..NODES).map(|index| self.state(index));
        states.filter(|state| *state == State::Used).count()
    }

    /// Returns whether the algorithm has dropped a packet.
    pub(crate) fn has_lost(self) -> bool {
        (0..NODES).any(|index| self.state(index) == State::Lost)
    }
}
