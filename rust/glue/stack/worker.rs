// SPDX-License-Identifier: GPL-2.0

//! The worker that carries a lane's packets: a NAPI of ours, woken on the lane's CPU.

use super::request::Request;
use super::skb::SkBuff;
use super::{ffi, way};
use crate::algo::join::DatagramForm;
use crate::algo::tag::Tag;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem;
use core::num::NonZeroU32;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use kernel::prelude::*;

extern "C" {
    /// Declared in `c-shims/module/mflow_worker.h`, which is no header of the kernel.
    fn mflow_worker_set_napi_id(worker: *mut ffi::mflow_worker, napi_id: kernel::ffi::c_uint);
}

/// The work that a worker does for its lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// It carries packets: its poll is `mflow_lane_poll`.
    Carry,
    /// It builds them: its poll is `mflow_lane_build`.
    Build,
}

/// A worker of a lane. Zeros are one that has not been started.
pub(crate) struct Worker(AtomicPtr<ffi::mflow_worker>);

/// Returns whether readers have left so many packets to the lanes of a CPU that any other lane with time may free them.
#[inline]
pub(crate) fn is_help_wanted() -> bool {
    // SAFETY: It reads one word, in any context.
    unsafe { ffi::mflow_returned_is_full() }
}

impl Worker {
    /// Starts the worker: its poll may be called with `lane` from now on. What it receives without the number of a NAPI gets
    /// `number`. Process context.
    ///
    /// # Safety: `lane` is what that poll takes, until [`stop`](Self::stop) has returned. Called once.
    pub(crate) unsafe fn start(
        &self,
        cpu: u32,
        lane: *mut c_void,
        work: Work,
        number: Option<NonZeroU32>,
    ) -> Result {
        // SAFETY: By the contract the lane may be polled.
        let worker = unsafe { ffi::mflow_worker_create(cpu, lane, work == Work::Build) };
        if worker.is_null() {
            return Err(ENOMEM);
        }
        if let Some(number) = number {
            // SAFETY: Nobody kicks it before it is stored below.
            unsafe { mflow_worker_set_napi_id(worker, number.get()) };
        }
        // ORDERING: Release pairs with the Acquire in `get`.
        self.0.store(worker, Ordering::Release);
        Ok(())
    }

    /// Stops the worker: when it returns, no poll is running and none will. Process context.
    ///
    /// # Safety: nobody stops or kicks the worker at the same time.
    pub(crate) unsafe fn stop(&self) {
        let worker = self.get();
        if !worker.is_null() {
            // SAFETY: By the contract it is destroyed once, and nobody but polls, for which this waits, uses it.
            unsafe { ffi::mflow_worker_destroy(worker) };
            // Not before: a poll that began meanwhile has asked `polling` for the worker.
            // ORDERING: Relaxed: by the contract nobody reads it now.
            self.0.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    fn get(&self) -> *mut ffi::mflow_worker {
        // ORDERING: Acquire pairs with the Release in `start`.
        self.0.load(Ordering::Acquire)
    }

    /// Returns the worker as C has it, for the trial that polls it.
    #[cfg(all(CONFIG_MFLOW_JOIN_TRIAL, not(mflow_stock)))]
    pub(crate) fn as_raw(&self) -> *mut ffi::mflow_worker {
        self.get()
    }

    pub(crate) fn is_started(&self) -> bool {
        !self.get().is_null()
    }

    /// Schedules the lane's poll on the worker's CPU; false if there is no worker. Softirqs disabled.
    pub(crate) fn kick(&self) -> bool {
        let worker = self.get();
        let is_started = !worker.is_null();
        if is_started {
            // SAFETY: It lives until `stop`, after which nobody kicks.
            unsafe { ffi::mflow_worker_kick(worker) };
        }
        is_started
    }

    /// Schedules the lane's poll on `cpu`, even if that is not the worker's own CPU. Softirqs disabled.
    pub(crate) fn kick_on(&self, cpu: u32) {
        let worker = self.get();
        if !worker.is_null() {
            // SAFETY: It lives until `stop`, after which nobody kicks.
            unsafe { ffi::mflow_worker_kick_on(worker, cpu) };
        }
    }

    /// Returns the worker as its poll sees it.
    ///
    /// # Safety: called in the poll of this worker, and the value is used in that poll only.
    #[inline]
    pub(crate) unsafe fn polling(&self) -> Polling<'_> {
        // INVARIANT: a poll runs, so the worker has been started, and `stop` waits for the poll before it forgets it.
        Polling {
            worker: self.get(),
            _worker: PhantomData,
        }
    }
}

/// A worker in its poll, where it may receive packets.
#[derive(Clone, Copy)]
pub(crate) struct Polling<'a> {
    // INVARIANT: valid, and its poll is running on this CPU.
    worker: *mut ffi::mflow_worker,
    _worker: PhantomData<&'a Worker>,
}

impl Polling<'_> {
    /// Sets whether this lane sums the checksums of datagrams in fragments, which readers sum otherwise, until its poll ends.
    #[inline]
    pub(crate) fn set_sums(self, sums: bool) {
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { ffi::mflow_worker_set_sums(sums) };
    }

    /// Gives a packet to GRO; returns whether GRO has joined it with one before it. A datagram goes on in the given form.
    #[inline]
    pub(crate) fn receive(self, packet: SkBuff, form: DatagramForm) -> bool {
        // SAFETY: By the invariant we are in the worker's poll; the packet is ours to give.
        unsafe { ffi::mflow_worker_receive(self.worker, packet.into_raw(), form as u32) }
    }

    /// Gives a packet that is not split to GRO, behind all that GRO holds of its flow.
    #[inline]
    pub(crate) fn receive_stage(self, packet: SkBuff) {
        // SAFETY: By the invariant we are in the worker's poll; the packet is ours to give.
        unsafe { ffi::mflow_worker_receive_stage(self.worker, packet.into_raw()) };
    }

    /// Builds the packet that its driver has described; none if the driver has dropped it, and counted that.
    ///
    /// # Safety: the request was filled, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn build(self, request: &Request) -> Option<SkBuff> {
        // SAFETY: By the invariant we are in the worker's poll, and by the contract the request is ours. What is built is
        // ours, too.
        unsafe {
            let skb = ffi::mflow_worker_build(self.worker, request.as_raw());
            (!skb.is_null()).then(|| SkBuff::from_raw(skb))
        }
    }

    /// Gives a packet to the stack past GRO.
    #[inline]
    pub(crate) fn receive_past_gro(self, packet: SkBuff) {
        // SAFETY: By the invariant we are in the worker's poll; the packet is ours to give.
        unsafe { ffi::mflow_worker_receive_past_gro(self.worker, packet.into_raw()) };
    }

    /// Brings all that was received to its end; or, if the stack does not [run to completion](way::RUNS_TO_COMPLETION), into its
    /// queues.
    #[inline]
    pub(crate) fn flush(self) {
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { ffi::mflow_worker_flush(self.worker) };
    }

    /// Returns the youngest packet with a tag that GRO holds, if frames can be hung onto it.
    #[inline]
    pub(super) fn held(self, tag: Tag) -> Option<ffi::mflow_held> {
        // SAFETY: Zeros are a valid value of numbers and pointers.
        let mut held: ffi::mflow_held = unsafe { mem::zeroed() };
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { ffi::mflow_worker_held(self.worker, tag.word(), &mut held) }.then_some(held)
    }

    /// Returns whether GRO holds a packet with this tag at this address. The packet may be gone.
    #[inline]
    pub(super) fn holds_at(self, address: usize, tag: Tag) -> bool {
        let packet = address as *const ffi::sk_buff;
        // SAFETY: By the invariant we are in the worker's poll; the packet's address is compared only.
        unsafe { ffi::mflow_worker_holds(self.worker, packet, tag.word()) }
    }

    /// Returns whether packets that the worker has received on another CPU are to come through first. Its poll is called again.
    #[inline]
    pub(crate) fn follows(self) -> bool {
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { way::follows(self.worker) }
    }

    /// Makes the poll be called again and again until the packets received of a batch [have arrived](Self::has_settled).
    #[inline]
    pub(crate) fn settle(self, tag: Tag) {
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { way::settle(self.worker, tag) };
    }

    /// Returns whether the packets of the batch that [`settle`](Self::settle) was called with have arrived, or do not come any more.
    #[inline]
    pub(crate) fn has_settled(self) -> bool {
        // SAFETY: By the invariant we are in the worker's poll.
        unsafe { way::has_settled(self.worker) }
    }
}
