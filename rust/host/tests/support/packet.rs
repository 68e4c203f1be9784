// SPDX-License-Identifier: GPL-2.0

//! A packet for tests: it counts how many are alive, and lets the checker in use see every access.
//!
//! Under Miri a node is plain memory, so that an access of two threads at once is a data race that Miri reports. loom
//! cannot see plain memory; there each node has a cell that is touched wherever the node is.

use std::net::Ipv4Addr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use mflow_algo::algo::headers::flow_key::IPPROTO_UDP;
use mflow_algo::algo::headers::flow_name::{FlowName, WireName};
use mflow_algo::algo::headers::hint::Hint;
use mflow_algo::algo::headers::overlay::Fragment;
use mflow_algo::algo::lanes::queue::chain::Chain;
use mflow_algo::algo::lanes::queue::Packet;
use mflow_algo::algo::parked_amount::Amount;
use mflow_algo::algo::tag::Tag;

use super::cell::UnsafeCell;

pub(crate) struct Node {
    next: *mut Node,
    last: *mut Node,
    older: *mut Node,
    tag: Tag,
    id: u64,
    wire_pkts: u32,
    bytes: u32,
    may_merge: bool,
    inner_flows: u64,
    inner_run_pkts: u64,
    datagram_pkts: u64,
    hint: Hint,
    counts: Arc<Counts>,
    #[cfg(loom)]
    touched: loom::cell::UnsafeCell<()>,
}

impl Node {
    /// Tells loom that the caller reads or writes the node now.
    fn touch(&self) {
        #[cfg(loom)]
        self.touched.with_mut(|_| ());
    }
}

/// Owns its node.
pub(crate) struct TestPacket(NonNull<Node>);

// SAFETY: The packet owns its node, and the counter in it is atomic.
unsafe impl Send for TestPacket {}

impl TestPacket {
    fn node(&self) -> &Node {
        // SAFETY: The packet owns its node.
        let node = unsafe { self.0.as_ref() };
        node.touch();
        node
    }

    pub(crate) fn id(&self) -> u64 {
        self.node().id
    }

    pub(crate) fn tag(&self) -> Tag {
        self.node().tag
    }

    /// Returns as how much it counts where it is parked: tests park what the receiver counts, whatever GRO has joined.
    pub(crate) fn amount(&self) -> Amount {
        Amount::of(1, self.memory_bytes())
    }
}

impl Drop for TestPacket {
    fn drop(&mut self) {
        self.node().counts.alive.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: The node came from a `Box`, and the packet owns it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: A node lives until its packet is dropped, has three links that only the queues use, and is word-aligned.
unsafe impl Packet for TestPacket {
    type Node = Node;
    type Request = TestRequest;

    fn discard(request: &TestRequest) {
        drop(TestRequest::build(Tag::NONE, request));
    }

    fn into_node(self) -> NonNull<Node> {
        self.node();
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_node(node: NonNull<Node>) -> Self {
        let packet = Self(node);
        packet.node();
        packet
    }

    unsafe fn next(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract the caller owns the node.
        unsafe {
            node.as_ref().touch();
            &raw mut (*node.as_ptr()).next
        }
    }

    unsafe fn last(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract the caller owns the node.
        unsafe {
            node.as_ref().touch();
            &raw mut (*node.as_ptr()).last
        }
    }

    unsafe fn older(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract the caller owns the node.
        unsafe {
            node.as_ref().touch();
            &raw mut (*node.as_ptr()).older
        }
    }

    fn set_tag(&mut self, tag: Tag) {
        self.node();
        // SAFETY: The packet owns its node.
        unsafe { self.0.as_mut() }.tag = tag;
    }

    fn wire_pkts(&self) -> u32 {
        self.node().wire_pkts
    }

    fn memory_bytes(&self) -> u32 {
        self.node().bytes
    }

    fn may_merge(&self) -> bool {
        self.node().may_merge
    }

    fn inner_flow(&self) -> u64 {
        let node = self.node();
        node.counts.inner_flow_looks.fetch_add(1, Ordering::Relaxed);
        self.id() / node.inner_run_pkts % node.inner_flows
    }

    fn fragment(&self) -> Fragment {
        match self.node().datagram_pkts {
            0 | 1 => Fragment::None,
            pkts if number_in_flow(self.id()) % pkts == 0 => Fragment::First,
            _ => Fragment::Later,
        }
    }

    fn hint(&self) -> Hint {
        self.node().hint
    }

    fn flow_name(&self) -> FlowName {
        // CAST: the flow's number.
        name_of_flow((self.id() >> FLOW_SHIFT) as u16)
    }
}

/// Flows are told apart by the high half of a packet's number, packets of one flow by the low half.
pub(crate) const FLOW_SHIFT: u32 = 32;

/// Returns the number of packets of its flow before a packet.
pub(crate) fn number_in_flow(id: u64) -> u64 {
    id & ((1 << FLOW_SHIFT) - 1)
}

/// Returns the name that packets of this flow give it: their number stands for the source's port.
pub(crate) fn name_of_flow(flow: u16) -> FlowName {
    FlowName {
        wire: Some(WireName {
            protocol: IPPROTO_UDP,
            source: (Ipv4Addr::new(192, 0, 2, 1), flow).into(),
            destination: (Ipv4Addr::new(192, 0, 2, 2), 4789).into(),
        }),
        rx_queue: Some(3),
    }
}

/// A packet that is not built yet: one that is built, put aside. The checker in use sees every access.
pub(crate) struct TestRequest(UnsafeCell<Option<TestPacket>>);

// SAFETY: A ring's ends use a request one at a time, which the tests let the checker verify.
unsafe impl Send for TestRequest {}
// SAFETY: As for Send.
unsafe impl Sync for TestRequest {}

impl Default for TestRequest {
    fn default() -> Self {
        Self(UnsafeCell::new(None))
    }
}

impl TestRequest {
    pub(crate) fn fill(&self, packet: TestPacket) {
        self.0.with_mut(|place| {
            // SAFETY: The caller is the producer, which has the place.
            let before = unsafe { (*place).replace(packet) };
            assert!(before.is_none(), "a place is filled twice");
        });
    }

    pub(crate) fn build(tag: Tag, request: &Self) -> TestPacket {
        let mut packet = request.0.with_mut(|place| {
            // SAFETY: The caller is the consumer, which has the place.
            unsafe { (*place).take() }.expect("a request that was not filled")
        });
        packet.set_tag(tag);
        packet
    }
}

/// The counts of all packets that a factory has made.
#[derive(Default)]
struct Counts {
    alive: AtomicUsize,
    inner_flow_looks: AtomicUsize,
}

/// Makes packets, and knows how many of them are left.
#[derive(Clone, Default)]
pub(crate) struct Factory {
    counts: Arc<Counts>,
    /// The number of packets of the wire that GRO has joined in each packet that is made, if any.
    pub(crate) joined_pkts: u32,
    /// The memory, in bytes, that each packet that is made holds.
    pub(crate) bytes: u32,
    /// True if packets that are made look as if they never reached the merge point.
    pub(crate) strays: bool,
    /// The number of inner flows to which those that are made belong in turn; 0 as 1.
    pub(crate) inner_flows: u64,
    /// The number of packets of an inner flow that follow each other; 0 as 1.
    pub(crate) inner_run_pkts: u64,
    /// The number of fragments of each datagram of a flow; 0 or 1 where packets are no fragments.
    pub(crate) datagram_pkts: u64,
    /// The hint of an XDP program for the flows of packets that are made.
    pub(crate) hint: Hint,
}

impl Factory {
    /// Returns one whose packets hold so much memory.
    #[cfg(not(loom))]
    pub(crate) fn of_bytes(bytes: u32) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    pub(crate) fn packet(&self, id: u64) -> TestPacket {
        self.counts.alive.fetch_add(1, Ordering::Relaxed);
        let node = Box::new(Node {
            next: ptr::null_mut(),
            last: ptr::null_mut(),
            older: ptr::null_mut(),
            tag: Tag::NONE,
            id,
            wire_pkts: self.joined_pkts.max(1),
            bytes: self.bytes,
            may_merge: !self.strays,
            inner_flows: self.inner_flows.max(1),
            inner_run_pkts: self.inner_run_pkts.max(1),
            datagram_pkts: self.datagram_pkts,
            hint: self.hint,
            counts: self.counts.clone(),
            #[cfg(loom)]
            touched: loom::cell::UnsafeCell::new(()),
        });
        TestPacket(NonNull::from(Box::leak(node)))
    }

    /// Returns the amount as which some of its packets count where they are parked.
    pub(crate) fn amount(&self, pkts: usize) -> Amount {
        let mut amount = Amount::default();
        (0..pkts).for_each(|_| amount += Amount::of(1, self.bytes));
        amount
    }

    pub(crate) fn chain(&self, ids: impl IntoIterator<Item = u64>) -> Chain<TestPacket> {
        let mut chain = Chain::new();
        for id in ids {
            chain.push(self.packet(id));
        }
        chain
    }

    pub(crate) fn alive(&self) -> usize {
        self.counts.alive.load(Ordering::Relaxed)
    }

    /// Returns the number of times that packets were asked for their inner flow.
    #[cfg(not(loom))]
    pub(crate) fn inner_flow_looks(&self) -> usize {
        self.counts.inner_flow_looks.load(Ordering::Relaxed)
    }
}

/// Takes a chain apart into the numbers of its packets.
pub(crate) fn ids_of(mut chain: Chain<TestPacket>) -> Vec<u64> {
    std::iter::from_fn(|| chain.pop())
        .map(|packet| packet.id())
        .collect()
}
