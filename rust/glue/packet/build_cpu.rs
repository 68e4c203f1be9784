// SPDX-License-Identifier: GPL-2.0

//! The CPU of a lane that builds packets for the one that carries them (`layout` `lane+stage`): MFLOW's set-up for TCP, where
//! one core of each branch does nothing but `skb` allocation (its Fig. 8).

use super::lane_progress::LaneProgress;
use super::pool;
use crate::algo::counters::{Counter, Counters};
use crate::algo::lanes::queue::ring::BuildingEnd;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::tag::Tag;
use crate::glue::stack::request::Request;
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::worker::{Work, Worker};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use kernel::init::Zeroable;
use kernel::prelude::*;

/// This many items are gone over before the CPU that carries sees them: each time costs both CPUs a cache miss.
const ITEMS_AT_ONCE: u32 = 16;

/// The part of a lane that builds its packets on another CPU. Zeros are a lane that builds for itself.
pub(crate) struct BuildCpu {
    // Used by the worker's NAPI alone, which runs on one CPU at a time.
    end: UnsafeCell<Option<BuildingEnd<SkBuff>>>,
    worker: Worker,
    cpu: u32,
    // Packets built; written by the worker's NAPI.
    counters: Counters,
}

// SAFETY: No end (a null pointer), a worker that is not started, a number, and counters of zero.
unsafe impl Zeroable for BuildCpu {}
// SAFETY: The cell is used by one NAPI; the rest may be shared.
unsafe impl Sync for BuildCpu {}

/// The bytes of requests and of the packets made of them, as far as `ring_bytes` counts them.
#[derive(Default)]
struct Bytes {
    requests: u64,
    packets: u64,
}

impl BuildCpu {
    /// Starts to build on `cpu` for `lane`. Process context.
    ///
    /// # Safety: `lane` is a lane that stays until this has been stopped, and nobody polls it yet. Called once.
    pub(crate) unsafe fn start(
        &mut self,
        cpu: u32,
        end: BuildingEnd<SkBuff>,
        lane: *mut c_void,
    ) -> Result {
        self.cpu = cpu;
        *self.end.get_mut() = Some(end);
        // SAFETY: By the contract.
        unsafe { self.worker.start(cpu, lane, Work::Build, None) }
    }

    /// Stops building, and drops what has not been built for the lane on `lane_cpu`. Process context.
    ///
    /// # Safety: nobody stops or kicks at the same time, or fills the lane's ring.
    pub(crate) unsafe fn stop(&self, lane_cpu: u32) {
        let mut bytes = Bytes::default();
        // SAFETY: By the contract; no poll runs any more when the worker has stopped.
        unsafe {
            self.worker.stop();
            while self.go_on(|_, request| {
                bytes.requests += u64::from(request.memory_bytes());
                SkBuff::discard(request);
                None
            }) {}
            self.publish(lane_cpu, bytes);
        }
    }

    /// Returns the CPU that builds, if it is not the lane's own.
    pub(crate) fn cpu(&self) -> Option<u32> {
        self.worker.is_started().then_some(self.cpu)
    }

    /// Returns how many packets have been built.
    pub(crate) fn pkts(&self) -> u64 {
        self.counters.get(Counter::LanePkts)
    }

    /// Makes the worker build the packets that wait; false if the lane builds for itself. Softirqs disabled.
    pub(crate) fn kick(&self) -> bool {
        self.worker.kick()
    }

    /// Goes over the next item of the ring; false if there is none.
    ///
    /// # Safety: in the poll, or when there is none any more. `build` does not call the stack.
    #[inline]
    unsafe fn go_on(&self, build: impl FnOnce(Tag, &Request) -> Option<SkBuff>) -> bool {
        // SAFETY: By the contract nobody else uses the end, and `build` does not come back here.
        let end = unsafe { (*self.end.get()).as_mut() };
        end.is_some_and(|end| end.go_on(build))
    }

    /// Makes the items that were gone over visible to the CPU that carries, and charges for their present weight.
    ///
    /// # Safety: in the poll, or when there is none any more.
    unsafe fn publish(&self, lane_cpu: u32, bytes: Bytes) {
        let ring_bytes = pool::ring_bytes();
        ring_bytes.charge(lane_cpu, bytes.packets);
        ring_bytes.release(lane_cpu, bytes.requests);
        // SAFETY: By the contract nobody else uses the end.
        if let Some(end) = unsafe { (*self.end.get()).as_mut() } {
            end.publish();
        }
    }

    /// Builds for the lane on `lane_cpu`, and goes over at most `budget` items; returns how many, or `budget` if it has to be
    /// called again.
    ///
    /// # Safety: called by the worker's NAPI.
    pub(crate) unsafe fn poll(&self, lane_cpu: u32, progress: &LaneProgress, budget: u32) -> u32 {
        // SAFETY: By the contract the worker's poll is running.
        let worker = unsafe { self.worker.polling() };
        let (mut work, mut built_pkts) = (0, 0);
        while work < budget {
            let before = work;
            let most = budget.min(work + ITEMS_AT_ONCE);
            let mut bytes = Bytes::default();
            let mut build = |tag: Tag, request: &Request| {
                // What this CPU has built joins nothing.
                pool::slots().slot(tag.slot()).note_joining(false);
                // SAFETY: The ring gives out requests that were filled, each of them once.
                let (request_bytes, packet) =
                    unsafe { (request.memory_bytes(), worker.build(request)) };
                bytes.requests += u64::from(request_bytes);
                let mut packet = packet?;
                built_pkts += 1;
                packet.set_tag(tag);
                bytes.packets += u64::from(packet.memory_bytes());
                Some(packet)
            };
            // SAFETY: We are in the poll, and a driver that builds a packet does not call the stack.
            while work < most && unsafe { self.go_on(&mut build) } {
                work += 1;
            }
            if work == before {
                break;
            }
            // SAFETY: We are in the poll.
            unsafe { self.publish(lane_cpu, bytes) };
            progress.advance_building();
        }
        self.counters.add_owned(Counter::LanePkts, built_pkts);
        work
    }
}
