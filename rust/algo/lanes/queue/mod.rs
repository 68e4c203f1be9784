// SPDX-License-Identifier: GPL-2.0

//! The shared queues: the only part of the algorithm with `unsafe`.
//!
//! Packets are linked through fields of their own (no allocation), and ownership moves with them: taking a packet out of a
//! queue is to own it. [`ring`] carries packets from the NIC's core to a lane, [`chain`] from a lane to the merger.

pub mod chain;
pub mod ring;

use crate::algo::headers::flow_name::FlowName;
use crate::algo::headers::hint::Hint;
use crate::algo::headers::overlay::Fragment;
use core::ptr::NonNull;

/// An owned packet that can be linked into the queues of this module. What it is made of is not known here: the algorithm
/// writes its tag, asks the questions below, and moves it.
///
/// # Safety
///
/// 1. `into_node` gives up ownership, and the node stays valid until `from_node` takes it back.
/// 2. `next`, `last` and `older` are separate places in the node that nothing else uses while the packet is in a queue.
/// 3. Nodes are aligned to at least four bytes.
pub unsafe trait Packet: Sized {
    /// The memory of a packet.
    type Node;

    /// The data that a driver keeps of a packet until a lane builds it. Both ends of a ring have a shared reference to it, one
    /// end at a time, so fields that are written are in cells. Its default, or memory of zeros, is one without contents.
    type Request: Default;

    /// Turns the packet into its node and gives up ownership.
    fn into_node(self) -> NonNull<Self::Node>;

    /// Takes ownership of the packet that `node` is.
    ///
    /// # Safety
    ///
    /// `node` came from [`into_node`](Packet::into_node), and ownership has not been taken back since.
    unsafe fn from_node(node: NonNull<Self::Node>) -> Self;

    /// Returns the place of the link to the packet that follows in a chain.
    ///
    /// # Safety
    ///
    /// `node` is a node whose ownership the caller has.
    unsafe fn next(node: NonNull<Self::Node>) -> *mut *mut Self::Node;

    /// Returns the place where the first packet of a parked chain names the last one.
    ///
    /// # Safety
    ///
    /// `node` is a node whose ownership the caller has.
    unsafe fn last(node: NonNull<Self::Node>) -> *mut *mut Self::Node;

    /// Returns the place where the first packet of a parked chain names the chain parked before.
    ///
    /// # Safety
    ///
    /// `node` is a node whose ownership the caller has.
    unsafe fn older(node: NonNull<Self::Node>) -> *mut *mut Self::Node;

    /// Frees what `request` holds, of which no packet will be built.
    fn discard(request: &Self::Request);

    /// Writes the packet's tag.
    fn set_tag(&mut self, tag: crate::algo::tag::Tag);

    /// Returns how many packets it was on the wire, at least 1: rates and batches are counted in those.
    #[inline]
    fn wire_pkts(&self) -> u32 {
        1
    }

    /// Returns how many bytes of memory it holds.
    fn memory_bytes(&self) -> u32;

    /// Returns whether the packet is of a kind that reaches the merge point. A guess.
    fn may_merge(&self) -> bool {
        true
    }

    /// Returns a number of the flow that the packet is of inside of its tunnel; 0 where that is not known. Asked of few packets.
    fn inner_flow(&self) -> u64 {
        0
    }

    /// Returns the part of a datagram that the packet is inside of its tunnel. A guess. Asked of few packets.
    fn fragment(&self) -> Fragment {
        Fragment::None
    }

    /// Returns the hint of an XDP program for its flow. Asked once for each flow and window.
    fn hint(&self) -> Hint {
        Hint::None
    }

    /// Returns the name of its flow for people. Asked once for each fast flow.
    fn flow_name(&self) -> FlowName {
        FlowName::default()
    }
}
