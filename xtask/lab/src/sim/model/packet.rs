// SPDX-License-Identifier: GPL-2.0

//! A packet of the model, which the module's queues can carry.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use mflow_algo::algo::lanes::queue;
use mflow_algo::algo::tag::Tag;

#[derive(Debug)]
pub(crate) struct Node {
    next: *mut Node,
    last: *mut Node,
    older: *mut Node,
    pub(crate) tag: Tag,
    /// In the order of arrival, from 0.
    pub(crate) number: u64,
    pub(crate) arrived_ps: u64,
    /// It came to its stage from another core.
    pub(crate) hopped: bool,
    alive: Rc<Cell<u64>>,
}

#[derive(Debug)]
pub(crate) struct Packet(Box<Node>);

/// Makes packets, and counts those that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Factory {
    alive: Rc<Cell<u64>>,
}

impl Factory {
    pub(crate) fn packet(&self, number: u64, arrived_ps: u64) -> Packet {
        self.alive.set(self.alive.get() + 1);
        Packet(Box::new(Node {
            next: ptr::null_mut(),
            last: ptr::null_mut(),
            older: ptr::null_mut(),
            tag: Tag::NONE,
            number,
            arrived_ps,
            hopped: false,
            alive: Rc::clone(&self.alive),
        }))
    }

    /// Returns how many packets have been neither read nor lost.
    pub(crate) fn alive(&self) -> u64 {
        self.alive.get()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Packet {
    pub(crate) fn set_hopped(&mut self, hopped: bool) {
        self.0.hopped = hopped;
    }
}

impl Deref for Packet {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.0
    }
}

// SAFETY: A node stays in its box until its packet is dropped, has three links that only the queues use, and is aligned to a
// word.
unsafe impl queue::Packet for Packet {
    type Node = Node;
    // The model knows no drivers.
    type Request = ();

    fn discard(_request: &()) {}

    fn into_node(self) -> NonNull<Node> {
        NonNull::from(Box::leak(self.0))
    }

    unsafe fn from_node(node: NonNull<Node>) -> Self {
        // SAFETY: By the contract of `from_node` the node is one that `into_node` took out of its box.
        Self(unsafe { Box::from_raw(node.as_ptr()) })
    }

    unsafe fn next(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract of `next` the caller owns the node, so it is valid.
        unsafe { &raw mut (*node.as_ptr()).next }
    }

    unsafe fn last(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract of `next` the caller owns the node, so it is valid.
        unsafe { &raw mut (*node.as_ptr()).last }
    }

    unsafe fn older(node: NonNull<Node>) -> *mut *mut Node {
        // SAFETY: By the contract of `next` the caller owns the node, so it is valid.
        unsafe { &raw mut (*node.as_ptr()).older }
    }

    fn set_tag(&mut self, tag: Tag) {
        self.0.tag = tag;
    }

    // The model has as much memory as it needs.
    fn memory_bytes(&self) -> u32 {
        0
    }
}
