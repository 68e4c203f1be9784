// SPDX-License-Identifier: GPL-2.0

//! The lane of a trial of the join, which `c-shims/trial/mflow_trial.c` has for tests. It is a lane as any other, but that its ring is
//! filled by the trial, and that its batches never end: no slot is told of what it carries.

use super::ffi;
use super::packet::lane::{Carries, Lane};
use super::packet::pool;
use super::stack::skb::SkBuff;
use crate::algo::counters::Counter;
use crate::algo::join::DatagramForm;
use crate::algo::knobs::LaneCpus;
use crate::algo::lanes::queue::ring::Producer;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::tag::Tag;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use kernel::bindings::{mflow_request, mflow_worker, sk_buff};
use kernel::ffi::c_uint;
use kernel::prelude::*;

/// The trial's file, as long as the module is there.
pub(crate) struct Trial(());

impl Trial {
    pub(crate) fn new() -> Self {
        // SAFETY: Called once, in process context, when lanes can be started.
        unsafe { kernel::bindings::mflow_trial_init() };
        Self(())
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // SAFETY: Process context. No file is open, as each keeps the module.
        unsafe { kernel::bindings::mflow_trial_exit() };
    }
}

/// A lane with the producing end of its ring.
struct TrialLane {
    // Dropped before the ring.
    producer: Producer<SkBuff>,
    lane: VBox<Lane>,
}

impl TrialLane {
    fn start(cpu: u32) -> Result<KBox<Self>> {
        // SAFETY: It is stopped by `mflow_trial_lane_stop`, which drops both then.
        let (lane, producer) =
            unsafe { Lane::start(LaneCpus::one(cpu), Carries::Batches, None, None)? };
        let places = Lane::new_places();
        let trial = places.and_then(|places| {
            // SAFETY: The lane has no places yet, and nobody else knows the lane.
            unsafe { lane.give_places(places) };
            Ok(KBox::new_uninit(GFP_KERNEL)?)
        });
        match trial {
            Ok(place) => Ok(KBox::write(place, Self { producer, lane })),
            Err(error) => {
                // SAFETY: The lane was started above, and nobody else knows it.
                unsafe { lane.stop() };
                Err(error)
            }
        }
    }

    fn charge(&self, bytes: u32) {
        pool::ring_bytes().charge(self.lane.cpu(), u64::from(bytes));
    }
}

/// Starts a lane. Returns null without memory. Process context.
#[no_mangle]
unsafe extern "C" fn mflow_trial_lane_start(cpu: c_uint) -> *mut c_void {
    TrialLane::start(cpu).map_or(ptr::null_mut(), |trial| KBox::into_raw(trial).cast())
}

/// Stops a lane. Process context.
///
/// # Safety: called once for a lane that was started, by which nobody is any more.
#[no_mangle]
unsafe extern "C" fn mflow_trial_lane_stop(lane: *mut c_void) {
    // SAFETY: By the contract `mflow_trial_lane_start` has returned it, and nobody uses it any more.
    unsafe {
        let trial = KBox::from_raw(lane.cast::<TrialLane>());
        trial.lane.stop();
    }
}

/// Returns the worker of a lane, for its poll.
///
/// # Safety: the lane was started, and not stopped.
#[no_mangle]
unsafe extern "C" fn mflow_trial_worker(lane: *mut c_void) -> *mut mflow_worker {
    // SAFETY: By the contract the lane lives. The trial's lock keeps others away from it meanwhile.
    unsafe { (*lane.cast::<TrialLane>()).lane.worker().as_raw() }
}

/// Returns the place for a request with this tag, which the caller fills before its next call; null if there is none.
///
/// # Safety: the lane was started, and not stopped; nobody else fills its ring.
#[no_mangle]
unsafe extern "C" fn mflow_trial_request(
    lane: *mut c_void,
    tag: u32,
    memory_bytes: c_uint,
) -> *mut mflow_request {
    // SAFETY: By the contract the lane lives. The trial's lock keeps others away from it meanwhile.
    let trial = unsafe { &mut *lane.cast::<TrialLane>() };
    if !trial.producer.reserve(1) {
        return ptr::null_mut();
    }
    if !trial.producer.reserve_requests(1) {
        trial.producer.unreserve(1);
        return ptr::null_mut();
    }
    let Some(request) = trial.producer.take_requests(Tag::from_word(tag), 1).first() else {
        return ptr::null_mut();
    };
    // SAFETY: The place is the caller's to fill.
    unsafe { request.set_memory_bytes(memory_bytes) };
    let request = request.as_raw();
    trial.charge(memory_bytes);
    request
}

/// Gives a tagged packet to the lane. Returns false if it was dropped, as the ring is full.
///
/// # Safety: the lane was started, and not stopped; nobody else fills its ring; the packet is the caller's.
#[no_mangle]
unsafe extern "C" fn mflow_trial_packet(lane: *mut c_void, skb: *mut sk_buff) -> bool {
    // SAFETY: By the contract the lane lives. The trial's lock keeps others away from it meanwhile.
    let trial = unsafe { &mut *lane.cast::<TrialLane>() };
    let Some(skb) = NonNull::new(skb) else {
        return false;
    };
    // SAFETY: By the contract the packet is the caller's, who gives it away.
    let packet = unsafe { SkBuff::from_node(skb) };
    let bytes = packet.memory_bytes();
    let is_pushed = trial.producer.reserve(1) && trial.producer.push(packet).is_ok();
    if is_pushed {
        trial.charge(bytes);
    }
    is_pushed
}

/// Lets the lane see all that it was given.
///
/// # Safety: the lane was started, and not stopped; nobody else fills its ring.
#[no_mangle]
unsafe extern "C" fn mflow_trial_publish(lane: *mut c_void) {
    // SAFETY: By the contract the lane lives. The trial's lock keeps others away from it meanwhile.
    unsafe { (*lane.cast::<TrialLane>()).producer.publish() };
}

/// Returns how many frames the lane has joined.
///
/// # Safety: the lane was started, and not stopped.
#[no_mangle]
unsafe extern "C" fn mflow_trial_joined(lane: *mut c_void) -> u64 {
    // SAFETY: By the contract the lane lives. The trial's lock keeps others away from it meanwhile.
    let trial = unsafe { &*lane.cast::<TrialLane>() };
    trial.lane.counters.get(Counter::JoinedPkts)
}

/// Sets the form of a slot's datagrams. No flow is split.
#[no_mangle]
unsafe extern "C" fn mflow_trial_set_form(slot: c_uint, form: c_uint) {
    // CAST: 32 bits into a usize.
    let slot = pool::slots().slot(slot as usize);
    slot.note_takes_lists(form != DatagramForm::Single as u32);
    slot.forget_takes_aggregates();
    if form == DatagramForm::Aggregate as u32 {
        slot.note_takes_aggregates(true);
    }
}

ffi::check_export!(
    mflow_trial_joined,
    mflow_trial_lane_start,
    mflow_trial_lane_stop,
    mflow_trial_packet,
    mflow_trial_publish,
    mflow_trial_request,
    mflow_trial_set_form,
    mflow_trial_worker,
);
