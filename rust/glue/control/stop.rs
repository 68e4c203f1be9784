// SPDX-License-Identifier: GPL-2.0

//! Stopping sources: ask, detach, drain, retire. Process context, under the configuration lock.
//!
//! It loses and reorders nothing: flows are told to stop, each of their packets brings them nearer to the ordinary path, and
//! flows that have no packets any more are drained once nothing dispatches. Only a lane that does not run for [`STOP_MS`] loses
//! its packets: they are dropped with it. (Flows that are handed on from stage to stage wait until the stages are empty:
//! `pipeline.rs`.) Each phase says which references to a source it ends. When none is left, the source is freed.

use super::configuration::Configuration;
use super::device::DeviceState;
use super::flow_changes;
use super::pipeline;
use crate::algo::counters::Counter;
use crate::glue::locks::{sleep_ms, synchronize};
use crate::glue::packet::pool::Slots;
use crate::glue::packet::source::Source;
use crate::glue::runtime::now_ms;
use crate::glue::stack::way;
use kernel::prelude::*;

/// The time that flows with packets may take to stop, and drained ones to end.
pub(super) const STOP_MS: u32 = 3_000;
/// The time without any movement after which flows are assumed to have no packets.
const STILL_MS: u32 = 100;

impl Configuration {
    /// Stops and ends the sources that `which` names.
    pub(super) fn stop(&mut self, slots: &Slots, which: impl Fn(&DeviceState, &Source) -> bool) {
        let mut stop = Stop {
            configuration: self,
            which,
        };
        stop.ask();
        stop.return_home();
        stop.detach();
        stop.drain(slots);
        stop.retire();
    }
}

struct Stop<'a, W> {
    configuration: &'a mut Configuration,
    which: W,
}

impl<W: Fn(&DeviceState, &Source) -> bool> Stop<'_, W> {
    /// Asks flows to stop. Ends the references of flows that have packets: each gives its slot back when what is
    /// under way has been delivered. Waits at most [`STOP_MS`], and not for flows that have no packets.
    fn ask(&self) {
        self.each(|_, source| source.begin_stop());
        synchronize();
        let begun_ms = now_ms();
        // Each packet brings its flow nearer to its stop. If none has come for `STILL_MS`, the flows that are left have no packets.
        let (mut moved_ms, mut seen_pkts) = (begun_ms, self.moved_pkts());
        while self.active_flows() > 0 {
            sleep_ms(1);
            let now_ms = now_ms();
            let moved_pkts = self.moved_pkts();
            // A lane that has packets still is only slow: what came behind them would overtake them.
            if moved_pkts != seen_pkts || !self.is_carried() {
                (moved_ms, seen_pkts) = (now_ms, moved_pkts);
            }
            if now_ms.wrapping_sub(moved_ms) >= STILL_MS || now_ms.wrapping_sub(begun_ms) >= STOP_MS
            {
                break;
            }
        }
    }

    /// Waits until the packets in the stages have arrived, and the packets kept back meanwhile have gone after them on the
    /// ordinary path. Ends the references of flows that are handed on. Waits at most twice [`STOP_MS`].
    fn return_home(&self) {
        let mut any = false;
        self.each_handing_on(|_| any = true);
        if any {
            let empty = || self.configuration.empty_stages(STOP_MS);
            pipeline::return_home(|f| self.each_handing_on(f), empty, STOP_MS);
        }
    }

    fn each_handing_on(&self, mut f: impl FnMut(&Source)) {
        self.each(|_, source| {
            if source.hands_on() {
                f(source);
            }
        });
    }

    /// Ends the reference of the NAPI, or of the device's port: when it returns, no hook is in a source and none will be. Ends
    /// those of CPUs that were to flush it later.
    fn detach(&self) {
        self.each(DeviceState::detach);
        synchronize();
        if way::FINDS_SOURCES_BY_NUMBER {
            self.each(|_, source| way::forget_flushes(source));
            // A CPU that has taken it from there is in a softirq.
            synchronize();
        }
    }

    /// Ends the references of the flows that are left: their slots are drained and given back. Waits until lanes have
    /// carried what is in their rings, but at most [`STOP_MS`].
    fn drain(&self, slots: &Slots) {
        let begun_ms = now_ms();
        loop {
            // SAFETY: Detached, and all that were dispatching have ended.
            self.each(|_, source| unsafe { source.finish(slots) });
            // Lanes may still have packets of batches that were given up.
            let ended = self.active_flows() == 0 && self.is_carried();
            if ended || now_ms().wrapping_sub(begun_ms) >= STOP_MS {
                break;
            }
            sleep_ms(1);
        }
        if !self.is_carried() {
            pr_warn!("a lane has not run for {STOP_MS} ms; the packets it still has are dropped\n");
        }
        let left = self.active_flows();
        if left > 0 {
            pr_warn!("{left} flows did not drain; their slots stay in use\n");
        }
    }

    /// Ends the last references: those of the lanes' workers, and ours. Frees the sources, keeps what they counted, and tells of what
    /// became of their flows.
    fn retire(&mut self) {
        let Configuration {
            devices, retired, ..
        } = &mut *self.configuration;
        let mut lost = 0;
        for device in devices.iter_mut().flatten() {
            device.retain_sources(|device, source| {
                let keep = !(self.which)(device, source);
                if !keep {
                    retired.add(source);
                    lost += flow_changes::tell(device, source);
                }
                keep
            });
        }
        self.configuration.count_lost(lost);
    }

    fn each(&self, mut f: impl FnMut(&DeviceState, &Source)) {
        self.configuration.for_each_source(|device, source| {
            if (self.which)(device, source) {
                f(device, source);
            }
        });
    }

    fn active_flows(&self) -> u32 {
        let mut flows = 0;
        self.each(|_, source| flows = u32::wrapping_add(flows, source.active_flows()));
        flows
    }

    /// Returns a number that changes while flows with packets stop.
    fn moved_pkts(&self) -> u64 {
        let mut pkts = 0;
        self.each(|_, source| {
            for counter in [Counter::InlinePkts, Counter::LanePkts] {
                pkts = u64::wrapping_add(pkts, source.count(counter));
            }
        });
        pkts
    }

    fn is_carried(&self) -> bool {
        let mut all = true;
        self.each(|_, source| all &= source.is_carried());
        all
    }
}
