// SPDX-License-Identifier: GPL-2.0

//! A source: what receives packets of an opted-in device in one context, with its dispatcher and its lanes.
//!
//! That context is a NAPI (which runs on one CPU at a time, wherever it runs), or, for packets that enter the stack
//! without one or are taken behind its GRO, a CPU with softirqs disabled.

use super::lane::Lane;
use super::port::Port;
use super::stack::skb::SkBuff;
use super::{ffi, merge, pool, runtime};
use crate::algo::counters::{Counter, Counters};
use crate::algo::cpulist::CpuSet;
use crate::algo::dispatcher::{Dispatched, Dispatcher, Host};
use crate::algo::lane_set::MAX_LANES;
use crate::algo::slot_pool::SlotPool;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use kernel::init::{self, Zeroable};
use kernel::prelude::*;

/// A source. Made by [`Source::new`], then at a fixed address until it is dropped.
pub struct Source {
    // Used in the source's context only.
    dispatcher: UnsafeCell<Dispatcher<SkBuff>>,
    cpu_changes_seen: AtomicU32,
    // The NAPI, or null for a source of a CPU.
    napi: AtomicPtr<ffi::napi_struct>,
    // Flows that have a slot.
    active_flows: AtomicU32,
    stopping: AtomicBool,
    lanes: UnsafeCell<LaneList>,
    // Where to note that the device's driver calls GRO, and whether that is done.
    port: AtomicPtr<Port>,
    gro_noted: AtomicBool,
}

type LaneList = [Option<KVBox<Lane>>; MAX_LANES];

// SAFETY: Zeros are an empty dispatcher (see there), zero, null, false, and no lanes (null pointers).
unsafe impl Zeroable for Source {}
// SAFETY: The dispatcher is used in the source's context alone, the list of lanes is written before the source is
// known to anybody and after it is no longer; the rest may be shared.
unsafe impl Sync for Source {}
// SAFETY: As above.
unsafe impl Send for Source {}

/// The kernel as the dispatcher sees it from a source.
struct KernelHost<'a> {
    source: &'a Source,
    slots: &'a SlotPool<SkBuff>,
    // Whether we are in the source's context, and may touch its NAPI's lists.
    in_context: bool,
}

impl Host<SkBuff> for KernelHost<'_> {
    fn now_ms(&mut self) -> u32 {
        runtime::now_ms()
    }

    fn slots(&self) -> &SlotPool<SkBuff> {
        self.slots
    }

    fn flush_inline(&mut self) {
        let napi = self.source.napi();
        if self.in_context && !napi.is_null() {
            // SAFETY: We are in the poll of this NAPI.
            unsafe { ffi::mflow_napi_gro_flush(napi) };
        }
    }

    fn merge(&mut self, slot: usize) {
        merge::merge(slot);
    }

    fn note_active(&mut self, taken: bool) {
        // ORDERING: Release pairs with the Acquire in `active_flows`: the slot's state is visible with it.
        if taken {
            self.source.active_flows.fetch_add(1, Ordering::Release);
        } else {
            self.source.active_flows.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Source {
    /// Makes a source of `napi` (null for a source of a CPU) with a lane on each of `cpus`. Process context.
    pub(crate) fn new(
        port: &Port,
        napi: *mut ffi::napi_struct,
        cpus: &CpuSet,
    ) -> Result<KVBox<Source>> {
        let source: KVBox<Source> = KVBox::init(init::zeroed(), GFP_KERNEL)?;
        // ORDERING: Relaxed, both: published with the source.
        source.napi.store(napi, Ordering::Relaxed);
        source
            .port
            .store(core::ptr::from_ref(port).cast_mut(), Ordering::Relaxed);
        // One change behind, so that the first packet looks at the CPUs.
        source
            .cpu_changes_seen
            .store(runtime::cpu_changes().wrapping_sub(1), Ordering::Relaxed);
        // SAFETY: Nobody else knows the source yet.
        let (dispatcher, lanes) =
            unsafe { (&mut *source.dispatcher.get(), &mut *source.lanes.get()) };
        for (place, cpu) in lanes.iter_mut().zip(cpus.iter()) {
            let mut lane: KVBox<Lane> = KVBox::init(init::zeroed(), GFP_KERNEL)?;
            // SAFETY: Just made of zeros; it moves with its owner but stays at its address, and the dispatcher ends
            // with the source, which stops the lanes first.
            let producer = unsafe { Lane::start(core::ptr::NonNull::from(&mut *lane), cpu)? };
            dispatcher
                .lanes
                .add(producer, lane.id())
                .map_err(|_| E2BIG)?;
            *place = Some(lane);
        }
        Ok(source)
    }

    /// Notes that the device's packets come through GRO. The port outlives its sources.
    #[inline]
    pub(crate) fn note_gro(&self) {
        // ORDERING: Relaxed, all: a hint that is written once.
        if !self.gro_noted.load(Ordering::Relaxed) {
            self.gro_noted.store(true, Ordering::Relaxed);
            // SAFETY: Set in `new`, and the port is freed after its sources.
            if let Some(port) = unsafe { self.port.load(Ordering::Relaxed).as_ref() } {
                port.note_gro();
            }
        }
    }

    /// Returns the NAPI, or null.
    pub(crate) fn napi(&self) -> *mut ffi::napi_struct {
        // ORDERING: Relaxed: never changes.
        self.napi.load(Ordering::Relaxed)
    }

    /// Returns the lanes.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        // SAFETY: Not written while the source is known to anybody.
        let lanes = unsafe { &*self.lanes.get() };
        lanes.iter().flatten().map(|lane| &**lane)
    }

    /// Returns the dispatcher's counters.
    pub(crate) fn counters(&self) -> &Counters {
        // SAFETY: Only this field, which is made for readers elsewhere, is borrowed.
        unsafe { &(*self.dispatcher.get()).counters }
    }

    /// Adds up what has happened here.
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        match counter {
            // Only the lanes know.
            Counter::PastGroPkts => self.lanes().map(|lane| lane.counters.get(counter)).sum(),
            _ => self.counters().get(counter),
        }
    }

    /// Dispatches a packet. In the source's context.
    ///
    /// # Safety
    ///
    /// Called in the source's context: its NAPI's poll, or softirqs disabled on its CPU.
    #[inline]
    pub(crate) unsafe fn dispatch(&self, packet: SkBuff) -> Dispatched<SkBuff> {
        let Some(slots) = pool::slots() else {
            return Dispatched::Ordinary(packet);
        };
        let protocol = packet.protocol();
        let keys = runtime::flow_keys();
        let Some(key) = packet.with_header(|header| keys.key(protocol, header)) else {
            return Dispatched::Ordinary(packet);
        };
        let mut host = KernelHost {
            source: self,
            slots,
            in_context: true,
        };
        // ORDERING: Relaxed: who sets it waits for all that run now.
        let config = runtime::config(self.stopping.load(Ordering::Relaxed));
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        dispatcher.dispatch(&mut host, config, key, packet)
    }

    /// Wakes the lanes that got packets, and does what is due now and then.
    ///
    /// # Safety
    ///
    /// As [`dispatch`](Self::dispatch).
    pub(crate) unsafe fn flush(&self) {
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        let changes = runtime::cpu_changes();
        // ORDERING: Relaxed, both: used in the source's context only.
        if self.cpu_changes_seen.load(Ordering::Relaxed) != changes {
            self.cpu_changes_seen.store(changes, Ordering::Relaxed);
            let offline = self
                .lanes()
                .enumerate()
                .filter(|(_, lane)| runtime::is_cpu_gone(lane.cpu()))
                .fold(0, |mask, (index, _)| mask | 1 << index);
            dispatcher.lanes.set_offline(offline);
        }
        if let Some(slots) = pool::slots() {
            let mut host = KernelHost {
                source: self,
                slots,
                in_context: true,
            };
            // ORDERING: Relaxed: as in `dispatch`.
            let config = runtime::config(self.stopping.load(Ordering::Relaxed));
            dispatcher.reap_if_due(&mut host, config);
        }
        self.kick(dispatcher.lanes.take_touched());
    }

    fn kick(&self, touched: u32) {
        if touched == 0 {
            return;
        }
        for (index, lane) in self.lanes().enumerate() {
            if touched >> index & 1 == 1 {
                lane.kick();
            }
        }
    }

    /// Has all flows stop: from here on each packet brings its flow nearer to the ordinary path.
    pub(crate) fn begin_stop(&self) {
        // ORDERING: Relaxed: the caller synchronizes with all that run now.
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns how many flows have a slot.
    pub(crate) fn active_flows(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `note_active`.
        self.active_flows.load(Ordering::Acquire)
    }

    /// Returns whether all lanes have carried what they were given.
    pub(crate) fn is_carried(&self) -> bool {
        self.lanes().all(Lane::is_empty)
    }

    /// Gives back the slots of flows that have been drained. Process context.
    ///
    /// # Safety
    ///
    /// The source's context has ended: nobody dispatches any more.
    pub(crate) unsafe fn finish(&self) {
        let Some(slots) = pool::slots() else {
            return;
        };
        let mut host = KernelHost {
            source: self,
            slots,
            in_context: false,
        };
        // SAFETY: Disabling softirqs nests; merging and kicking want it.
        unsafe { ffi::mflow_bh_disable() };
        // SAFETY: By the contract nobody else uses the dispatcher.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        dispatcher.reap(&mut host, runtime::config(true), 0);
        self.kick(dispatcher.lanes.take_touched());
        // SAFETY: Disabled above.
        unsafe { ffi::mflow_bh_enable() };
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        for lane in self.lanes() {
            lane.stop();
        }
    }
}
