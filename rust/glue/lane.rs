// SPDX-License-Identifier: GPL-2.0

//! A lane: the consuming end of a ring, polled by a NAPI on the lane's CPU.
//!
//! It receives packets as a driver's NAPI does (GRO and the whole stack up to the merge point run inside
//! [`Lane::poll`]), and when it meets the end of a batch, all of the batch has been carried to its end: it is complete.

use super::stack::skb::SkBuff;
use super::{ffi, merge, pool};
use crate::algo::collector::Collector;
use crate::algo::counters::{Counter, Counters};
use crate::algo::gro_trial::GroTrial;
use crate::algo::queue::ring::{Consumer, Item, Producer, Ring};
use crate::algo::queue::Packet as _;
use crate::algo::slot::LaneId;
use crate::algo::tag::Tag;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use kernel::init::Zeroable;
use kernel::prelude::*;

/// Lanes whose progress is told apart; more share words, which only makes the deadline more patient.
const NR_PROGRESS: usize = 256;

/// A word on cache lines of its own.
#[repr(align(128))]
struct Progress(AtomicU32);

/// How far each lane has come. Apart from the lanes: the merger may ask for one that is gone.
static PROGRESS: [Progress; NR_PROGRESS] = [const { Progress(AtomicU32::new(0)) }; NR_PROGRESS];
static LANES_STARTED: AtomicU32 = AtomicU32::new(0);

fn progress_of(lane: LaneId) -> &'static AtomicU32 {
    // PANIC: the remainder is below the length.
    &PROGRESS[lane as usize % NR_PROGRESS].0
}

/// Returns a number that changes whenever the lane takes something from its ring.
pub(crate) fn progress(lane: LaneId) -> u32 {
    // ORDERING: Relaxed: only compared with an earlier value.
    progress_of(lane).load(Ordering::Relaxed)
}

/// One lane of one source. Its address stays the same from [`Lane::start`] to [`Lane::stop`].
pub struct Lane {
    ring: Ring<SkBuff>,
    // All three: used by the lane's NAPI only, which runs on one CPU at a time.
    consumer: UnsafeCell<Option<Consumer<SkBuff>>>,
    collector: UnsafeCell<Collector<SkBuff>>,
    gro: UnsafeCell<GroTrial>,
    worker: AtomicPtr<ffi::mflow_worker>,
    cpu: u32,
    id: LaneId,
    /// Packets carried; written by the lane's NAPI.
    pub(crate) counters: Counters,
}

// SAFETY: Zeros are an empty ring, no consumer (a null pointer), an empty collector (null pointers, no tag), a trial that
// knows nothing, a null pointer, zero, and counters of zero.
unsafe impl Zeroable for Lane {}

// SAFETY: The cells are used by the NAPI alone; the rest may be shared.
unsafe impl Sync for Lane {}
// SAFETY: As above.
unsafe impl Send for Lane {}

impl Lane {
    /// Starts the lane on `cpu` and returns the producing end of its ring. Process context.
    ///
    /// # Safety
    ///
    /// 1. `lane` is made of zeros and not started yet.
    /// 2. It stays where it is, and the producer is not used, after [`stop`](Self::stop).
    pub(crate) unsafe fn start(lane: NonNull<Lane>, cpu: u32) -> Result<Producer<SkBuff>> {
        let raw = lane.as_ptr();
        // SAFETY: Not started, so it is ours alone; the ring lives as long as the lane.
        let producer = unsafe {
            let (producer, consumer) = Ring::ends(NonNull::from(&(*raw).ring));
            *(*raw).consumer.get() = Some(consumer);
            (*raw).cpu = cpu;
            // ORDERING: Relaxed: unique enough. Zero means "no lane".
            (*raw).id = LANES_STARTED.fetch_add(1, Ordering::Relaxed) | 1 << 31;
            producer
        };
        // SAFETY: The lane is ready to be polled.
        let worker = unsafe { ffi::mflow_worker_create(cpu, raw.cast()) };
        if worker.is_null() {
            return Err(ENOMEM);
        }
        // ORDERING: Release pairs with the Acquire in `worker`.
        // SAFETY: As above.
        unsafe { (*raw).worker.store(worker, Ordering::Release) };
        Ok(producer)
    }

    /// Stops the lane: no poll is running or will. Process context.
    pub(crate) fn stop(&self) {
        // ORDERING: AcqRel: taken once.
        let worker = self.worker.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !worker.is_null() {
            // SAFETY: We have taken it, so it is destroyed once.
            unsafe { ffi::mflow_worker_destroy(worker) };
        }
    }

    /// Returns the lane's name towards the merger.
    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    /// Returns the lane's CPU.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether all that was pushed has been taken out.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    fn worker(&self) -> *mut ffi::mflow_worker {
        // ORDERING: Acquire pairs with the Release in `start`.
        self.worker.load(Ordering::Acquire)
    }

    /// Has the lane polled on its CPU. Softirqs disabled.
    pub(crate) fn kick(&self) {
        let worker = self.worker();
        if !worker.is_null() {
            // SAFETY: It lives until `stop`, after which nobody kicks.
            unsafe { ffi::mflow_worker_kick(worker) };
        }
    }

    /// Takes a packet that has reached the merge point inside this lane's poll.
    ///
    /// # Safety
    ///
    /// Called inside [`poll`](Self::poll), by the same thread of execution.
    #[inline]
    pub(crate) unsafe fn collect(
        &self,
        tag: Tag,
        sk: *mut ffi::sock,
        mut packet: SkBuff,
        pkts: u32,
    ) {
        packet.set_socket(sk);
        // SAFETY: `poll` does not borrow the collector while it calls the stack, where we come from.
        let before =
            unsafe { (*self.collector.get()).add(tag, sk.expose_provenance(), packet, pkts) };
        if let Some(run) = before {
            merge::park(run);
        }
    }

    /// Brings all that was received to the merge point, and parks it.
    ///
    /// # Safety
    ///
    /// As [`collect`](Self::collect).
    unsafe fn flush(&self) {
        // SAFETY: The worker lives while its poll runs.
        unsafe { ffi::mflow_worker_flush(self.worker()) };
        // SAFETY: By the contract.
        unsafe { self.park_collected() };
    }

    /// Parks what has been collected so far.
    ///
    /// # Safety
    ///
    /// As [`collect`](Self::collect).
    pub(crate) unsafe fn park_collected(&self) {
        // SAFETY: As in `collect`.
        let run = unsafe { (*self.collector.get()).take() };
        if let Some(run) = run {
            merge::park(run);
        }
    }

    /// Gives a packet to the stack; returns whether it went past GRO.
    ///
    /// # Safety
    ///
    /// Called inside [`poll`](Self::poll), by the same thread of execution.
    #[inline]
    unsafe fn receive(&self, worker: *mut ffi::mflow_worker, mut packet: SkBuff) -> bool {
        let slot = packet.tag().slot();
        // SAFETY: The NAPI alone uses the trial, which is not borrowed while the stack is called; the worker lives while
        // its poll runs; the packet is ours to give.
        unsafe {
            let goes_past = (*self.gro.get()).goes_past(slot);
            if goes_past {
                packet.pull_overlay_headers();
                ffi::mflow_worker_receive_past_gro(worker, packet.into_raw());
            } else {
                let joined = ffi::mflow_worker_receive(worker, packet.into_raw());
                (*self.gro.get()).note(slot, joined);
            }
            goes_past
        }
    }

    /// Carries at most `budget` packets; returns how many, or `budget` if it has to be called again.
    ///
    /// # Safety
    ///
    /// Called by the lane's NAPI.
    unsafe fn poll(&self, budget: u32) -> u32 {
        let worker = self.worker();
        let mut work = 0;
        let (mut wire_pkts, mut past_gro_pkts) = (0, 0);
        let mut unflushed = false;
        let progress = progress_of(self.id);
        while work < budget {
            // SAFETY: The NAPI is the only consumer, and it is not borrowed across calls of the stack.
            let item = unsafe { (*self.consumer.get()).as_mut().and_then(Consumer::pop) };
            // ORDERING: Relaxed, both: only this lane writes it.
            progress.store(
                progress.load(Ordering::Relaxed).wrapping_add(1),
                Ordering::Relaxed,
            );
            match item {
                Some(Item::Packet(packet)) => {
                    work += 1;
                    let pkts = u64::from(packet.wire_pkts());
                    wire_pkts += pkts;
                    unflushed = true;
                    // SAFETY: We are in the poll.
                    if unsafe { self.receive(worker, packet) } {
                        past_gro_pkts += pkts;
                    }
                }
                Some(Item::BatchEnd(tag)) => {
                    // SAFETY: We are in the poll.
                    unsafe { self.flush() };
                    unflushed = false;
                    // SAFETY: We are in the poll, which alone uses the trial, and not in a call of the stack.
                    unsafe { (*self.gro.get()).end_batch(tag.slot()) };
                    self.complete(tag);
                }
                None => break,
            }
        }
        if unflushed {
            // SAFETY: We are in the poll.
            unsafe { self.flush() };
        }
        self.counters.add_owned(Counter::LanePkts, wire_pkts);
        self.counters.add_owned(Counter::PastGroPkts, past_gro_pkts);
        work
    }

    fn complete(&self, tag: Tag) {
        let Some(slots) = pool::slots() else {
            return;
        };
        let slot = slots.slot(tag.slot());
        if slot.complete(tag.batch_near(slot.next())) {
            merge::merge(tag.slot());
        }
    }
}

/// Polls a lane. Softirq context.
#[no_mangle]
unsafe extern "C" fn mflow_lane_poll(lane: *mut c_void, budget: c_int) -> c_int {
    // SAFETY: The worker was given the address of a lane that outlives it, and only the worker's NAPI calls us.
    unsafe {
        // CAST: budgets are small and positive.
        (*lane.cast::<Lane>()).poll(budget as u32) as c_int
    }
}

ffi::check_export!(mflow_lane_poll);
