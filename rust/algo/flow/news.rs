// SPDX-License-Identifier: GPL-2.0

//! The news of a flow that the dispatcher reports to those who ask: see `report/flow_report.rs`.

use super::dispatcher::{Host, Step};
use super::state::FlowState;
use super::table::{Flow, Window};
use crate::algo::lanes::queue::Packet;
use crate::algo::merge::slot_pool::NR_SLOTS;
use crate::algo::report::flow_report::{FlowNews, FlowNow, Rate, Standing, Work};

impl Window {
    fn pps(self) -> u32 {
        let pps = u64::from(self.pkts) * 1000 / u64::from(self.ms.max(1));
        u32::try_from(pps).unwrap_or(u32::MAX)
    }
}

impl<P: Packet, H: Host<P>> Step<'_, P, H> {
    /// Reports a flow whose window has ended, if it is fast or has a slot. `packet` is one of it.
    pub(super) fn report_window(&mut self, flow: &mut Flow, window: Window, packet: &P) {
        let is_fast = flow.is_fast(window.pkts, self.config.min_window_pkts);
        if !is_fast && matches!(flow.state, FlowState::Counting) {
            return;
        }
        let now = self.flow_now(flow);
        let work = if now.standing == Standing::Split {
            // PANIC: the remainder is below the length.
            let counts = &mut self.work_counts[usize::from(now.slot) % NR_SLOTS];
            counts.end_period(self.now_ms, self.lanes.cpus(), now.cpu)
        } else {
            None
        };
        let news = FlowNews {
            name: (!flow.is_reported).then(|| packet.flow_name()),
            rate: Some(Rate {
                pps: Some(window.pps()),
                at_ms: self.now_ms,
            }),
            work,
            now,
        };
        flow.is_reported = true;
        self.host.report(flow.place, &news);
    }

    /// Reports a flow that has just been found to be fast, and where it stands. `packet` is one of it.
    #[cold]
    pub(super) fn report_fast(&mut self, flow: &mut Flow, packet: &P) {
        let is_new = !flow.is_reported;
        let news = FlowNews {
            name: is_new.then(|| packet.flow_name()),
            rate: is_new.then_some(Rate {
                pps: None,
                at_ms: self.now_ms,
            }),
            work: None,
            now: self.flow_now(flow),
        };
        flow.is_reported = true;
        self.host.report(flow.place, &news);
    }

    /// Reports where a flow stands that has, or had, a slot: it was reported when it took that.
    #[cold]
    pub(super) fn report_change(&mut self, flow: &Flow) {
        let now = self.flow_now(flow);
        let news = FlowNews {
            name: None,
            rate: None,
            // It has just begun to be split, so no core has carried any of it.
            work: (now.standing == Standing::Split).then(Work::default),
            now,
        };
        self.host.report(flow.place, &news);
    }

    fn flow_now(&self, flow: &Flow) -> FlowNow {
        let (standing, slot) = flow.state.standing();
        let (lanes, batch_pkts) = match standing {
            Standing::Split => {
                let order = self.host.orders().order(usize::from(slot));
                // CAST: a mask of MAX_LANES, and at most MAX_BATCH_PKTS.
                (
                    self.lanes.usable(order.lanes) as u16,
                    self.batch_pkts(slot, order) as u16,
                )
            }
            _ => (0, 0),
        };
        FlowNow {
            standing,
            reason: flow.reason,
            hint: flow.hint,
            slot,
            held_until_ms: flow.held_until_ms(),
            cpu: self.host.cpu(),
            lanes,
            batch_pkts,
        }
    }
}

impl FlowState {
    /// Returns the state's name towards readers, and its slot (0 if it has none).
    fn standing(&self) -> (Standing, u8) {
        match self {
            Self::Counting => (Standing::Whole, 0),
            Self::Probing(probing) => (Standing::Probing, probing.slot),
            Self::Starting(split) | Self::Split(split) => (Standing::Split, split.slot),
            Self::Stopping(stopping) => (Standing::Stopping, stopping.slot),
            Self::Draining(draining) => (Standing::Draining, draining.slot),
        }
    }
}
