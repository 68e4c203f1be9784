// SPDX-License-Identifier: GPL-2.0

//! Stopping sources. Process context, under the configuration lock.
//!
//! It loses and reorders nothing: flows are told to stop, each of their packets brings them nearer to the ordinary path, and
//! what has no packets any more is drained when nobody dispatches.

use super::configuration::Configuration;
use super::device::DeviceState;
use super::locks::{sleep_ms, synchronize};
use super::pool::Slots;
use super::runtime;
use super::source::Source;
use crate::algo::counters::Counter;
use kernel::prelude::*;

/// How long flows with packets may take to stop, and drained ones to end.
const STOP_MS: u32 = 3_000;
/// How long nothing has to move before flows are taken to have no packets.
const STILL_MS: u32 = 100;

impl Configuration {
    /// Stops and ends the sources that `which` names.
    pub(super) fn stop(&mut self, slots: &Slots, which: impl Fn(&DeviceState, &Source) -> bool) {
        let each = |state: &Configuration, f: &mut dyn FnMut(&DeviceState, &Source)| {
            state.for_each_source(|device, source| {
                if which(device, source) {
                    f(device, source);
                }
            });
        };
        let active = |state: &Configuration| {
            let mut flows = 0;
            each(state, &mut |_, source| flows += source.active_flows());
            flows
        };
        // What moves while flows with packets stop.
        let motion = |state: &Configuration| {
            let mut sum = 0;
            each(state, &mut |_, source| {
                sum += source.count(Counter::InlinePkts) + source.count(Counter::LanePkts);
            });
            sum
        };
        // A lane that has packets still is only slow: what came behind them would overtake them.
        let is_carried = |state: &Configuration| {
            let mut all = true;
            each(state, &mut |_, source| all &= source.is_carried());
            all
        };

        each(self, &mut |_, source| source.begin_stop());
        synchronize();
        let begun_ms = runtime::now_ms();
        let (mut moved_ms, mut seen) = (begun_ms, motion(self));
        while active(self) > 0 {
            sleep_ms(1);
            let now_ms = runtime::now_ms();
            let now = motion(self);
            if now != seen || !is_carried(self) {
                (moved_ms, seen) = (now_ms, now);
            }
            if now_ms.wrapping_sub(moved_ms) >= STILL_MS || now_ms.wrapping_sub(begun_ms) >= STOP_MS
            {
                break;
            }
        }

        each(self, &mut |device, source| device.detach(source));
        synchronize();
        let begun_ms = runtime::now_ms();
        loop {
            // SAFETY: Detached, and all that were dispatching have ended.
            each(self, &mut |_, source| unsafe { source.finish(slots) });
            // Lanes may still have packets of batches that were given up.
            let ended = active(self) == 0 && is_carried(self);
            if ended || runtime::now_ms().wrapping_sub(begun_ms) >= STOP_MS {
                break;
            }
            sleep_ms(1);
        }
        if !is_carried(self) {
            pr_warn!("a lane has not run for {STOP_MS} ms; the packets it still has are dropped\n");
        }
        let left = active(self);
        if left > 0 {
            pr_warn!("{left} flows did not drain; their slots stay in use\n");
        }

        for device in self.devices.iter_mut().flatten() {
            device.retain_sources(|device, source| {
                let keep = !which(device, source);
                if !keep {
                    self.retired.add(source);
                }
                keep
            });
        }
    }
}
