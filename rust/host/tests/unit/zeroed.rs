// SPDX-License-Identifier: GPL-2.0

//! Memory of zeros, which is how the kernel module gets its large objects.

use std::alloc::{alloc_zeroed, handle_alloc_error, Layout};

use mflow_algo::algo::flow::dispatcher::Dispatcher;
use mflow_algo::algo::flow::table::FlowTable;
use mflow_algo::algo::lanes::queue::ring::Ring;
use mflow_algo::algo::lanes::ring_bytes::RingBytes;
use mflow_algo::algo::load::flow_orders::Orders;
use mflow_algo::algo::merge::slot::Slot;
use mflow_algo::algo::merge::slot_pool::SlotPool;
use mflow_algo::algo::report::flow_report::{FlowBoard, Found};

use crate::support::packet::TestPacket;

/// A type of which zeros are a fresh value.
///
/// # Safety
///
/// Memory of zeros is a valid value.
pub(crate) unsafe trait Zeroable {}

// SAFETY: Atomic numbers and null pointers only, as documented at `Ring`.
unsafe impl Zeroable for Ring<TestPacket> {}
// SAFETY: Atomic numbers and null pointers only, as documented at `Slot`.
unsafe impl Zeroable for Slot<TestPacket> {}
// SAFETY: Atomic numbers only, as documented at `RingBytes`.
unsafe impl Zeroable for RingBytes {}
// SAFETY: Atomic numbers only, as documented at `Orders`.
unsafe impl Zeroable for Orders {}
// SAFETY: Atomic numbers only, as documented at `FlowBoard`.
unsafe impl Zeroable for FlowBoard {}
// SAFETY: Atomic numbers and slots, as documented at `SlotPool`.
unsafe impl Zeroable for SlotPool<TestPacket> {}
// SAFETY: A table of zeros (see `FlowTable`), numbers, and lanes: a producer has a pointer that is never null, so a lane
// of zeros is none.
unsafe impl Zeroable for Dispatcher<TestPacket> {}

// SAFETY: Numbers, flags that are false, and flows whose state is `Counting`, as documented at `FlowState`.
unsafe impl Zeroable for FlowTable {}

/// Returns a value made of zeros. It never lies on the stack, which would be too small for some.
pub(crate) fn zeroed<T: Zeroable>() -> Box<T> {
    let layout = Layout::new::<T>();
    // SAFETY: No type here has a size of zero.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: Just allocated with the layout that the box frees, and valid by the trait's contract.
    unsafe { Box::from_raw(memory.cast()) }
}

#[test]
fn zeros_are_an_empty_board() {
    let board: Box<FlowBoard> = zeroed();
    assert!(board.read().all(|found| found == Found::Nothing));
}

/// Each flow of it is in the state in which a flow begins. Miri looks at each byte that is read for it.
#[test]
fn zeros_are_an_empty_table() {
    let table: Box<FlowTable> = zeroed();
    assert_eq!(format!("{table:?}"), format!("{:?}", FlowTable::new()));
}
