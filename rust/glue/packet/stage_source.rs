// SPDX-License-Identifier: GPL-2.0

//! A source that hands flows on from stage to stage (`algo/stage.rs`).

use super::lane::Lane;
use super::pool;
use super::source::{Source, NOWHERE, NO_CPU};
use crate::algo::counters::Counter;
use crate::algo::lanes::lane_set::LaneSet;
use crate::algo::lanes::queue::Packet as _;
use crate::algo::stage::{choose, Route, Stage, StageKey, Way};
use crate::glue::locks::SoftirqsOff;
use crate::glue::stack::skb::SkBuff;
use crate::glue::{ffi, runtime};
use core::sync::atomic::Ordering;

impl Source {
    #[inline]
    pub(crate) fn route(&self) -> Route {
        // ORDERING: Relaxed: the thread that changes it waits for all that run then.
        Route::of_number(self.handing_on.route.load(Ordering::Relaxed))
    }

    /// Changes where packets go; the caller synchronizes with all that run now.
    pub(crate) fn set_route(&self, route: Route) {
        // ORDERING: Relaxed: see `route`.
        self.handing_on.route.store(route as u8, Ordering::Relaxed);
    }

    /// Hands a packet to the CPU of the next stage. Returns it if it is to go on here.
    ///
    /// # Safety: called in the source's context (see `source.rs`).
    #[inline]
    pub(crate) unsafe fn hand_on(
        &self,
        stage: Stage,
        device: u32,
        packet: SkBuff,
    ) -> Option<SkBuff> {
        let route = self.route();
        let way = if route == Route::Onward {
            Way::Onward
        } else {
            self.way_of_change(route)
        };
        if way == Way::Ordinary {
            self.handing_on.held_by_gro.note_ordinary();
            return Some(packet);
        }
        if let (Stage::Gro, Some(napi)) = (stage, self.napi()) {
            if self.handing_on.held_by_gro.take() {
                // SAFETY: By the contract, which at this stage is the poll of the source's NAPI.
                unsafe { napi.flush_gro() };
            }
        }
        if way == Way::Held {
            // SAFETY: By the contract.
            unsafe { self.hold(stage, packet) };
            return None;
        }
        let (protocol, keys) = (packet.protocol(), runtime::flow_keys());
        let key = packet.with_header(|header| StageKey::of(keys, protocol, header));
        let Some(key) = key else {
            return Some(packet);
        };
        // SAFETY: By the contract nobody else uses the dispatcher now.
        let lanes = unsafe { &mut (*self.dispatcher.get()).lanes };
        let here = self.handing_on.here;
        let here = (here != NOWHERE).then_some(here);
        let loaded = runtime::stage_orders().loaded;
        // CAST: at most MAX_LANES.
        let lane = choose(key, device, here, lanes.len() as u8, loaded);
        if here == Some(lane) {
            return Some(packet);
        }
        self.put(lanes, lane, stage, packet, stage.counter());
        None
    }

    /// Puts a packet into a ring of `lanes`, where it waits to go on from `stage`, and counts it.
    #[inline]
    fn put(
        &self,
        lanes: &mut LaneSet<SkBuff>,
        lane: u8,
        stage: Stage,
        mut packet: SkBuff,
        counter: Counter,
    ) {
        packet.count_segments();
        packet.set_tag(stage.tag());
        let pkts = u64::from(packet.wire_pkts());
        let counter = match lanes.hand_on(lane, packet, pool::ring_bytes()) {
            Ok(()) => counter,
            // On the ordinary path it would overtake those that wait.
            Err(packet) => {
                packet.drop_queueless();
                Counter::DroppedStageFull
            }
        };
        self.counters.add_owned(counter, pkts);
    }

    /// Returns whether the NIC's GRO may hold packets that came before those which are taken before it.
    pub(crate) fn gro_may_hold(&self) -> bool {
        self.is_before_gro() && self.handing_on.held_by_gro.may_hold()
    }

    /// Returns the way of a packet while stages begin or end, and notes on which CPU it came: that CPU's ordinary path is waited
    /// for, or is where it goes on.
    #[cold]
    fn way_of_change(&self, route: Route) -> Way {
        self.note_cpu();
        route.way(|| self.is_home_empty())
    }

    /// Notes on which CPU packets come. Softirqs disabled.
    pub(crate) fn note_cpu(&self) {
        // SAFETY: Softirqs are disabled.
        let cpu = unsafe { ffi::mflow_this_cpu() };
        // ORDERING: Relaxed, both: read after a grace period, or for a look.
        if self.handing_on.cpu.load(Ordering::Relaxed) != cpu {
            self.handing_on.cpu.store(cpu, Ordering::Relaxed);
            runtime::note_feeding(cpu);
        }
    }

    /// Returns the CPU on which packets come, if any have come.
    pub(crate) fn cpu(&self) -> Option<u32> {
        // ORDERING: Relaxed: see `note_cpu`.
        let cpu = self.handing_on.cpu.load(Ordering::Relaxed);
        (cpu != NO_CPU).then_some(cpu)
    }

    /// Keeps a packet while the stages end.
    ///
    /// # Safety: called in the source's context (see `source.rs`).
    #[cold]
    unsafe fn hold(&self, stage: Stage, packet: SkBuff) {
        // SAFETY: By the contract nobody else uses this end now.
        let home_end = unsafe { &mut *self.handing_on.home_end.get() };
        self.put(home_end, 0, stage, packet, Counter::HeldPkts);
    }

    /// Wakes the lanes that got packets.
    ///
    /// # Safety: called in the source's context (see `source.rs`).
    pub(crate) unsafe fn wake_next(&self) {
        // SAFETY: By the contract nobody else uses the dispatcher or the end at home now.
        let (lanes, home_end) = unsafe {
            (
                &mut (*self.dispatcher.get()).lanes,
                &mut *self.handing_on.home_end.get(),
            )
        };
        let touched = lanes.take_touched(pool::ring_bytes());
        if self.napi().is_some() {
            // Its interrupt may have moved.
            self.note_cpu();
        }
        let route = self.route();
        if route == Route::Onward {
            return self.kick(touched);
        }
        if route != Route::Gathering {
            self.kick(touched);
        }
        let is_touched = home_end.take_touched(pool::ring_bytes()) != 0;
        if let (true, Route::Home, Some(home)) = (is_touched, route, &self.handing_on.home) {
            // Where the ordinary path is, which this is to go.
            // SAFETY: Softirqs are disabled in a source's context.
            home.kick_on(unsafe { ffi::mflow_this_cpu() });
        }
    }

    /// Makes `cpu` carry the packets that wait for CPUs that are gone; returns whether there were any. Process context.
    pub(crate) fn displace_lanes(&self, cpu: u32) -> bool {
        let _softirqs_off = SoftirqsOff::new();
        let mut any = false;
        for lane in self.lanes().filter(|lane| lane.waits_for_cpu()) {
            any = true;
            lane.displace(cpu);
        }
        any
    }

    /// Returns whether it is one of a first stage.
    pub(crate) fn is_first(&self) -> bool {
        self.handing_on.home.is_some()
    }

    /// Wakes all lanes, for packets that came while they slept. Process context.
    pub(crate) fn wake_all(&self) {
        let _softirqs_off = SoftirqsOff::new();
        self.lanes().for_each(Lane::kick);
    }

    /// Wakes the lane at home if packets wait in it, in case no packet comes that would. Process context.
    pub(crate) fn wake_home(&self) {
        let _softirqs_off = SoftirqsOff::new();
        if let Some(home) = &self.handing_on.home {
            if !home.is_empty() {
                home.kick_on(self.cpu().unwrap_or(home.cpu()));
            }
        }
    }

    /// Returns whether what has been kept back fills half of a ring, whichever it waits in.
    pub(crate) fn is_half_full(&self) -> bool {
        let home = self.handing_on.home.as_deref();
        Iterator::chain(self.lanes(), home).any(Lane::is_half_full)
    }

    /// Returns whether nothing waits at home. Then nothing ever will again, if the route is [`Route::Home`].
    pub(crate) fn is_home_empty(&self) -> bool {
        self.handing_on
            .home
            .as_ref()
            .is_none_or(|home| home.is_empty())
    }
}
