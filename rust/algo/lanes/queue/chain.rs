// SPDX-License-Identifier: GPL-2.0

//! From a lane to the merger: chains of packets, and the stack on which they are parked.
//!
//! Each micro-flow has one [`ParkedChains`], and each micro-flow is carried by one core: this is the per-core buffer
//! queue of the paper (MFLOW, section III-B), kept apart by micro-flow so that the merger never looks for a border.
//!
//! | | |
//! |---|---|
//! | producers | any core, lock-free: one compare-and-swap per chain (not per packet) |
//! | consumers | any core; `take_all` is one swap, so two consumers get disjoint sets |
//! | empty | the top is null |
//! | cost | a lane parks one chain per poll, however many packets it has |
//!
//! A stack instead of a queue because the consumer always takes all: it turns the order round once per chain. There is
//! no ABA problem, as no element is taken alone.

use super::Packet;
use crate::algo::sync::{AtomicPtr, Ordering};
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// Packets in order, owned, linked through their own fields.
pub struct Chain<P: Packet> {
    // INVARIANT: both are null, or `first` starts a list linked by `next` that ends in `last`, whose `next` is null;
    // the chain owns all of them.
    first: *mut P::Node,
    last: *mut P::Node,
    packets: PhantomData<P>,
}

// SAFETY: A chain is nothing but the packets it owns.
unsafe impl<P: Packet + Send> Send for Chain<P> {}

impl<P: Packet> Chain<P> {
    /// Returns a chain without packets.
    #[inline]
    pub const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            packets: PhantomData,
        }
    }

    /// Returns whether there is no packet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a packet at the end.
    #[inline]
    pub fn push(&mut self, packet: P) {
        let node = packet.into_node();
        // SAFETY: We have just been given the packet.
        unsafe { *P::next(node) = ptr::null_mut() };
        match NonNull::new(self.last) {
            // SAFETY: By the invariant the chain owns its last packet.
            Some(last) => unsafe { *P::next(last) = node.as_ptr() },
            None => self.first = node.as_ptr(),
        }
        // INVARIANT: `node` is ours, ends the list, and its `next` is null.
        self.last = node.as_ptr();
    }

    /// Returns the last packet's node, which stays the chain's.
    #[inline]
    pub fn last_node(&self) -> Option<NonNull<P::Node>> {
        NonNull::new(self.last)
    }

    /// Takes the first packet out.
    #[inline]
    pub fn pop(&mut self) -> Option<P> {
        let node = NonNull::new(self.first)?;
        // SAFETY: By the invariant the chain owns its first packet.
        self.first = unsafe { *P::next(node) };
        if self.first.is_null() {
            self.last = ptr::null_mut();
        }
        // SAFETY: The node is no longer in the chain, so its ownership is ours to give.
        Some(unsafe { P::from_node(node) })
    }

    /// Adds all packets of `other` at the end.
    pub fn append(&mut self, mut other: Self) {
        let first = core::mem::replace(&mut other.first, ptr::null_mut());
        let last = core::mem::replace(&mut other.last, ptr::null_mut());
        if first.is_null() {
            return;
        }
        match NonNull::new(self.last) {
            // SAFETY: By the invariant the chain owns its last packet.
            Some(own_last) => unsafe { *P::next(own_last) = first },
            None => self.first = first,
        }
        // INVARIANT: `other` gave up its packets above; they now follow ours.
        self.last = last;
    }

    /// Keeps the first `pkts` packets, and returns all others.
    pub fn split_off(&mut self, pkts: u32) -> Self {
        let mut kept = None;
        let mut node = self.first;
        for _ in 0..pkts {
            let Some(owned) = NonNull::new(node) else {
                return Self::new();
            };
            // SAFETY: By the invariant the chain owns each packet of its list.
            node = unsafe { *P::next(owned) };
            kept = Some(owned);
        }
        if node.is_null() {
            return Self::new();
        }
        let last = core::mem::replace(&mut self.last, ptr::null_mut());
        match kept {
            // INVARIANT: the list that is kept ends here.
            Some(kept) => {
                // SAFETY: By the invariant the chain owns each packet of its list.
                unsafe { *P::next(kept) = ptr::null_mut() };
                self.last = kept.as_ptr();
            }
            None => self.first = ptr::null_mut(),
        }
        // INVARIANT: what follows the kept packets is a list that ends in `last`, and no longer ours.
        Self {
            first: node,
            last,
            packets: PhantomData,
        }
    }

    /// Gives up ownership and returns the first node of a list that is linked by `next` and ends in null.
    pub fn into_first(mut self) -> *mut P::Node {
        self.last = ptr::null_mut();
        core::mem::replace(&mut self.first, ptr::null_mut())
    }
}

impl<P: Packet> Default for Chain<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Packet> Drop for Chain<P> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The chains that wait for one micro-flow's turn. See the head of this file. Memory of zeros is an empty one.
pub struct ParkedChains<P: Packet> {
    // INVARIANT: null, or the first packet of the chain parked last. That packet's `older` names the first packet of
    // the chain parked before it (or is null), its `last` the last packet of its own chain. All are owned by us.
    top: AtomicPtr<P::Node>,
    packets: PhantomData<P>,
}

// SAFETY: It owns the packets that `top` leads to, which may be sent, and nothing else.
unsafe impl<P: Packet + Send> Send for ParkedChains<P> {}
// SAFETY: Shared access goes through the atomic `top` alone: `park` gives a chain away with it, and `take_all` takes each
// packet once.
unsafe impl<P: Packet + Send> Sync for ParkedChains<P> {}

impl<P: Packet> ParkedChains<P> {
    /// Returns one without chains.
    pub fn new() -> Self {
        Self {
            top: AtomicPtr::new(ptr::null_mut()),
            packets: PhantomData,
        }
    }

    /// Returns whether nothing is parked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // ORDERING: Relaxed: a hint; packets are only taken by the swap in `take_all`.
        self.top.load(Ordering::Relaxed).is_null()
    }

    /// Parks a chain. Multi producer, lock-free.
    pub fn park(&self, mut chain: Chain<P>) {
        let Some(first) = NonNull::new(chain.first) else {
            return;
        };
        let last = chain.last;
        chain.first = ptr::null_mut();
        chain.last = ptr::null_mut();

        // SAFETY: `chain` gave up its packets just above; they are ours until the exchange below succeeds.
        unsafe { *P::last(first) = last };
        // ORDERING: Relaxed: the value is only compared and stored; `take_all` reads what it points to.
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: The packets are ours until the exchange below succeeds.
            unsafe { *P::older(first) = top };
            // ORDERING: Release pairs with the Acquire in `take_all`: links and packets are visible with the pointer.
            match self.top.compare_exchange_weak(
                top,
                first.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all chains, joined in the order in which they were parked.
    pub fn take_all(&self) -> Chain<P> {
        if self.is_empty() {
            return Chain::new();
        }
        // ORDERING: Acquire pairs with the Release in `park`.
        let mut top = self.top.swap(ptr::null_mut(), Ordering::Acquire);
        let mut joined = Chain::new();
        // Newest first: put each older chain before what has been joined so far.
        while let Some(first) = NonNull::new(top) {
            // SAFETY: The swap gave us all chains, with the links that `park` wrote.
            let (last, older) = unsafe { (*P::last(first), *P::older(first)) };
            // INVARIANT: `first` to `last` is a list linked by `next` (it was a `Chain`), now ours.
            let mut chain = Chain {
                first: first.as_ptr(),
                last,
                packets: PhantomData,
            };
            chain.append(joined);
            joined = chain;
            top = older;
        }
        joined
    }
}

impl<P: Packet> Default for ParkedChains<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Packet> Drop for ParkedChains<P> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}
