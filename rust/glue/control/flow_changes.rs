// SPDX-License-Identifier: GPL-2.0

//! Notifications of flows that begin to be split, or stop: netlink's group `flows`.
//!
//! A source notes a change in its log and asks for the work below, which comes a moment later and takes the configuration's lock: so
//! no source ends meanwhile, and one reader at a time empties a log. A source that ends has its log emptied before. The log bounds
//! the notifications of a source for each time that the work comes, which is ten times a second at most.

use super::configuration::Configuration;
use super::device::DeviceState;
use crate::algo::counters::Counter;
use crate::algo::report::change_log::LOG_RECORDS;
use crate::algo::report::flow_report::FlowChange;
use crate::glue::ffi;
use crate::glue::packet::flow_events::as_c;
use crate::glue::packet::source::Source;

/// Sends what is in a source's log. Returns the number of notifications for which there was no memory. Process context, under the
/// configuration lock.
pub(super) fn tell(device: &DeviceState, source: &Source) -> u64 {
    // SAFETY: Under the configuration lock.
    let is_wanted = unsafe { ffi::mflow_changes_wanted() };
    let mut lost = 0;
    // The source may go on to note changes.
    let changes = (0..LOG_RECORDS).map_while(|_| source.board.take_change());
    for change in changes {
        if is_wanted {
            let is_sent = device.dev().with_name(|name| send(name, &change));
            lost += u64::from(!is_sent);
        }
    }
    lost
}

/// Sends a notification to all who listen. Returns false if there was no memory for it.
fn send(device: &str, change: &FlowChange) -> bool {
    // SAFETY: Under the configuration lock; all that it points to lives as long as the call.
    as_c(device, change, |change| unsafe {
        ffi::mflow_tell_change(change)
    })
}

impl Configuration {
    /// Counts notifications that were not sent.
    pub(super) fn count_lost(&mut self, lost: u64) {
        for _ in 0..lost {
            self.count_one(Counter::LostNotifications);
        }
    }
}

/// Sends what is in the logs of all sources. Process context, no locks held.
#[no_mangle]
unsafe extern "C" fn mflow_tell_changes() {
    let mut configuration = Configuration::lock();
    let mut lost = 0;
    configuration.for_each_source(|device, source| lost += tell(device, source));
    configuration.count_lost(lost);
}

ffi::check_export!(mflow_tell_changes);
