// SPDX-License-Identifier: GPL-2.0

//! Stopping sources. Process context, under the configuration lock.
//!
//! It loses and reorders nothing: flows are told to stop, each of their packets brings them nearer to the ordinary path, and
//! what has no packets any more is drained when nobody dispatches.

use super::control::State;
use super::device::{DeviceState, MAX_SOURCES};
use super::source::Source;
use super::{ffi, runtime};
use crate::algo::counters::Counter;
use kernel::prelude::*;

/// How long flows with packets may take to stop, and drained ones to end.
const STOP_MS: u32 = 3_000;
/// How long nothing has to move before flows are taken to have no packets.
const STILL_MS: u32 = 100;

pub(super) fn synchronize() {
    // SAFETY: Process context.
    unsafe { ffi::mflow_synchronize() };
}

fn sleep_ms(ms: u32) {
    // SAFETY: Process context.
    unsafe { ffi::mflow_sleep_ms(ms) };
}

impl State {
    /// Stops and ends the sources that `which` names.
    pub(super) fn stop(&mut self, which: impl Fn(&DeviceState, &Source) -> bool) {
        let each = |state: &State, f: &mut dyn FnMut(&DeviceState, &Source)| {
            for device in state.devices.iter().flatten() {
                device.for_each_source(|source| {
                    if which(device, source) {
                        f(device, source);
                    }
                });
            }
        };
        let active = |state: &State| {
            let mut flows = 0;
            each(state, &mut |_, source| flows += source.active_flows());
            flows
        };
        // What moves while flows with packets stop.
        let motion = |state: &State| {
            let mut sum = 0;
            each(state, &mut |_, source| {
                sum += source.count(Counter::InlinePkts) + source.count(Counter::LanePkts);
            });
            sum
        };
        // A lane that has packets still is only slow: what came behind them would overtake them.
        let is_carried = |state: &State| {
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
            each(self, &mut |_, source| unsafe { source.finish() });
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

        for place in &mut self.devices {
            let Some(device) = place else {
                continue;
            };
            for index in 0..MAX_SOURCES {
                let Some(Some(source)) = device.sources.get(index) else {
                    continue;
                };
                if !which(device, source) {
                    continue;
                }
                for (sum, counter) in self.retired.counters.iter_mut().zip(Counter::ALL) {
                    *sum += source.count(*counter);
                }
                for lane in source.lanes() {
                    if let Some(sum) = self.retired.lane_pkts.get_mut(lane.cpu() as usize) {
                        *sum += lane.counters.get(Counter::LanePkts);
                    }
                }
                if let Some(place) = device.sources.get_mut(index) {
                    *place = None;
                }
            }
        }
    }
}
