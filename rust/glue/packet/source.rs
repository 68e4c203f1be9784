// SPDX-License-Identifier: GPL-2.0

//! A source: the receiving end of one context for packets of an opted-in device, with its dispatcher and its lanes. The context
//! is the poll of a NAPI (which runs on one CPU at a time, on any CPU), or a CPU with softirqs disabled, for packets that enter
//! the stack without a NAPI or are split behind its GRO. Some sources are found by what a packet says, perhaps outside of their
//! context. Each user of such a source [enters](Source::enter) it first.

use super::flow_events;
use super::lane::{Carries, Lane, Places};
use super::merge_sink;
use super::pool::{self, Slots};
use crate::algo::counters::{Counter, Counters};
use crate::algo::flow::dispatcher::{Dispatched, Dispatcher, Host, Unbuilt};
use crate::algo::headers::flow_key::{Ipv4Flow, ETH_P_IP};
use crate::algo::headers::overlay;
use crate::algo::headers::recent_keys::RecentKeys;
use crate::algo::knobs::cpulist::CpuSet;
use crate::algo::knobs::{Knobs, LaneCpus};
use crate::algo::lanes::lane_set::LaneSet;
use crate::algo::lanes::ring_bytes::RingBytes;
use crate::algo::limits::MAX_LANES;
use crate::algo::load::flow_orders::Orders;
use crate::algo::report::flow_report::{FlowBoard, FlowNews, Noted};
use crate::algo::source::queue_builder::QueueBuilder;
use crate::algo::stage::{HeldByGro, Route, Stage, StageSet};
use crate::glue::locks::SoftirqsOff;
use crate::glue::stack::device::{self, Device, LaneDevice, Napi};
use crate::glue::stack::hook_heads::{BeginsWithHead, PortHead, SourceHead};
use crate::glue::stack::request::Request;
use crate::glue::stack::skb::SkBuff;
use crate::glue::stack::{deliver, way, worker};
use crate::glue::{ffi, runtime};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::num::NonZeroU32;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use kernel::init::{self, Zeroable};
use kernel::prelude::*;

/// A source. Made by [`Source::new`] or [`Source::of_stages`], then at a fixed address until it is dropped.
#[repr(C)]
pub struct Source {
    // First of all: drivers read it.
    head: SourceHead,
    // Used in the source's context only.
    pub(crate) dispatcher: UnsafeCell<Dispatcher<SkBuff>>,
    // Used in the source's context only.
    recent_keys: UnsafeCell<RecentKeys>,
    /// Written in the source's context only; read by all.
    pub(crate) counters: Counters,
    /// The reports on its flows. Written in the source's context only; read by all. Changes are taken under the configuration lock.
    pub(crate) board: FlowBoard,
    cpu_changes_seen: AtomicU32,
    // None if it is a source of a CPU.
    napi: Option<Napi>,
    // The number of the NAPI whose packets are taken behind its GRO.
    number_behind_gro: Option<NonZeroU32>,
    // Whether it may be found outside of its context, and is in use.
    is_shared: bool,
    in_use: AtomicBool,
    // One more than the CPU whose ordinary path the source's packets took last, or 0.
    ordinary_cpu: AtomicU32,
    // True if its NAPI has gone without notice.
    is_gone: AtomicBool,
    // Flows that have a slot.
    active_flows: AtomicU32,
    // No flow may be split: not yet (see `begin`), or not any more.
    stopping: AtomicBool,
    lanes: [Option<VBox<Lane>>; MAX_LANES],
    // The lane of the CPU that the source's poll runs on. It is none of the lanes that operators see.
    own_lane: Option<VBox<Lane>>,
    // True if a packet that came alone is in GRO, where others must not overtake it. Used in the source's context only.
    has_in_gro: AtomicBool,
    // The device, for the note that its driver calls GRO.
    port: Option<NonNull<PortHead>>,
    // The device whose flows it splits. None if it hands flows on.
    lane_device: Option<LaneDevice>,
    // True once that note has been made.
    gro_noted: AtomicBool,
    // The last word of the driver on who builds packets: the number of a `QueueBuilder`.
    builder: AtomicU8,
    // The packets that the placement of lanes had counted when it looked last.
    pkts_at_look: AtomicU64,
    /// The state of the source if it hands flows on instead of splitting them (`stage_source.rs`).
    pub(crate) handing_on: HandingOn,
}

/// The state of a source that hands flows on from stage to stage. Zeros are a source that does not.
pub(crate) struct HandingOn {
    pub(crate) stages: StageSet,
    /// The place of the source's CPU among the stages' CPUs, or [`NOWHERE`].
    pub(crate) here: u8,
    /// The number of the source's device.
    pub(crate) device: u32,
    /// The number of a `Route`.
    pub(crate) route: AtomicU8,
    /// Before GRO. Written in the source's context only.
    pub(crate) held_by_gro: HeldByGro,
    /// The CPU on which packets came, or [`NO_CPU`].
    pub(crate) cpu: AtomicU32,
    /// The lane in which packets wait while the stages end. Its other end is used in the source's context only.
    pub(crate) home: Option<VBox<Lane>>,
    pub(crate) home_end: UnsafeCell<LaneSet<SkBuff>>,
}

/// The packets that a source takes.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    /// The packets of a NAPI.
    OfNapi(Napi),
    /// The packets that carry the number of a NAPI, behind its GRO.
    OfNumber(NonZeroU32),
    /// The packets that come on a CPU.
    OfCpu(usize),
    /// The packets that come on any CPU, and carry no number. They come to one CPU at a time, and nothing says to which.
    OfAnyCpu,
}

impl Takes {
    pub(crate) fn napi(self) -> Option<Napi> {
        match self {
            Self::OfNapi(napi) => Some(napi),
            Self::OfNumber(_) | Self::OfCpu(_) | Self::OfAnyCpu => None,
        }
    }
}

/// A guard: a source that may be found outside of its context is in use as long as it lives.
pub(crate) struct InUse<'a>(Option<&'a AtomicBool>);

impl Drop for InUse<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(in_use) = self.0 {
            // ORDERING: Release pairs with the Acquire in `Source::enter`.
            in_use.store(false, Ordering::Release);
        }
    }
}

/// The number of looks at a source that is in use. They last about as long as a virtual CPU that uses the source may be away.
const MOST_LOOKS: u32 = 1 << 24;

/// Not one of the stages' CPUs.
pub(crate) const NOWHERE: u8 = u8::MAX;
/// No CPU yet.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// The parameters of a source that hands flows on.
pub(crate) struct StageContext {
    pub(crate) stages: StageSet,
    pub(crate) device: u32,
    /// Its CPU, unless it is a NAPI.
    pub(crate) cpu: Option<u32>,
    /// True if packets have to wait here when the stages end. Behind the first stage they do not: there are none then.
    pub(crate) is_first: bool,
}

const _: () = assert!(offset_of!(Source, head) == 0);
// SAFETY: Its first field is one, as the line above checks.
unsafe impl BeginsWithHead for Source {}
// SAFETY: Zeros are an empty dispatcher, no recent keys, empty counters, an empty board (see there), zero, false and no stages. An
// `Option` of nothing but a pointer or a NAPI's number is `None` as zeros.
unsafe impl Zeroable for Source {}
// SAFETY: Dispatcher, recent keys and the end at home are used in the source's context alone; what is not atomic beside them
// is written while the source is made, before others know it.
unsafe impl Sync for Source {}
// SAFETY: A source belongs to no thread: its context is a NAPI or a CPU.
unsafe impl Send for Source {}

/// The kernel as the dispatcher sees it from a source.
struct KernelHost<'a> {
    source: &'a Source,
    slots: &'a Slots,
    // Whether we are in the source's context, and may touch its NAPI's lists.
    in_context: bool,
}

impl Host<SkBuff> for KernelHost<'_> {
    const PROBE_TIMEOUT_MS: u32 = way::PROBE_TIMEOUT_MS;

    fn now_ms(&mut self) -> u32 {
        runtime::now_ms()
    }

    fn cpu(&self) -> u32 {
        // SAFETY: Softirqs are disabled wherever a dispatcher is used, so the CPU stays the same.
        unsafe { ffi::mflow_this_cpu() }
    }

    fn cpu_at_batch(&self, slot: u8, batch: u32, lane_cpu: Option<u32>) -> u32 {
        // CAST: the number of a CPU.
        let lane_cpu = lane_cpu.map_or(-1, |cpu| cpu as i32);
        // SAFETY: Softirqs are disabled wherever a dispatcher is used.
        unsafe { ffi::mflow_trace_batch(slot.into(), batch, lane_cpu) }
    }

    fn slots(&self) -> &Slots {
        self.slots
    }

    fn ring_bytes(&self) -> &RingBytes {
        pool::ring_bytes()
    }

    fn orders(&self) -> &Orders {
        pool::orders()
    }

    fn is_clear(&self) -> bool {
        // SAFETY: Softirqs are disabled wherever a dispatcher is used.
        unsafe { way::is_clear() }
    }

    fn fences_inner_flows(&self) -> bool {
        !way::FENCES_WAIT
    }

    fn keep_behind_inline(&mut self) {
        // SAFETY: Softirqs are disabled wherever a dispatcher is used.
        unsafe { way::keep_behind_inline() };
        self.source.note_ordinary();
    }

    fn flush_inline(&mut self) {
        if let (true, Some(napi)) = (self.in_context, self.source.napi) {
            // SAFETY: We are in the poll of this NAPI.
            unsafe { napi.flush_gro() };
        }
    }

    fn merge(&mut self, slot: usize) {
        merge_sink::merge(self.slots, slot);
    }

    fn note_active(&mut self, taken: bool) {
        // ORDERING: Release pairs with the Acquire in `active_flows`: the slot's state is visible with it.
        if taken {
            self.source.active_flows.fetch_add(1, Ordering::Release);
        } else {
            self.source.active_flows.fetch_sub(1, Ordering::Release);
        }
    }

    fn report(&mut self, place: u8, news: &FlowNews) {
        match self.source.board.report(place, news) {
            Noted::Not => return,
            Noted::Kept => {}
            Noted::Lost => {
                let counters = &self.source.counters;
                counters.add_owned(Counter::LostNotifications, 1);
            }
        }
        if let (Some(device), Some(report)) = (self.source.lane_device, self.source.board.at(place))
        {
            // SAFETY: The device is there as long as the source.
            unsafe { flow_events::tell(device, report) };
        }
        // SAFETY: The call may come from any context: it only queues work.
        unsafe { ffi::mflow_tell_soon() };
    }
}

impl Source {
    /// Makes a source with the lanes of `knobs`. It splits nothing before [`Source::begin`]. Process context.
    ///
    /// # Safety: `port` and `dev` are valid as long as the source, and the NAPI, if it takes one's packets, is there.
    pub(crate) unsafe fn new(
        port: &PortHead,
        dev: &Device,
        takes: Takes,
        knobs: &Knobs,
    ) -> Result<KVBox<Source>> {
        let (device, carries) = (dev.of_lanes(), Carries::Batches);
        // SAFETY: By the contract.
        let mut source = unsafe {
            Self::with_lanes(
                Some(port),
                Some(device),
                takes.napi(),
                knobs.lanes(),
                carries,
            )?
        };
        if let Takes::OfNumber(number) = takes {
            source.number_behind_gro = Some(number);
        }
        source.is_shared = matches!(takes, Takes::OfNumber(_) | Takes::OfAnyCpu);
        if let (true, Some(napi)) = (way::RUNS_TO_COMPLETION, takes.napi()) {
            // SAFETY: By the contract the NAPI is there. The source is nobody else's yet, so nothing is dispatched.
            unsafe { source.start_own_lane(device, napi, knobs)? };
        }
        Ok(source)
    }

    /// Starts the lane that is polled where the source is. Process context.
    ///
    /// # Safety: the device is there as long as the source, the NAPI is there, and nothing is dispatched yet.
    unsafe fn start_own_lane(&mut self, device: LaneDevice, napi: Napi, knobs: &Knobs) -> Result {
        // The memory of its packets counts as that of the first lane: its own CPU is not known, and may change.
        let Some(cpu) = knobs.lanes().next().map(|cpus| cpus.carries) else {
            return Ok(());
        };
        let (cpus, carries) = (LaneCpus::one(cpu), Carries::Batches);
        // SAFETY: By the contract the NAPI is there. The source stops the lane before it drops it, and its dispatcher, which gets the
        // producer, is not used then.
        let (lane, producer) = unsafe { Lane::start(cpus, carries, Some(device), napi.number())? };
        let id = lane.id();
        self.own_lane = Some(lane);
        self.dispatcher.get_mut().lanes.add_own(producer, id, cpu);
        Ok(())
    }

    /// Makes a source that hands flows on to lanes on `cpus`. Process context.
    ///
    /// # Safety: `port` is valid as long as the source, and the NAPI is there.
    pub(crate) unsafe fn of_stages(
        port: Option<&PortHead>,
        napi: Option<Napi>,
        cpus: &CpuSet,
        context: StageContext,
    ) -> Result<KVBox<Source>> {
        // SAFETY: By the contract.
        let mut source = unsafe {
            Self::with_lanes(
                port,
                None,
                napi,
                cpus.iter().map(LaneCpus::one),
                Carries::Stage,
            )?
        };
        let here = cpus.iter().position(|cpu| context.cpu == Some(cpu));
        let handing_on = &mut source.handing_on;
        handing_on.stages = context.stages;
        handing_on.device = context.device;
        // CAST: below MAX_LANES.
        handing_on.here = here.map_or(NOWHERE, |here| here as u8);
        *handing_on.cpu.get_mut() = context.cpu.unwrap_or(NO_CPU);
        if let (Some(napi), false) = (napi, context.stages.contains(Stage::Gro)) {
            // SAFETY: By the contract.
            source.number_behind_gro = unsafe { napi.number() };
            source.is_shared = source.number_behind_gro.is_some();
            // Before GRO there is nothing to do.
            source.head.set_rests(true);
        }
        let handing_on = &mut source.handing_on;
        if context.is_first {
            if !runtime::stage_orders().onward {
                *handing_on.route.get_mut() = Route::Home as u8;
            }
            let cpu = context.cpu.or(cpus.iter().next()).unwrap_or(0);
            // SAFETY: As for the other lanes.
            let (lane, producer) =
                unsafe { Lane::start(LaneCpus::one(cpu), Carries::Held, None, None)? };
            let id = lane.id();
            handing_on.home = Some(lane);
            let home_end = handing_on.home_end.get_mut();
            home_end.add(producer, id, cpu).map_err(|_| E2BIG)?;
        }
        Ok(source)
    }

    /// # Safety: `port` and the device are valid as long as the source, and the NAPI is there.
    unsafe fn with_lanes(
        port: Option<&PortHead>,
        device: Option<LaneDevice>,
        napi: Option<Napi>,
        lanes: impl Iterator<Item = LaneCpus>,
        carries: Carries,
    ) -> Result<KVBox<Source>> {
        let mut source: KVBox<Source> = KVBox::init(init::zeroed(), GFP_KERNEL)?;
        let fresh: &mut Source = &mut source;
        fresh.napi = napi;
        *fresh.stopping.get_mut() = true;
        fresh.port = port.map(NonNull::from);
        fresh.lane_device = device;
        // One change behind, so that the first packet looks at the CPUs.
        *fresh.cpu_changes_seen.get_mut() = runtime::cpu_changes().wrapping_sub(1);
        // SAFETY: By the contract.
        let number = napi.and_then(|napi| unsafe { napi.number() });
        let dispatcher = fresh.dispatcher.get_mut();
        for (place, cpus) in fresh.lanes.iter_mut().zip(lanes) {
            // SAFETY: The source stops the lane before it drops it, and its dispatcher, which gets the producer, is not
            // used then.
            let (lane, producer) = unsafe { Lane::start(cpus, carries, device, number)? };
            let (id, cpu) = (lane.id(), lane.cpu());
            // First of all in its place: it is stopped from there.
            *place = Some(lane);
            dispatcher.lanes.add(producer, id, cpu).map_err(|_| E2BIG)?;
        }
        Ok(source)
    }

    /// Returns whether its packets are only dispatched: it splits flows, and its device knows that the driver calls GRO.
    #[inline]
    pub(crate) fn only_dispatches(&self) -> bool {
        // ORDERING: Relaxed: a hint that is written once.
        self.gro_noted.load(Ordering::Relaxed)
    }

    /// Notes for the device that its driver calls GRO.
    pub(crate) fn note_gro(&self) {
        // ORDERING: Relaxed: a hint that is written once.
        self.gro_noted.store(!self.hands_on(), Ordering::Relaxed);
        if let Some(port) = self.port {
            // SAFETY: By the contract of `new`.
            unsafe { port.as_ref() }.note_gro();
        }
    }

    /// Notes that GRO gets a packet that came alone. In the source's context.
    pub(crate) fn note_in_gro(&self) {
        // ORDERING: Relaxed: used in the source's context only.
        self.has_in_gro.store(true, Ordering::Relaxed);
    }

    /// Flushes GRO if packets were [noted](Self::note_in_gro) there.
    ///
    /// # Safety: called in the poll of the source's NAPI.
    #[inline]
    pub(crate) unsafe fn flush_noted(&self) {
        // ORDERING: Relaxed, both: used in the source's context only.
        if let (true, Some(napi)) = (self.has_in_gro.load(Ordering::Relaxed), self.napi) {
            self.has_in_gro.store(false, Ordering::Relaxed);
            // SAFETY: By the contract.
            unsafe { napi.flush_gro() };
        }
    }

    /// Returns whether it hands flows on from stage to stage, and splits none.
    #[inline]
    pub(crate) fn hands_on(&self) -> bool {
        !self.handing_on.stages.is_empty()
    }

    /// Notes what the driver says of this poll. If it leaves packets to lanes, they get places for them in process context, soon.
    pub(crate) fn note_builder(&self, builder: QueueBuilder) {
        // ORDERING: Relaxed, both: for a file that somebody reads, and a hint.
        if self.builder.load(Ordering::Relaxed) != builder as u8 {
            self.builder.store(builder as u8, Ordering::Relaxed);
            if builder == QueueBuilder::Lane && !self.hands_on() {
                // SAFETY: May be called in any context.
                unsafe { ffi::mflow_rescan() };
            }
        }
    }

    /// Gives all lanes places for packets that are not built, unless they have some. On an error none has got any. Process context.
    ///
    /// # Safety: nobody calls it at the same time.
    pub(crate) unsafe fn give_places(&self) -> Result {
        if self.all_lanes().all(Lane::has_places) {
            return Ok(());
        }
        let mut all: [Option<Places>; MAX_LANES + 1] = [const { None }; MAX_LANES + 1];
        for (places, _) in all.iter_mut().zip(self.all_lanes()) {
            *places = Some(Lane::new_places()?);
        }
        for (places, lane) in all.into_iter().flatten().zip(self.all_lanes()) {
            // SAFETY: By the contract. All lanes get theirs at once, so this one has none.
            unsafe { lane.give_places(places) };
        }
        Ok(())
    }

    pub(crate) fn builder(&self) -> QueueBuilder {
        // ORDERING: Relaxed: a recent value will do.
        QueueBuilder::of_number(self.builder.load(Ordering::Relaxed))
    }

    /// Returns by how much `pkts` has grown since the last call. Process context, one at a time.
    pub(crate) fn pkts_since_look(&self, pkts: u64) -> u64 {
        // ORDERING: Relaxed: nobody else is here.
        pkts.wrapping_sub(self.pkts_at_look.swap(pkts, Ordering::Relaxed))
    }

    pub(crate) fn napi(&self) -> Option<Napi> {
        self.napi
    }

    /// Returns whether it takes the packets of a NAPI before GRO.
    pub(crate) fn is_before_gro(&self) -> bool {
        self.napi.is_some() && self.number_behind_gro.is_none()
    }

    /// Returns the number of the NAPI whose packets it takes behind GRO.
    pub(crate) fn number_behind_gro(&self) -> Option<NonZeroU32> {
        self.number_behind_gro
    }

    /// Returns whether packets with this number are the source's.
    #[inline]
    pub(crate) fn is_of(&self, number: NonZeroU32) -> bool {
        self.number_behind_gro == Some(number)
    }

    /// Returns whether it may be found outside of its context.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns a guard that has the source in use as long as it lives, or `None` if the source is in use. Softirqs disabled; in
    /// the source's context, unless it is [shared](Source::is_shared).
    #[inline]
    pub(crate) fn enter(&self) -> Option<InUse<'_>> {
        if !self.is_shared {
            return Some(InUse(None));
        }
        // ORDERING: Acquire pairs with the Release in `InUse::drop`: what was done then is visible.
        let was_in_use = self.in_use.swap(true, Ordering::Acquire);
        (!was_in_use).then_some(InUse(Some(&self.in_use)))
    }

    /// Enters the source as [`enter`](Self::enter) does, but waits while it is in use. Returns `None` after [`MOST_LOOKS`] looks.
    #[inline]
    pub(crate) fn enter_in_turn(&self) -> Option<InUse<'_>> {
        if !way::FINDS_SOURCES_BY_NUMBER {
            return Some(InUse(None));
        }
        self.enter().or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> Option<InUse<'_>> {
        for _ in 0..MOST_LOOKS {
            spin_loop();
            // ORDERING: Relaxed: a hint, `enter` orders.
            if !self.in_use.load(Ordering::Relaxed) {
                if let Some(in_use) = self.enter() {
                    return Some(in_use);
                }
            }
        }
        None
    }

    /// Passes a packet to the ordinary path of this CPU, and returns it. If earlier packets of the source still wait on the
    /// ordinary path of another CPU, queues the packet behind them there, and returns `None`.
    ///
    /// # Safety: called where the source's packets come, at a device's ingress; softirqs are disabled.
    #[inline]
    pub(crate) unsafe fn pass_on(&self, packet: SkBuff) -> Option<SkBuff> {
        if !way::FINDS_SOURCES_BY_NUMBER || !self.is_shared {
            return Some(packet);
        }
        // SAFETY: Softirqs are disabled, so the CPU stays the same.
        let here = unsafe { ffi::mflow_this_cpu() };
        // ORDERING: Relaxed: the source's packets come in one context at a time. Where that is not so, neither is there an order.
        match self.ordinary_cpu.load(Ordering::Relaxed).checked_sub(1) {
            Some(cpu) if cpu == here => Some(packet),
            before => {
                let packet = match before {
                    // SAFETY: By the contract; packets have come on that CPU.
                    Some(cpu) => unsafe { deliver::keep_behind(packet, cpu)? },
                    None => packet,
                };
                self.note_ordinary();
                Some(packet)
            }
        }
    }

    /// Notes that the source's packets take the ordinary path of this CPU from now on. Softirqs disabled.
    fn note_ordinary(&self) {
        if way::FINDS_SOURCES_BY_NUMBER && self.is_shared {
            // SAFETY: Softirqs are disabled.
            let here = unsafe { ffi::mflow_this_cpu() };
            // ORDERING: Relaxed: see `pass_on`.
            self.ordinary_cpu
                .store(here.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Notes whether the source's NAPI is gone, so that no packet comes any more, and returns it. Process context.
    pub(crate) fn note_gone(&self) -> bool {
        let number = self.number_behind_gro;
        let is_gone = number.is_some_and(|number| !device::napi_is_there(number));
        // ORDERING: Relaxed: used under the configuration lock.
        self.is_gone.store(is_gone, Ordering::Relaxed);
        is_gone
    }

    /// Returns whether the last call of [`note_gone`](Self::note_gone) found that the NAPI is gone.
    pub(crate) fn is_gone(&self) -> bool {
        // ORDERING: Relaxed: see `note_gone`.
        self.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flatten().map(|lane| &**lane)
    }

    /// Returns the lanes, and the source's own one.
    fn all_lanes(&self) -> impl Iterator<Item = &Lane> {
        Iterator::chain(self.lanes(), self.own_lane.as_deref())
    }

    /// Returns the CPUs of these lanes (bit mask, as in [`FlowNow`](crate::algo::report::flow_report::FlowNow)).
    pub(crate) fn cpus_of(&self, lanes: u16) -> CpuSet {
        let mut cpus = CpuSet::EMPTY;
        for (index, lane) in self.lanes().enumerate() {
            if lanes >> index & 1 == 1 {
                cpus.insert(lane.cpu());
            }
        }
        cpus
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        if !counter.is_of_lanes() {
            return self.counters.get(counter);
        }
        self.all_lanes()
            .map(|lane| lane.counters.get(counter))
            .fold(0, u64::wrapping_add)
    }

    /// # Safety: called in the source's context (see the head of this file).
    #[inline]
    pub(crate) unsafe fn dispatch(&self, slots: &Slots, mut packet: SkBuff) -> Dispatched<SkBuff> {
        let protocol = packet.protocol();
        // SAFETY: By the contract nobody else uses the recent keys now.
        let recent_keys = unsafe { &mut *self.recent_keys.get() };
        let key =
            packet.with_header(|header| recent_keys.key(runtime::flow_keys, protocol, header));
        let Some(key) = key else {
            return Dispatched::Ordinary(packet);
        };
        packet.count_segments();
        let mut host = KernelHost {
            source: self,
            slots,
            in_context: true,
        };
        // ORDERING: Acquire pairs with the Release in `begin`. `Stop::ask` sets it and waits for all that run then.
        let stopping = self.stopping.load(Ordering::Acquire);
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        let config = || runtime::config(stopping);
        let dispatched =
            dispatcher.dispatch_with(&self.counters, &mut host, stopping, config, key, packet);
        // Batches open with a packet, and nowhere else.
        self.head
            .set_takes_requests(dispatcher.lanes.takes_requests());
        dispatched
    }

    /// Returns at most `most` places for packets that their driver has not built and a lane is to build. The packets are of one
    /// flow, and `header` is the header of one of them. `bytes` is the memory of one packet and its place. The caller fills the
    /// places before it uses the source again.
    ///
    /// # Safety: called in the source's context (see the head of this file).
    #[inline]
    pub(crate) unsafe fn take_requests(
        &self,
        protocol: u16,
        header: &[u8],
        bytes: u32,
        most: u32,
    ) -> &[Request] {
        let flow = (protocol == ETH_P_IP)
            .then(|| Ipv4Flow::of(header))
            .flatten();
        // ORDERING: Relaxed: `Stop::ask` sets it and waits for all that run then.
        let stopping = self.stopping.load(Ordering::Relaxed);
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        if let Some(run) = dispatcher.run_of(flow, most, stopping, runtime::now_ms()) {
            return dispatcher.take_of_run(run, bytes);
        }
        // SAFETY: The contract is ours.
        unsafe { self.take_first_requests(flow, protocol, header, bytes, most) }
    }

    /// Takes packets as [`take_requests`](Self::take_requests) does, but looks their flow up: few packets belong to no run.
    ///
    /// # Safety: called in the source's context (see the head of this file).
    #[inline(never)]
    unsafe fn take_first_requests(
        &self,
        flow: Option<Ipv4Flow>,
        protocol: u16,
        header: &[u8],
        bytes: u32,
        most: u32,
    ) -> &[Request] {
        // SAFETY: By the contract nobody else uses the dispatcher or the recent keys now.
        let (dispatcher, recent_keys) =
            unsafe { (&mut *self.dispatcher.get(), &mut *self.recent_keys.get()) };
        // ORDERING: Relaxed: `Stop::ask` sets it and waits for all that run then.
        let stopping = self.stopping.load(Ordering::Relaxed);
        let unbuilt = Unbuilt {
            flow,
            key: || match flow {
                Some(flow) => Some(recent_keys.ipv4(runtime::flow_keys, flow)),
                None => recent_keys.key(runtime::flow_keys, protocol, header),
            },
            inner_flow: || overlay::inner_flow(protocol, header),
            fragment: || overlay::fragment(protocol, header),
            bytes,
            most,
        };
        dispatcher.take_requests(&self.counters, runtime::now_ms(), stopping, unbuilt)
    }

    /// Wakes the lanes that got packets, and does what is due now and then.
    ///
    /// # Safety: called in the source's context (see the head of this file).
    pub(crate) unsafe fn flush(&self, slots: &Slots) {
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        dispatcher.end_runs(&self.counters);
        let changes = runtime::cpu_changes();
        // ORDERING: Relaxed, both: used in the source's context only.
        if self.cpu_changes_seen.load(Ordering::Relaxed) != changes {
            self.cpu_changes_seen.store(changes, Ordering::Relaxed);
            let offline = self
                .lanes()
                .enumerate()
                .filter(|(_, lane)| lane.pkts_by_cpu().any(|(cpu, _)| runtime::is_cpu_gone(cpu)))
                .fold(0, |mask, (index, _)| mask | 1 << index);
            dispatcher.lanes.set_offline(offline);
        }
        let mut host = KernelHost {
            source: self,
            slots,
            in_context: true,
        };
        // ORDERING: Relaxed: `Stop::ask` sets it and waits for all that run then.
        let config = runtime::config(self.stopping.load(Ordering::Relaxed));
        dispatcher.reap_if_due(&self.counters, &mut host, config);
        if self.napi.is_some() {
            // ORDERING: Relaxed: written in this context, or where the source ends and it makes no difference whether it rests.
            let has_flows = self.active_flows.load(Ordering::Relaxed) > 0;
            // Before the first packet it is not known whether this NAPI's driver calls GRO.
            let rests = self.only_dispatches()
                && dispatcher.end_poll(
                    &self.counters,
                    runtime::now_ms(),
                    has_flows,
                    pool::orders(),
                );
            self.head.set_rests(rests);
        }
        self.kick(dispatcher.lanes.take_touched(pool::ring_bytes()));
    }

    /// Returns whether it hands flows on at the end of this stage.
    #[inline]
    pub(crate) fn hands_on_at(&self, stage: Stage) -> bool {
        self.handing_on.stages.contains(stage)
    }

    /// Returns the number of the device that it hands flows on from.
    #[inline]
    pub(crate) fn device(&self) -> u32 {
        self.handing_on.device
    }

    pub(crate) fn kick(&self, touched: u32) {
        let mut left = touched;
        while left != 0 {
            match self.lanes.get(left.trailing_zeros() as usize) {
                Some(Some(lane)) => lane.kick(),
                Some(None) => {}
                None => self.kick_own_lane(),
            }
            left &= left - 1;
        }
    }

    /// Lets the own lane free what readers have left to lanes that have no time for it. Called when the NIC has no more packets
    /// for now. Softirqs disabled.
    pub(crate) fn help_readers(&self) {
        // ORDERING: Relaxed: a hint.
        if self.active_flows.load(Ordering::Relaxed) != 0 && worker::is_help_wanted() {
            self.kick_own_lane();
        }
    }

    /// Schedules the own lane's poll on this CPU, behind the poll that runs. Softirqs disabled.
    fn kick_own_lane(&self) {
        if let Some(lane) = &self.own_lane {
            // SAFETY: By the contract softirqs are disabled.
            lane.kick_on(unsafe { ffi::mflow_this_cpu() });
        }
    }

    /// Lets flows be split. The source is where packets find it by now.
    pub(crate) fn begin(&self, slots: &Slots) {
        slots.note_source();
        // ORDERING: Release pairs with the Acquire in `dispatch`: a core on which this source splits sees that there is
        // one more, and so sends no fence behind a probe that has not met it.
        self.stopping.store(false, Ordering::Release);
    }

    /// Makes all flows stop: from here on each packet brings its flow nearer to the ordinary path.
    pub(crate) fn begin_stop(&self) {
        // ORDERING: Relaxed: the caller synchronizes with all that run now.
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn active_flows(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `note_active`.
        self.active_flows.load(Ordering::Acquire)
    }

    /// Returns whether all lanes, the own one and the one at home included, have carried the packets that they were given.
    pub(crate) fn is_carried(&self) -> bool {
        self.all_lanes().all(Lane::is_empty) && self.is_home_empty()
    }

    /// Gives back the slots of flows that have been drained. Process context.
    ///
    /// # Safety: the source's context has ended: nobody dispatches any more.
    pub(crate) unsafe fn finish(&self, slots: &Slots) {
        let mut host = KernelHost {
            source: self,
            slots,
            in_context: false,
        };
        let _softirqs_off = SoftirqsOff::new();
        // SAFETY: By the contract nobody else uses the dispatcher.
        let dispatcher = unsafe { &mut *self.dispatcher.get() };
        dispatcher.reap(&self.counters, &mut host, runtime::config(true), 0);
        self.kick(dispatcher.lanes.take_touched(pool::ring_bytes()));
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let dispatcher = self.dispatcher.get_mut();
        dispatcher.lanes.take_touched(pool::ring_bytes());
        let home_end = self.handing_on.home_end.get_mut();
        home_end.take_touched(pool::ring_bytes());
        for lane in Iterator::chain(self.all_lanes(), self.handing_on.home.as_deref()) {
            // SAFETY: Nobody else has the source any more.
            unsafe { lane.stop() };
        }
    }
}
